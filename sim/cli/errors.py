"""The last line of defence: whatever goes wrong ends as one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from sim.errors import HybridKVError, nearest

PROGRAM = "hybridkv"
DEBUG_VARIABLE = "HYBRIDKV_DEBUG"
INTERNAL, INTERRUPTED, BROKEN_PIPE = 70, 130, 141


def guarded(command: Callable[[], int]) -> int:
    """Run ``command`` and return its exit code; print one line instead of letting an exception out."""
    try:
        code = command()
        sys.stdout.flush()
    except HybridKVError as error:
        return report(str(error), error.exit_code)
    except KeyboardInterrupt:
        return report("interrupted; nothing was written", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone, and flushing the rest at exit must not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MemoryError:
        return report("out of memory; use a smaller pool, fewer requests (workload.limit) or a larger machine", 1)
    except Exception as error:  # noqa: BLE001  (a traceback is never shown to a user unasked)
        return _exit_code(error)
    return code


def report(message: str, code: int) -> int:
    """Print one line on stderr and return ``code``."""
    line = " ".join(message.split())
    debug = os.environ.get(DEBUG_VARIABLE, "") not in {"", "0"}
    if debug and sys.exc_info()[0] is not None:
        traceback.print_exc()
    sys.stderr.write(f"{PROGRAM}: error: {line}\n")
    return code


def _exit_code(error: Exception) -> int:
    """The exit code of the parser's own exceptions, or of a fault of ours."""
    kind = type(error).__name__
    # Looked up, not imported: that package brings NumPy, which no error of another command needs.
    workload_errors = sys.modules.get("workloads.errors")
    if workload_errors is not None and isinstance(error, workload_errors.WorkloadError):
        return report(str(error), error.exit_code)
    if kind == "Exit":
        return int(getattr(error, "exit_code", 0))
    if kind == "Abort":
        return report("interrupted; nothing was written", INTERRUPTED)
    # Typer has carried its own copy of Click since 0.16; both call their usage errors by these attributes.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        return report(_usage(error), 2)
    detail = f"{kind}: {error}" if str(error) else kind
    return report(
        f"internal error ({detail}); please report it with the command and its files, "
        f"and with the traceback that {DEBUG_VARIABLE}=1 shows",
        INTERNAL,
    )


def _usage(error: Any) -> str:
    """One line for a wrong command line, with the nearest flag or command."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", PROGRAM)
    message = error.format_message().rstrip(".")
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option:
        from sim.engine_config.unmodelled import unmodelled

        if why := unmodelled(option.lstrip("-").replace("-", "_")):
            return f"{option}: {why}"
        close = nearest(option, _flags(context))
        message = f"no such flag: {option}{f'; nearest is {close}' if close else ''}"
    return f"{message}{' ' if message.endswith('?') else '; '}see '{path} --help'"


def _flags(context: Any) -> list[str]:
    command = getattr(context, "command", None)
    return [
        flag
        for parameter in getattr(command, "params", [])
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("-")
    ]
