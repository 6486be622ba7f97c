"""What the Python API hands out: a run, a plan, a comparison, with their tables as pandas frames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.scenario import Scenario

if TYPE_CHECKING:  # all of these are heavy, and `import sim` is not
    import pandas as pd
    from matplotlib.figure import Figure

    from sim.planning import KVCachePlan
    from sim.report.plan_answer import PlanAnswer
    from sim.run import Result
    from sim.story import BlockMap, RequestWatch

_HELD = ("resident", "peak", "admission")


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
        return frame_of(self.result.requests)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per engine step, the columns of ``steps.parquet``."""
        return frame_of(self.result.steps)

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
        return frame_of(
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
        return frame_of({"kind": list(self.groups["kind"]), **columns})

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
        off = {name: run.scenario.engine.disable_hybrid_kv_cache_manager for name, run in self.runs.items()}
        all_full = frozenset(name for name, is_off in off.items() if is_off)
        with styled():
            return compare_figure(question, results, "; ".join(classes), all_full)


def frame_of(columns: dict[str, Any]) -> pd.DataFrame:
    """Columns of equal length as a frame."""
    import pandas as pd

    return pd.DataFrame(columns)


def _numbers(summary: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """The summary's single values, distributions one level deep under dotted names."""
    for key, value in summary.items():
        if isinstance(value, int | float | str) or value is None:
            yield key, value
        elif isinstance(value, dict) and key.endswith("_s"):
            yield from ((f"{key}.{part}", number) for part, number in value.items())
