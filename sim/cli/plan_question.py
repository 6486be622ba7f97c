"""What ``plan`` is asked: a model or a file with flags, or a pasted ``vllm serve`` line; as a scenario and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.engine_config import default_budgets
from sim.errors import InputError, nearest
from sim.hardware import find_gpu
from sim.models import Model, load_model, model_names
from sim.models.catalogue import catalogue
from sim.models.drafts import with_assumed_draft, with_draft_of
from sim.models.sources import find_config
from sim.planning import smallest_batch
from sim.scenario import Document, Override, Scenario, build_scenario, load_scenario, shipped_scenarios
from sim.scenario.find import SUFFIXES
from sim.scenario.overrides import apply
from sim.scenario.strict_yaml import read_yaml
from sim.vllm_flags import (
    Given,
    ServeSettings,
    arguments_of_config,
    find_command,
    is_vllm_config,
    looks_like_command,
    read_arguments,
    settings_of,
)

_LONG_ENVIRONMENT = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
_OURS = (
    "--json",
    "--gpu",
    "--usage",
    "--request-tokens",
    "--available-kv-cache-memory-gib",
    "--allow-download",
    "--vllm",
    "--diff",
    "--what-if-group-size",
    "--figure",
)
_ROPE = ("rope_scaling", "rope_parameters")
_HARMLESS_OVERRIDES = {
    "architectures",
    "rope_theta",
    "eos_token_id",
    "bos_token_id",
    "pad_token_id",
    "vision_config",
    "text_config",
}


@dataclass(frozen=True, slots=True)
class PlanFlags:
    """``plan``'s own flags, None where not given."""

    gpu: str | None = None
    usage: str | None = None
    available_kv_cache_memory_gib: str | None = None
    allow_download: bool = False
    releases: tuple[tuple[str, str], ...] = ()
    """Each with the flag that asks for it."""
    group_sizes: tuple[str, ...] = ()
    figure: Path | None = None


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A scenario, what the command line says beside it, and whether the KV cache's memory has to be estimated."""

    scenario: Scenario
    settings: ServeSettings
    estimate_memory: bool
    gpu_given: bool
    vocab_size: int
    notes: tuple[str, ...] = ()


def read_question(words: Sequence[str], flags: PlanFlags) -> PlanQuestion:
    """The question that ``plan``'s words and own flags ask; InputError for anything that cannot be used."""
    target, given, environment = _target(words)
    settings = settings_of(given, environment)
    if target is None:
        raise InputError("no model in it; give one, as in 'vllm serve MODEL'", where="MODEL")
    notes = list(settings.notes)
    overrides = _overrides(settings, flags)
    memory_given = any(override.path[0] == "memory" for override in overrides)
    if _is_file(target) or target in shipped_scenarios():
        scenario = load_scenario(target, overrides)
        memory_given = True
    else:
        scenario = _of_model(target, overrides, settings, flags, memory_given=memory_given)
    scenario = _with_model(scenario, settings, environment, notes)
    vocab = scenario.model.vocab_size or 128_256
    return PlanQuestion(scenario, settings, not memory_given, flags.gpu is not None, vocab, tuple(notes))


def question_of(scenario: Scenario) -> PlanQuestion:
    """The question that a scenario asks as it stands."""
    return PlanQuestion(scenario, settings_of([], {}), False, True, scenario.model.vocab_size or 128_256)


def _target(words: Sequence[str]) -> tuple[str | None, list[Given], dict[str, str]]:
    """The model or file, the flags, and the environment, of a command line, a configuration file, or plain words."""
    environment: dict[str, str] = {}
    arguments = list(words)
    if looks_like_command(words):
        command = find_command(words)
        arguments, environment = list(command.arguments), command.environment
    positional, given = read_arguments(arguments, _OURS)
    given = _with_config_file(given)
    if len(positional) > 1:
        raise InputError(f"one model at a time, got {' and '.join(positional[:3])}", where=positional[1])
    named = [item.value for item in given if item.flag.effect == "model" and item.flag.key == "model"]
    target = positional[0] if positional else named[-1] if named else None
    if target is not None and _is_vllm_file(Path(target)):
        return _target(["--config", target, *[word for word in words if word != target]])
    return target, given, environment


def _is_vllm_file(path: Path) -> bool:
    suffixes = (*SUFFIXES, ".json")
    return path.suffix in suffixes and path.is_file() and is_vllm_config(read_yaml(path, str(path)).value)


def _with_config_file(given: list[Given]) -> list[Given]:
    """The flags of ``--config``, then the command line's, which win (vllm 0.33.0 utils/argparse_utils.py:513)."""
    files = [item for item in given if item.flag.effect == "file"]
    if not files:
        return given
    _, from_file = read_arguments(arguments_of_config(Path(files[-1].value)))
    return from_file + [item for item in given if item.flag.effect != "file"]


def _overrides(settings: ServeSettings, flags: PlanFlags) -> list[Override]:
    places = settings.places
    overrides = [
        Override((section, key), value, places.get(key, f"--{key.replace('_', '-')}"))
        for section, values in (("engine", settings.engine), ("memory", settings.memory))
        for key, value in values.items()
    ]
    own = {"gpu": ("hardware", "gpu"), "usage": ("hardware", "usage")}
    overrides += [
        Override(path, value, f"--{name}") for name, path in own.items() if (value := getattr(flags, name)) is not None
    ]
    if flags.available_kv_cache_memory_gib is not None:
        where = "--available-kv-cache-memory-gib"
        if settings.memory:
            both = f"{where} and {settings.places[next(iter(settings.memory))]}"
            raise InputError("only one of the memory flags can be given", where=both)
        overrides.append(Override(("memory", where[2:].replace("-", "_")), _number(flags, where), where))
    return overrides


