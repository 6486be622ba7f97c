"""The flags of ``vllm serve`` as data: ``flags.csv`` next to this file, one flag a line.

``value`` says what follows a flag: ``switch`` (nothing; ``--no-x``, and ``--disable-x`` for ``--enable-x``, say no),
``set`` (nothing, and there is no no), ``int``, ``human_int`` (32k), ``float``, ``json``, ``text``, ``list`` (one or
more), ``maybe`` (one or nothing); with a question mark behind it, ``None`` is a value too. ``effect`` says what becomes
of it here:

==============  ====================================================================================
``engine``      a setting of the engine, under its own name
``memory``      how much memory the KV cache gets
``weights``     memory of weights and CUDA graphs
``budget``      default budgets
``model``       which model, or a field of its config
``speculative`` the draft
``connector``   may turn the hybrid manager off
``kernel``      which kernels run, and so which block sizes there are
``file``        a file with more flags
``estimate``    moves memory that is only estimated, in a way not modelled: listed beside the answer
``refused``     changes blocks in a way not modelled: an error
``none``        cannot matter to blocks, memory or scheduling: ignored, and listed
``gone``        older releases had it, 0.33.0 does not: an error
==============  ====================================================================================
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sim.errors import InputError, nearest

_TABLE = Path(__file__).with_name("flags.csv")
_INVERSE = {"--enable-": "--disable-", "--disable-": "--enable-"}


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: its own spelling, other spellings, what follows it, its effect here, and what it touches.

    ``optional``: ``None`` is a value of it, and the same as nothing in quotes.
    """

    name: str
    other_spellings: tuple[str, ...]
    value: str
    optional: bool
    effect: str
    touches: str

    @property
    def key(self) -> str:
        """The name as vLLM's configuration spells it: ``max_model_len``."""
        return self.name.removeprefix("--").replace("-", "_")

    @property
    def negations(self) -> tuple[str, ...]:
        """Spellings that say no to a switch (vllm 0.33.0 utils/argparse_utils.py:92).

        >>> flag_table()["--enable-prefix-caching"].negations
        ('--no-enable-prefix-caching', '--disable-prefix-caching')
        """
        if self.value != "switch":
            return ()
        inverses = (
            inverse + self.name.removeprefix(prefix)
            for prefix, inverse in _INVERSE.items()
            if self.name.startswith(prefix)
        )
        return (f"--no-{self.name.removeprefix('--')}", *inverses)

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling that means this flag, negations last."""
        return (self.name, *self.other_spellings, *self.negations)


@cache
def flag_table() -> dict[str, Flag]:
    """Every flag by its own spelling, in the order of the file."""
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return {row["flag"]: _flag(row) for row in csv.DictReader(lines)}


def _flag(row: dict[str, str]) -> Flag:
    value = row["value"]
    optional = value.endswith("?")
    spellings = tuple(row["other_spellings"].split())
    return Flag(row["flag"], spellings, value.removesuffix("?"), optional, row["effect"], row["touches"])


@cache
def _by_spelling() -> dict[str, Flag]:
    return {spelling: flag for flag in flag_table().values() for spelling in flag.spellings}


def find_flag(spelling: str, ours: Sequence[str] = ()) -> tuple[Flag, str]:
    """The flag that ``spelling`` means, and its full spelling; the beginning of one is enough where it fits one alone.

    ``ours`` are flags of the command that reads vLLM's, named where one was meant. Raises InputError for an unknown
    flag, with the nearest spelling, and for one that 0.33.0 no longer has.

    >>> find_flag("--tensor-parallel")[1], find_flag("-tp")[0].name
    ('--tensor-parallel-size', '--tensor-parallel-size')
    """
    known = _by_spelling()
    full = spelling if spelling in known else _completed(spelling, ours)
    flag = known[full]
    if flag.effect == "gone":
        raise InputError(f"vLLM 0.33.0 no longer has this flag ({flag.touches}); remove it", where=spelling)
    return flag, full


def _completed(spelling: str, ours: Sequence[str]) -> str:
    if spelling in ours:
        raise InputError("a flag of this command, not of vLLM; put it before the two dashes", where=spelling)
    known = _by_spelling()
    begun = [full for full in known if full.startswith(spelling) and spelling.startswith("--")]
    if len({known[full].name for full in begun}) == 1:
        return begun[0]
    if begun:
        raise InputError(f"could be {', '.join(begun[:4])}; write one of them out", where=spelling)
    close = nearest(spelling, [*known, *ours])
    hint = f"; nearest is {close}" if close else ""
    raise InputError(f"no flag of vLLM 0.33.0{hint}; remove it or correct it", where=spelling)
