"""From facts to settings: what the log states, what it leaves open, and the one assumption that may be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from sim.engine_config import EngineConfig
from sim.engine_config.checks import KV_CACHE_DTYPES
from sim.models import LayerShape, Model
from sim.models.drafts import with_assumed_draft
from sim.startup_log.facts import LogFacts
from sim.startup_log.platforms import default_block_sizes
from sim.startup_log.recompute import Setting
from sim.startup_log.releases import Rules, rules_of
from sim.units import GIB

_BATCHES: Final = (8192, 2048, 16384, 4096)
"""Default budgets of GPUs, the likeliest first; asked for more rarely."""

_ERAS: Final = ((0, 33), (0, 19), (0, 11))
"""One release of each set of rules, for a log that names none."""

_DRAFTS: Final = (1, 2, 3, 4, 5, 7, 15)
_ALTERNATIVES: Final[dict[str, tuple[Any, ...]]] = {
    "tensor_parallel_size": (1, 2, 4, 8),
    "mamba_ssm_cache_dtype": ("float32", "bfloat16"),
    "block_size": (16, 32, 64, 128),
    "max_num_batched_tokens": (32768, 1024, 512),
    "layers_per_group": tuple(range(2, 13)),
}
"""Values an assumption may give."""

_ELSEWHERE: Final = "elsewhere"
_KERNELS: Final = {"10.0": "kernels of Blackwell", "12.0": "kernels of RTX Blackwell", _ELSEWHERE: "other kernels"}
"""What other hardware runs latent attention with; ``elsewhere``, any block size will do."""

_UNLIKELY: Final = ("block_size", "max_num_batched_tokens")
"""What is not assumed together with something else."""

_DFLASH_LAYERS, _DFLASH_WINDOW = 5, 2048


@dataclass(frozen=True, slots=True)
class Choice:
    """Values for what a log does not state, as keys of ``Inputs`` with a phrase for each."""

    changes: dict[str, Any]
    says: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a setting is made of; plain values, so that one can be changed at a time."""

    model: Model
    rules: Rules
    max_model_len: int
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    block_size: int | None = None
    max_num_batched_tokens: int = 8192
    batches_in_flight: int = 1
    enable_prefix_caching: bool = True
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    disable_hybrid_kv_cache_manager: bool = False
    method: str | None = None
    num_drafts: int = 0
    layers_per_group: int | None = None
    device_capability: str = "9.0"
    rank: int = 0
    open: tuple[str, ...] = field(default_factory=tuple)

    def setting(self) -> Setting:
        """The setting to recompute; raises what vLLM refuses."""
        model = replace(self.model, max_model_len=max(self.model.max_model_len, self.max_model_len))
        if self.device_capability == _ELSEWHERE:
            layers = tuple(replace(layer, backend=None) for layer in model.layers)
            model = replace(model, kernels=None, layers=layers)
        if self.method is not None:
            model = _with_drafts(model, self.method)
        engine = EngineConfig(
            max_model_len=self.max_model_len,
            max_num_batched_tokens=max(self.max_num_batched_tokens, self.num_drafts + 2),
            max_num_seqs=1,
            kv_cache_dtype=self.kv_cache_dtype,
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            decode_context_parallel_size=self.decode_context_parallel_size,
            enable_prefix_caching=self.enable_prefix_caching,
            mamba_cache_dtype=self.mamba_cache_dtype,
            mamba_ssm_cache_dtype=self.mamba_ssm_cache_dtype,
            disable_hybrid_kv_cache_manager=self.disable_hybrid_kv_cache_manager,
            async_scheduling=self.batches_in_flight > 1,
            speculative_method=self.method,
            num_speculative_tokens=self.num_drafts,
            flashinfer_gdn_prefill=False,
            device_capability=self.device_capability if self.device_capability != _ELSEWHERE else "9.0",
        )
        latent = any(layer.kind in ("mla", "sliding_window_mla") for layer in model.layers)
        if self.block_size is not None or not (self.rules.asks_kernels or latent):
            engine = replace(engine, block_size=self.block_size or 16)
        return Setting(model, engine, self.rules, self.layers_per_group)


