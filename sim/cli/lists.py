"""``hybridkv scenarios``: the questions that are answered already."""

from __future__ import annotations

from sim.cli.console import print_json, print_tables
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
