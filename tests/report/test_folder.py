"""Results are there whole or not at all, and nobody else's files are touched."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.report.folder import ResultFolder, staged_file


def write(folder: ResultFolder, *names: str) -> None:
    """Stage files that hold their own names."""
    for name in names:
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)


def fail(results: ResultFolder, error: BaseException) -> None:
    """Stage a file, then fail."""
    with results as folder:
        write(folder, "summary.json")
        raise error


def fail_writing(target: Path) -> None:
    """Write to a staged file, then fail."""
    with staged_file(target) as stream:
        stream.write("new")
        raise RuntimeError


def tree(folder: Path) -> set[str]:
    """Every file below ``folder``."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_appears_at_the_end(tmp_path: Path) -> None:
    with ResultFolder(tmp_path / "a" / "b") as folder:
        write(folder, "summary.json", "figures/memory.png")
        assert not (tmp_path / "a" / "b").exists()
        folder.commit()
    assert tree(tmp_path) == {"a/b/summary.json", "a/b/figures/memory.png"}


def test_without_a_commit_nothing_is_left_not_even_parents(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail(ResultFolder(tmp_path / "a" / "b" / "c"), KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_run_is_replaced_and_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for name in ("summary.json", "steps.parquet", "figures/memory.png", "notes.txt", "figures/mine.svg"):
        (tmp_path / name).write_text("old")
    with ResultFolder(tmp_path) as folder:
        write(folder, "summary.json", "requests.parquet")
        folder.commit()
    assert tree(tmp_path) == {"summary.json", "requests.parquet", "notes.txt", "figures/mine.svg"}
    assert (tmp_path / "summary.json").read_text() == "summary.json"
    assert (tmp_path / "notes.txt").read_text() == "old"


def test_an_earlier_run_survives_a_failed_one(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("old")
    with pytest.raises(RuntimeError):
        fail(ResultFolder(tmp_path), RuntimeError())
    assert (tmp_path / "summary.json").read_text() == "old"
    assert tree(tmp_path) == {"summary.json"}


def test_a_folder_is_as_readable_as_any_other(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    with ResultFolder(tmp_path / "out") as folder:
        folder.commit()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError), ResultFolder(path):
            pass
    assert tree(tmp_path) == {"file"}


def test_a_staged_file_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "log.jsonl"
    with staged_file(target) as stream:
        stream.write("line\n")
        assert not target.exists()
    assert target.read_text() == "line\n"
    assert tree(tmp_path) == {"new/log.jsonl"}


def test_a_staged_file_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "log.jsonl"
    target.write_text("old")
    with pytest.raises(RuntimeError):
        fail_writing(target)
    assert target.read_text() == "old"
    assert tree(tmp_path) == {"log.jsonl"}


def test_a_step_log_may_lie_in_the_results(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ResultFolder(out) as folder, staged_file(out / "steps.jsonl") as log:
        log.write("x")
        write(folder, "summary.json")
        folder.commit()
    assert tree(out) == {"summary.json", "steps.jsonl"}