def _with_drafts(model: Model, method: str) -> Model:
    """The model with the draft layers that a method usually brings."""
    if method != "dflash":
        return with_assumed_draft(model)
    own = tuple(layer for layer in model.layers if not layer.draft)
    like = next((layer for layer in own if layer.kind == "full"), own[0])
    drafts = tuple(_dflash_layer(like, depth) for depth in range(_DFLASH_LAYERS))
    return replace(model, layers=own + drafts)


def _dflash_layer(like: LayerShape, depth: int) -> LayerShape:
    return replace(like, kind="sliding_window", window=_DFLASH_WINDOW, draft=True, depth=depth)


def stated(model: Model, facts: LogFacts, rules: Rules) -> Inputs:
    """The inputs as the log states them, defaults of the release for the others; ``open`` names what is not stated."""
    args = facts.args
    states = any(layer.state is not None for layer in model.layers if not layer.draft)
    method, drafts = _speculation(args)
    windows = method == "dflash" or any(layer.window or layer.chunk_size for layer in model.layers)
    open_: list[str] = []
    batch = _integer(args.get("max_num_batched_tokens")) or facts.integer("max_num_batched_tokens")
    if windows:
        open_ += [] if batch else ["max_num_batched_tokens"]
        open_ += ["batches_in_flight"] if rules.batches_in_flight > 1 and "async_scheduling" not in args else []
    caching = args.get("enable_prefix_caching")
    if not isinstance(caching, bool):
        caching = None if caching is None else not str(caching).lower().startswith(("forced off", "false"))
    if states and caching is None:
        open_.append("enable_prefix_caching")
    if facts.version is None:
        open_.append("rules")
    if method is not None and not drafts:
        open_.append("num_drafts")
    sizes = default_block_sizes(facts.platform)
    block_size = _integer(args.get("block_size"))
    if block_size is None and len(sizes) > 1:
        open_.append("block_size")
    return Inputs(
        model=model,
        rules=rules,
        max_model_len=facts.max_model_len or model.max_model_len,
        kv_cache_dtype=_dtype(args.get("kv_cache_dtype")),
        tensor_parallel_size=_integer(args.get("tensor_parallel_size")) or 1,
        pipeline_parallel_size=_integer(args.get("pipeline_parallel_size")) or 1,
        decode_context_parallel_size=_integer(args.get("decode_context_parallel_size")) or 1,
        block_size=block_size or next(iter(sizes), None),
        max_num_batched_tokens=batch or _BATCHES[0],
        batches_in_flight=rules.batches_in_flight if args.get("async_scheduling", True) else 1,
        enable_prefix_caching=rules.caches_states or not states if caching is None else caching,
        mamba_cache_dtype=_known(args.get("mamba_cache_dtype")),
        mamba_ssm_cache_dtype=_known(args.get("mamba_ssm_cache_dtype")),
        disable_hybrid_kv_cache_manager=_is_on(args.get("disable_hybrid_kv_cache_manager")),
        method=method,
        num_drafts=drafts or (1 if method else 0),
        open=tuple(open_),
    )


