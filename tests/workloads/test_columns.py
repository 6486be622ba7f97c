"""Times and content names, exact to the last bit."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from workloads.columns import second_column
from workloads.content import (
    MOONCAKE,
    NATIVE,
    PREFIX_POOL,
    PRIVATE_OUTPUT,
    PRIVATE_PROMPT,
    SESSION,
    content_id,
    named,
    named_pair,
    salt_id,
)
from workloads.trace_file import RowBlock

PINNED_TEXT = 4_265_071_881_087_785_074
PINNED_INT = 17_888_766_039_972_386_487
NANOSECONDS = st.integers(0, 10**18)


def to_ns(values: list[str] | list[float]) -> list[int]:
    """What the readers make of seconds."""
    block = RowBlock("t", range(1, len(values) + 1), [""] * len(values))
    return [int(ns) for ns in second_column(values, "arrival_s", block)]


@given(st.lists(NANOSECONDS, min_size=1, max_size=5))
@example([2_000_000 * 10**9 - 1])
@example([2**51 - 1, 2**51, 2**53 + 1])
def test_a_decimal_time_keeps_every_nanosecond(times: list[int]) -> None:
    assert to_ns([str(Decimal(ns) / 10**9) for ns in times]) == times


@given(st.lists(st.integers(0, 2_000_000 * 10**9 - 1), min_size=1, max_size=5))
def test_a_json_number_keeps_every_nanosecond_of_the_first_23_days(times: list[int]) -> None:
    assert to_ns([float(Decimal(ns) / 10**9) for ns in times]) == times


def test_spaces_and_exponents_are_fine() -> None:
    assert to_ns([" 1.5 ", "2e-9", "+3"]) == [1_500_000_000, 2, 3_000_000_000]


def test_content_of_different_things_differs() -> None:
    numbers = np.arange(0, 200_000, dtype=np.int64)
    kinds = (NATIVE, MOONCAKE, PRIVATE_PROMPT, PRIVATE_OUTPUT, PREFIX_POOL)
    every = [named(numbers, kind) for kind in kinds]
    session, turn = (part.astype(np.int64) for part in np.divmod(numbers, 500))
    every.append(named_pair(session, turn, SESSION))
    every.append(np.array([content_id(str(i)) for i in range(20_000)], dtype=np.uint64))
    whole = np.concatenate(every)
    assert len(np.unique(whole)) == len(whole)


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_one_integer_is_named_as_in_an_array(value: int) -> None:
    array = np.array([value], dtype=np.int64) if value < 1 << 63 else np.array([value], dtype=np.uint64)
    assert content_id(value) == int(named(array, NATIVE)[0])


def test_integers_of_any_size_have_content() -> None:
    assert len({content_id(1 << 64), content_id(-(1 << 64)), content_id(0), content_id(str(1 << 64))}) == 4


def test_a_salt_is_never_none() -> None:
    assert salt_id("tenant") == content_id("tenant") != 0


def test_names_do_not_change_from_run_to_run() -> None:
    """Results of different days are compared, so the hashes are pinned."""
    code = "from workloads import content_id; print(content_id('system prompt'), content_id(7))"
    fresh = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert fresh.stdout.split() == [str(content_id("system prompt")), str(content_id(7))]
    assert (content_id("system prompt"), content_id(7)) == (PINNED_TEXT, PINNED_INT)
