"""``hybridkv trace``: what each command prints and writes, and its errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sim.cli import main
from tests.cli.bad_cases import SCENARIO

SAMPLE = "sample:mooncake-conversation"


def test_stats_say_lengths_arrivals_and_sharing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "stats", SAMPLE, "--out", str(tmp_path / "s.json")]) == 0
    said = capsys.readouterr().out
    for text in (
        "2,500 requests",
        "512 tokens per block id",
        "CV of gaps",
        "Shared prefixes",
        "Cache size that reuse needs",
    ):
        assert text in said
    numbers = json.loads((tmp_path / "s.json").read_text())
    assert main(["trace", "stats", SAMPLE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == numbers
    assert numbers["prompt_tokens"]["total"] == numbers["trace"]["prompt_tokens_total"]


def test_head_shows_what_is_shared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "head", SAMPLE, "-n", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["shared_tokens"] for row in rows] == [0, 512, 512]
    assert main(["trace", "head", "sample:agentic-sessions", "-n", "2"]) == 0
    assert "0620-000" in capsys.readouterr().out


def test_convert_sample_and_anonymize_write_whole_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, part, bare = tmp_path / "t.parquet", tmp_path / "p.jsonl", tmp_path / "m.jsonl"
    assert main(["trace", "convert", SAMPLE, str(full)]) == 0
    assert "2,500 requests as native-parquet" in capsys.readouterr().out
    assert main(["trace", "sample", str(full), str(part), "--until-s", "60", "--share", "0.5", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert 0 < written["requests"] == len(part.read_text().splitlines()) < 250
    assert main(["trace", "anonymize", str(full), str(bare), "--to", "mooncake", "--set", "limit=10"]) == 0
    assert len(bare.read_text().splitlines()) == 10
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.jsonl", "p.jsonl", "t.parquet"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["stats", "nowhere.jsonl"], "nowhere.jsonl: no such trace file"),
        (["stats", SAMPLE, "--set", "blok_size=3"], "unknown key 'blok_size' (did you mean 'block_size'?)"),
        (["stats", SAMPLE, "--set", "limit.x=3"], "workload.limit: {'x': 3} given; allowed: whole numbers"),
        (["head", SAMPLE, "--set", "trace.x=1"], "--set trace.x: trace is no mapping"),
        (["convert", SAMPLE, "t.parq"], "'.parq' is no format that is written (did you mean '.parquet'?)"),
        (
            ["convert", SAMPLE, "t", "--to", "moncake"],
            "'moncake' is no format that is written (did you mean 'mooncake'",
        ),
        (["sample", SAMPLE, "t.csv", "--from-s", "1e6"], "t.csv: no request is left of the trace"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["trace", *arguments])
    captured = capsys.readouterr()
    assert code == 2
    assert expected in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_synth_says_how_close_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, model = tmp_path / "s.parquet", tmp_path / "fit.json"
    assert main(["trace", "synth", SAMPLE, str(out), "--requests", "500", "--fit", str(model)]) == 0
    said = capsys.readouterr().out
    for text in ("How close the synthetic trace is", "prompt tokens shared", "500 requests as native-parquet"):
        assert text in said
    assert json.loads(model.read_text())["requests"] == 2500
    assert main(["trace", "stats", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 500


def test_a_turn_comes_after_the_simulated_answer_and_hits_it(tmp_path: Path) -> None:
    usual = {"arrival_s": 2, "session": "s"}
    first = usual | {"id": "one", "prompt": [["a", 41]], "output": [["x", 8]], "output_tokens": 8}
    second = usual | {"id": "two", "prompt": [["a", 41], ["x", 8], ["b", 20]], "output_tokens": 4}
    rows = [first, second | {"turn": 1, "think_s": 0.5}]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "case.yaml").write_text(SCENARIO.replace("    - {kind: sliding_window, count: 4, window: 32}\n", ""))
    assert main(["run", str(tmp_path / "case.yaml"), "--no-figures", "--out", str(tmp_path / "out")]) == 0
    found = pq.read_table(tmp_path / "out/requests.parquet").to_pydict()
    one, two = (found["id"].index(name) for name in ("one", "two"))
    assert found["arrival_s"][two] == pytest.approx(found["finish_s"][one] + 0.5, abs=1e-9)
    assert found["cached_tokens"][two] == 48  # of 41 + 8; the answer's last token was never computed
