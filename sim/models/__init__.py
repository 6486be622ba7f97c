"""Models: from a name in the catalogue, or from a description in a scenario, to layers in construction order."""

from __future__ import annotations

from sim.models.catalogue import load_model, model_names
from sim.models.from_config import model_from_config
from sim.models.inline import model_from_mapping
from sim.models.model import Kernels, LayerShape, Model, StateShape
from sim.models.weights import WeightBytes, weight_bytes

__all__ = [
    "Kernels",
    "LayerShape",
    "Model",
    "StateShape",
    "WeightBytes",
    "load_model",
    "model_from_config",
    "model_from_mapping",
    "model_names",
    "weight_bytes",
]
