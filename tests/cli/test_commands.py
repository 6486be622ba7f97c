"""Every command on a small scenario: what it prints, what it writes, what it keeps to itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sim.cli import main
from tests.cli.bad_cases import SCENARIO, TRACE

RUN_FILES = {"summary.json", "requests.parquet", "steps.parquet", "scenario.resolved.yaml"}
RUN_FIGURES = {f"figures/{name}.png" for name in ("memory", "requests", "latency", "prefix_hits")}
STEP_SHARES = [
    *(f"group_{group}_{share}_bytes" for group in range(3) for share in ("live", "rounding", "padding", "cached")),
    "free_bytes",
]
SUMMARY_KEYS = {
    "num_blocks",
    "num_groups",
    "kv_cache_size_tokens",
    "max_concurrency",
    "requests",
    "finished",
    "truncated",
    "preemptions",
    "steps",
    "prefix_cache_queries_tokens",
    "prefix_cache_hit_tokens",
    "peak_used_blocks",
    "peak_running",
    "makespan_s",
    "output_tokens_per_s",
    "ttft_s",
    "tpot_s",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with one good scenario and its trace."""
    (tmp_path / "case.yaml").write_text(SCENARIO)
    (tmp_path / "trace.jsonl").write_text(TRACE)
    monkeypatch.chdir(tmp_path)


def files(folder: str) -> set[str]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that succeeds prints on stdout; stderr stays empty."""
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command prints with --json."""
    return json.loads(printed(capsys, *arguments, "--json"))


def test_run_writes_its_files_to_results(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "run", "case.yaml")
    assert files("results/case") == RUN_FILES | RUN_FIGURES
    for words in ("Does it fit?", "2 of 2 finished", "prefix cache", "time to first token", "results/case"):
        assert words in out


