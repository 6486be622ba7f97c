"""What the Python API does: each function is a command, with Python's values for its flags."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.api.answers import Comparison, Fit, Simulation, frame_of
from sim.errors import InputError
from sim.scenario import Scenario, load_scenario, run_variants

if TYPE_CHECKING:
    import pandas as pd

    from sim.story import Watcher


def simulate(
    scenario: Scenario | str | Path,
    *,
    explain: bool = False,
    check: bool = False,
    step_log: bool = False,
    watch: Iterable[str] = (),
    block_map: bool = False,
) -> Simulation:
    """Run a scenario (or the file, or the shipped one, of that name) on its traffic.

    ``explain`` says why prompt tokens were not hit; ``check`` verifies the machine's invariants on the way. What
    follows makes the run slower: ``step_log`` keeps every decision, ``watch`` names requests whose life is to be told,
    ``block_map`` keeps what every block of a small pool did.

    >>> from sim import simulate
    >>> [entry["new_blocks"] for entry in simulate("toy", step_log=True).step_log[:1]]
    [[['0', [[1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15, 16, 17, 18, 19, 20, 21]]]]]
    """
    from sim.run import run_scenario
    from sim.story import BlockMap, RequestWatch

    loaded = _scenario(scenario)
    stories = {name: RequestWatch(name) for name in watch}
    blocks = BlockMap() if block_map else None
    log = io.StringIO() if step_log else None
    watchers: list[Watcher] = [*stories.values(), *([blocks] if blocks else [])]
    result = run_scenario(loaded, explain=explain, check=check, step_log=log, watchers=watchers)
    entries = [json.loads(line) for line in log.getvalue().splitlines()] if log else None
    return Simulation(loaded, result, entries, stories, blocks)


def compare(scenario: Scenario | str | Path, *, explain: bool = False) -> Comparison:
    """Run every variant of a scenario on the same traffic; by default the hybrid manager on, and off.

    A variant that vLLM refuses is in ``refusals``; RefusalError where all are.

    >>> from sim import compare
    >>> compare("toy").table[["num_groups", "peak_used_blocks"]].to_dict("index")
    {'hybrid': {'num_groups': 3, 'peak_used_blocks': 24}, 'all-full': {'num_groups': 1, 'peak_used_blocks': 8}}
    """
    return Comparison(*run_variants(_scenario(scenario), lambda _, variant: simulate(variant, explain=explain)))


def sweep(
    file: str | Path, overrides: Sequence[str] = (), *, folder: str | Path | None = None, workers: int | None = None
) -> pd.DataFrame:
    """Run every point of a sweep file, or of a shipped one: one row per point, its keys, its numbers, its error.

    Points run on ``workers`` processes, all cores by default; with a ``folder`` each is kept there as it finishes, and
    the same call goes on after an interruption.
    """
    import tempfile

    from sim.cli.sweep_command import finished_rows
    from sim.report.sweep_tables import sweep_columns
    from sim.scenario import parse_override
    from sim.sweeps import read_sweep

    read = read_sweep(str(file), [parse_override(text) for text in overrides])
    with tempfile.TemporaryDirectory() as temporary:
        rows = finished_rows(read.points, Path(folder or temporary), workers, None, read.name)
    return frame_of(sweep_columns(read, rows))


def plan(
    model: Scenario | str | Sequence[str],
    *,
    gpu: str | None = None,
    usage: str | None = None,
    available_kv_cache_memory_gib: float | None = None,
    **flags: Any,
) -> Fit:
    """What fits: a model, a scenario, or a whole ``vllm serve`` line, with vLLM's flags in Python's spelling.

    >>> from sim import plan
    >>> fit = plan("gemma-3-27b", available_kv_cache_memory_gib=40, max_model_len=131072)
    >>> fit.num_blocks, fit.kv_cache_size_tokens, round(fit.max_concurrency, 2)
    (32768, 291658, 2.23)
    >>> plan("vllm serve openai/gpt-oss-20b --max-model-len 8192 -tp 2").groups[["kind", "layers"]].values.tolist()
    [['sliding_window', 12], ['full_attention', 12]]
    """
    from sim.cli.plan_command import answer_plan
    from sim.cli.plan_question import PlanFlags, question_of, read_question
    from sim.scenario.checking import located

    memory = None if available_kv_cache_memory_gib is None else str(available_kv_cache_memory_gib)
    own = PlanFlags(gpu=gpu, usage=usage, available_kv_cache_memory_gib=memory)
    if isinstance(model, Scenario):
        if flags or own != PlanFlags():
            raise InputError("a scenario is planned as it stands; change it with load_scenario's overrides")
        question = question_of(model)
    else:
        words = shlex.split(model) if isinstance(model, str) else list(model)
        question = read_question([*words, *_flags(flags)], own)
    with located(question.scenario.document):
        return Fit(answer_plan(question))


def _flags(flags: dict[str, Any]) -> Iterable[str]:
    """Keyword arguments as vLLM's flags.

    >>> list(_flags({"max_model_len": 8192, "enable_prefix_caching": False}))
    ['--max-model-len', '8192', '--no-enable-prefix-caching']
    """
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif value is not None:
            yield from (f"--{flag}", str(value))


def _scenario(scenario: Scenario | str | Path) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
