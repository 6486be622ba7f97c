"""Reading serving points: CSV rows, results of ``vllm bench serve``, and what is wrong with either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.calibrate import read_points
from sim.errors import InputError
from tests.calibrate.bench_result import BENCH

HEADER = "concurrency,input_len,input_len_min,output_len,mean_ttft_ms,mean_tpot_ms,tensor_parallel_size\n"


def test_a_row_is_a_point(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(HEADER + "8,1024,819,128,60,7.5,2\n16,1024,,128,,9,\n")
    first, second = read_points(path)
    assert (first.concurrency, first.num_prompts, first.input_len, first.output_len) == (8, 80, (819, 1024), (128, 128))
    assert first.changes == {"engine": {"tensor_parallel_size": 2}}
    assert (second.input_len, second.measured, second.changes) == ((1024, 1024), {"mean_tpot_ms": 9.0}, {})
    assert first.workload()["max_concurrency"] == 8


def test_a_result_of_vllms_benchmark_is_a_point(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(BENCH))
    (point,) = read_points(path)
    assert (point.concurrency, point.num_prompts, point.input_len, point.output_len) == (2, 4, (100, 100), (10, 10))
    assert point.measured == {"mean_ttft_ms": 50.0, "mean_tpot_ms": 5.0, "output_throughput": 300.0}


def test_a_rate_and_listed_lengths_of_vllms_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    detailed = {"input_lens": [80, 120, 100, 100], "output_lens": [10, 10, 10, 10]}
    path.write_text(json.dumps({**BENCH, **detailed, "max_concurrency": None, "request_rate": 3.5}))
    (point,) = read_points(path)
    assert (point.concurrency, point.request_rate, point.input_len) == (None, 3.5, (80, 120))
    assert point.workload()["synthetic"]["arrival"] == {"kind": "poisson", "rate_per_s": 3.5}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no points"),
        ("concurency,input_len\n1,2\n", "points.csv:1: unknown column 'concurency'; nearest is 'concurrency'"),
        (HEADER + "8,1024,,128,,,\n", "points.csv:2: nothing measured"),
        (HEADER + ",1024,,128,1,1,\n", "points.csv:2: give either concurrency or request_rate"),
        (HEADER + "8,1024,2000,128,1,1,\n", "input_len_min is 2000, more than input_len, 1024"),
        (HEADER + "8.5,1024,,128,1,1,\n", "concurrency: expected a whole number, got '8.5'"),
        (HEADER + "8,1024,,128,-3,1,\n", "mean_ttft_ms: expected a number greater than 0, got '-3'"),
        (HEADER + "8,,,128,3,1,\n", "input_len is missing"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_points(path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"completed": 0, "total_input_tokens": 1, "total_output_tokens": 1}']
)
def test_a_bad_result_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"result.json: is no result that can be read"):
        read_points(path)
