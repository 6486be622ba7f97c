"""The layers of a draft model beside those of the model it drafts for."""

from __future__ import annotations

from dataclasses import replace

from sim.models.model import LayerShape, Model


def with_draft_of(model: Model, draft: Model) -> Model:
    """``model`` with the layers of ``draft`` as its draft, instead of draft layers of its own."""
    own = tuple(layer for layer in model.layers if not layer.draft)
    return replace(model, layers=own + _as_draft(draft.layers))


def with_assumed_draft(model: Model, num_layers: int = 1) -> Model:
    """``model`` with ``num_layers`` draft layers like its own first layer of full attention, if it has no draft yet.

    What MTP modules and EAGLE heads usually are; a model without full attention gets none.
    """
    if any(layer.draft for layer in model.layers):
        return model
    like = next(
        (layer for layer in model.layers if layer.kind in ("full", "mla") and layer.cache_role == "sparse"), None
    )
    return model if like is None else replace(model, layers=model.layers + _as_draft((like,) * num_layers))


def _as_draft(layers: tuple[LayerShape, ...]) -> tuple[LayerShape, ...]:
    return tuple(replace(layer, draft=True, depth=depth) for depth, layer in enumerate(layers))
