"""The same start however it was pasted: through collectors of logs, terminals, forms, shells; other hardware."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Callable

import pytest

from sim.startup_log import explain_text, read_log

LOG = """\
INFO 10-15 09:12:01 [api_server.py:1839] vLLM API server version 0.11.0
INFO 10-15 09:12:01 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 40960}
INFO 10-15 09:12:40 [gpu_worker.py:298] Available KV cache memory: 50.32 GiB
INFO 10-15 09:12:41 [kv_cache_utils.py:1087] GPU KV cache size: 366,400 tokens
INFO 10-15 09:12:41 [kv_cache_utils.py:1091] Maximum concurrency for 40,960 tokens per request: 8.95x
"""
LINES = LOG.splitlines()


def each(change: Callable[[str], str]) -> str:
    """Every line of the log changed alike."""
    return "\n".join(change(line) for line in LINES)


def cut(width: int) -> str:
    """Every line broken at a fixed width, words and numbers too."""
    return "\n".join(line[at : at + width] for line in LINES for at in range(0, len(line), width))


PASTED = {
    "docker compose": each("vllm-1  | {}".format),
    "kubernetes": each("2026-10-15T09:12:01.123456789Z stdout F {}".format),
    "journald": each("Oct 15 09:12:01 gpu01 vllm[1234]: {}".format),
    "docker json": each(lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026"})),
    "loki": each(lambda line: json.dumps({"ts": "1", "line": line})),
    "one string": json.dumps(LOG),
    "quoted": each("> {}".format),
    "fenced": f"```\n{LOG}```",
    "html": html.escape(LOG).replace("\n", "<br>\n"),
    "broken at 80": cut(80),
    "broken at 60": cut(60),
    "broken at 40": cut(40),
    "broken between words": "\n".join(textwrap.fill(line, 50) for line in LINES),
    "broken and indented": "\n".join(textwrap.fill(line, 50, subsequent_indent="    ") for line in LINES),
    "windows": LOG.replace("\n", "\r\n"),
    "old mac": LOG.replace("\n", "\r"),
    "hard spaces": LOG.replace(" ", "\u00a0"),
    "visible colours": LOG.replace("INFO", "\\x1b[32mINFO\\x1b[0m").replace("GPU KV", "^[[1mGPU KV"),
    "zeros between": "\x00".join(LOG),
    "a sentence": "Qwen/Qwen3-8B on vLLM 0.11.0: Available KV cache memory: 50.32 GiB, GPU KV cache size: 366,400"
    " tokens, Maximum concurrency for 40,960 tokens per request: 8.95x",
}


@pytest.mark.parametrize("how", PASTED)
def test_however_it_was_pasted_the_answer_is_the_same(how: str) -> None:
    found = explain_text(PASTED[how])
    assert found.agrees, found.verdict
    assert found.inputs is not None
    assert found.verdict is not None
    assert (found.inputs.model.name, found.facts.version, found.verdict.num_blocks) == ("qwen3-8b", (0, 11), 22_900)
    assert (found.assumed, found.facts.last("concurrency")) == ((), 8.95)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve Qwen/Qwen3-8B --max-model-len 40960 --of-a-fork yes -tp 1",
        "CUDA_VISIBLE_DEVICES=0 \\\n  vllm serve Qwen/Qwen3-8B \\\n  --max_model_len 40k \\\n  --max-model-len=40960",
        "python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-8B --max-model-len 40960",
        "docker run --gpus all vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B --max-model-len 40960",
        "  command:\n    - --model=Qwen/Qwen3-8B\n    - '--max-model-len=40960'",
        "INFO 10-15 09:12:01 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_model_len': 40960, 'host",
    ],
)
def test_flags_are_found_where_people_leave_them(command: str) -> None:
    facts = read_log(f"{command}\nGPU KV cache size: 366,400 tokens\n")
    assert (facts.model, facts.args["max_model_len"]) == ("Qwen/Qwen3-8B", 40960)


def test_the_banner_names_model_and_release() -> None:
    facts = read_log(
        "\x1b[94m▄█\x1b[0m \x1b[1m█     █     █ ▀▄▀ █\x1b[0m  version \x1b[1m0.32.1\x1b[0m\n"
        "  █▄█▀ █     █     █     █  model   Qwen/Qwen3-8B\n"
    )
    assert (facts.model, facts.version) == ("Qwen/Qwen3-8B", (0, 32))


def test_blocks_asked_for_count_instead_of_those_that_fit() -> None:
    found = explain_text(
        "vLLM API server version 0.30.0\nvllm serve Qwen/Qwen3-8B --num-gpu-blocks-override 1000\n"
        "Overriding num_gpu_blocks=22901 with num_gpu_blocks_override=1000\n"
        "GPU KV cache size: 16,000 tokens, Maximum concurrency for 40,960 tokens per request: 0.39x\n"
    )
    assert found.agrees
    assert found.verdict is not None
    assert found.verdict.num_blocks == 1000


def test_the_rank_with_the_least_exact_bytes_decides() -> None:
    lines = "".join(
        f"Available memory: {size}, total memory: 65464696832\n" for size in (40_000_000_000, 39_000_000_000)
    )
    assert read_log(lines).memory_ranges() == [(39_000_000_000,) * 2, (40_000_000_000,) * 2]
    assert read_log("Available KV cache memory: -0.87 GiB").memory_ranges() == []


@pytest.mark.parametrize(
    ("lines", "platform"),
    [
        ("INFO [__init__.py:44] plugin ascend loaded", "NPU"),
        ("INFO [xpu_worker.py:158] After memory profiling run, peak memory usage is 16384.00 MB", "XPU"),
        ("TPU KV cache size: 811,008 tokens", "TPU"),
        ("# HPU blocks: 2774, # CPU blocks: 227", "HPU"),
        ("Environment variable VLLM_CPU_KVCACHE_SPACE (GiB) for CPU backend is not set, using 4 by default.", "CPU"),
        ("INPUT tokens; GPU KV cache size: 1 tokens", "GPU"),
    ],
)
def test_the_hardware_is_recognised(lines: str, platform: str) -> None:
    assert read_log(lines).platform == platform


def test_a_block_size_the_platform_leaves_open_is_a_choice_and_no_assumption() -> None:
    found = explain_text(
        "WARNING [cpu.py:106] Environment variable VLLM_CPU_KVCACHE_SPACE (GiB) for CPU backend is not set, using 4 by"
        " default.\nvLLM API server version 0.8.5\nvllm serve Qwen/Qwen2.5-0.5B-Instruct --max-model-len 4096\n"
        "GPU KV cache size: 349,504 tokens\nMaximum concurrency for 4,096 tokens per request: 85.33x\n"
    )
    assert found.agrees
    assert (found.chosen, found.assumed) == (("block_size 16",), ())
