"""Bytes of one weight, read from published forms of ``quantization_config``."""

from __future__ import annotations

from typing import Any

import pytest

from sim.models import model_from_config, weight_bytes
from sim.models.hf import read_hf_config
from sim.models.stored import stored_bytes

NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}
INT4 = {"num_bits": 4, "type": "int", "group_size": 128}


@pytest.mark.parametrize(
    ("quantization", "others", "experts"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1.0, 1.0),
        ({"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head"]}, 1.0, 1.0),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.51953125, 0.51953125),
        ({"quant_method": "awq", "bits": 4, "group_size": -1}, 0.5, 0.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625, 0.5625),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, 0.5625, 0.5625),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}, 2.0, 1.0),
        (
            {
                "config_groups": {"g": {"weights": NVFP4, "targets": ["Linear"]}},
                "ignore": ["model.layers.2.self_attn*"],
            },
            *(2.0, 0.5625),
        ),
        ({"config_groups": {"g": {"weights": INT4, "targets": ["re:.*experts.*"]}}}, 2.0, 0.51953125),
        ({"quant_method": "something new"}, 2.0, 2.0),
        ({"config_groups": {"g": {"weights": "x", "targets": None}}, "ignore": 3}, 2.0, 2.0),
        (None, 2.0, 2.0),
    ],
)
def test_published_forms(quantization: Any, others: float, experts: float) -> None:
    config = read_hf_config({"quantization_config": quantization})
    assert stored_bytes(config, layers=4, routed=True) == (others, experts)


def test_four_bits_of_experts_are_said_elsewhere() -> None:
    raw = {"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp4"}
    assert stored_bytes(read_hf_config(raw), layers=4, routed=True) == (1.0, 0.53125)


def test_embeddings_stay_as_they_are() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 128}
    raw = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000, **sizes}
    model = model_from_config({**raw, "tie_word_embeddings": False, "quantization_config": {"quant_method": "fp8"}})
    assert weight_bytes(model).total_bytes == 2 * 2 * 64000 + (model.params_total - 2 * 64000)
