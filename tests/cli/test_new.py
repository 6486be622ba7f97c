"""``hybridkv new``: what it writes runs, says what it rests on, and nothing is half written."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.cli import main
from sim.scenario import load_scenario

TRACE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
SERVE = ["--", "vllm", "serve", "openai/gpt-oss-20b", "--max-model-len", "16k", "--max-num-seqs", "64", "--port", "80"]


@pytest.fixture
def traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a trace beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "azure.csv").write_text(TRACE)
    return tmp_path


def test_each_gpu_is_a_variant_with_its_own_memory(traffic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "mine.yaml", "--trace", "azure.csv", "--gpu", "L40S", "--gpu", "H200", *SERVE]) == 0
    assert "hybridkv compare mine.yaml" in capsys.readouterr().out
    scenario = load_scenario("mine.yaml")
    assert scenario.compared() == ("L40S", "H200")
    assert (scenario.engine.max_model_len, scenario.engine.max_num_seqs) == (16000, 64)
    pools = [scenario.variant(name).memory.kv_cache_memory_bytes or 0 for name in scenario.compared()]
    assert 0 < pools[0] < pools[1]
    text = Path("mine.yaml").read_text()
    assert text.count("(estimate ±") == 2
    assert "without effect here: --port" in text
    assert main(["run", "mine.yaml", "--no-figures", "--set", "engine.max_num_seqs=8"]) == 0


def test_without_a_trace_there_is_a_load_to_start_from(traffic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "deeper/mine.yaml", "gpt-oss-20b", "--max-model-len", "8192"]) == 0
    scenario = load_scenario("deeper/mine.yaml")
    assert scenario.gpu == "H100-80GB"
    assert not scenario.variants
    assert main(["run", "deeper/mine.yaml", "--no-figures", "--set", "workload.synthetic.requests=3"]) == 0


def test_a_trace_is_named_as_seen_from_the_scenario(traffic: Path) -> None:
    assert main(["new", "deeper/mine.yaml", "--trace", "azure.csv", *SERVE]) == 0
    assert "trace: ../azure.csv" in Path("deeper/mine.yaml").read_text()
    assert main(["run", "deeper/mine.yaml", "--no-figures"]) == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mine.yaml", "--trace", "nope.csv", *SERVE], "nope.csv: no such file"),
        (["azure.csv", *SERVE], "azure.csv: exists"),
        (["mine.yaml", "--gpu", "H1000", *SERVE], "H1000"),
        (["mine.yaml", "gemma-3-27bb"], "nearest is 'gemma-3-27b'"),
        (["mine.yaml", "--gpu", "L4", "gemma-3-27b"], "vLLM refuses to start"),
        (["mine.yaml", "gpt-oss-20b", "--max-model-lenn", "8"], "nearest is --max-model-len"),
        (["mine.yaml", "gpt-oss-20b", "--dtype", "float16"], "changes the model itself"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    words: list[str], says: str, traffic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) in (2, 3)
    error = capsys.readouterr().err.splitlines()
    assert says in error[-1]
    assert error[-1].startswith("hybridkv: error:")
    assert not Path("mine.yaml").exists()
