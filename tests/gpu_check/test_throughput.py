"""The check of throughput: what it runs, what it fits, what it leaves behind. How fast anything is, is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the checks on a device need PyTorch: pip install 'hybridkv[gpu]'")

from gpu_check.case import Case  # noqa: E402
from gpu_check.claims import Verdict  # noqa: E402
from gpu_check.device import choose_device  # noqa: E402
from gpu_check.throughput import throughput_claims  # noqa: E402
from gpu_check.throughput.axes import Axes  # noqa: E402
from gpu_check.throughput.body import Body, LayerKind, all_full, make_body  # noqa: E402
from gpu_check.throughput.composition import CLASSES, Composition, made_up  # noqa: E402
from gpu_check.throughput.files import ADDITIVE_FILE, TABLE_FILE, TIMES_FILE, table_section  # noqa: E402
from gpu_check.throughput.fit import additive, fit, predicted_s, price_ns, priors  # noqa: E402
from gpu_check.throughput.sampling import compositions, sampled_steps  # noqa: E402
from gpu_check.throughput.work import Bench, renumbered  # noqa: E402
from sim.hardware import find_gpu  # noqa: E402
from sim.scenario import Scenario, load_scenario  # noqa: E402
from sim.scenario.steps import read_step_time, write_step_time  # noqa: E402
from sim.step_time import make_step_time  # noqa: E402

SCENARIO = """
question: Three requests of different length, two of which begin alike, in a pool that preempts.
model:
  layers:
    - {kind: full, count: 1}
    - {kind: sliding_window, count: 2, window: 24}
  num_kv_heads: 2
  head_size: 32
  dtype: bfloat16
  max_model_len: 256
hardware: {gpu: H200-141GB}
engine: {block_size: 8, max_num_batched_tokens: 48}
memory: {num_gpu_blocks_override: 120}
workload:
  synthetic:
    requests: 6
    arrival: {kind: all_at_once}
    shared_prefix: {pools: 1, tokens: 16}
    prompt_tokens: {kind: empirical, values: [3, 20, 60]}
    output_tokens: 12
"""
TINY = Axes((0, 1, 2), (16, 48), (0, 16), per_class=2, max_pairs=1 << 20, headline=(2, 64), saving_batch=2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share a machine: threads that wait for each other would take longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    path = tmp_path_factory.mktemp("scenario") / "mixed.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return load_scenario(str(path))


@pytest.fixture(scope="module")
def case(scenario: Scenario) -> Case:
    return Case(scenario, 1 << 26)


@pytest.fixture(scope="module")
def body(case: Case) -> Body:
    found = make_body(case.scenario.model, case.engine, case.plan, on_gpu=False)
    assert found is not None
    return found


def test_a_composition_is_priced_as_the_simulator_prices_the_step(case: Case) -> None:
    """Every step of the run, to the nanosecond it is rounded to."""
    scenario = case.scenario
    price = make_step_time(scenario.step_time, scenario.model, scenario.engine, find_gpu("H200-141GB")).price
    steps = case.result.steps
    took = np.round(1e9 * (steps["end_s"] - steps["start_s"]))
    found = [price_ns(price, step) for step in compositions(case.log)]
    assert len(found) == len(took) > 10
    np.testing.assert_allclose(np.round(found), took, rtol=0, atol=1)


def test_steps_are_taken_from_all_classes_with_the_blocks_they_use(case: Case) -> None:
    chosen, counts = sampled_steps(case.log, 2)
    assert sum(counts.values()) == sum("step" in entry for entry in case.log)
    for name in CLASSES:
        assert sum(step.kind == name for step in chosen) == min(2, counts[name]) > 0
    for step in chosen:
        assert step.tables is not None
        assert len(step.tables) == len(case.plan.groups)
        for tables, size in zip(step.tables, case.plan.group_block_sizes, strict=True):
            for table, end in zip(tables, step.ends, strict=True):
                assert len(table) * size >= end


def test_renumbered_blocks_keep_order_and_sharing(body: Body) -> None:
    shape = replace(body.kinds[0].shape, block_size=4, window=0)
    kind = LayerKind(shape, 1, 0)
    step = Composition((9, 8), (1, 1), (((70, 30, 50), (70, 90, 20)),), 1)
    table, blocks = renumbered(kind, step)
    assert (table.tolist(), blocks) == ([[3, 1, 2], [3, 4, 0]], 5)
    windowed = LayerKind(replace(shape, window=2), 1, 0)
    assert renumbered(windowed, step)[0].tolist() == [[0, 0, 1], [0, 2, 0]]


def test_known_coefficients_are_found_again(body: Body) -> None:
    """Times made with coefficients give the coefficients, and no error, also for steps left out."""
    gpu = find_gpu("H200-141GB")
    steps = list(Axes((0, 1, 8, 64), (64, 512, 4096), (0, 100, 2000), 1, 1 << 30).steps().values())
    true = {name: 1.5 * value for name, value in priors(body, gpu).items()} | {"g": 0.0}
    seconds = predicted_s(true, body, gpu, steps)
    found = fit(body, gpu, steps, seconds)
    assert found.in_sample_pct < 1e-3
    assert found.left_out_pct < 0.1
    np.testing.assert_allclose(predicted_s(found.coefficients, body, gpu, steps), seconds, rtol=1e-4)
    assert found.coefficients["c0_ms"] == priors(body, gpu)["c0_ms"]


def test_what_is_priced_is_what_is_run(body: Body) -> None:
    """The body's model has its layers, and the same model all full has none with a window."""
    assert len(body.model.layers) == body.num_layers
    assert body.model.params_active == body.num_layers * body.hidden * body.width
    assert {layer.window for layer in body.model.layers} == {None, 24}
    assert {layer.window for layer in all_full(body).model.layers} == {None}
    gpu = find_gpu("H200-141GB")
    step = made_up(4, 4000, 0)  # a window costs a tile of its kernel at least
    hybrid, full = (price_ns(additive(priors(one, gpu), one, gpu), step) for one in (body, all_full(body)))
    assert hybrid < full


