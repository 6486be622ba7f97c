"""The check of contents: true logs are confirmed for every kind of layer, faulty simulators and logs are refuted."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from gpu_check.case import Case
from gpu_check.claims import Claim, Verdict
from gpu_check.content import check
from gpu_check.content.check import LIMITS, check_content
from gpu_check.content.recording import Recording, record
from gpu_check.content.states import scan
from gpu_check.content.tokens import identities
from tests.gpu_check.cases import CPU, case_of, refuted, small_workload
from tests.gpu_check.cases_mutated import FAULTS

ALIGN: dict[str, Any] = {"enable_prefix_caching": True, "mamba_cache_mode": "align", "prefix_match_unit": 16}
MODELS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "windows": ("gemma-3-1b", 480, {}),
    "a window as long as eight blocks": ("gpt-oss-20b", 260, {}),
    "steps one by one": ("gpt-oss-20b", 260, {"async_scheduling": False}),
    "heads outside blocks": ("gpt-oss-20b", 260, {"kv_cache_layout": "LHBNC"}),
    "all layers in a block": ("gpt-oss-20b", 260, {"kv_cache_layout": "BLHNC"}),
    "hybrid manager off": ("gpt-oss-20b", 260, {"disable_hybrid_kv_cache_manager": True}),
    "two block sizes": ("gemma-4-e2b", 320, {}),
    "all full": ("qwen3-0.6b", 80, {}),
    "chunks": ("llama-4-scout", 400, {}),
    "latent": ("deepseek-v2-lite", 80, {}),
    "states": ("granite-4.0-h-small", 40, {"enable_prefix_caching": False}),
    "states at the edges of blocks": ("granite-4.0-h-small", 60, ALIGN),
    "states beside latent": ("kimi-linear-48b-a3b", 40, {"enable_prefix_caching": True}),
}
FLAGS: dict[str, Any] = {"max_model_len": 1024, "max_num_batched_tokens": 256, "max_num_seqs": 6}


def replayed(model: Any, blocks: int, **flags: Any) -> Case:
    """A case of ten requests."""
    workload = small_workload(10, 300, 20)
    return case_of(model, blocks, budget=1 << 30, engine={**FLAGS, **flags}, workload=workload)


@pytest.mark.parametrize("name", MODELS)
def test_true_contents_are_confirmed(name: str) -> None:
    model, blocks, flags = MODELS[name]
    claims = check_content(replayed(model, blocks, **flags), CPU)
    assert refuted(claims) == []
    words = {claim.claim for claim in claims if claim.verdict is Verdict.CONFIRMED}
    for dtype in ("float32", "bfloat16"):
        assert f"largest error of decode attention, {dtype}" in words
        assert f"largest error of prefill attention, {dtype}" in words
    assert ("largest error of states found, float32" in words) is name.startswith("states")


def test_hits_copies_and_preemptions_are_among_what_is_confirmed() -> None:
    claims = check_content(replayed(*MODELS["states at the edges of blocks"][:2], **ALIGN), CPU)
    (note,) = (claim.note for claim in claims if claim.note.startswith("10 requests, "))
    for what in ("hits", "preemptions", "copied blocks", "blocks freed behind a window or state"):
        assert f" {what}" in note
        assert f" 0 {what}" not in note


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which is not installed: Linux only")
def test_the_kernel_of_gpus_reads_the_same_blocks() -> None:
    lines = output_of("tests.gpu_check.cases_triton", TRITON_INTERPRET="1")
    for dtype, kernels, errors, wrong in map(json.loads, lines[-2:]):
        assert (kernels, wrong) == (["triton"], {})
        assert set(errors) == {"decode attention", "prefill attention"}
        assert max(errors.values()) <= LIMITS[dtype]


def output_of(module: str, *arguments: str, **environment: str) -> list[str]:
    """The lines that a script of this folder prints."""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# --- faulty simulators are refuted ---


@pytest.mark.parametrize("fault", FAULTS)
def test_a_simulator_with_a_fault_is_refuted(fault: str) -> None:
    *_, last = output_of("tests.gpu_check.cases_mutated", fault, NUMBA_DISABLE_JIT="1")
    found = [claim for claim, _ in json.loads(last)]
    if fault == "nothing":
        assert found == []
        return
    assert "largest error of decode attention, float32" in found
    assert "largest error of decode attention, bfloat16" in found
    if fault == "hits_with_a_wrong_block":
        assert "hit blocks that computing again would write the same, float32" in found
    if fault == "frees_a_block_too_early":
        assert "block tables at a request's end, as the masks of its layers leave them" in found


# --- so are logs that do not say what happened ---


def of_log(
    change: Callable[[Recording], None],
    monkeypatch: pytest.MonkeyPatch,
    name: str = "a window as long as eight blocks",
) -> list[Claim]:
    """The refuted claims when a true log is changed."""
    model, blocks, flags = MODELS[name]
    case = replayed(model, blocks, **flags)
    true = record(case)
    changed = Recording(copy.deepcopy(true.entries), true.texts)
    change(changed)
    monkeypatch.setattr(check, "record", lambda _: changed)
    return refuted(check_content(case, CPU))


def test_a_log_without_its_copies_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(recording: Recording) -> None:
        for entry in recording.entries:
            entry.pop("copies", None)

    found = of_log(change, monkeypatch, "states at the edges of blocks")
    assert "largest error of states found, float32" in [claim.claim for claim in found]


def test_a_log_with_longer_hits_than_there_were_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(recording: Recording) -> None:
        for entry in recording.entries:
            entry["hits"] = [[name, hit + 1 if hit else 0] for name, hit in entry.get("hits", [])]

    assert of_log(change, monkeypatch)


def test_a_text_that_is_another_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request hits the first one's prefix, which is not its own."""

    def change(recording: Recording) -> None:
        for number, name in enumerate(recording.texts):
            text = recording.texts[name]
            other = identities(np.array([number], np.uint64), np.array([len(text.tokens)]))
            recording.texts[name] = type(text)(other, text.prompt_tokens)

    words = [claim.claim for claim in of_log(change, monkeypatch)]
    assert "hit blocks that computing again would write the same, float32" in words


