"""The replay: every step of a recording with real contents, each result held against the dense reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpu_check.content.held import NULL, Chunk, Findings, HeldBlocks, hit_entries
from gpu_check.content.paged import AttentionLayer
from gpu_check.content.paged_states import StateLayer
from gpu_check.content.recording import Recording
from gpu_check.content.small import SmallCache, SmallLayer
from gpu_check.content.store import Store
from gpu_check.content.tokens import Text
from sim.planning import KVCachePlan


class Replay:
    """One pass over a recording in one dtype; :attr:`findings` and :attr:`errors` are what it found.

    ``errors`` holds the largest error by what was computed, infinite where a NaN was read.
    """

    def __init__(
        self,
        plan: KVCachePlan,
        recording: Recording,
        cache: SmallCache,
        dtype: Any,
        device: Any,
        kernel: str = "gather",
    ) -> None:
        self.findings = Findings()
        self.errors: dict[str, float] = {}
        self._recording = recording
        self._specs = [group.spec for group in plan.groups]
        self._held = HeldBlocks(self._specs, plan.num_blocks, self.findings)
        self._store = Store(cache, device)
        self._attention = [
            AttentionLayer(layer, self._store, cache.size, dtype, device, kernel)
            for layer in cache.layers
            if not layer.is_state
        ]
        self._states = [
            StateLayer(layer, self._store, cache.size, plan.cache_hit_alignment_tokens, device)
            for layer in cache.layers
            if layer.is_state
        ]

    @property
    def kernels(self) -> list[str]:
        """The attention kernels that are used, each once."""
        return sorted({layer.kernel for layer in self._attention})

    def run(self) -> None:
        """Replay all entries in order."""
        for entry in self._recording.entries:
            if "finished" in entry:
                self._held.finish(entry)
                self._forget(entry["finished"])
            else:
                self._step(entry)

    def _forget(self, name: str) -> None:
        for layer in self._attention:
            layer.forget(name)
        for state in self._states:
            state.forget(name)

    def _step(self, entry: dict[str, Any]) -> None:
        """What a worker does in a step, after what the scheduler gave up and gave out."""
        chunks = self._held.step(entry)
        copies = entry.get("copies", [])
        self._store.poison(self._worthless(entry, copies))
        if copies:
            self._store.copy(copies)
            self.findings.compared["copied blocks"] += len(copies)
        texts = [self._recording.texts[chunk.name] for chunk in chunks]
        where = f"step {entry['step']}"
        for layer in self._attention:
            self._written(layer.layer, chunks, where)
            for what, error in layer.step(chunks, texts):
                self._note(what, error)
            self._compare_hits(layer, chunks, texts, where)
        for state in self._states:
            for chunk, text in zip(chunks, texts, strict=True):
                for what, error in state.step(chunk, text):
                    self._note(what, error)
        self.findings.compared["steps"] += 1
        self.findings.compared["preemptions"] += len(entry["preempted"])
        self.findings.compared["hits"] += sum(hit > 0 for _, hit in entry["hits"])

    def _worthless(self, entry: dict[str, Any], copies: Sequence[Sequence[int]]) -> list[int]:
        """Blocks that hold nothing any more: neither referenced nor cached, or just taken for something new."""
        hits = dict(entry["hits"])
        taken = [copy[1] for copy in copies]
        for name, new in entry["new_blocks"]:
            for blocks, spec in zip(new, self._specs, strict=True):
                shared = hit_entries(hits[name], spec) if name in hits else 0
                taken += [block for block in blocks[shared:] if block != NULL]
        worthless = sorted({*entry["lost"], *taken})
        self.findings.compared["blocks filled with NaN"] += len(worthless)
        return worthless

    def _compare_hits(self, layer: AttentionLayer, chunks: Sequence[Chunk], texts: Sequence[Text], where: str) -> None:
        """Look at the blocks of new hits once the step is written: two of its requests may share what it writes."""
        spec = self._specs[layer.layer.group]
        for chunk, text in zip(chunks, texts, strict=True):
            if chunk.hit and spec.prefix_cacheable:
                for block, same in layer.compare_hit(chunk, text):
                    self.findings.note("hit blocks", same, f"{where}: block {block} for {chunk.name}")

    def _written(self, layer: SmallLayer, chunks: Sequence[Chunk], where: str) -> None:
        """Whether every token has a slot."""
        for chunk in chunks:
            table = np.asarray(chunk.tables[layer.group])
            first, last = chunk.start // layer.block_size, (chunk.end - 1) // layer.block_size
            there = last < len(table) and bool((table[first : last + 1] != NULL).all())
            self.findings.note("chunks with a slot for each token", there, f"{where}: {chunk.name}")

    def _note(self, what: str, error: float) -> None:
        self.errors[what] = max(self.errors.get(what, 0.0), error)
        self.findings.compared[what] += 1
