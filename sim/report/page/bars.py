"""Horizontal bars: one number per run, or the parts of a whole, with the values written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: its length, and what the pointer reads."""

    name: str
    colour: int
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A named bar of parts, laid end to end, with a text at its end."""

    name: str
    parts: Sequence[Part]
    text: str = ""


def bars_html(title: str, bars: Sequence[Bar], *, note: str = "", key: bool = False) -> str:
    """Bars to one common scale as an HTML figure; with ``key``, the parts' colours are explained above."""
    longest = max((sum(part.value for part in bar.parts) for bar in bars), default=0.0) or 1.0
    rows = "".join(_row(bar, longest) for bar in bars)
    named = list(dict.fromkeys((part.name, part.colour) for bar in bars for part in bar.parts)) if key else []
    legend = "".join(f'<span class="c{colour} filled"><i></i>{escape(name)}</span>' for name, colour in named)
    under = f'<p class="note">{escape(note)}</p>' if note else ""
    above = f'<div class="key">{legend}</div>' if legend else ""
    return f'<figure class="bars"><figcaption>{escape(title)}</figcaption>{above}{rows}{under}</figure>'


def _row(bar: Bar, longest: float) -> str:
    pieces = "".join(
        f'<span class="part c{part.colour}" tabindex="0" style="width:{100 * part.value / longest:.3f}%"'
        f' data-tip="{escape(part.name)}: {escape(part.text)}"></span>'
        for part in bar.parts
        if part.value > 0
    )
    return (
        f'<div class="bar"><span class="name">{escape(bar.name)}</span>'
        f'<span class="track">{pieces}</span><span class="value">{escape(bar.text)}</span></div>'
    )
