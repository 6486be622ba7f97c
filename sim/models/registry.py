"""Which family's rules a model class of vLLM follows, by architecture; what is not here is refused, never guessed.

The architectures are those of vllm 0.33.0 model_executor/models/registry.py:71-600 whose layers are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Final, cast

from sim.errors import InputError, RefusalError, nearest
from sim.models.config import Config
from sim.models.hf import HFConfig
from sim.models.model import LayerShape
from sim.models.model_types import check_model_type

FAMILIES: Final[dict[str, str]] = {
    "plain": """
        AriaForConditionalGeneration AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration
        BailingMoeForCausalLM BailingMoeV2ForCausalLM BeeForConditionalGeneration Blip2ForConditionalGeneration
        BloomForCausalLM ChatGLMModel ChatGLMForConditionalGeneration Cosmos3EdgeForConditionalGeneration
        DeepseekForCausalLM DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration Ernie4_5ForCausalLM
        Ernie4_5_MoeForCausalLM Ernie4_5_VLMoeForConditionalGeneration ExaoneForCausalLM GemmaForCausalLM
        GLM4VForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4vForConditionalGeneration
        Glm4vMoeForConditionalGeneration GlmAsrForConditionalGeneration GlmOcrForConditionalGeneration GPT2LMHeadModel
        GPTJForCausalLM H2OVLChatModel HYV3ForCausalLM InternLM2ForCausalLM InternS1ForConditionalGeneration
        InternS1ProForConditionalGeneration InternVLChatModel InternVLForConditionalGeneration
        IsaacForConditionalGeneration KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration MiMoForCausalLM
        MiniCPMForCausalLM MiniCPMV MiniMaxM2ForCausalLM MixtralForCausalLM MolmoForCausalLM Moondream3ForCausalLM
        HfMoondream MossTranscribeDiarizeForConditionalGeneration NemotronForCausalLM NVLM_D OlmoeForCausalLM
        OPTForCausalLM OrionForCausalLM Ovis2_5 PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration
        Param2MoEForCausalLM PhiMoEForCausalLM QianfanOCRForConditionalGeneration Qwen2ForCausalLM Qwen2MoeForCausalLM
        Qwen2AudioForConditionalGeneration Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration
        Qwen2_5OmniModel Qwen2_5OmniForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM
        Qwen3ASRForConditionalGeneration Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
        Qwen3VLMoeForConditionalGeneration SarvamMoEForCausalLM SkyworkR1VChatModel SolarForCausalLM
        StableLmForCausalLM Step1ForCausalLM
    """,
    "typed": """
        AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM AriaTextForCausalLM BioGptForCausalLM BitNetForCausalLM
        CTRLLMHeadModel DogeForCausalLM HeliumForCausalLM JetMoeForCausalLM MoshiForCausalLM
        KyutaiSpeechToTextForConditionalGeneration MiniMaxM3VLForCausalLM ModernBertDecoderForCausalLM
        NanoChatForCausalLM PersimmonForCausalLM PhimoeForCausalLM SolarOpenForCausalLM ZayaForCausalLM CwmForCausalLM
        Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration FlexOlmoForCausalLM FlintForCausalLM Gemma2ForCausalLM
        Gemma3ForCausalLM Gemma3ForConditionalGeneration GlmForCausalLM GPTNeoXForCausalLM GraniteForCausalLM
        GraniteMoeForCausalLM GraniteMoeSharedForCausalLM GraniteMoeSWAForCausalLM GraniteSWAForCausalLM
        GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration
        Granite4VisionForConditionalGeneration HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
        HunYuanVLForConditionalGeneration HyperCLOVAXForCausalLM Idefics3ForConditionalGeneration InternLM3ForCausalLM
        IQuestCoderForCausalLM Jais2ForCausalLM Kolibri1ForCausalLM LagunaForCausalLM LlamaForCausalLM
        LLaMAForCausalLM LlavaForConditionalGeneration LlavaNextForConditionalGeneration
        LlavaNextVideoForConditionalGeneration LlavaOnevisionForConditionalGeneration MellumForCausalLM
        Molmo2ForConditionalGeneration MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NanbeigeForCausalLM
        OlmoForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM Phi4MultimodalForCausalLM PhiForCausalLM SeedOssForCausalLM
        SmolLM3ForCausalLM SmolVLMForConditionalGeneration Starcoder2ForCausalLM TeleChat3ForCausalLM
        TransformersForCausalLM UltravoxModel MistralForCausalLM Ministral3ForCausalLM
        Mistral3ForConditionalGeneration PixtralForConditionalGeneration Phi3ForCausalLM Phi3VForCausalLM
        Phi4MMForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM VaultGemmaForCausalLM
        VibeVoiceAsrForConditionalGeneration VoxtralForConditionalGeneration
    """,
    "command": """
        CohereForCausalLM Cohere2ForCausalLM Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration
    """,
    "dbrx": "DbrxForCausalLM",
    "deepseek": """
        AXK1ForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekVLV2ForCausalLM DeepseekOCRForCausalLM
        Mistral4ForCausalLM YoutuForCausalLM Glm4MoeLiteForCausalLM KimiK25ForConditionalGeneration
        KimiVLForConditionalGeneration MistralLarge3ForCausalLM PanguUltraMoEForCausalLM
    """,
    "deepseek_sparse": "DeepseekV32ForCausalLM GlmMoeDsaForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM DeepseekV4ForConditionalGeneration",
    "encoder_only": """
        BertGenerationDecoder BertLMHeadModel CamembertForCausalLM Data2VecTextForCausalLM ElectraForCausalLM
        ErnieForCausalLM RoCBertForCausalLM RobertaForCausalLM RobertaPreLayerNormForCausalLM XLMRobertaForCausalLM
        XLMRobertaXLForCausalLM XmodForCausalLM
        BertModel BertForMaskedLM BertForSequenceClassification BertForTokenClassification RobertaModel
        RobertaForMaskedLM RobertaForSequenceClassification RobertaForTokenClassification XLMRobertaModel
        XLMRobertaForSequenceClassification XLMRobertaForTokenClassification ModernBertModel
        ModernBertForSequenceClassification ModernBertForTokenClassification
    """,
    "exaone_moe": "ExaoneMoeForCausalLM ExaoneMoEForCausalLM",
    "falcon": "FalconForCausalLM GPTBigCodeForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma3n": "Gemma3nForCausalLM Gemma3nForConditionalGeneration",
    "gemma4": """
        Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForCausalLM Gemma4UnifiedForConditionalGeneration
    """,
    "glm5_next": "Glm5NextForCausalLM Glm5NextForConditionalGeneration",
    "gpt_oss": "GptOssForCausalLM",
    "granite_hybrid": "GraniteMoeHybridForCausalLM",
    "hrm_text": "HrmTextForCausalLM",
    "hy_v4": "HYV4ForCausalLM",
    "jamba": "JambaForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM KimiK3ForConditionalGeneration",
    "lfm2": "Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration",
    "llama4": "Llama4ForCausalLM Llama4ForConditionalGeneration",
    "longcat": "LongcatFlashForCausalLM",
    "mamba": "MambaForCausalLM FalconMambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "mimo_v2": "MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "minimax_m3": "MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration",
    "nemotron_h": """
        NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_VL_V2 NemotronH_Nano_Omni_Reasoning_V3
        NemotronH_Super_Omni_Reasoning_V3 NemotronH_Omni_Reasoning_V3
    """,
    "nemotron_nas": "DeciLMForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM",
    "qwen4_exp": "Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration",
    "qwen_next": """
        Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen3_5ForConditionalGeneration
        Qwen3_5MoeForConditionalGeneration MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
    """,
    "step3p5": "Step3p5ForCausalLM Step3p7ForConditionalGeneration",
    "whisper": "WhisperForConditionalGeneration",
    "zamba2": "Zamba2ForCausalLM",
}
"""The architectures of each family, by the module that holds its rules."""

_GONE: Final[dict[str, str]] = {
    "ArcticForCausalLM": "0.28.0",
    "AyaVisionForConditionalGeneration": "0.24.0",
    "AquilaForCausalLM": "0.24.0",
    "BambaForCausalLM": "0.23.0",
    "ChameleonForConditionalGeneration": "0.28.0",
    "Dots1ForCausalLM": "0.23.0",
    "FuyuForCausalLM": "0.25.0",
    "MiniMaxForCausalLM": "0.23.0",
    "MiniMaxM1ForCausalLM": "0.23.0",
    "MiniMaxText01ForCausalLM": "0.23.0",
    "MiniMaxVL01ForConditionalGeneration": "0.23.0",
    "MllamaForConditionalGeneration": "0.10.2",
    "MPTForCausalLM": "0.28.0",
    "MptForCausalLM": "0.28.0",
    "Phi3SmallForCausalLM": "0.9.2",
    "Phi4FlashForCausalLM": "0.10.2",
    "Plamo2ForCausalLM": "0.26.0",
}
"""What vLLM served once, and up to which release (registry.py:780-850)."""


_POOLED: Final = ("ForSequenceClassification", "ForTokenClassification", "ForTextEncoding", "ForRewardModel", "Model")
"""Endings of architectures that vLLM makes of a text generator by putting a pooler in the place of its head.

