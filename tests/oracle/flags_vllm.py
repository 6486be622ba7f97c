"""vLLM's own argument parser: which flags ``vllm serve`` has, and what it makes of given arguments.

Runs inside the oracle environment, from the project's folder: ``python -m tests.oracle.flags_vllm``. Writes the flags
as one line of JSON, then for each line of standard input (a JSON list of arguments) what the parser says.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from unittest.mock import MagicMock

SERVER_ONLY = ("uvicorn", "uvloop")
"""Packages that the server runs with and its argument parser only imports."""


def make_parser() -> Any:
    """The parser of ``vllm serve``, on a CPU."""
    for name in SERVER_ONLY:
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = MagicMock()
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def value_kind(action: argparse.Action) -> str:
    """What follows a flag, in the words of ``sim/vllm_flags/table.py`` as far as the parser tells."""
    if action.nargs == 0:
        return "switch" if isinstance(action, argparse.BooleanOptionalAction) else "set"
    return {"+": "list", "?": "maybe"}.get(str(action.nargs), "one")


def answer(parser: Any, arguments: list[str]) -> dict[str, Any]:
    """The values given, by destination; ``{"error": ...}`` where the parser refuses."""
    try:
        found = vars(parser.parse_args(arguments))
    except (SystemExit, argparse.ArgumentError, ValueError, KeyError, IndexError) as error:
        return {"error": str(error)}
    return {"given": json.loads(json.dumps(found, default=str))}


def main() -> None:
    """Print the flags, then answer every line."""
    parser = make_parser()
    parser.exit_on_error = False
    flags = {
        option: [action.dest, value_kind(action)]
        for option, action in parser._option_string_actions.items()
        if option not in ("-h", "--help")
    }
    print(json.dumps(flags), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(parser, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
