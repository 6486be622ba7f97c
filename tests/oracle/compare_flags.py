"""The command line, ours against vLLM's argument parser: every flag known, and every value read the same.

    python tests/oracle/compare_flags.py                 # in the environment `make oracle` builds
    python tests/oracle/compare_flags.py --cases 2000 --seed 7

Exit code 1 and the first differences, when there are some; otherwise one line with the counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from sim.errors import InputError  # noqa: E402 (the checkout must come first on the path)
from sim.vllm_flags import Flag, flag_table, read_arguments  # noqa: E402
from tests.oracle.build_venv import folder, python_of  # noqa: E402

INTEGERS = ("1", "8", "0", "4096", "16")
HUMAN = (*INTEGERS, "32k", "2K", "1.5m", "25.6k", "1G")
BAD = ("x", "1.5K", "")
JSON = {
    "--speculative-config": ('{"method": "mtp", "num_speculative_tokens": 2}', ".num_speculative_tokens 3", ".model=a"),
    "--kv-transfer-config": ('{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',),
    "--hf-overrides": ('{"max_position_embeddings": 4096}', ".max_position_embeddings 8k", ".rope.factor 2.5"),
}
BECOME_OBJECTS = ("--compilation-config", "--attention-config", "--kv-transfer-config")
"""Flags whose mapping vLLM makes an object of, with defaults filled in."""

ACTING = ("engine", "memory", "weights", "budget", "speculative", "connector", "model")


def main() -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="the oracle environment's Python")
    parser.add_argument("--vllm", help="another vLLM release, whose differences are listed")
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options, _ = parser.parse_known_args()
    lines = [command_line(np.random.default_rng([options.seed, number])) for number in range(options.cases)]
    flags, theirs = ask_vllm(options.python or str(python_of(folder(options.vllm))), lines)
    wrong = table_differences(flags)
    read = 0
    for words, answer in zip(lines, theirs, strict=True):
        problem = difference(words, answer)
        read += "given" in answer
        wrong += [problem] if problem else []
    for line in wrong[:20]:
        print(line)
    print(
        f"flags: {len(flag_table())} known, {len(lines)} command lines, {read} of them read, {len(wrong)} differences"
    )
    return 1 if wrong and not options.vllm else 0


def ask_vllm(python: str, lines: list[list[str]]) -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """vLLM's flags, and its answer to every command line."""
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    command = [python, "-m", "tests.oracle.flags_vllm"]
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(answers) != len(lines) + 1:
        sys.exit(f"tests/oracle: vLLM's parser ended with {done.returncode}: {done.stderr[-2000:]}")
    return answers[0], answers[1:]


def table_differences(theirs: dict[str, list[str]]) -> list[str]:
    """Spellings that only one side knows, and flags that take something else."""
    ours = {
        spelling: [flag.key, flag.value if flag.value in ("switch", "set", "list", "maybe") else "one"]
        for flag in flag_table().values()
        if flag.effect != "gone"
        for spelling in flag.spellings
    }
    gone = [flag.name for flag in flag_table().values() if flag.effect == "gone" and flag.name in theirs]
    return [
        *(f"{spelling}: vLLM has it, the table not" for spelling in theirs if spelling not in ours),
        *(f"{spelling}: the table has it, vLLM not" for spelling in ours if spelling not in theirs),
        *(f"{name}: said to be gone, and vLLM has it" for name in gone),
        *(
            f"{spelling}: {ours[spelling]}, vLLM says {what}"
            for spelling, what in theirs.items()
            if ours.get(spelling, what) != what
        ),
    ]


def command_line(rng: np.random.Generator) -> list[str]:
    """A random command line of up to six flags that act on blocks, memory or scheduling, spelled in random ways."""
    acting = [flag for flag in flag_table().values() if flag.effect in ACTING]
    words = ["model"]
    for number in rng.choice(len(acting), size=int(rng.integers(1, 7)), replace=False):
        words += written(acting[int(number)], rng)
    return words


def written(flag: Flag, rng: np.random.Generator) -> list[str]:
    """One flag with a value, sometimes a bad one."""
    spelling = str(rng.choice(flag.spellings))
    if spelling.startswith("--") and rng.random() < 0.3:
        spelling = "--" + spelling[2:].replace("-", "_")
    if spelling.startswith("--") and rng.random() < 0.1:
        spelling = spelling[: -int(rng.integers(1, 4))]
    if flag.value in ("switch", "set"):
        return [spelling]
    choices = {"int": INTEGERS, "human_int": HUMAN, "float": ("0.9", "1", "0")}.get(flag.value, ("auto", "fp8", "none"))
    if flag.name in JSON:
        text = str(rng.choice(JSON[flag.name]))
        return [spelling, text] if text.startswith("{") else [spelling + text.split(maxsplit=1)[0], *text.split()[1:]]
    if flag.value == "json":
        return [spelling, '{"cudagraph_mode": "NONE"}' if flag.name == "--compilation-config" else '{"mode": 0}']
    value = str(rng.choice(BAD if rng.random() < 0.03 else choices))
    return [f"{spelling}={value}"] if rng.random() < 0.4 and value else [spelling, value]


def difference(words: list[str], answer: dict[str, Any]) -> str | None:
    """The first difference in one command line, None where both read it the same or both refuse it.

    Where vLLM only refuses a choice (a dtype, say) we may still read it: the engine's own checks refuse it later.
    """
    try:
        _, given = read_arguments(words)
    except InputError as error:
        return None if "error" in answer else f"{words}: ours refuses ({error}), vLLM reads it"
    if "error" in answer:
        choice = "invalid choice" in answer["error"]
        return None if choice else f"{words}: vLLM refuses ({answer['error']}), ours reads it"
    for item in {item.flag.key: item for item in given}.values():
        theirs = answer["given"].get(item.flag.key)
        if item.flag.name in BECOME_OBJECTS or theirs == item.value:
            continue
        return f"{words}: {item.flag.key} is {item.value!r}, vLLM says {theirs!r}"
    return None


if __name__ == "__main__":
    sys.exit(main())