vllm 0.33.0 config/model.py:2340 and model_executor/models/registry.py:1341.
"""

_GENERATORS: Final = frozenset({"LlamaModel", "MistralModel", "Qwen2Model", "Gemma2Model"})
"""Names without a head that vLLM's registry has beside the generators they are."""


def known_architectures() -> dict[str, str]:
    """The module of every architecture."""
    return {name: family for family, names in FAMILIES.items() for name in names.split()}


def generator_of(name: str) -> str:
    """The text generator whose layers the pooling model ``name`` has; ``name`` itself where it is known, or has none.

    >>> generator_of("Qwen3ForSequenceClassification"), generator_of("Qwen3ForCausalLM"), generator_of("BertModel")
    ('Qwen3ForCausalLM', 'Qwen3ForCausalLM', 'BertModel')
    """
    known = known_architectures()
    if name not in known:
        for ending in _POOLED:
            if name.endswith(ending) and (base := f"{name.removesuffix(ending)}ForCausalLM") in known:
                return base
    return name


def is_pooled(config: HFConfig) -> bool:
    """Whether vLLM serves it as a pooling model by its name alone; a few names it takes for generators.

    vllm 0.33.0 config/model.py:1283.
    """
    name = config.architectures[0]
    return generator_of(name) != name and name not in _GENERATORS


