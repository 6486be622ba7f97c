"""The one place that decides how the core is compiled and where the result is kept.

Numba's own on-disk cache notices an edit of the file that holds a function, but not of a file that holds one of its
callees: it would run stale code. Here the cache folder's *name* is a digest of every source file of the core, of the
Numba, NumPy and Python versions, so any edit starts an empty folder. Where no folder is writable the
functions are compiled anew in every process and :func:`cache_problem` says so.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np

if TYPE_CHECKING:

    def i64(value: Any) -> int:
        """A number read from an array, as the integer type all compiled functions take and return."""

else:
    i64 = np.int64

F = TypeVar("F", bound=Callable[..., object])

_config: Any = numba.config

JIT_DISABLED = bool(_config.DISABLE_JIT)

PASSES_KNOWN = "0.68."
"""The Numba releases whose last pass is replaced; others compile three times as long, and runs take twice as long."""
PASSES_ARE_KNOWN = numba.__version__.startswith(PASSES_KNOWN)


def _source_digest() -> str:
    """SHA-256 over all core sources and over the versions that shape the machine code."""
    digest = hashlib.sha256(f"{__name__} {numba.__version__} {np.__version__} {sys.version_info[:2]}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _user_cache() -> Path:
    """The user's cache folder by the habits of the platform; HYBRIDKV_CACHE_DIR overrides it."""
    override = os.environ.get("HYBRIDKV_CACHE_DIR")
    if override:
        return Path(override)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))) / "hybridkv"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hybridkv"


def _open_cache_folder() -> tuple[Path | None, str | None]:
    """The folder for compiled code, made and probed for writing; or None and the reason."""
    try:
        folder = _user_cache() / _source_digest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as problem:
        return None, str(problem)
    return folder, None


CACHE_FOLDER, _PROBLEM = (None, None) if JIT_DISABLED else _open_cache_folder()


def cache_problem() -> str | None:
    """Why compiled code cannot be kept on disk, in one line; None when it can."""
    if _PROBLEM is None:
        return None
    return f"compiled code cannot be cached ({_PROBLEM}); set HYBRIDKV_CACHE_DIR to a writable folder to compile once"


def compiling_takes() -> str:
    """How long the first run will compile, in words."""
    if PASSES_ARE_KNOWN:
        return "up to a minute"
    return (
        f"some minutes with Numba {numba.__version__}; with {PASSES_KNOWN}x it is a minute, and runs are twice as fast"
    )


def is_compiled() -> bool:
    """Whether an earlier process left the whole core compiled in the cache folder."""
    return JIT_DISABLED or (CACHE_FOLDER is not None and any(CACHE_FOLDER.glob("**/advance.advance-*.nbc")))


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Reference counting is off: nothing in compiled code allocates, and an atomic count up and down for every array of the
state that a call touches took seven times as long as the work itself. Allocating fails to compile."""


def compiled(function: F) -> F:
    """Compile a function that is entered from Python, and keep its machine code on disk.

    With NUMBA_DISABLE_JIT=1 the function is returned as it is: the same code as plain Python, for debugging.
    """
    if JIT_DISABLED:
        return function
    njit: Any = numba.njit
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(CACHE_FOLDER) if CACHE_FOLDER else before
    try:
        decorate = njit(cache=CACHE_FOLDER is not None, no_cfunc_wrapper=True, **_OPTIONS)
        jitted: F = decorate(function)
    finally:
        _config.CACHE_DIR = before
    return jitted


def inlined(function: F) -> F:
    """Compile a function into each of its callers; called from Python it is the plain function.

    Handing over the state's arrays, some 200 words, takes longer than most of what is done with them.
    """
    return _callee(function, function, inline=True)


def apart(function: F) -> F:
    """Compile a function that runs rarely: once, and called; called from Python it is the plain function.

    Inlined, it would be compiled again with every way that leads to it.
    """
    return _callee(function, function, inline=False)


def wrapping(function: F) -> F:
    """Compile a function of unsigned words that wrap around into its callers; as plain Python, without warnings."""
    quiet: Any = np.errstate(over="ignore")
    plain: F = quiet(function)
    return plain if JIT_DISABLED else _callee(function, plain, inline=True)


def _callee(function: F, plain: F, inline: bool) -> F:
    """A function that compiled code calls; with a Numba whose passes are not known it is compiled the usual way."""
    if JIT_DISABLED or not PASSES_ARE_KNOWN:
        return compiled(function)
    from sim.core._callers_only import Callee

    callee: Any = Callee(function, plain, {"nopython": True, **_OPTIONS, "forceinline": inline})
    return cast(F, callee)
