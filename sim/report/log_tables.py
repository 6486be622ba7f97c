"""``explain-log``'s answer as plain data and as tables."""

from __future__ import annotations

from typing import Any

from sim.report.tables import Table, layers_line
from sim.startup_log import Explanation
from sim.startup_log.check import Implied
from sim.startup_log.facts import Printed
from sim.startup_log.wording import MEANINGS, OLD_TOKENS


def log_data(found: Explanation) -> dict[str, Any]:
    """The explanation as JSON-ready data."""
    facts, inputs, layout = found.facts, found.inputs, found.layout
    return {
        "model": facts.model,
        "layers_of": inputs and inputs.model.name,
        "version": ".".join(map(str, facts.version)) if facts.version else None,
        "version_from": facts.version_from,
        "platform": facts.platform,
        "args": {key: value for key, value in facts.args.items() if isinstance(value, str | int | float | bool)},
        "numbers": {name: [item.value for item in items] for name, items in facts.numbers.items()},
        "agrees": found.agrees,
        "checks": [
            {"name": check.name, "printed": check.printed, "recomputed": check.recomputed, "agrees": check.agrees}
            for check in (found.verdict.checks if found.verdict else ())
        ],
        "chosen": list(found.chosen),
        "assumed": list(found.assumed),
        "num_blocks": found.verdict.num_blocks if found.verdict else None,
        "block_bytes": layout.block_bytes if layout else None,
        "num_groups": len(layout.groups) if layout else None,
        "block_size": layout.block_size if layout else None,
        "implied": [{"name": item.name, "least": item.least, "most": item.most} for item in found.implied],
        "advice": [
            {"flag": item.flag, "max_concurrency": item.concurrency, "factor": item.factor, "note": item.note}
            for item in found.advice
        ],
        "settings_tried": found.tried,
    }


def log_tables(found: Explanation) -> list[Table]:
    """The tables ``explain-log`` prints."""
    return [_summary(found), _numbers(found), *_checks(found), *_implied(found), *_advice(found)]


def _summary(found: Explanation) -> Table:
    facts = found.facts
    release = ".".join(map(str, facts.version)) if facts.version else "not said; read by the rules of 0.33"
    rows = [("model", _model(found)), ("vLLM", f"{release}{f' ({facts.version_from})' if facts.version_from else ''}")]
    if facts.args:
        flags = ", ".join(f"{key} {value}" for key, value in facts.args.items() if isinstance(value, str | int | float))
        rows.append(("flags", flags))
    if found.layout is not None:
        layout = found.layout
        pool = f"{found.verdict.num_blocks:,} blocks" if found.verdict and found.verdict.num_blocks else "blocks"
        rows.append(("pool", f"{pool} of {layout.block_bytes:,} bytes, {len(layout.groups)} groups"))
    rows.append(("verdict", _verdict(found)))
    if found.tried > 1:
        rows.append(("tried", f"{found.tried:,} settings, the likeliest first"))
    return Table("What the log says", ("", ""), rows, prose=True)


def _model(found: Explanation) -> str:
    said = found.facts.model or "not named"
    if found.inputs is None:
        return f"{said}: no model of the catalogue is known to have its layers; --model names one that has"
    return f"{said}: {layers_line(found.inputs.model)} (as {found.inputs.model.name})"


def _verdict(found: Explanation) -> str:
    if found.verdict is None:
        nothing = "nothing recomputed"
        return f"{nothing}; vLLM had no memory left for the KV cache" if found.facts.refused_for_memory else nothing
    if found.facts.refused_for_memory:
        return "vLLM refuses to start: weights and activations leave nothing for the KV cache"
    if not found.verdict.checks:
        return "nothing printed that could be checked; what follows from it is below"
    if not found.agrees:
        wrong = ", ".join(check.name for check in found.verdict.checks if not check.agrees)
        return f"does not agree, and no assumption of one or two makes it: {wrong}"
    words = "agrees"
    if found.assumed:
        words = f"agrees if: {' and '.join(found.assumed)}"
    return f"{words} ({', '.join(found.chosen)}: not stated)" if found.chosen else words


def _numbers(found: Explanation) -> Table:
    rows = []
    for name, items in found.facts.numbers.items():
        if name not in MEANINGS:
            continue
        rows.append((name, _values(items), f"line {items[-1].line}", _meaning(name, found)))
    return Table("Printed numbers", ("", "value", "where", "meaning"), rows, prose=True)


def _meaning(name: str, found: Explanation) -> str:
    return OLD_TOKENS if name == "tokens" and found.rules.old_tokens else MEANINGS[name]


def _values(items: list[Printed]) -> str:
    values = list(dict.fromkeys(f"{item.value:,.10g}" for item in items))
    return ", ".join(values[:4]) + (f" … {len(values)} in all" if len(values) > 4 else "")


def _checks(found: Explanation) -> list[Table]:
    if found.verdict is None or not found.verdict.checks:
        return []
    rows = [
        (check.name, check.printed, check.recomputed, "yes" if check.agrees else "no") for check in found.verdict.checks
    ]
    return [Table("Recomputed", ("", "printed", "recomputed", "agrees"), rows)]


def _implied(found: Explanation) -> list[Table]:
    if not found.implied:
        return []
    rows = [(item.name, _span(item), _meaning(item.name, found)) for item in found.implied]
    return [Table("What follows from it", ("", "", "meaning"), rows, prose=True)]


def _span(item: Implied) -> str:
    digits = 0 if item.name in ("num_gpu_blocks", "tokens") else 2
    least, most = f"{item.least:,.{digits}f}", f"{item.most:,.{digits}f}"
    return least if least == most else f"{least} to {most}"


def _advice(found: Explanation) -> list[Table]:
    if not found.advice:
        return []
    rows = [(item.flag, f"{item.concurrency:.2f}x", f"{item.factor:.2f}", item.note) for item in found.advice[:4]]
    return [Table("What would move capacity most", ("", "max concurrency", "times", ""), rows, prose=True)]
