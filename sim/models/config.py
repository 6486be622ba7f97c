"""One config of a model, typed access to its fields: what is missing or of the wrong type is one clear line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sim.errors import InputError

_LARGEST: Final = 1 << 40
"""Above any size that means something; keeps a slip of the keyboard from becoming a number of 400 digits."""

MOST_LAYERS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Config:
    """The fields of a config.json as transformers reads them: what is written there, and the class's defaults.

    ``values`` as written, ``defaults`` and ``aliases`` (other names of fields) of the config class of ``model_type``.
    A ``null`` that is written counts, as in transformers: it takes a default away. Errors are InputError and name
    ``where`` (the file) and the field.
    """

    model_type: str
    values: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    where: str = "config.json"

    def get(self, key: str) -> Any:
        """The value as it stands, of any type; None where there is none.

        >>> config = Config("gpt2", {"n_head": 12}, {"n_layer": 6}, {"num_attention_heads": "n_head"})
        >>> config.get("num_attention_heads"), config.get("n_layer"), config.get("head_dim")
        (12, 6, None)
        """
        actual = self.aliases.get(key, key)
        for name in (key, actual):
            if name in self.values:
                return self.values[name]
        return self.defaults.get(actual)

    def has(self, key: str) -> bool:
        """Whether there is a value, written or by default."""
        return self.get(key) is not None

    def knows(self, key: str) -> bool:
        """Whether the field exists, if only as ``null``."""
        actual = self.aliases.get(key, key)
        return key in self.values or actual in self.values or actual in self.defaults

    def integer(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """The integer called ``key``; InputError where it is missing, no integer, or below ``least``."""
        value = self.maybe_integer(key, least=least)
        if value is not None:
            return value
        if default is None:
            raise self.missing(key)
        return default

    def maybe_integer(self, key: str, *, least: int = 0) -> int | None:
        """The same, None where it is missing."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "an integer", value)
        if not least <= value <= _LARGEST:
            raise self.wrong(key, f"an integer of at least {least}", value)
        return value

    def number(self, key: str, default: float) -> float:
        """The number called ``key``, of any sign."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
            raise self.wrong(key, "a number", value)
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """The switch called ``key``."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool | int):
            raise self.wrong(key, "true or false", value)
        return bool(value)

    def word(self, key: str) -> str | None:
        """The text called ``key``, None where it is missing."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a text", value)
        return value

    def items(self, key: str, *, length: int | None = None) -> list[Any] | None:
        """The list called ``key``, None where it is missing; InputError where it is not as long as it must be."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(key, "a list", value)
        if length is not None and len(value) < length:
            raise self.error(key, f"has {len(value)} entries and the model {length} layers; vLLM reads one per layer")
        return list(value)

    def integers(self, key: str, *, length: int | None = None) -> list[int] | None:
        """The list of integers called ``key``."""
        values = self.items(key, length=length)
        for value in values or ():
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
                raise self.wrong(key, "a list of integers", value)
        return values

    def words(self, key: str, *, length: int | None = None) -> list[str] | None:
        """The list of texts called ``key``."""
        values = self.items(key, length=length)
        for value in values or ():
            if not isinstance(value, str):
                raise self.wrong(key, "a list of texts", value)
        return values

    def part(self, key: str) -> Config | None:
        """The mapping called ``key`` as a config of its own, None where it is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(key, "a mapping", value)
        return Config(key, value, where=f"{self.where}: {key}")

    def num_layers(self, key: str = "num_hidden_layers") -> int:
        """How many layers the field ``key`` says there are."""
        count = self.integer(key)
        if count > MOST_LAYERS:
            raise self.wrong(key, f"at most {MOST_LAYERS:,}", count)
        return count

    def missing(self, key: str) -> InputError:
        """What to raise where ``key`` is needed and not there."""
        return InputError(
            f"'{key}' is missing; vLLM cannot load a {self.model_type} model without it", where=self.where
        )

    def wrong(self, key: str, expected: str, value: Any) -> InputError:
        """What to raise for a value that is not as ``expected``."""
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        return self.error(key, f"expected {expected}, got {shown}")

    def error(self, key: str, problem: str) -> InputError:
        """What to raise about the field ``key``."""
        return InputError(f"{key}: {problem}", where=self.where)
