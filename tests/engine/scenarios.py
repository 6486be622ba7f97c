"""A small model's scenario on replicas that do all, and on replicas that prefill or decode: written, loaded, swept."""

from __future__ import annotations

from pathlib import Path
from string import Template

from sim.scenario import Scenario, load_scenario
from sim.sweeps import here, on_cores, read_sweep

_TEMPLATE = Template("""
model: {layers: [$layers], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 256, max_num_seqs: 8}
memory: {num_gpu_blocks_override: $blocks}
step_time: {kind: constant, seconds: 0.01}
replicas: {$replicas}
workload:
  synthetic:
    requests: $requests
    arrival: {kind: poisson, rate_per_s: $rate}
    shared_prefix: {pools: 5, tokens: 64, zipf: 1}
    prompt_tokens: {kind: lognormal, mean: 60, cv: 0.5, max: 300}
    output_tokens: {kind: lognormal, mean: 12, cv: 1, max: 100}
""")
ALIKE = _TEMPLATE.substitute(layers="{kind: full, count: 2}", blocks=80, replicas="count: 1", requests=200, rate=60)
SPLIT = _TEMPLATE.substitute(
    layers="{kind: full, count: 2}, {kind: sliding_window, window: 64, count: 2}",
    blocks=120,
    replicas="prefill: 1, decode: 2, transfer_s_per_block: 0.0005, transfer_latency_s: 0.001",
    requests=120,
    rate=20,
)


def loaded(folder: Path, text: str, *sets: str) -> Scenario:
    """The scenario of this text with changes."""
    (folder / "case.yaml").write_text(text)
    return load_scenario(folder / "case.yaml", sets)


def check_sweep_is_the_same_anywhere(folder: Path, text: str, sweep: str) -> None:
    """The points of a sweep over the scenario all run, and give the same rows here and in two processes."""
    (folder / "case.yaml").write_text(text)
    (folder / "points.yaml").write_text(f"scenario: case.yaml\n{sweep}")
    points = read_sweep(str(folder / "points.yaml")).points
    alone = {point.index: row for point, row in here(points)}
    assert {point.index: row for point, row in on_cores(points, 2)} == alone
    assert all(row["error"] is None for row in alone.values())
