"""Compilation: stale code is never run, and a folder that cannot be written is said, not stumbled over.

Each test copies the core next to a small script and runs it in a process and a cache folder of its own, compiling
nothing but a few short functions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sim.core

SOURCE = Path(sim.core.__file__).parent

CALLEE = """
from sim.core._jit import compiled

@compiled
def callee(x: int) -> int:
    return x + 1
"""
CALLER = """
from sim.core._jit import compiled
from sim.core.callee import callee

@compiled
def caller(x: int) -> int:
    return 10 * callee(x)
"""
SCRIPT = "from sim.core.caller import caller; from sim.core import _jit; print(caller(1), _jit.cache_problem())"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with ``sim.core._jit`` and two small compiled functions, one calling the other."""
    core = tmp_path / "code" / "sim" / "core"
    core.mkdir(parents=True)
    (core.parent / "__init__.py").touch()
    (core / "__init__.py").touch()
    shutil.copy(SOURCE / "_jit.py", core)
    (core / "callee.py").write_text(CALLEE)
    (core / "caller.py").write_text(CALLER)
    return tmp_path


def run(copy: Path, script: str = SCRIPT, **environment: str) -> str:
    """What a script prints in a fresh process that uses the copied code and the cache folder ``cache``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_", "HYBRIDKV_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={
            **kept,
            "PYTHONPATH": str(copy / "code"),
            "HYBRIDKV_CACHE_DIR": str(copy / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compiled_files(copy: Path) -> list[Path]:
    """Files of machine code in the cache, sorted."""
    return sorted((copy / "cache").rglob("*.nbc"))


def test_an_edited_callee_changes_its_callers_answer(copy: Path) -> None:
    """Numba alone would look at the caller's file only, and run what it had compiled before."""
    assert run(copy) == "20 None"
    before = compiled_files(copy)
    callee = copy / "code" / "sim" / "core" / "callee.py"
    callee.write_text(CALLEE.replace("x + 1", "x + 4"))
    assert run(copy) == "50 None"
    assert set(before) < set(compiled_files(copy))


def test_a_second_process_compiles_nothing(copy: Path) -> None:
    run(copy)
    before = [(path, path.stat().st_mtime_ns) for path in compiled_files(copy)]
    assert before
    assert run(copy) == "20 None"
    assert [(path, path.stat().st_mtime_ns) for path in compiled_files(copy)] == before


def test_what_only_compiled_code_calls_gets_no_machine_code_of_its_own(copy: Path) -> None:
    """It is optimised once, with its caller, and an edit of it still counts."""
    core = copy / "code" / "sim" / "core"
    shutil.copy(SOURCE / "_callers_only.py", core)
    for kind in ("apart", "inlined"):
        (core / "callee.py").write_text(CALLEE.replace("compiled", kind))
        before = set(compiled_files(copy))
        assert run(copy) == "20 None"
        assert [path.name.partition("-")[0] for path in set(compiled_files(copy)) - before] == ["caller.caller"]


def test_what_runs_rarely_is_compiled_once_and_called(copy: Path) -> None:
    """And what does not stands in its caller; each is typed once, with constants or without."""
    core = copy / "code" / "sim" / "core"
    shutil.copy(SOURCE / "_callers_only.py", core)
    (core / "caller.py").write_text(CALLER.replace("callee(x)", "callee(x) + callee(7)"))
    (copy / "cache").write_text("in the way")  # code from the disk cannot be looked at
    script = (
        "from sim.core.caller import caller; from sim.core.callee import callee; "
        "print(caller(1), callee(1), len(callee.signatures)); print(*caller.inspect_llvm().values())"
    )
    for kind, calls in (("inlined", False), ("apart", True)):
        (core / "callee.py").write_text(CALLEE.replace("compiled", kind))
        answers, _, llvm = run(copy, script).partition("\n")
        assert answers == "28 2 1"
        assert any(" call " in line and "6callee" in line for line in llvm.splitlines()) == calls


def test_another_numba_compiles_the_usual_way(copy: Path) -> None:
    """Its passes may differ, so none is replaced: the module that does it is not even there."""
    core = copy / "code" / "sim" / "core"
    (core / "callee.py").write_text(CALLEE.replace("compiled", "inlined"))
    script = (
        "import numba; numba.__version__ = '0.99.0'; from sim.core.caller import caller; from sim.core import _jit; "
        "print(caller(1), _jit.compiling_takes())"
    )
    answer = "20 some minutes with Numba 0.99.0; with 0.68.x it is a minute, and runs are twice as fast"
    assert run(copy, script) == answer
    assert not (core / "_callers_only.py").exists()
    assert {path.name.partition("-")[0] for path in compiled_files(copy)} == {"caller.caller", "callee.callee"}


def test_the_cache_folder_is_the_users_unless_told_otherwise(copy: Path) -> None:
    script = "from sim.core import _jit; print(_jit.CACHE_FOLDER)"
    home = {"HYBRIDKV_CACHE_DIR": "", "HOME": str(copy / "home"), "USERPROFILE": str(copy / "home")}
    folder = Path(run(copy, script, XDG_CACHE_HOME=str(copy / "xdg"), **home))
    if sys.platform != "win32":
        assert folder.parent == copy / "xdg" / "hybridkv"
    assert Path(run(copy, script)).parent == copy / "cache"


def test_an_unwritable_cache_is_said_and_the_code_runs(copy: Path) -> None:
    """A file stands where a folder is wanted; whoever runs this may be allowed to write anywhere else."""
    (copy / "cache").write_text("in the way")
    answer, _, problem = run(copy).partition(" ")
    assert answer == "20"
    assert problem.startswith("compiled code cannot be cached (")
    assert "HYBRIDKV_CACHE_DIR" in problem
    assert "\n" not in problem


def test_an_install_without_a_home_works(copy: Path) -> None:
    """No home folder that exists, nothing to fall back on."""
    (copy / "nobody").write_text("in the way")
    answer = run(copy, HYBRIDKV_CACHE_DIR="", HOME=str(copy / "nobody"), USERPROFILE=str(copy / "nobody"))
    assert answer.startswith("20 compiled code cannot be cached")


def test_without_compilation_functions_are_themselves(copy: Path) -> None:
    script = "from sim.core.caller import caller; from sim.core import _jit; print(caller(1), type(caller).__name__)"
    assert run(copy, script, NUMBA_DISABLE_JIT="1") == "20 function"
    assert compiled_files(copy) == []