def family_of(config: HFConfig) -> tuple[str, ModuleType]:
    """The architecture of ``config`` and the module with its rules.

    Raises InputError for a config without one, and RefusalError for one that vLLM or this project does not know, with
    the nearest that is known.
    """
    if not config.architectures:
        raise InputError(
            "'architectures' is missing: vLLM refuses to start (no model architectures are specified)",
            where=config.top.where,
        )
    check_model_type(config)
    known = known_architectures()
    for name in map(generator_of, config.architectures):
        if name in known:
            return name, import_module(f"sim.models.families.{known[name]}")
    raise _unknown(config.architectures[0], config)


def _unknown(name: str, config: HFConfig) -> InputError:
    if name in _GONE:
        message = f"model architecture {name} was supported in vLLM until v{_GONE[name]}: 0.33.0 refuses to start"
        return RefusalError(message, where=config.top.where)
    known = known_architectures()
    hint = nearest(name, known)
    meant = f" (nearest: {hint}, which is no substitute)" if hint else ""
    return InputError(
        f"model architecture {name} is not modelled{meant}; {len(known)} are: their layers would be a guess",
        where=config.top.where,
    )


def layers_of(family: ModuleType, config: Config) -> tuple[LayerShape, ...]:
    """The layers in construction order."""
    return tuple(cast(Callable[[Config], Iterator[LayerShape]], family.layers)(config))


def drafts_of(family: ModuleType, config: Config) -> tuple[LayerShape, ...]:
    """The layers of the model's own draft modules, none where the family has none."""
    rule = getattr(family, "drafts", None)
    return tuple(cast(Callable[[Config], Iterator[LayerShape]], rule)(config)) if rule else ()
