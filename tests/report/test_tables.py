"""Tables say what is known, and a dash where nothing is."""

from __future__ import annotations

from sim.cli.console import plain
from sim.report.tables import Table, latency_rows, seconds, share


def test_latencies_of_requests_that_had_none_are_dashes() -> None:
    nothing = dict.fromkeys(("mean", "p50", "p90", "p99"))
    summary = {"ttft_s": {"mean": 0.25, "p50": 0.2, "p90": 0.3, "p99": 90.0}, "tpot_s": nothing}
    assert latency_rows(summary) == [
        ("time to first token", "250 ms", "200 ms", "300 ms", "90 s"),
        ("time per output token", "-", "-", "-", "-"),
    ]


def test_times_have_the_unit_that_suits_them() -> None:
    assert [seconds(value) for value in (0.0, 0.00123, 59.0, 601.0, 7200.0)] == [
        "0 ms",
        "1.23 ms",
        "59 s",
        "10 min",
        "2 h",
    ]


def test_a_share_of_nothing_is_a_dash() -> None:
    assert (share(3, 0), share(0, 4)) == ("-", "0.0 %")


def test_plain_tables_wrap_words_and_never_rows() -> None:
    table = Table("T " * 80, ("", "x" * 200), [("row", "1")], ["note " * 40])
    lines = plain(table).splitlines()
    assert [line for line in lines if len(line) > 110 and "x" not in line and "1" not in line] == []
    assert any("x" * 200 in line for line in lines)
