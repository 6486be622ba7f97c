"""Whatever a paste has become, it is explained or refused in one line: cut, shuffled, swollen, in a wrong encoding."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from sim.errors import HybridKVError
from sim.report.log_tables import log_data, log_tables
from sim.startup_log import explain_text

LOGS = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).with_name("excerpts").iterdir())]
NUMBERS = ("9" * 400, "-1", "0", "1e400", "nan", "1,,,,2", "-", "1.7976931348623157e308", "\u0661\u0662")
MARKS = ("\0", "\ufffd", "\u2028", "\x1b[", "{", "}", "'", '"', "\\", "(", "=", "\x85", "--", "model=", "\ud800")


def mutated(text: str, draw: random.Random) -> str:
    """The text after one to four accidents."""
    for _ in range(draw.randint(1, 4)):
        lines, at = text.splitlines(), draw.randint(0, len(text))
        kind = draw.randrange(9)
        numbers = list(re.finditer(r"\d[\d,.]*", text)) if kind == 3 else []
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[at:] + text[: at // 2]
        elif kind == 2:
            text = text[:at] + draw.choice(MARKS) + text[at:]
        elif numbers:
            found = draw.choice(numbers)
            text = text[: found.start()] + draw.choice(NUMBERS) + text[found.end() :]
        elif kind == 4:
            text = text.encode("utf-16", "surrogatepass").decode("latin1")
        elif kind == 5:
            draw.shuffle(lines)
            text = "\r\n".join(lines)
        elif kind == 6:
            text += draw.choice(LOGS)
        elif kind == 7:
            width = draw.choice((7, 40, 80))
            text = "\n".join(text[start : start + width] for start in range(0, len(text), width))
        elif kind == 8:
            swapped = draw.choice(
                (("_size': 2", "_size': 0"), ("': ", "': -"), ("None", "{'a':[1"), ("Qwen", "Llama-4"))
            )
            text = text.replace(*swapped)
    return text


@pytest.mark.parametrize("seed", range(40))
def test_no_accident_of_a_paste_is_a_traceback(seed: int) -> None:
    draw = random.Random(seed)
    text = mutated(draw.choice(LOGS), draw)
    found, refusal = None, ""
    try:
        found = explain_text(text)
    except HybridKVError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if found is None:
        assert refusal
        return
    assert json.loads(json.dumps(log_data(found), allow_nan=False))["agrees"] == found.agrees
    assert log_tables(found)[0].title == "What the log says"
