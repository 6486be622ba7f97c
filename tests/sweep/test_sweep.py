"""Sweeps: the points of a file, the same rows wherever they run, kept when killed, failures recorded."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sim.cli import main, sweep_command
from sim.errors import InputError
from sim.sweeps import Journal, Point, here, on_cores, read_sweep
from sim.sweeps import point as point_module
from workloads import open_workload

SCENARIO = """
model: {layers: [{kind: full, count: 2}], num_kv_heads: 1, head_size: 64, max_model_len: 512}
engine: {max_num_batched_tokens: 256, max_num_seqs: 8}
memory: {num_gpu_blocks_override: 80}
step_time: {kind: constant, seconds: 0.01}
workload: {trace: trace.jsonl}
"""
SWEEP = """
scenario: case.yaml
grid: {engine.max_num_seqs: [2, 4, 8], memory.num_gpu_blocks_override: [40, 80]}
zip: {engine.block_size: [16, 32], engine.max_num_batched_tokens: [128, 256]}
"""


def files(folder: Path, sweep: str = SWEEP, requests: int = 60) -> str:
    """A scenario, its trace and a sweep; the path of the sweep."""
    rows = [
        {"id": f"r{i}", "arrival_s": 0.02 * i, "prompt": [["all say", 64], [f"own {i}", 40]], "output_tokens": 5}
        for i in range(requests)
    ]
    (folder / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "case.yaml").write_text(SCENARIO)
    (folder / "many.yaml").write_text(sweep)
    return str(folder / "many.yaml")


def hybridkv(*arguments: str) -> int:
    """The exit code of a command."""
    return main(list(arguments))


def rows_of(points: Any) -> list[Any]:
    """Rows in order of their points."""
    return [row for _, row in sorted(points, key=lambda finished: finished[0].index)]


def test_grid_zip_and_points_are_combined(tmp_path: Path) -> None:
    sweep = read_sweep(files(tmp_path, SWEEP + "points: [{seed: 1}, {seed: 2, engine.max_num_seqs: 3}]\n"))
    assert len(sweep.points) == 3 * 2 * 2 * 2
    assert sweep.keys == (
        "engine.max_num_seqs",
        "memory.num_gpu_blocks_override",
        "engine.block_size",
        "engine.max_num_batched_tokens",
        "seed",
    )
    assert sweep.points[1].changes["engine.max_num_seqs"] == 3  # the later one holds
    assert sweep.points[2].changes["engine.block_size"] == 32
    assert len({point.key for point in sweep.points}) < len(sweep.points)


def test_each_point_is_the_run_of_its_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = read_sweep(files(tmp_path))
    rows = rows_of(here(sweep.points))
    assert hybridkv(
        "run", str(tmp_path / "case.yaml"), "--json", "--no-figures", "--out", str(tmp_path / "out"),
        *(f"--set={key}={value}" for key, value in sweep.points[5].changes.items()),
    ) == 0  # fmt: skip
    summary = json.loads(capsys.readouterr().out)
    assert rows[5]["values"]["ttft_s.p99"] == summary["ttft_s"]["p99"]
    assert rows[5]["values"]["steps"] == summary["steps"]


def test_the_rows_are_the_same_in_any_number_of_processes(tmp_path: Path) -> None:
    sweep = read_sweep(files(tmp_path))
    alone = rows_of(here(sweep.points))
    assert rows_of(on_cores(sweep.points, 2)) == alone
    assert len({json.dumps(row) for row in alone}) > 6


def test_a_sweep_killed_at_any_time_goes_on_without_losing_or_repeating_a_point(tmp_path: Path) -> None:
    sweep = files(tmp_path, SWEEP, requests=1_200)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-m", "sim", "sweep", sweep, "--workers", "2", "--out"]
    subprocess.run([*command, str(whole)], check=True, stdout=subprocess.DEVNULL)
    journal = killed / "points.jsonl"
    process = subprocess.Popen([*command, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert process.poll() is None, "it was over before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = journal.read_bytes()
    with journal.open("ab") as stream:  # as if the kill had come in the middle of a line
        stream.write(b'{"key": "half a li')
    assert 3 <= before.count(b"\n") < 12
    assert not (killed / "sweep.parquet").exists()
    subprocess.run([*command, str(killed)], check=True, stdout=subprocess.DEVNULL)
    after = journal.read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1])
    keys = [json.loads(line)["key"] for line in after.splitlines()]
    assert len(keys) == len(set(keys)) == 12
    assert pq.read_table(killed / "sweep.parquet").equals(pq.read_table(whole / "sweep.parquet"))


def test_ctrl_c_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(points: list[Point]) -> Any:
        yield from here(points[:2])
        raise KeyboardInterrupt

    sweep, out = files(tmp_path), str(tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(sweep_command, "here", stopped)
        assert hybridkv("sweep", sweep, "--out", out, "--workers", "1") == 130
    assert "interrupted; 2 of 12 points are kept" in capsys.readouterr().err
    assert len((tmp_path / "out" / "points.jsonl").read_text().splitlines()) == 2
    assert hybridkv("sweep", sweep, "--out", out, "--workers", "1") == 0


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    sweep = files(tmp_path, SWEEP, requests=1_200)
    command = [sys.executable, "-m", "sim", "sweep", sweep, "--workers", "2", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    journal = tmp_path / "out" / "points.jsonl"
    while not journal.exists() or not journal.stat().st_size:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    process.stdout.read()  # ends when the last process that holds it has ended
    process.stdout.close()
    process.wait()


def test_a_failed_point_is_recorded_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = files(tmp_path, "scenario: case.yaml\ngrid: {memory.num_gpu_blocks_override: [80, 3]}\n")
    assert hybridkv("sweep", sweep, "--out", str(tmp_path / "out"), "--workers", "1") == 0
    table = pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist()
    assert (table[0]["error"], table[0]["finished"]) == (None, 60)
    assert table[1]["finished"] is None
    assert "blocks" in table[1]["error"]
    assert "point 1 failed" in capsys.readouterr().out


def test_points_that_share_a_trace_read_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def counted(*arguments: Any) -> Any:
        opened.append(arguments)
        return open_workload(*arguments)

    monkeypatch.setattr(point_module, "open_workload", counted)
    point_module._workload.cache_clear()
    assert all(row["error"] is None for _, row in here(read_sweep(files(tmp_path)).points))
    assert len(opened) == 1


def test_another_trace_makes_another_point(tmp_path: Path) -> None:
    first = read_sweep(files(tmp_path)).points[0].key
    files(tmp_path, requests=61)
    assert read_sweep(str(tmp_path / "many.yaml")).points[0].key != first


def test_a_journal_keeps_what_was_added(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add("a", {"error": None, "values": {"x": 1}})
    with Journal(tmp_path) as journal:
        assert journal.rows == {"a": {"error": None, "values": {"x": 1}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {seed: [1]}", "scenario: is missing"),
        ("scenario: nowhere", "scenario: no such file"),
        ("scenario: case.yaml\ngrid: {seed: 1}", "grid.seed: expected a list of values"),
        ("scenario: case.yaml\ngrid: {seed: []}", "grid.seed: expected a list of values"),
        ("scenario: case.yaml\nzip: {seed: [1, 2], engine.block_size: [16]}", "zip: the lists are not of one length"),
        ("scenario: case.yaml\nslo: ttft<1", "cannot read|unknown metric"),
        ("scenario: case.yaml\nplots: [a, b]", "unknown key; nearest is 'plot'"),
        ("scenario: case.yaml\nbest: {want: most}", "best"),
    ],
)
def test_a_bad_sweep_gets_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_sweep(files(tmp_path, text))


def test_a_key_that_is_none_is_found_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = files(tmp_path, "scenario: case.yaml\ngrid: {engine.max_num_seq: [1, 2]}\n")
    assert hybridkv("sweep", sweep, "--out", str(tmp_path / "out")) == 2
    assert "many.yaml:2: grid.engine.max_num_seq" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_figure_of_any_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, out = files(tmp_path), tmp_path / "out"
    plot = "engine.max_num_seqs,ttft_s.p99,engine.block_size"
    assert hybridkv("sweep", sweep, "--out", str(out), "--workers", "1", "--plot", plot) == 0
    assert (out / "figures" / "sweep.png").stat().st_size > 10_000
    assert hybridkv("sweep", sweep, "--out", str(out), "--workers", "1", "--plot", "engine.max_num_seqs,ttft.p99") == 2
    assert "nearest is 'ttft_s.p99'" in capsys.readouterr().err


def test_a_best_by_a_column_that_no_point_has_is_said_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = files(tmp_path, SWEEP + "best: {column: ttft.mean, want: lowest}\n")
    assert hybridkv("sweep", sweep, "--out", str(tmp_path / "out"), "--workers", "1") == 2
    said = capsys.readouterr().err
    assert f"{sweep}:{len(SWEEP.splitlines()) + 1}: best: no column 'ttft.mean'" in said
    assert "nearest is 'ttft_s.mean'" in said
    assert "the finished points are kept" in said


def test_the_best_point_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = files(tmp_path, SWEEP + "best: {column: ttft_s.mean, want: lowest}\ncolumns: [ttft_s.mean]\n")
    assert hybridkv("sweep", sweep, "--out", str(tmp_path / "out"), "--workers", "1", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    times = [point["values"]["ttft_s.mean"] for point in data["points"]]
    assert times[data["best_point"]] == min(times)


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        (["many.yaml"], None),
        (["many.yaml", "--ray"], ""),
        (["--ray", "many.yaml"], ""),
        (["--ray", "--workers", "2", "many.yaml"], ""),
        (["--ray", "local", "many.yaml"], "local"),
        (["many.yaml", "--ray", "head:6379"], "head:6379"),
        (["many.yaml", "--ray=head"], "head"),
    ],
)
def test_the_address_of_ray_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], address: str | None
) -> None:
    asked = {}

    def command(file: str, _: Any, options: sweep_command.SweepOptions) -> int:
        asked[file] = options.ray
        return 0

    monkeypatch.setattr(sweep_command, "sweep_command", command)
    assert hybridkv("sweep", *arguments) == 0
    assert asked == {"many.yaml": address}


def test_a_cluster_that_nobody_runs_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    sweep = files(tmp_path, "scenario: case.yaml\ngrid: {engine.max_num_seqs: [2, 4]}\n")
    assert hybridkv("sweep", sweep, "--out", str(tmp_path / "out"), "--ray", "127.0.0.1:1") == 2
    assert "--ray: no cluster at '127.0.0.1:1'" in capsys.readouterr().err


def test_two_ray_nodes_give_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    (tmp_path / "ray_run.py").write_text(RAY_RUN)
    sweep = files(tmp_path)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "ray_run.py"), sweep], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["nodes"] == 2
    assert said["rows"] == json.loads(json.dumps(rows_of(here(read_sweep(sweep).points))))


RAY_RUN = """
import json, sys
from ray.cluster_utils import Cluster
from sim.sweeps import on_ray, read_sweep

if __name__ == "__main__":
    small = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    cluster.add_node(**small)
    try:
        import ray
        rows = sorted(on_ray(read_sweep(sys.argv[1]).points, cluster.address), key=lambda done: done[0].index)
        ray.init(address=cluster.address, log_to_driver=False)
        print(json.dumps({"nodes": len(ray.nodes()), "rows": [row for _, row in rows]}))
        ray.shutdown()
    finally:
        cluster.shutdown()
"""