# --- what cannot be replayed is said ---


@pytest.mark.parametrize(
    ("model", "flags", "why"),
    [
        ("deepseek-v4-flash", {}, "compressed states, windows that are replayed: not replayed here"),
        ("gpt-oss-20b", {"speculative_method": "ngram", "num_speculative_tokens": 2}, "drafts are written and taken"),
    ],
)
def test_what_is_not_replayed_is_no_verdict(model: str, flags: dict[str, Any], why: str) -> None:
    (claim,) = check_content(replayed(model, 900, **flags), CPU)
    assert claim.verdict is Verdict.NOT_TESTED
    assert why in claim.note or claim.note.startswith("compressed states")


# --- the recurrence of states ---


def test_a_scan_in_pieces_is_the_loop() -> None:
    inputs = torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums = torch.zeros(6, dtype=torch.float64)
    fades = torch.tensor([0.75] * 3 + [0.96875] * 3, dtype=torch.float64)
    found = scan(inputs, sums)
    for position in range(300):
        sums = fades * sums + torch.cat([inputs[position], inputs[position]])
        assert torch.allclose(found[position], sums, atol=1e-12)


def test_a_salt_and_a_prefix_make_another_token() -> None:
    content, tokens = np.array([7, 8], np.uint64), np.array([4, 4])
    plain = identities(content, tokens)
    assert not set(plain.tolist()) & set(identities(content, tokens, salt=1).tolist())
    shorter = identities(content, np.array([3, 4]))
    assert plain[:3].tolist() == shorter[:3].tolist()
    assert not set(plain[3:].tolist()) & set(shorter[3:].tolist())
