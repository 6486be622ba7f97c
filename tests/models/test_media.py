"""Images, audio and video: what vLLM 0.33.0 decides by their limits, each case seen in vLLM's own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.engine_config import EngineConfig
from sim.errors import InputError, RefusalError
from sim.models import Model, load_model
from sim.planning import layer_specs, smallest_batch
from sim.planning.refusals import check_model
from sim.scenario import Document, build_scenario
from sim.vllm_flags import read_arguments, settings_of

GEMMA4, GEMMA3, QWEN, GLM = (load_model(name) for name in ("gemma-4-31b", "gemma-3-4b", "qwen3.5-27b", "glm-4.5v"))
TEXT_ONLY: list[dict[str, Any]] = [
    {"language_model_only": True},
    {"limit_mm_per_prompt": {"image": 0, "video": {"count": 0}}},
]
SOME: list[dict[str, Any]] = [
    {"limit_mm_per_prompt": {"image": 0}},
    {"language_model_only": True, "enable_mm_embeds": True},
]


def engine(tokens: int = 8192, **flags: Any) -> EngineConfig:
    return EngineConfig(max_model_len=4096, max_num_batched_tokens=tokens, max_num_seqs=8, **flags)


@pytest.mark.parametrize("flags", TEXT_ONLY)
def test_a_batch_is_made_for_the_longest_item_unless_there_is_none(flags: dict[str, Any]) -> None:
    assert smallest_batch(GEMMA4, {}) == 2496
    assert smallest_batch(GEMMA4, flags) == 0
    assert [smallest_batch(GEMMA4, some) for some in SOME] == [2496, 2496]
    assert smallest_batch(GEMMA4, {"limit_mm_per_prompt": {"video": {"count": 1, "num_frames": 8}}}) == 624
    assert smallest_batch(GEMMA3, {}) == 0  # only its processor knows, when the batch is made already


def strides(model: Model, **flags: Any) -> set[int | None]:
    specs = layer_specs(model, engine(device_capability="10.0", **flags)).values()
    return {getattr(spec.block_stride_alignment, "tokens", None) for spec in specs}


@pytest.mark.parametrize("flags", TEXT_ONLY)
def test_text_alone_runs_on_kernels_that_cannot_read_both_ways(flags: dict[str, Any]) -> None:
    assert strides(GEMMA3) == {64}
    assert strides(GEMMA3, **flags) == {1024}


@pytest.mark.parametrize(
    ("model", "tokens", "flags", "message"),
    [
        (GEMMA4, 2495, {}, "2495 is smaller than the 2496 tokens of the longest video"),
        (GEMMA4, 2496, {}, None),
        (GEMMA4, 2495, {"limit_mm_per_prompt": {"video": 0}}, None),
        (GEMMA4, 279, {"limit_mm_per_prompt": {"video": 0}}, "279 is smaller than the 280 tokens of the longest image"),
        (GEMMA4, 279, TEXT_ONLY[0], None),
        (GEMMA3, 255, {}, "255 is smaller than the 256 tokens of the longest image"),
        (QWEN, 8192, {"disable_chunked_mm_input": True}, "has to cut images where it likes"),
        (QWEN, 8192, {"disable_chunked_mm_input": True, "enable_prefix_caching": False}, None),
        (GLM, 8192, {"tensor_parallel_size": 8}, "does not divide the 12 heads of the vision tower"),
        (GLM, 8192, {"tensor_parallel_size": 8, "language_model_only": True}, "does not divide the 12 heads"),
        (GLM, 8192, {"tensor_parallel_size": 8, "mm_encoder_tp_mode": "data"}, None),
    ],
)
def test_what_is_refused(model: Model, tokens: int, flags: dict[str, Any], message: str | None) -> None:
    if message is None:
        check_model(model, engine(tokens, **flags))
        return
    with pytest.raises(RefusalError, match=message):
        check_model(model, engine(tokens, **flags))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ([1], "expected a mapping"),
        ({"image": -1}, r"image\.count: expected an integer of at least 0, got -1"),
        ({"video": {"frames": 8}}, r"video\.frames \(nearest: 'num_frames'\) is none of count, num_frames"),
        ({"video": {"num_frames": 0}}, r"video\.num_frames: expected an integer of at least 1, got 0"),
    ],
)
def test_limits_that_are_none(limits: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine(limit_mm_per_prompt=limits)


def test_flags_and_scenarios_say_the_same() -> None:
    words = ["m", "--language-model-only", "--limit-mm-per-prompt.video", "0", "--mm-encoder-tp-mode", "data"]
    settings = settings_of(read_arguments(words)[1])
    assert settings.engine["limit_mm_per_prompt"] == {"video": 0}
    keys = {"model": "gemma-4-31b", "memory": {"num_gpu_blocks_override": 10**6}}
    for engine_keys, tokens in ((settings.engine, 2048), ({}, 2496)):
        value = {**keys, "hardware": {"gpu": "A100-80GB"}, "engine": dict(engine_keys)}
        assert build_scenario(Document("case.yaml", value), Path.cwd()).engine.max_num_batched_tokens == tokens