def _number(flags: PlanFlags, where: str) -> float:
    text = str(flags.available_kv_cache_memory_gib)
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"got {text!r}; expected a number of GiB", where=where) from error


def _is_file(target: str) -> bool:
    return Path(target).suffix in SUFFIXES or (Path(target).is_file() and Path(target).suffix != ".json")


def catalogue_name(target: str) -> str:
    """The catalogue's name of ``target``, which may be a checkpoint on the hub; ``target`` itself if it has none.

    >>> catalogue_name("google/gemma-3-27b-it")
    'gemma-3-27b'
    """
    wanted = target.lower()
    by_checkpoint = {str(entry.get("checkpoint", "")).lower(): name for name, entry in catalogue().items()}
    return target if target in catalogue() else by_checkpoint.get(wanted, target)


def _of_model(
    target: str, overrides: list[Override], settings: ServeSettings, flags: PlanFlags, *, memory_given: bool
) -> Scenario:
    name = catalogue_name(target)
    if name not in model_names() and find_config(name, allow_download=flags.allow_download) is None:
        close = nearest(name.lower(), [*model_names(), *shipped_scenarios()])
        hint = f"; nearest is {close!r}" if close else ""
        raise InputError(
            f"no model of the catalogue, no config.json, no scenario file and no shipped scenario{hint}; "
            "'hybridkv models' and 'hybridkv scenarios' list them"
            + (" (--allow-download asks the hub for its config.json)" if "/" in target else ""),
            where=target or "MODEL",
        )
    extra = []
    if not memory_given:  # the memory is estimated once model and flags are known; any number will do until then
        extra.append(Override(("memory", "num_gpu_blocks_override"), 1, "--gpu-memory-utilization"))
    model = load_model(name)
    longest = _longest(model, settings)
    if longest != model.max_model_len and "max_model_len" not in settings.engine:
        extra.append(Override(("engine", "max_model_len"), longest, settings.places["hf_overrides"]))
    if settings.throughput:
        extra += _doubled_budgets(settings, flags, model)
    document = Document(target, {"name": model.name, "model": name})
    return build_scenario(apply(document, [*overrides, *extra]), Path.cwd())


def _doubled_budgets(settings: ServeSettings, flags: PlanFlags, model: Model) -> list[Override]:
    engine = settings.engine
    budgets = default_budgets(
        find_gpu(flags.gpu or "H100-80GB", where="--gpu"),
        flags.usage or "server",
        engine.get("max_model_len") or model.max_model_len,
        max_num_batched_tokens=engine.get("max_num_batched_tokens"),
        max_num_seqs=engine.get("max_num_seqs"),
        enable_chunked_prefill=engine.get("enable_chunked_prefill", True),
        throughput=True,
        largest_item_tokens=smallest_batch(model, engine),
    )
    names = ("max_num_batched_tokens", "max_num_seqs")
    return [Override(("engine", name), value, "--performance-mode") for name, value in zip(names, budgets, strict=True)]


def _with_model(
    scenario: Scenario, settings: ServeSettings, environment: Mapping[str, str], notes: list[str]
) -> Scenario:
    """The scenario with what flags change about the model: its dtype, its length, its draft."""
    model = scenario.model
    longest = _longest(model, settings)
    if environment.get(_LONG_ENVIRONMENT, "0") not in ("0", "false", ""):
        longest = max(longest, scenario.engine.max_model_len)
    model = replace(model, dtype=settings.dtype or model.dtype, max_model_len=longest)
    method = scenario.engine.speculative_method
    if scenario.engine.uses_draft_layers and not any(layer.draft for layer in model.layers):
        draft = catalogue_name(settings.draft_model or "")
        if draft in model_names():
            model = with_draft_of(model, load_model(draft))
        elif method in ("mtp", "eagle", "eagle3"):
            model = with_assumed_draft(model)
            notes.append(f"{method}: one draft layer like the model's own full attention is assumed")
    return replace(scenario, model=model)


def _longest(model: Model, settings: ServeSettings) -> int:
    """The model's length after ``--hf-overrides``; InputError for overrides that change its layers."""
    longest = model.max_model_len
    overrides = {**settings.hf_overrides, **settings.hf_overrides.get("text_config", {})}
    for key, value in overrides.items():
        if key == "max_position_embeddings":
            longest = _positive(value, settings)
        elif key in _ROPE and isinstance(value, Mapping):
            original: Any = value.get("original_max_position_embeddings", model.max_model_len)
            longest = int(original * value.get("factor", 1))
        elif key not in _HARMLESS_OVERRIDES:
            raise InputError(
                f"{key} changes the model in a way not modelled; write it into a config.json and plan that",
                where=settings.places["hf_overrides"],
            )
    return longest


def _positive(value: Any, settings: ServeSettings) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"got {value!r}; expected a number of tokens", where=settings.places["hf_overrides"])
    return value
