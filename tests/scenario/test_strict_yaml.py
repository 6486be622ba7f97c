"""YAML as scenarios read it: YAML 1.2 scalars, lines kept, nothing ambiguous let through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.scenario.strict_yaml import MAX_FILE_BYTES, dump_yaml, parse_value, parse_yaml, read_yaml

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab1._-on", min_size=1), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("0x10", "0x10"),
        ("010", 10),
        ("1_000", 1000),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("", None),
        ("~", None),
        ("null", None),
        ("True", True),
        ("'1'", "1"),
    ],
)
def test_a_scalar_is_what_it_looks_like(text: str, value: Any) -> None:
    assert parse_value(text, "here") == value


@given(TREES)
def test_what_is_dumped_is_read_back(tree: Any) -> None:
    assert parse_yaml(dump_yaml({"tree": tree}), "x").value == {"tree": tree}


def test_every_key_and_item_has_its_line() -> None:
    document = parse_yaml("a:\n  b: 1\n  c:\n  - x\n  - {d: 2}\n", "f.yaml")
    assert document.place(("a", "b")) == "f.yaml:2"
    assert document.place(("a", "c", 1, "d")) == "f.yaml:5"
    assert document.place(("a", "c", 1, "not there")) == "f.yaml:5", "the nearest enclosing key"
    assert document.place(("nothing",)) == "f.yaml"


def test_keys_are_text_as_written() -> None:
    assert parse_yaml("4096: {}\non: {}\n", "f.yaml").value == {"4096": {}, "on": {}}


def test_aliases_that_stay_small_are_allowed() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\n", "f.yaml").value == {"a": {"x": 1}, "b": {"x": 1}}


def test_a_file_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(path, "f.yaml").value == {"a": 1}


def test_reading_stops_at_the_limit() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("needs /dev/zero")
    with pytest.raises(InputError, match=f"{MAX_FILE_BYTES:,}"):
        read_yaml(endless, "endless")
