"""``hybridkv scenarios`` and ``hybridkv models``: what there is to name."""

from __future__ import annotations

from sim.cli.console import print_json, print_tables
from sim.models import load_model, model_names
from sim.report.tables import Table
from sim.scenario.find import shipped_scenarios
from sim.scenario.strict_yaml import read_yaml


def list_scenarios(*, as_json: bool) -> int:
    """Print the shipped scenarios with their questions."""
    questions = {
        name: " ".join(str(read_yaml(path, str(path)).value.get("question", "")).split())
        for name, path in shipped_scenarios().items()
    }
    if as_json:
        print_json([{"name": name, "question": question} for name, question in questions.items()])
        return 0
    notes = ["hybridkv run NAME answers one; its file can be copied and changed."]
    print_tables([Table("Shipped scenarios", ("name", "question"), list(questions.items()), notes, prose=True)])
    return 0


def list_models(*, as_json: bool) -> int:
    """Print the models of the catalogue with their layers and context length."""
    entries = [load_model(name) for name in model_names()]
    if as_json:
        print_json(
            [{"name": m.name, "layers": m.layer_counts, "max_model_len": m.max_model_len, "dtype": m.dtype} for m in entries]
        )
        return 0
    rows = [
        (m.name, " + ".join(f"{count} {kind}" for kind, count in m.layer_counts.items()), f"{m.max_model_len:,}", m.dtype)
        for m in entries
    ]
    notes = ["Others can be written out in a scenario: model: {layers: [{kind, count, window}], num_kv_heads, …}."]
    print_tables([Table("Models", ("name", "layers", "max_model_len", "dtype"), rows, notes, prose=True)])
    return 0
