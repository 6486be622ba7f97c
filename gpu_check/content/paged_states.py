"""A layer of states that lie in blocks: read where the last token left one, written where the chunk ends."""

from __future__ import annotations

from typing import Any

import torch

from gpu_check.content.held import NULL, Chunk
from gpu_check.content.paged import largest
from gpu_check.content.small import Size, SmallLayer
from gpu_check.content.states import TrueStates, scan, window_of
from gpu_check.content.store import Store
from gpu_check.content.tokens import Text
from gpu_check.content.values import Vectors


class StateLayer:
    """One layer; ``unit`` is what prefixes may be resumed at multiples of, so that states are exported there.

    blocks of 4:  | 0 . . 3 | 4 . . 7 | 8 9 . . |    10 tokens: the state lies in block 2, and one after 8 in block 1
    """

    def __init__(self, layer: SmallLayer, store: Store, size: Size, unit: int, device: Any) -> None:
        self.layer = layer
        self._convolution, self._sums = store.caches(layer)
        self._inputs = Vectors(3 * layer.number, (size.head_size,), device)
        self._unit = unit
        self._true: dict[str, TrueStates] = {}

    def step(self, chunk: Chunk, text: Text) -> list[tuple[str, float]]:
        """Go on from the state that the chunk finds, leave one where it ends; the largest error of either."""
        true = self._true.get(chunk.name)
        if true is None:
            true = self._true[chunk.name] = TrueStates(self._inputs, text.tokens)
        table = chunk.tables[self.layer.group]
        inputs = self._inputs(text.tokens[chunk.start : chunk.end])
        before, last_inputs = self._found(table, chunk.start, inputs)
        errors = [("states found", self._error(true, chunk.start, before, last_inputs))] if chunk.start else []
        sums = torch.cat([before[None], scan(inputs, before)])
        everything = torch.cat([last_inputs, inputs])
        for index, tokens in self._written(table, chunk):
            done = tokens - chunk.start
            self._sums[table[index]] = sums[done]
            self._convolution[table[index]] = window_of(everything[: done + last_inputs.shape[0]]).to(
                self._convolution.dtype
            )
        end = (chunk.end - 1) // self.layer.block_size
        block = table[end] if end < len(table) else NULL
        left = self._error(true, chunk.end, self._sums[block], self._convolution[block].float())
        return [*errors, ("states left", left)]

    def forget(self, name: str) -> None:
        """Let go of a request that has ended."""
        self._true.pop(name, None)

    def _found(self, table: list[int], start: int, inputs: Any) -> tuple[Any, Any]:
        """The sum and the last inputs that the chunk starts from; zeros at the start of a text."""
        if start == 0:
            return inputs.new_zeros(self._sums.shape[1]), window_of(inputs[:0])
        index = (start - 1) // self.layer.block_size
        block = table[index] if index < len(table) else NULL
        return self._sums[block].clone(), self._convolution[block].float()

    def _written(self, table: list[int], chunk: Chunk) -> list[tuple[int, int]]:
        """Entries that the chunk writes a state into, and the tokens each stands for: its end, and a checkpoint.

        A block between the one it starts from and its last is there only for a checkpoint, at the last boundary before
        the end (vllm 0.33.0 v1/kv_cache_interface.py:1169).
        """
        size = self.layer.block_size
        last = (chunk.end - 1) // size
        written = [(last, chunk.end)] if last < len(table) and table[last] != NULL else []
        boundary = (chunk.end - 1) // self._unit * self._unit
        if last - 1 > (chunk.start - 1) // size and table[last - 1] != NULL and boundary > chunk.start:
            written.append((last - 1, boundary))
        return written

    def _error(self, true: TrueStates, tokens: int, sums: Any, last_inputs: Any) -> float:
        convolution = largest(last_inputs - true.convolution(tokens))
        return max(convolution, largest(sums.double() - true.sums(tokens)))
