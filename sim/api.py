"""hybridkv in Python: what the commands do, with pandas frames for answers.

    >>> from sim import load_scenario, simulate
    >>> run = simulate(load_scenario("toy"))
    >>> run.summary["peak_used_blocks"]
    24
    >>> run.requests[["prompt_tokens", "output_tokens", "preemptions"]].to_dict("records")
    [{'prompt_tokens': 112, 'output_tokens': 8, 'preemptions': 0}]

Whatever cannot be used raises InputError or WorkloadError, what vLLM refuses at start RefusalError: one line each, with
the place at fault.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError, RefusalError
from sim.scenario import Scenario, load_scenario

if TYPE_CHECKING:  # both are heavy, and `import sim` is not
    import pandas as pd
    from matplotlib.figure import Figure

    from sim.planning import KVCachePlan
    from sim.report.plan_answer import PlanAnswer
    from sim.run import Result
    from sim.story import BlockMap, RequestWatch, Watcher

_HELD = ("resident", "peak", "admission")

__all__ = ["Comparison", "Fit", "Simulation", "compare", "load_scenario", "plan", "simulate", "sweep"]


@dataclass(frozen=True)
class Simulation:
    """A run: ``summary`` (as ``summary.json``), frames of ``requests`` and ``steps``, and the plan it ran on."""

    scenario: Scenario
    result: Result
    step_log: list[dict[str, Any]] | None = None
    """Entries as ``--step-log`` writes them, where they were asked for."""
    stories: dict[str, RequestWatch] = field(default_factory=dict)
    """What happened to each request that was watched."""
    block_map: BlockMap | None = None
    """What every block did at each step, where that was asked for and the pool is small."""

    @property
    def summary(self) -> dict[str, Any]:
        """Counts, rates and latencies, units in their names."""
        return self.result.summary

    @property
    def plan(self) -> KVCachePlan:
        """Groups, blocks and block sizes."""
        return self.result.plan

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per finished request, the columns of ``requests.parquet``."""
        return _frame(self.result.requests)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per engine step, the columns of ``steps.parquet``."""
        return _frame(self.result.steps)

    def figure(self, name: str) -> Figure:
        """The Matplotlib figure that ``hybridkv run`` saves under this name.

        Every run has ``memory``, ``requests``, ``latency`` and ``prefix_hits``; an explained run has ``pool`` and
        ``lost_hits`` too, one with a block map ``blocks``. Raises InputError for others.
        """
        from sim.report.results import drawn
        from sim.report.run_figures import run_figures

        figures = run_figures(drawn(self.scenario, self.result, self.block_map))
        if name not in figures:
            raise InputError(f"no figure {name!r} of this run; it has {', '.join(figures)}")
        return figures[name]

    def save(self, folder: str | Path, *, figures: bool = True) -> Path:
        """Write what ``hybridkv run`` writes into ``folder``, whole or not at all; returns the folder."""
        from sim.report.folder import ResultFolder
        from sim.report.results import write_results

        with ResultFolder(Path(folder)) as staged:
            write_results(staged.path, self.scenario, self.result, figures=figures, blocks=self.block_map)
            staged.commit()
        return Path(folder)


@dataclass(frozen=True)
class Fit:
    """What fits: vLLM's startup numbers, and the groups as a frame."""

    answer: PlanAnswer

    @property
    def plan(self) -> KVCachePlan:
        """Groups, blocks and block sizes, with everything vLLM derives from them."""
        return self.answer.plan

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, the null block included."""
        return self.plan.num_blocks

    @property
    def kv_cache_size_tokens(self) -> int:
        """The tokens of vLLM's startup line."""
        return self.plan.kv_cache_size_tokens

    @property
    def max_concurrency(self) -> float:
        """Requests of ``max_model_len`` at once, as vLLM's startup line has it."""
        return self.plan.max_concurrency

    @cached_property
    def groups(self) -> pd.DataFrame:
        """One row per KV cache group: kind, window, layers, padding layers, block size, bytes of one layer's block."""
        return _frame(
            {
                "kind": [group.kind for group in self.plan.groups],
                "window": [group.window for group in self.plan.groups],
                "layers": [len(group.layer_names) for group in self.plan.groups],
                "padding_layers": [group.padding_layers for group in self.plan.groups],
                "block_size": list(self.plan.group_block_sizes),
                "page_size_bytes": [group.spec.page_size_bytes for group in self.plan.groups],
            }
        )

    def request(self, tokens: int) -> pd.DataFrame:
        """Blocks one request of ``tokens`` tokens takes of each group.

        ``resident``: held once all behind a window is freed; ``peak``: at most, during prefill; ``admission``: what
        vLLM charges for it.
        """
        from sim.capacity import request_blocks

        found = request_blocks(self.plan, self.answer.scenario.engine, tokens)
        columns = {name: [getattr(group, f"{name}_blocks") for group in found] for name in _HELD}
        return _frame({"kind": list(self.groups["kind"]), **columns})

    def data(self) -> dict[str, Any]:
        """Everything ``hybridkv plan --json`` prints."""
        from sim.report.plan_tables import plan_data

        return plan_data(self.answer)


@dataclass(frozen=True)
class Comparison:
    """Variants of a scenario on the same traffic: a run each, or the line with which vLLM refuses to start it."""

    runs: dict[str, Simulation]
    refusals: dict[str, str]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per variant that ran: the numbers of its summary, distributions as ``ttft_s.p99`` and the like."""
        import pandas as pd

        rows = {name: dict(_numbers(run.summary)) for name, run in self.runs.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def figure(self) -> Figure:
        """The Matplotlib figure that ``hybridkv compare`` saves."""
        from sim.report.compare_figure import compare_figure
        from sim.report.style import styled

        results = {name: run.result for name, run in self.runs.items()}
        classes = dict.fromkeys(str(run.summary["latency_class"]) for run in self.runs.values())
        question = next(iter(self.runs.values())).scenario.question
        with styled():
            return compare_figure(question, results, "; ".join(classes))


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

    >>> from sim import compare
    >>> compare("toy").table[["num_groups", "peak_used_blocks"]].to_dict("index")
    {'hybrid': {'num_groups': 3, 'peak_used_blocks': 24}, 'all-full': {'num_groups': 1, 'peak_used_blocks': 8}}
    """
    loaded = _scenario(scenario)
    runs: dict[str, Simulation] = {}
    refusals: dict[str, str] = {}
    for name in loaded.compared():
        try:
            runs[name] = simulate(loaded.variant(name), explain=explain)
        except RefusalError as error:
            refusals[name] = str(error)
    return Comparison(runs, refusals)


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
    return _frame(sweep_columns(read, rows))


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


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns)


def _numbers(summary: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The summary's single values, distributions one level deep under dotted names."""
    for key, value in summary.items():
        if isinstance(value, int | float | str) or value is None:
            yield key, value
        elif isinstance(value, dict) and key.endswith("_s"):
            yield from ((f"{key}.{part}", number) for part, number in value.items())