def test_a_step_writes_its_keys_and_leaves_the_rest_alone(body: Body) -> None:
    step = made_up(2, 16, 0)
    bench = Bench(body, torch.device("cpu"), "gather", [step])
    before = [cache.clone() for cache, _ in bench._caches]
    bench.step(step)()
    for index, kind in enumerate(body.kinds):
        table, _ = renumbered(kind, step)
        changed = (bench._caches[index][0] != before[index]).flatten(2).any(2).nonzero().tolist()
        slots = [[int(table[request, 16 // 8]), 0] for request in range(2)]
        assert sorted(changed) == sorted(slots)


def test_the_grid_shrinks_to_what_fits() -> None:
    axes = TINY.fitted(lambda step: sum(step.ends) <= 50)
    assert axes.decodes[-1] * axes.contexts[-1] <= TINY.decodes[-1] * TINY.contexts[-1]
    assert axes.decodes == (0, 1)


def test_a_measured_grid_is_a_table_that_a_scenario_can_name(tmp_path: Path, body: Body) -> None:
    seconds = {point: 1e-3 * (i + 1) for i, point in enumerate(TINY.steps())}
    write_step_time(tmp_path / "table.yaml", table_section(TINY, seconds))
    section = read_step_time(tmp_path / "table.yaml")
    assert section["seconds"][1][0][1] == pytest.approx(seconds[1, 16, 16])
    assert section["seconds"][0][0][0] == 1e-3  # no step at all: the shortest


def test_the_whole_check(case: Case, tmp_path: Path, scenario: Scenario) -> None:
    """Each claim is there, no time is judged on a CPU, and the files can be named by the scenario."""
    claims = throughput_claims(case, choose_device("cpu"), tmp_path, TINY)
    assert [claim.check for claim in claims] == ["throughput"] * len(claims)
    words = " | ".join(claim.claim for claim in claims)
    for part in ("kernel gather", "kernel triton", "copy bandwidth", "additive step time", "windows against all full"):
        assert part in words
    for name in CLASSES:
        (row,) = [claim for claim in claims if f"{name} steps" in claim.claim]
        assert isinstance(row.predicted, float)
        assert isinstance(row.measured, float)
        assert row.measured > 0
        assert row.verdict is Verdict.NOT_TESTED
        assert "a CPU says nothing about a GPU" in row.note
    judged = [claim for claim in claims if claim.verdict is not Verdict.NOT_TESTED]
    assert {claim.verdict for claim in judged} == {Verdict.CONFIRMED}
    assert all("kernel" in claim.claim for claim in judged)
    times = json.loads((tmp_path / TIMES_FILE).read_text(encoding="utf-8"))
    assert all(row["seconds"] > 0 for row in (*times["grid"], *times["parts"]))
    assert {row["part"] for row in times["parts"]} == {
        "decode attention",
        "prefill attention",
        "KV write",
        "matrix product",
    }
    assert {row["class"] for row in times["steps"]} == set(CLASSES)
    assert (tmp_path / "figures" / "step_times.png").read_bytes().startswith(b"\x89PNG")
    for name in (ADDITIVE_FILE, TABLE_FILE):
        section = read_step_time(tmp_path / name)
        made = make_step_time(section, scenario.model, scenario.engine, find_gpu("H200-141GB"))
        assert "scaled down" in made.error_class or "another model" in made.error_class


def test_drafts_are_not_run(scenario: Scenario, tmp_path: Path) -> None:
    drafting = Case(scenario, 1 << 26)
    drafting.engine = replace(drafting.engine, speculative_method="ngram", num_speculative_tokens=2)
    (claim,) = throughput_claims(drafting, choose_device("cpu"), tmp_path, TINY)
    assert claim.verdict is Verdict.NOT_TESTED