def open_choices(inputs: Inputs, platform: str) -> Iterator[tuple[Inputs, list[str]]]:
    """The inputs with every plausible value of what is left open, and a phrase for each that is no default."""
    values: dict[str, list[tuple[Any, str]]] = {
        "max_num_batched_tokens": [(size, f"max_num_batched_tokens {size:,}") for size in _BATCHES],
        "batches_in_flight": [(2, "async scheduling"), (1, "no async scheduling")],
        "enable_prefix_caching": [
            (on, f"prefix caching {'on' if on else 'off'}")
            for on in (inputs.enable_prefix_caching, not inputs.enable_prefix_caching)
        ],
        "rules": [(rules_of(release), f"rules of {release[0]}.{release[1]}") for release in _ERAS],
        "num_drafts": [(number, f"{number} draft tokens") for number in _DRAFTS],
        "block_size": [(size, f"block_size {size}") for size in default_block_sizes(platform)],
    }
    for chosen in product(*(values[name] for name in inputs.open)):
        changes = {name: value for name, (value, _) in zip(inputs.open, chosen, strict=True)}
        yield replace(inputs, **changes), [says for _, says in chosen]


def assumptions(inputs: Inputs, facts: LogFacts, *, likely: bool = False) -> Iterator[Choice]:
    """One change each that could matter to this model; only the ``likely`` ones, to be made in pairs."""
    model = inputs.model
    has_states = any(layer.state is not None for layer in model.layers if not layer.draft)
    several = has_states or any(layer.window or layer.chunk_size for layer in model.layers) or inputs.method == "dflash"
    for dtype in ("fp8", "auto", "int8_per_token_head"):
        if dtype != inputs.kv_cache_dtype:
            yield Choice({"kv_cache_dtype": dtype}, f"kv_cache_dtype {dtype}")
    for rank in range(1, len(facts.memory_ranges())):
        yield Choice({"rank": rank}, f"the rank with {facts.memory_ranges()[rank][0] / GIB:.2f} GiB counts")
    yield from _other_drafts(inputs)
    for name, values in _ALTERNATIVES.items():
        regrouped = several and (not likely or "padding_layers" in facts.numbers)
        relevant = {"mamba_ssm_cache_dtype": has_states, "layers_per_group": regrouped}
        for value in values if relevant.get(name, True) and not (likely and name in _UNLIKELY) else ():
            if value != getattr(inputs, name):
                yield Choice({name: value}, f"{name} {value}")
    if any(layer.kind == "mla" for layer in model.layers) and model.kv_cache_layout is None:
        for device, says in _KERNELS.items():
            yield Choice({"device_capability": device}, says)
    if several and not likely:
        off = not inputs.disable_hybrid_kv_cache_manager
        yield Choice({"disable_hybrid_kv_cache_manager": off}, f"hybrid manager {'off' if off else 'on'}")
    if not likely and "rules" not in inputs.open:
        yield Choice({"rules": replace(inputs.rules, old_tokens=not inputs.rules.old_tokens)}, "the other tokens line")


def _other_drafts(inputs: Inputs) -> Iterator[Choice]:
    if inputs.method is not None:
        yield Choice({"method": None, "num_drafts": 0}, "no draft")
        return
    for number in (1, 2, 3):
        yield Choice({"method": "mtp", "num_drafts": number}, f"a draft of one layer, {number} tokens")


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    found = re.match(r"\s*(\d{1,12})(?!\d)", str(value))
    return int(found[1]) if found else None


def _dtype(value: Any) -> str:
    """A KV cache dtype as written by people: its first word that is one."""
    words = re.findall(r"\w+", str(value or "auto").lower())
    return next((word for word in words if word in KV_CACHE_DTYPES and word not in ("float16", "bfloat16")), "auto")


def _known(value: Any) -> str:
    return value if value in ("float32", "float16", "bfloat16") else "auto"


def _is_on(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() not in ("false", "0", ""))


def _speculation(args: dict[str, Any]) -> tuple[str | None, int | None]:
    """Method and number of draft tokens; the number is None where only the method is told."""
    config = args.get("speculative_config") or args.get("speculative")
    if not config:
        return None, None
    text = str(config).lower()
    method = next((name for name in ("dflash", "eagle3", "eagle", "mtp", "ngram") if name in text), "draft_model")
    number = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    if method == "ngram":
        return None, None
    return ("mtp" if method == "draft_model" else method), _integer(number)