def test_run_json_is_the_summary_alone(capsys: pytest.CaptureFixture[str]) -> None:
    summary = data(capsys, "run", "case.yaml", "--no-figures", "--check")
    assert files("results/case") == RUN_FILES
    assert summary == json.loads(Path("results/case/summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert set(summary["ttft_s"]) == {"mean", "p50", "p90", "p99"}


def test_run_explains_its_hits_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "run", "case.yaml", "--no-figures")["lost_hits"] is None
    change = "workload.synthetic={requests: 6, arrival: {kind: poisson, rate_per_s: 1}, shared_prefix: {pools: 1,"
    change += " tokens: 64}, prompt_tokens: 60, output_tokens: 4}"
    out = printed(capsys, "run", "toy", "--set", change, "--no-figures", "--explain", "--out", "out")
    summary = json.loads(Path("out/summary.json").read_text())
    prompts = summary["lost_hits"]["prompts"]
    parts = ("hit", "being_computed", "never_seen", "last_tokens")
    assert sum(prompts[part] for part in parts) + sum(prompts["lost"].values()) == prompts["tokens"]
    assert prompts["tokens"] == summary["prefix_cache_queries_tokens"]
    assert prompts["hit"] == summary["prefix_cache_hit_tokens"]
    for words in ("What became of the prompt tokens", "lost: never kept: retention", "sliding_window 32"):
        assert words in out
    requests = pq.read_table("out/requests.parquet").to_pydict()
    lost = [sum(requests[name][i] for name in requests if name.startswith("lost_") and name.endswith("_tokens"))
            for i in range(len(requests["id"]))]  # fmt: skip
    assert [seen - hit for seen, hit in zip(requests["seen_tokens"], requests["cached_tokens"], strict=True)] == lost
    shares = pq.read_table("out/steps.parquet").select([name for name in STEP_SHARES if name != "free_bytes"])
    assert shares.num_rows == summary["steps"]


def test_shares_of_the_pool_add_up_to_it_at_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    summary = data(capsys, "run", "toy", "--explain", "--out", "out")
    assert files("out") >= {"figures/pool.png"}
    table = pq.read_table("out/steps.parquet")
    totals = [sum(row) for row in zip(*(table[name].to_pylist() for name in STEP_SHARES), strict=True)]
    assert totals == [(summary["num_blocks"] - 1) * 40 * 1024] * summary["steps"]
    assert table.schema.field("group_0_padding_bytes").metadata[b"counts"].startswith(b"bytes of live and cached")


def test_run_of_several_is_a_list_and_a_folder_each(capsys: pytest.CaptureFixture[str]) -> None:
    summaries = data(capsys, "run", "case.yaml", "toy", "--no-figures", "--out", "many")
    assert [summary["name"] for summary in summaries] == ["case", "toy"]
    assert files("many") == {f"{name}/{file}" for name in ("case", "toy") for file in RUN_FILES}


def test_run_tables_have_rows_units_and_metric_names(capsys: pytest.CaptureFixture[str]) -> None:
    summary = data(capsys, "run", "case.yaml", "--no-figures", "--out", "out")
    requests, steps = (pq.read_table(f"out/{name}.parquet") for name in ("requests", "steps"))
    assert requests["id"].to_pylist() == ["a", "b"]
    assert steps.num_rows == summary["steps"]
    assert requests.schema.field("ttft_s").metadata[b"vllm_metric"] == b"vllm:time_to_first_token_seconds"
    tpot = requests.schema.field("tpot_s").metadata[b"vllm_metric"]
    assert tpot == b"vllm:request_time_per_output_token_seconds"


def test_the_resolved_scenario_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    change = ("--set", "workload.jitter_s=2", "--set", "engine.block_size=32")
    printed(capsys, "run", "case.yaml", "--no-figures", "--out", "a", "--step-log", "a.log", *change)
    printed(capsys, "run", "a/scenario.resolved.yaml", "--no-figures", "--out", "b", "--step-log", "b.log")
    for name in ("a.log", "a/summary.json", "a/scenario.resolved.yaml", "a/requests.parquet"):
        assert Path(name).read_bytes() == Path("b" + name[1:]).read_bytes(), name


def test_step_log_has_a_line_per_step_and_per_request(capsys: pytest.CaptureFixture[str]) -> None:
    summary = data(capsys, "run", "case.yaml", "--no-figures", "--step-log", "deep/steps.jsonl")
    entries = [json.loads(line) for line in Path("deep/steps.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries if "step" in entry] == list(range(1, summary["steps"] + 1))
    assert {entry["finished"] for entry in entries if "finished" in entry} == {"a", "b"}


def test_kv_events_have_a_line_per_event_and_a_reset_clears(capsys: pytest.CaptureFixture[str]) -> None:
    resets = ("--set", "reset_prefix_cache=[{at_s: 0}, {at_s: 1000, reset_running_requests: true}]")
    summary = data(capsys, "run", "case.yaml", "--no-figures", "--kv-events", "deep/events.jsonl", *resets)
    entries = [json.loads(line) for line in Path("deep/events.jsonl").read_text().splitlines()]
    assert {entry["type"] for entry in entries} <= {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
    assert entries[0] == {"type": "AllBlocksCleared"}
    stored = [name for entry in entries if entry["type"] == "BlockStored" for name in entry["block_hashes"]]
    assert stored
    assert all(len(name) == 16 for name in stored)
    assert (summary["prefix_cache_resets"], summary["prefix_cache_resets_refused"]) == (1, 0)


def test_kv_events_name_blocks_whatever_drafts_ask_of_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    """Every block that leaves the cache was stored under that name; dropping instead of looking ahead gives others.

    Hits are explained beside them.
    """
    drafts = ("speculative_method=eagle", "num_speculative_tokens=2", "acceptance_rate=0.5", "max_model_len=1024")
    flags = [part for flag in drafts for part in ("--set", f"engine.{flag}")]
    flags += ["--set", "model={base: llama-3.1-8b, draft_layers: [{kind: full}]}", "--no-figures"]
    stored: dict[str, set[str]] = {}
    for drops in ("false", "true"):
        look = f"engine.disable_lookahead_block_hashes={drops}"
        summary = data(capsys, "run", "case.yaml", *flags, "--set", look, "--kv-events", "events.jsonl", "--explain")
        assert summary["lost_hits"]["prompts"]["last_tokens"] == 2
        entries = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
        named = {kind: {(name, entry["group_idx"]) for entry in entries if entry["type"] == kind
                        for name in entry["block_hashes"]} for kind in ("BlockStored", "BlockRemoved")}  # fmt: skip
        assert named["BlockRemoved"] <= named["BlockStored"]
        stored[drops] = {name for name, _ in named["BlockStored"]}
    assert stored["false"]
    assert len(stored["false"]) == len(stored["true"])
    assert not stored["false"] & stored["true"]


def test_drafts_are_given_in_the_words_of_vllm_or_key_by_key(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"method": "ngram", "num_speculative_tokens": 2, "synthetic_acceptance_length": 1.5}
    keys = ("speculative_method=ngram", "num_speculative_tokens=2", "synthetic_acceptance_length=1.5")
    flags = [part for key in keys for part in ("--set", f"engine.{key}")]
    plain = data(capsys, "run", "case.yaml", "--no-figures")
    one = data(capsys, "run", "case.yaml", "--no-figures", "--speculative-config", json.dumps(config))
    assert one == data(capsys, "run", "case.yaml", "--no-figures", *flags)
    assert one["steps"] < plain["steps"]
    later = ["--set", "engine.synthetic_acceptance_length=3"]
    all_accepted = data(capsys, "run", "case.yaml", "--no-figures", "--speculative-config", json.dumps(config), *later)
    assert all_accepted["steps"] < one["steps"]


def test_a_trace_of_set_may_lie_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "case.yaml").write_text(SCENARIO.replace("trace.jsonl", "absent.jsonl"))
    summary = data(capsys, "run", "sub/case.yaml", "--no-figures", "--set", "workload.trace=trace.jsonl")
    assert summary["requests"] == 2


def test_plan_of_the_toy_keeps_three_numbers_apart(capsys: pytest.CaptureFixture[str]) -> None:
    plan = data(capsys, "plan", "toy", "--request-tokens", "112", "--request-tokens", "1k")
    assert {"num_blocks", "num_groups", "kv_cache_size_tokens", "max_concurrency", "block_bytes"} <= plan.keys()
    numbers = ("resident_blocks", "peak_blocks", "admission_blocks")
    assert [[group[name] for name in numbers] for group in plan["groups"]] == [[7, 7, 7], [2, 7, 8], [2, 7, 8]]
    keys = {"kind", "window", "layers", "padding", "block_size", "page_size_bytes", *numbers}
    assert all(group.keys() == keys for group in plan["groups"])
    assert [request["tokens"] for request in plan["requests"]] == [112, 1000]
    assert plan["requests"][0]["resident_blocks"] == 11


def test_plan_of_a_model_takes_vllms_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--available-kv-cache-memory-gib", "40", "--max-model-len", "32K", "--kv-cache-dtype", "fp8"]
    flags += ["--tensor-parallel-size", "2", "--no-async-scheduling", "--gpu", "L40S", "--usage", "offline"]
    plan = data(capsys, "plan", "gemma-3-27b", *flags)
    assert plan["max_model_len"] == plan["request_tokens"] == 32_768
    assert (plan["max_num_batched_tokens"], plan["max_num_seqs"]) == (8192, 256)
    assert plan["max_in_flight_tokens"] == 8192
    assert plan["groups"][0]["page_size_bytes"] == 16 * 8 * 2 * 128


def test_plan_prints_vllms_two_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "plan", "gemma-3-27b", "--available-kv-cache-memory-gib", "40")
    line = "GPU KV cache size: 291,658 tokens, Maximum concurrency for 131,072 tokens per request: 2.23x"
    assert line in out


def test_plan_flags_change_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "plan", "case.yaml", "--num-gpu-blocks-override", "500")["num_blocks"] == 500
    whole = data(capsys, "plan", "case.yaml", "--disable-hybrid-kv-cache-manager")
    assert whole["num_groups"] == 1


def test_curve_writes_csv_and_figure(capsys: pytest.CaptureFixture[str]) -> None:
    curve = data(capsys, "curve", "toy", "--request-tokens", "112,1024", "--out", "out")
    assert files("out") == {"curve.csv", "figures/curve.png"}
    with Path("out/curve.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["resident_blocks"] for row in rows] == ["11", "68"]
    assert [point["resident_blocks"] for point in curve["points"]] == [11, 68]
    assert curve["break_even_resident_tokens"] == 47


def test_compare_puts_variants_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    compared = data(capsys, "compare", "toy", "--out", "out")
    own = {"summary.json", "scenario.resolved.yaml", "requests.parquet", "steps.parquet"}
    variants = {f"variants/{name}/{file}" for name in ("hybrid", "all-full") for file in own}
    assert files("out") == {"compare.json", "scenario.resolved.yaml", "figures/compare.png"} | variants
    assert compared == json.loads(Path("out/compare.json").read_text())
    hybrid, full = compared["variants"]
    assert (hybrid["variant"], full["variant"]) == ("hybrid", "all-full")
    assert (hybrid["summary"]["num_groups"], full["summary"]["num_groups"]) == (3, 1)
    assert full["changes"] == {"engine": {"disable_hybrid_kv_cache_manager": True}}


def test_compare_shows_a_refused_variant_as_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    variants = "{fine: {}, tiny: {memory.num_gpu_blocks_override: 30}}"
    out = printed(capsys, "compare", "case.yaml", "--no-figures", "--set", f"variants={variants}")
    assert "refused" in out
    assert "vLLM refuses to start" in out


def test_lists_name_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"name": "toy"}.items() <= data(capsys, "scenarios")[-1].items()
    assert "gpt-oss-120b" in {model["name"] for model in data(capsys, "models")}
    assert "How many blocks" in printed(capsys, "scenarios")
    assert "52 swa 1024 + 10 full" in printed(capsys, "models")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run" in printed(capsys)
    assert "--disable-hybrid-kv-cache-manager" in printed(capsys, "plan", "--help").replace("\n", " ")
    assert printed(capsys, "--version").startswith("hybridkv")


def test_a_fault_of_ours_is_one_line_and_a_traceback_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("once")

    monkeypatch.setattr("sim.run.make_plan", broken)
    assert main(["run", "case.yaml"]) == 70
    assert capsys.readouterr().err.startswith("hybridkv: error: internal error (ZeroDivisionError: once)")
    monkeypatch.setenv("HYBRIDKV_DEBUG", "1")
    assert main(["run", "case.yaml"]) == 70
    assert "Traceback" in capsys.readouterr().err
    assert files(".") == {"case.yaml", "trace.jsonl"}


def test_an_interrupt_leaves_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.run.make_plan", interrupted)
    assert main(["run", "case.yaml", "--step-log", "log"]) == 130
    assert capsys.readouterr().err == "hybridkv: error: interrupted; nothing was written\n"
    assert files(".") == {"case.yaml", "trace.jsonl"}
