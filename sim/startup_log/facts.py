"""What a startup log says: the model, the release, the flags, and the numbers vLLM printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sim.units import GIB


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as it was printed, with the line it stands on (from 1) and that line's text."""

    value: float
    line: int
    text: str


@dataclass(slots=True)
class LogFacts:
    """Everything found in a log; None and empty where it says nothing.

    ``numbers`` maps a name of ``sim.startup_log.wording`` to every place it was printed at, in order: several ranks
    print one each. ``args`` holds vLLM's flags with underscores. ``version`` is (major, minor), of the release named
    or of the release whose source has the printed line of code (``version_from``). ``no_memory``: vLLM said that
    nothing is left for the KV cache.
    """

    model: str | None = None
    version: tuple[int, int] | None = None
    version_text: str | None = None
    version_from: str | None = None
    platform: str = "GPU"
    no_memory: bool = False
    args: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, list[Printed]] = field(default_factory=dict)

    def take_missing(self, other: LogFacts) -> None:
        """Take over what ``other``, another reading of the same text, found and this one did not."""
        self.numbers = {**other.numbers, **self.numbers}
        self.args = {**other.args, **self.args}
        self.model = self.model or other.model
        if self.version is None:
            self.version, self.version_text, self.version_from = other.version, other.version_text, other.version_from

    def add(self, name: str, value: float, line: int, text: str) -> None:
        """Note a printed number."""
        self.numbers.setdefault(name, []).append(Printed(value, line, text))

    def all(self, name: str) -> list[float]:
        """Every value printed under ``name``, in order."""
        return [item.value for item in self.numbers.get(name, [])]

    def last(self, name: str) -> float | None:
        """The last value printed under ``name``: that of the last start in the log."""
        values = self.all(name)
        return values[-1] if values else None

    def integer(self, name: str) -> int | None:
        """The last value printed under ``name`` as a whole number."""
        value = self.last(name)
        return None if value is None else int(value)

    def smallest(self, name: str) -> float | None:
        """The least value printed under ``name`` in the last start: old releases print one per rank."""
        memory = [item.line for item in self.numbers.get("available_gib", [])]
        after = [item.value for item in self.numbers.get(name, []) if not memory or item.line > memory[-1]]
        return min(after) if after else self.last(name)

    @property
    def max_model_len(self) -> int | None:
        """The length that the concurrency or the refusal is about, else the flag's."""
        for name in ("max_concurrency_len", "needed_for_len"):
            if (value := self.integer(name)) is not None:
                return value
        given = self.args.get("max_model_len")
        return given if isinstance(given, int) and given > 0 else self.integer("max_seq_len")

    def memory_ranges(self) -> list[tuple[int, int]]:
        """Bytes for the KV cache, as (least, most): one per rank that printed them in the last start, smallest first.

        Exact where bytes were printed or asked for, else all that round to the printed GiB; none that are negative.
        """
        given = self.args.get("kv_cache_memory_bytes")
        if exact := self._of_last_start("available_bytes"):
            return [(int(value), int(value)) for value in exact]
        if isinstance(given, int) and given > 0:
            return [(given, given)]
        return [(int((gib - 0.005) * GIB), int((gib + 0.005) * GIB)) for gib in self._of_last_start("available_gib")]

    def _of_last_start(self, name: str) -> list[float]:
        """The positive values under ``name`` since the tokens line of the start before, smallest first."""
        told = self.numbers.get(name, [])
        lines = [item.line for item in self.numbers.get("tokens", []) if told and item.line < told[-1].line]
        return sorted({item.value for item in told if item.value > 0 and not (lines and item.line <= max(lines))})

    @property
    def refused_for_memory(self) -> bool:
        """Whether vLLM had nothing left for the KV cache: it said so, or the memory it printed last is not positive."""
        last = self.last("available_gib")
        return self.no_memory or (last is not None and last <= 0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found that can be recomputed."""
        told = {"tokens", "concurrency", "needed_gib", "num_gpu_blocks", "attention_block_size", "mamba_blocks"}
        return (
            not self.no_memory
            and not (told | {"available_gib", "available_bytes", "auto_fit_to"}) & self.numbers.keys()
        )
