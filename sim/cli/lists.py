"""``hybridkv scenarios`` and ``hybridkv models``: what there is to name."""

from __future__ import annotations

from sim.cli.console import print_json, print_tables
from sim.models import load_model, model_names
from sim.report.tables import Table, layers_line
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
        keys = ("name", "layer_counts", "max_model_len", "dtype")
        print_json([{key: getattr(model, key) for key in keys} for model in entries])
        return 0
    rows = [(model.name, layers_line(model), f"{model.max_model_len:,}", model.dtype) for model in entries]
    notes = ["Others can be written out in a scenario: model: {layers: [{kind, count, window}], num_kv_heads, …}."]
    print_tables([Table("Models", ("name", "layers", "max_model_len", "dtype"), rows, notes, prose=True)])
    return 0
