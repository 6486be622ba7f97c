"""What is known of published traces, to hold their readers against: rows, lengths, seconds.

The numbers were measured on the whole files by other means than these readers; for kv-cache-tester, of which only 19
session files are at hand, they were recomputed from those files with the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared/data"


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of one trace: p50, p95, p99 and largest by linear interpolation, rounded."""

    path: str
    requests: int
    prompt_mean: float
    prompt: tuple[int, int, int, int]
    output_mean: float
    output: tuple[int, int, int, int]
    span_s: float | None = None
    gap_cv: float | None = None
    infinite_cache: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)


START = {"arrival": {"kind": "poisson", "rate_per_s": 1}}
LLAMA = (732, 1749, 2765, 3998)
LLAMA_OUT = (632, 773, 784, 1021)

FACTS = {
    "mooncake conversation": Facts(
        "traces/mooncake/conversation_trace.jsonl",
        12031,
        12035,
        (6909, 39550, 85400, 126195),
        342.6,
        (350, 698, 1119, 2000),
        3537.0,
        3.03,
        0.374,
    ),
    "mooncake synthetic": Facts(
        "traces/mooncake/synthetic_trace.jsonl",
        3993,
        15325,
        (11587, 48905, 66456, 191378),
        149.1,
        (69, 519, 768, 893),
        1022.0,
        1.01,
        0.651,
    ),
    "azure code": Facts(
        "traces/azure_2023/AzureLLMInferenceTrace_code.csv",
        8819,
        2048,
        (1469, 7303, 7436, 7437),
        27.9,
        (13, 90, 251, 1899),
        3435.9,
        13.15,
    ),
    "azure conv": Facts(
        "traces/azure_2023/AzureLLMInferenceTrace_conv.csv",
        19366,
        1155,
        (1020, 4083, 4142, 14050),
        211.1,
        (129, 451, 601, 1000),
        3501.7,
        1.09,
    ),
    "vidur code": Facts(
        "traces/vidur/splitwise_code.csv",
        8819,
        2048,
        (1469, 7303, 7436, 7437),
        27.9,
        (13, 90, 251, 1899),
        3435.9,
        13.15,
    ),
    "vidur conv": Facts(
        "traces/vidur/splitwise_conv.csv",
        19366,
        1155,
        (1020, 4083, 4142, 14050),
        211.1,
        (129, 451, 601, 1000),
        3501.7,
        1.09,
    ),
    "vidur ShareGPT lengths": Facts(
        "traces/vidur/sharegpt_val_10k_llama2.csv",
        10000,
        246,
        (35, 1423, 2862, 3973),
        325.6,
        (286, 839, 1000, 1734),
        settings=START,
    ),
    "RAGPulse": Facts(
        "traces/ragpulse/0_trace.jsonl",
        7106,
        2944,
        (3140, 4425, 5438, 7712),
        283.2,
        (234, 670, 891, 2183),
        604_800 + 604_603 - 82,
        None,
        0.314,
    ),
    "LLMServingSim ShareGPT": Facts(
        "traces/llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl",
        300,
        857,
        LLAMA,
        652.5,
        LLAMA_OUT,
        29.1,
        0.94,
        0.076,
    ),
    "LLMServingSim run": Facts(
        "traces/llmservingsim/vllm_requests_RTX4090_Llama-3.1-8B.jsonl", 300, 857, LLAMA, 652.5, LLAMA_OUT, 29.1
    ),
    "LLMServingSim mixed": Facts(
        "traces/llmservingsim/workload_me2_01_mixed.jsonl",
        608,
        9218,
        (2910, 26412, 28447, 31383),
        3021,
        (874, 13045, 15039, 15890),
        60.9,
        0.99,
    ),
    "TraceLab rounds": Facts(
        "traces/tracelab/round_trace.jsonl",
        19,
        27053,
        (32272, 47588, 48162, 48305),
        596.6,
        (273, 2193, 2419, 2475),
    ),
    "TraceLab sessions": Facts(
        "traces/tracelab/multi_session_large.csv",
        303,
        3797,
        (3637, 6658, 7570, 8180),
        193.7,
        (188, 308, 319, 320),
        9.9,
    ),
    "kv-cache-tester, 19 of 739 files, one a copy": Facts(
        "traces/kv_cache_tester",
        1006,
        84_535,
        (76690, 148551, 371019, 373787),
        471.5,
        (249, 1558, 4741, 9183),
        infinite_cache=0.948,
        settings=START,
    ),
    "AIBrix": Facts("traces/aibrix/one_request.jsonl", 1, 3, (3, 3, 3, 3), 22, (22, 22, 22, 22)),
}


def shared(path: str) -> Path:
    """A published file; skips the test where it is not at hand."""
    if not (FOLDER / path).exists():
        pytest.skip(f"{path} is not beside the repository (../shared/data)")
    return FOLDER / path
