"""A KV cache group: layers that share one block table."""

from __future__ import annotations

from dataclasses import dataclass

from sim.specs import ChunkedLocalAttentionSpec, Kind, RSWASpec, Spec, window_of


@dataclass(frozen=True, slots=True)
class KVCacheGroup:
    """Layers that share one block table, with the spec the scheduler manages that table by.

    ``layer_specs`` holds one spec per layer; they differ only in a group of one type with several sizes
    (``uniform_type``), of which ``spec`` is then the first. ``padding_layers`` are what is missing to the size of the
    other groups. ``is_eagle_group``: the group holds a draft's layers, so that the last block of a hit is dropped.
    Block size in tokens.
    """

    layer_names: tuple[str, ...]
    spec: Spec
    layer_specs: tuple[Spec, ...]
    padding_layers: int = 0
    uniform_type: bool = False
    is_eagle_group: bool = False

    @property
    def kind(self) -> Kind:
        """How the blocks are managed, not how attention is computed; vLLM's name of the kind of ``spec``."""
        return self.spec.kind

    @property
    def window(self) -> int | None:
        """The window in tokens that blocks are freed by; None for other kinds, also when one has a note of a window."""
        return window_of(self.spec)

    @property
    def chunk_size(self) -> int | None:
        """The chunk in tokens of chunked local attention; None for other kinds."""
        return self.spec.attention_chunk_size if isinstance(self.spec, ChunkedLocalAttentionSpec) else None

    @property
    def rswa_window(self) -> int | None:
        """Output tokens that reference sliding-window attention keeps; None for other kinds."""
        return self.spec.rswa_window if isinstance(self.spec, RSWASpec) else None

    @property
    def prefix_cacheable(self) -> bool:
        """Whether the group takes part in prefix caching."""
        return self.spec.prefix_cacheable

    @property
    def block_size(self) -> int:
        """Tokens per block, on one rank of decode context parallelism."""
        return self.spec.block_size

    @property
    def layer_bytes(self) -> int:
        """Bytes of one block that the group's layers use: the sum of their pages, without padding layers."""
        return sum(spec.page_size_bytes for spec in self.layer_specs)

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one page as vLLM reports them: of one layer, or of all layers where their sizes differ."""
        return self.layer_bytes if self.uniform_type else self.spec.page_size_bytes
