"""The answer of one run in words: does it fit, how many run together, what hit, who was preempted, how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sim.report.plan_tables import group_label
from sim.report.roles import by_role
from sim.report.tables import PERCENTILES, Table, latency_rows, layers_line, number, seconds, share
from sim.scenario import Scenario

if TYPE_CHECKING:  # the module brings Numba, which `curve` does without
    from sim.run import Result


def model_line(scenario: Scenario) -> str:
    """The model with its layers, as in ``gemma-3-27b (52 sliding_window 1024 + 10 full)``."""
    return f"{scenario.model.name} ({layers_line(scenario.model)})"


def subtitle(scenario: Scenario, result: Result) -> str:
    """One line that says what was run."""
    plan = result.plan
    return f"{scenario.name}: {model_line(scenario)}, {plan.num_blocks:,} blocks in {len(plan.groups)} groups"


def run_tables(scenario: Scenario, result: Result, destination: str) -> list[Table]:
    """The tables ``run`` prints."""
    answer = Table(
        scenario.question or scenario.name,
        ("", ""),
        [
            *_fit_rows(result.summary),
            *_cache_rows(result.summary),
            *_draft_rows(result.summary),
            *_speed_rows(result.summary),
        ],
        [f"expected: {scenario.expected}"] if scenario.expected else [],
        prose=True,
    )
    latencies = Table(
        f"Latencies ({result.summary['latency_class']})",
        ("", *PERCENTILES),
        latency_rows(result.summary),
        [*result.notes, f"results in {destination}"],
    )
    replicas = [_replicas(result.summary)] if "replicas" in result.summary else []
    return [answer, *replicas, *_lost_tables(result), latencies]


def _lost_tables(result: Result) -> list[Table]:
    """What became of the prompt tokens that were looked up, when that was asked for."""
    if not result.summary["lost_hits"]:
        return []
    from sim.explanation import CAUSES

    prompts = result.summary["lost_hits"]["prompts"]
    labels = [group_label(group) for group in result.plan.groups]
    rows = [("hit", prompts["hit"], "")]
    for cause, name in CAUSES.items():
        by_label: dict[str, int] = {}
        for label, group in zip(labels, prompts["lost_by_group"], strict=True):
            by_label[label] = by_label.get(label, 0) + group[cause]
        rows.append((f"lost: {name}", prompts["lost"][cause], _most_of(by_label)))
    rows += [
        ("still being computed", prompts["being_computed"], ""),
        ("never seen before", prompts["never_seen"], ""),
        ("last tokens, computed again", prompts["last_tokens"], ""),
    ]
    total = prompts["tokens"]
    table = Table(
        "What became of the prompt tokens",
        ("", "tokens", "share", "group"),
        [(name, number(tokens), share(tokens, total), groups) for name, tokens, groups in rows if tokens],
        ["lost: what a cache that keeps everything would have hit besides, by the first group that could not resume"],
    )
    return [table]


def _most_of(by_label: Mapping[str, int]) -> str:
    """The kinds of group that lost tokens, the one with the most first.

    >>> _most_of({"full_attention": 25, "sliding_window 128": 75, "mamba": 0})
    'sliding_window 128 (75.0 %), full_attention (25.0 %)'
    """
    total = sum(by_label.values())
    ordered = sorted(filter(by_label.get, by_label), key=lambda label: -by_label[label])
    return ", ".join(label if len(ordered) == 1 else f"{label} ({share(by_label[label], total)})" for label in ordered)


_ROUTINGS = {
    "least_loaded": "requests go to the least loaded",
    "prefix_aware": "requests go where most of their prefix is cached just then, within a bound on the load",
    "prefix_sent": "requests go where most of their prefix was sent, within a bound on the load",
}


def _replicas(summary: Mapping[str, Any]) -> Table:
    """A row per replica; the numbers above are the sums, and the highest peaks."""
    pool = summary["num_blocks"] - 1
    rows = [
        (
            f"{replica} {own['role']}" if "role" in own else str(replica),
            number(own["finished"]),
            number(own["peak_running"]),
            share(own["peak_used_blocks"], pool),
            number(own["preemptions"]),
            share(own["prefix_cache_hit_tokens"], own["prefix_cache_queries_tokens"]),
            number(own["output_tokens"]),
        )
        for replica, own in enumerate(summary["replicas"])
    ]
    heads = ("", "finished", "running at most", "blocks at most", "preemptions", "prefix cache", "output tokens")
    dealt = _ROUTINGS.get(summary.get("routing", ""), "request i goes to replica i modulo their number")
    if "ttft_parts" in summary:
        hits, queries = summary["decode_prefix_cache_hit_tokens"], summary["decode_prefix_cache_queries_tokens"]
        dealt += f"; {number(summary['fetched_blocks'])} blocks were fetched, {share(hits, queries)} of prompt tokens"
        dealt += " were there already"
    notes = [
        f"each has its own pool and queue; {dealt}",
        "above: counts of all together, peaks of the replica where they are highest, averages per replica",
    ]
    return Table("Replicas", heads, rows, notes)


def _fit_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    blocks = f"{number(summary['num_blocks'])} blocks in {summary['num_groups']} groups"
    tokens = f"{number(summary['kv_cache_size_tokens'])} tokens"
    return [
        ("does it fit", f"{blocks} hold {tokens}: {summary['max_concurrency']:.2f} requests of full length"),
        ("requests", _requests(summary)),
        *((f"running, {role}" if role else "running together", _running(part)) for role, part in by_role(summary)),
        *((f"blocks in use, {role}" if role else "blocks in use", _in_use(part)) for role, part in by_role(summary)),
        ("preemptions", number(summary["preemptions"])),
    ]


def _running(summary: Mapping[str, Any]) -> str:
    together = f"{number(summary['peak_running'])} at the peak, {number(summary['mean_running'])} on average"
    return f"{together}, {number(summary['peak_waiting'])} waiting at most"


def _in_use(summary: Mapping[str, Any]) -> str:
    pool, peak = summary["num_blocks"] - 1, summary["peak_used_blocks"]
    mean = share(summary["mean_used_blocks"] or 0, pool)
    return f"{number(peak)} of {number(pool)} at the peak ({share(peak, pool)}), {mean} on average"


def _requests(summary: Mapping[str, Any]) -> str:
    text = f"{number(summary['finished'])} of {number(summary['requests'])} finished"
    if summary["truncated"]:
        text += f", {number(summary['truncated'])} of them cut at max_model_len"
    if summary["rejected"]:
        text += f", {number(summary['rejected'])} rejected (prompt of max_model_len tokens or more)"
    return text


def _cache_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    queries, hits = summary["prefix_cache_queries_tokens"], summary["prefix_cache_hit_tokens"]
    rows = [("prefix cache", f"{share(hits, queries)} of prompt tokens hit ({number(hits)} of {number(queries)})")]
    done, refused = summary["prefix_cache_resets"], summary["prefix_cache_resets_refused"]
    if done or refused:
        rows.append(("resets", f"{number(done)} of the prefix cache, {number(refused)} refused: blocks were in use"))
    return rows


def _draft_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    length = summary.get("mean_acceptance_length")
    if length is None:
        return []
    drafts, accepted = summary["draft_tokens"], summary["accepted_draft_tokens"]
    return [
        ("drafts", f"{length:.2f} tokens a step and request: {share(accepted, drafts)} of {number(drafts)} accepted")
    ]


def _speed_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    rate = f"{number(summary['output_tokens_per_s'])} output tokens/s"
    if (measured := summary.get("measured")) is None:
        return [("throughput", f"{rate} over {seconds(summary['makespan_s'])} in {number(summary['steps'])} steps")]
    span = f"{seconds(measured['after_s'])} to {seconds(measured['until_s'])}"
    hits = measured["prefix_cache_hit_rate"]
    found = [
        f"{number(measured['requests'])} requests sent",
        "no prompt" if hits is None else f"{share(hits, 1)} of their prompt tokens hit",
        f"{number(measured['preemptions'])} preemptions",
        rate,
    ]
    return [
        ("whole run", f"{seconds(summary['makespan_s'])} in {number(summary['steps'])} steps"),
        (f"measured {span}", ", ".join(found)),
    ]
