"""Fields that a model class of vLLM 0.33.0 reads without a default, and no config class fills in.

Each was found by taking it out of a published config: vLLM then stops at start with an AttributeError that names it.
``where`` is the part of the config that has it, ``text`` or ``top``.
"""

from __future__ import annotations

from typing import Final

from sim.models.hf import HFConfig

_TEXT: Final[dict[str, tuple[str, ...]]] = {
    "AfmoeForCausalLM": ("score_func",),
    "ChatGLMModel": ("original_rope",),
    "ChatGLMForConditionalGeneration": ("original_rope",),
    "DbrxForCausalLM": ("attn_config",),
    "DeepseekV2ForCausalLM": ("n_group", "topk_group"),
    "DeepseekV32ForCausalLM": ("index_topk", "index_n_heads", "index_head_dim"),
    "Glm4MoeForCausalLM": ("head_dim",),
    "Glm4MoeLiteForCausalLM": ("first_k_dense_replace",),
    "Glm4vMoeForConditionalGeneration": ("head_dim", "use_qk_norm"),
    "HunYuanDenseV1ForCausalLM": ("head_dim",),
    "HunYuanMoEV1ForCausalLM": ("head_dim",),
    "HYV3ForCausalLM": ("first_k_dense_replace",),
    "KimiVLForConditionalGeneration": ("n_group", "topk_group"),
    "Lfm2ForCausalLM": ("block_dim", "conv_dim"),
    "Lfm2MoeForCausalLM": ("layer_types",),
    "Lfm2VlForConditionalGeneration": ("block_dim", "conv_dim"),
    "Llama4ForCausalLM": ("num_local_experts",),
    "LongcatFlashForCausalLM": ("zero_expert_type", "mla_scale_q_lora", "mla_scale_kv_lora"),
    "MiMoV2FlashForCausalLM": ("layernorm_epsilon", "swa_num_attention_heads"),
    "MiMoV2ForCausalLM": ("layernorm_epsilon", "swa_num_attention_heads"),
    "MiniMaxM2ForCausalLM": ("rotary_dim", "scoring_func"),
    "NemotronForCausalLM": ("num_key_value_heads",),
    "Qwen3VLMoeForConditionalGeneration": ("norm_topk_prob",),
    "Step3p5ForCausalLM": ("norm_expert_weight", "use_moe_router_bias", "need_fp32_gate"),
}
_TOP: Final[dict[str, tuple[str, ...]]] = {
    "DeepseekVLV2ForCausalLM": ("language_config",),
    "Ernie4_5_VLMoeForConditionalGeneration": ("vision_config",),
    "Gemma3nForConditionalGeneration": ("vision_config",),
    "Gemma4ForConditionalGeneration": ("vision_config",),
    "Gemma4UnifiedForConditionalGeneration": ("vision_config",),
    "Granite4VisionForConditionalGeneration": ("vision_config",),
    "HunYuanVLForConditionalGeneration": ("vision_config",),
    "IsaacForConditionalGeneration": ("vision_config",),
    "Llama4ForCausalLM": ("num_local_experts",),
    "MiniMaxM3SparseForConditionalGeneration": ("vision_config",),
    "NemotronH_Omni_Reasoning_V3": ("vision_config",),
    "Qwen3OmniMoeForConditionalGeneration": ("thinker_config",),
    "UltravoxModel": ("text_config",),
    "Molmo2ForConditionalGeneration": ("vit_config",),
    "QianfanOCRForConditionalGeneration": ("force_image_size",),
    "Step3p7ForConditionalGeneration": ("vision_config",),
}


def check_needed(architecture: str, config: HFConfig) -> None:
    """Raise InputError for the first field that is missing."""
    for part, needed in ((config.text, _TEXT), (config.top, _TOP)):
        for key in needed.get(architecture, ()):
            if not part.has(key):
                raise part.missing(key)
