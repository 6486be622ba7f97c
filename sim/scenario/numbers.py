"""Numbers as vLLM's command line takes them: ``32k`` is 32,000 and ``32K`` is 32,768."""

from __future__ import annotations

import re

_EXPONENT = {"k": 1, "m": 2, "g": 3, "t": 4}


def human_readable_int(text: str) -> int:
    """The integer meant by ``text``; ValueError when it is none.

    Lower-case suffixes are decimal and may follow a fraction, upper-case ones are binary and may not
    (vllm 0.33.0 utils/argparse_utils.py:30).

    >>> human_readable_int("25.6k"), human_readable_int("2K"), human_readable_int("4096")
    (25600, 2048, 4096)
    """
    match = re.fullmatch(r"\s*(\d+)(\.\d+)?([kKmMgGtT])?\s*", text)
    if match is None:
        raise ValueError("expected a whole number, or one like 32k (32,000) or 32K (32,768)")
    whole, fraction, suffix = match.groups()
    if suffix is None or suffix.isupper():
        if fraction is not None:
            raise ValueError("a fraction needs a decimal suffix, as in 25.6k")
        return int(whole) * (1024 ** _EXPONENT[suffix.lower()] if suffix else 1)
    return int(float(whole + (fraction or "")) * 1000 ** _EXPONENT[suffix])
