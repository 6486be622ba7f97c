"""Whatever a file or a command line holds, it ends with an answer or with one line: spoilt inputs, the same each time.

``python -m tests.cli.fuzz`` draws many more of them. What it has found stands in the tables of ``test_bad_input``.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from tests.cli import fuzz
from tests.cli.fuzz import complaints, ended
from tests.cli.spoilt_inputs import SORTS, drawn, unspoilt

CASES = {"scenario": 50, "sweep": 20, "points": 12, "log": 20}
"""How many of each sort; of the others, 150."""


@pytest.fixture(autouse=True, scope="module")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The core says once that it is being compiled."""
    assert main(["run", "toy", "--no-figures", "--json", "--out", str(tmp_path_factory.mktemp("toy"))]) == 0


def test_what_is_spoilt_was_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (argv, files) in enumerate(unspoilt()):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = ended(argv, files, folder)
        assert (answer["code"], answer["err"]) == (0, ""), argv


@pytest.mark.parametrize("sort", SORTS)
def test_spoilt_input_is_answered_or_refused_in_one_line(
    sort: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # and back to where it was at the end
    codes = set()
    for seed in range(CASES.get(sort, 150)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        argv, files = drawn(sort, seed)
        answer = ended(argv, files, folder)
        found = complaints(answer["code"], answer["out"], answer["err"], set(answer["left"]))
        assert found == [], f"{sort} {seed}: {' '.join(argv)}\n{answer['err']}"
        codes.add(answer["code"])
    assert codes == {0, 2}, "neither all fine nor all refused"


def test_the_same_seed_spoils_the_same() -> None:
    assert all(drawn(sort, 3) == drawn(sort, 3) != drawn(sort, 4) for sort in SORTS)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_input_is_held_to_its_own_work_not_to_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(*_: Any) -> dict[str, Any]:
        time.sleep(1.2)
        return {"code": 0, "out": "", "err": "", "left": []}

    def busy(*_: Any) -> dict[str, Any]:
        while True:
            pass

    monkeypatch.setattr(fuzz, "SECONDS", 1)
    monkeypatch.setattr(fuzz, "ended", idle)
    waited = fuzz.forked((("models",), {}))
    assert waited["code"] == 0
    assert waited["seconds"] < 1
    monkeypatch.setattr(fuzz, "ended", busy)
    killed = fuzz.forked((("models",), {}))
    assert killed["code"] in (signal.SIGXCPU, signal.SIGKILL)
    assert killed["seconds"] >= 0.9


@pytest.mark.parametrize(
    ("code", "out", "err", "left", "said"),
    [
        (70, "", "hybridkv: error: internal error (KeyError: 'x')\n", set(), "exit code 70"),
        (2, "", "Traceback (most recent call last):\n  File …\n", set(), "a traceback"),
        (2, "a table\n", "hybridkv: error: no\n", set(), "an answer beside an error"),
        (2, "", "hybridkv: error: no\n", {"out", "out/summary.json"}, "left behind"),
        (0, "a table\n", "", {"out", ".out.tmp"}, "half written"),
        (2, "", "warning\nhybridkv: error: no\n", set(), "not one line"),
    ],
)
def test_a_fault_is_seen(code: int, out: str, err: str, left: set[str], said: str) -> None:
    assert any(said in complaint for complaint in complaints(code, out, err, left))
    assert complaints(0, out, "", {"out"}) == complaints(2, "", "hybridkv: error: no\n", set()) == []
