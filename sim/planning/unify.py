"""Equal pages for layers of several kinds, so that a block is as large in every group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sim.errors import RefusalError
from sim.specs import AttentionSpec, MambaSpec, MLAAttentionSpec, Spec

LayerSpecs = Mapping[str, Spec]
"""The spec of each layer by name, in construction order."""


class PageSizeError(RefusalError):
    """vLLM's refusal of MLA pages that cannot be made as large as the others; it has a way out for some of them."""


def unify_page_size(layers: LayerSpecs) -> LayerSpecs:
    """The same layers with pages as large as the largest one (vllm 0.33.0 v1/core/kv_cache_planning.py:346).

    A smaller page that divides the largest holds more tokens instead, its block size multiplied; one that does not is
    padded, and the difference is lost. A Mamba page is always padded. Raises PageSizeError for MLA whose page does not
    divide the largest: sparse MLA reads whole rows, so its pages cannot be padded.

    >>> from sim.specs import FullAttentionSpec, SlidingWindowSpec
    >>> wide = FullAttentionSpec(16, 8, 256, "bfloat16")
    >>> narrow = SlidingWindowSpec(16, 8, 128, "bfloat16", sliding_window=512)
    >>> odd = SlidingWindowSpec(16, 8, 192, "bfloat16", sliding_window=512)
    >>> unified = unify_page_size({"wide": wide, "narrow": narrow, "odd": odd})
    >>> unified["narrow"].block_size, unified["odd"].block_size, {spec.page_size_bytes for spec in unified.values()}
    (32, 16, {131072})
    """
    largest = max(spec.page_size_bytes for spec in layers.values())
    made: dict[int, Spec] = {}  # layers of one kind share their spec
    for name, spec in layers.items():
        if id(spec) not in made:
            made[id(spec)] = _with_page_size(name, spec, largest)
    return {name: made[id(spec)] for name, spec in layers.items()}


def _with_page_size(name: str, spec: Spec, page_size: int) -> Spec:
    if spec.page_size_bytes == page_size:
        return spec
    ratio, rest = divmod(page_size, spec.page_size_bytes)
    if isinstance(spec, MambaSpec):
        return replace(spec, page_size_padded=page_size)
    if rest == 0:
        changed: Spec = spec.resized(spec.block_size * ratio)
    elif isinstance(spec, AttentionSpec) and not isinstance(spec, MLAAttentionSpec):
        changed = replace(spec, page_size_padded=page_size)
    else:
        why = "does not divide it, and an MLA page cannot be padded"
        raise PageSizeError(_cannot(name, spec, page_size, why), where="model.layers")
    if changed.page_size_bytes != page_size:
        raise RefusalError(_cannot(name, spec, page_size, "is padded or aligned already"), where="model.layers")
    return changed


def _cannot(name: str, spec: Spec, page_size: int, why: str) -> str:
    return (
        f"the page of layer {name} ({spec.page_size_bytes} bytes) cannot become as large as the largest"
        f" ({page_size}): it {why}: vLLM refuses to start"
    )
