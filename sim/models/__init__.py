"""Models: from a name in the catalogue, or from a description in a scenario, to layers in construction order."""

from __future__ import annotations

from sim.models.catalogue import load_model, model_names
from sim.models.inline import model_from_mapping
from sim.models.model import LayerShape, Model, StateShape

__all__ = ["LayerShape", "Model", "StateShape", "load_model", "model_from_mapping", "model_names"]
