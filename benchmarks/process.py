"""Whole processes: CPU-seconds, wall seconds and peak memory of `hybridkv` as a user starts it.

    python -m benchmarks.process [w1] [plan] [compile] [million]

w1       a run of 2,000 requests of a conversation trace (../shared/data/workloads) without figures; and of it, the
         simulation alone
plan     `hybridkv plan`
compile  the first run with an empty cache folder, the next one, and of that what loading the core takes
million  synthetic traces of 250,000, 500,000 and 1,000,000 requests, read as a stream
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
W1 = ROOT.parent / "shared" / "data" / "workloads" / "w1_azureconv_2000_q6.45.csv"
PLAN = ["plan", "gemma-3-27b", "--available-kv-cache-memory-gib", "40"]

SCENARIO = """
name: benchmark
model: llama-3.1-8b
hardware: {{gpu: H100-80GB, usage: server}}
memory: {{available_kv_cache_memory_gib: 55}}
workload: {workload}
"""
STREAM = (
    "{{synthetic: {{requests: {n}, arrival: {{kind: poisson, rate_per_s: 6.0}}, "
    "prompt_tokens: {{kind: lognormal, mean: 1100, cv: 1.0, max: 8000}}, "
    "output_tokens: {{kind: lognormal, mean: 200, cv: 1.0, max: 1000}}}}}}"
)


def measure(arguments: list[str], **environment: str) -> tuple[float, float, float]:
    """Wall seconds, CPU-seconds and peak MiB of one `hybridkv` process; it must succeed.

    Peak memory is the largest of all processes measured so far: measure the small ones first.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sim", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1024


def _report(label: str, measured: tuple[float, float, float]) -> None:
    wall, cpu, peak = measured
    print(f"{label:<34} {cpu:8.2f} CPU-s {wall:8.2f} s {peak:8.0f} MiB at the peak so far", flush=True)


def _run_arguments(folder: Path, workload: str) -> list[str]:
    scenario = folder / "benchmark.yaml"
    scenario.write_text(SCENARIO.format(workload=workload))
    return ["run", str(scenario), "--no-figures", "--json", "--out", str(folder / "results")]


def plan() -> None:
    """Best of five."""
    _report("hybridkv plan", min(measure(PLAN) for _ in range(5)))


def w1(folder: Path) -> None:
    """Best of five of the process; then the simulation alone, in this process."""
    if not W1.exists():
        print(f"w1: {W1} is absent, nothing measured")
        return
    arguments = _run_arguments(folder, f"{{trace: {W1}}}")
    measure(arguments)
    _report("hybridkv run --no-figures, W1", min((measure(arguments) for _ in range(5)), key=lambda m: m[1]))
    _simulation_alone(folder / "benchmark.yaml")


def _simulation_alone(path: Path) -> None:
    from sim.engine import WINDOW, Engine
    from sim.hardware import find_gpu
    from sim.machine import Machine, make_plan
    from sim.planning import plan_kv_cache
    from sim.scenario import load_scenario
    from sim.step_time import make_step_time
    from workloads import open_workload

    scenario = load_scenario(path)
    blocks = plan_kv_cache(scenario.model, scenario.engine, scenario.memory)
    gpu = find_gpu(scenario.gpu or "")
    price = make_step_time(scenario.step_time, scenario.model, scenario.engine, gpu).price
    workload = open_workload(scenario.workload, scenario.base_dir, scenario.seed)
    measured = []
    for _ in range(6):
        machine = Machine(make_plan(blocks, scenario.engine), price, blocks.num_blocks)
        engine = Engine(machine, workload.batches(WINDOW))
        began = time.process_time()
        engine.run()
        measured.append((time.process_time() - began, machine.num_steps))
    seconds, steps = min(measured)
    print(f"of that, the simulation alone      {seconds:8.3f} CPU-s, {steps} steps")


def compilation(folder: Path) -> None:
    """The first run ever, and the second."""
    arguments = ["run", "toy", "--no-figures", "--json", "--out", str(folder / "results")]
    cache = str(folder / "cache")
    _report("first run, nothing compiled", measure(arguments, HYBRIDKV_CACHE_DIR=cache))
    _report("second run, from the cache", measure(arguments, HYBRIDKV_CACHE_DIR=cache))
    _loading(cache)


def _loading(cache: str) -> None:
    """The first call into compiled code that an earlier process left in the cache."""
    script = (
        "import time; from tests.twin.ours import make_machine; from tests.twin.settings import Settings\n"
        "machine = make_machine(Settings()); began = time.process_time(); machine.advance()\n"
        "print(f'of that, loading the core {time.process_time() - began:18.2f} CPU-s')"
    )
    environment = {**os.environ, "HYBRIDKV_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True)


def million(folder: Path) -> None:
    """Time against length, and the peak."""
    for n in (250_000, 500_000, 1_000_000):
        _report(f"stream of {n:,} requests", measure(_run_arguments(folder, STREAM.format(n=n))))


def main() -> None:
    """Measure what is named, everything by default."""
    names = sys.argv[1:] or ["plan", "w1", "compile", "million"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what in names:
            if what == "plan":
                plan()
            elif what in ("w1", "compile", "million"):
                {"w1": w1, "compile": compilation, "million": million}[what](folder)
            else:
                sys.exit(f"unknown benchmark {what!r}; known: plan w1 compile million")


if __name__ == "__main__":
    main()
