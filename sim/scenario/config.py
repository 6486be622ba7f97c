"""A scenario with every default filled in: what a run, a plan, a curve or a comparison starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.engine_config import EngineConfig, default_budgets
from sim.errors import InputError
from sim.hardware import find_gpu
from sim.measure import Measure
from sim.models import Model, load_model, model_from_mapping
from sim.planning import Memory, smallest_batch
from sim.scenario.checking import check, error_at, located, shown, unknown_key
from sim.scenario.find import find_scenario
from sim.scenario.overrides import EXCLUSIVE, Override, apply, difference, flatten, parse_override
from sim.scenario.schema import (
    NULL_MEANS_SOMETHING,
    EngineKeys,
    HardwareKeys,
    Keys,
    MemoryKeys,
    ReplicaKeys,
    ScenarioKeys,
    SyntheticKeys,
    TraceKeys,
)
from sim.scenario.sections import measure_of, replica_keys, resets_of
from sim.scenario.steps import step_time_mapping
from sim.scenario.strict_yaml import Document, read_yaml

DEFAULT_VARIANTS: dict[str, dict[str, Any]] = {
    "hybrid": {"engine": {"disable_hybrid_kv_cache_manager": False}},
    "all-full": {"engine": {"disable_hybrid_kv_cache_manager": True}},
}
"""What ``compare`` compares when a scenario names no variants."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question, and everything needed to answer it.

    ``workload`` and ``step_time`` are the checked mappings of the file with defaults filled in; ``resets`` of the
    prefix cache: when in ns, and whether with running requests; ``variants`` maps a name to the keys it changes;
    ``base_dir`` is what a relative trace path is relative to.
    """

    name: str
    question: str
    expected: str
    model: Model
    gpu: str | None
    usage: str
    engine: EngineConfig
    memory: Memory
    workload: dict[str, Any]
    base_dir: Path
    step_time: dict[str, Any]
    replicas: ReplicaKeys
    measure: Measure
    resets: tuple[tuple[int, bool], ...]
    variants: dict[str, dict[str, Any]]
    seed: int
    document: Document

    def resolved(self) -> dict[str, Any]:
        """The scenario as plain data with every default written out; loading it again gives the same scenario."""
        return {
            "name": self.name,
            "question": self.question,
            "expected": self.expected,
            **self.sections(),
            "variants": self.variant_changes() if self.variants else {},
        }

    @property
    def num_engines(self) -> int:
        """Engines that serve it, each with a pool of its own: replicas behind a router, or data-parallel ones."""
        return max(self.replicas.servers, self.engine.data_parallel_size)

    def require_workload(self) -> None:
        """Raise InputError when the scenario holds no workload to run."""
        if not self.workload:
            raise error_at(self.document, ("workload",), "is missing; give {trace: PATH} or {synthetic: {…}}")

    def variant(self, name: str) -> Scenario:
        """The scenario with the changes of one variant, and no variants of its own."""
        return build_scenario(self.variant_document(name), self.base_dir)

    def variant_document(self, name: str) -> Document:
        """What :meth:`variant` is built from."""
        changes = (self.variants or DEFAULT_VARIANTS)[name]
        changed = apply(self.document, flatten(self.document, name, changes))
        changed.value.pop("variants", None)
        return changed

    def compared(self) -> tuple[str, ...]:
        """The names of the variants that ``compare`` runs, in order."""
        return tuple(self.variants or DEFAULT_VARIANTS)

    def variant_changes(self) -> dict[str, dict[str, Any]]:
        """Per variant the keys it changes, nested, with defaults that follow from them."""
        return {name: self._variant_changes(name) for name in self.compared()}

    def _variant_changes(self, name: str) -> dict[str, Any]:
        """The keys a variant changes, defaults that follow from them included."""
        try:
            theirs = self.variant(name).sections()
        except InputError:  # one that vLLM refuses stays as it was written
            return (self.variants or DEFAULT_VARIANTS)[name]
        ours = self.sections()
        return {key: change for key, value in theirs.items() if (change := difference(ours[key], value)) != {}}

    def sections(self) -> dict[str, Any]:
        """What a run depends on, every default written out."""
        return {
            "model": self._model(),
            "hardware": {"gpu": self.gpu, "usage": self.usage},
            "engine": asdict(self.engine),
            "memory": {key: value for key, value in asdict(self.memory).items() if value is not None},
            "workload": _with_absolute_trace(self.workload, self.base_dir),
            "step_time": self._step_time(),
            "replicas": self.replicas.model_dump(exclude_none=True),
            "measure": asdict(self.measure),
            "reset_prefix_cache": [{"at_s": at / 1e9, "reset_running_requests": with_} for at, with_ in self.resets],
            "seed": self.seed,
        }

    def _model(self) -> Any:
        """The model's name, or its description with the defaults that are no estimates (those follow from the rest)."""
        given = self.document.value["model"]
        if not isinstance(given, Mapping) or "base" in given:
            return given
        bytes_per_param = ("weight_bytes_per_param", "expert_bytes_per_param")
        return {**given, "dtype": self.model.dtype, **{name: getattr(self.model, name) for name in bytes_per_param}}

    def _step_time(self) -> dict[str, Any]:
        """The step time with the coefficients that stand for those not given, in place of a file what it holds."""
        from sim.step_time import make_step_time  # compiled code, which planning does without

        gpu = find_gpu(self.gpu) if self.gpu is not None else None
        return dict(make_step_time(self.step_time, self.model, self.engine, gpu).settings)


def load_scenario(path_or_name: str | Path, overrides: Iterable[str | Override] = ()) -> Scenario:
    """Read a scenario file, or the shipped scenario of that name, and change it by ``dotted.key=value`` overrides.

    Raises InputError (with ``file:line``, or the override at fault) for anything that cannot be used, and
    RefusalError for what vLLM refuses at start.
    """
    path = find_scenario(path_or_name)
    document = read_yaml(path, str(path))
    if not isinstance(document.value, dict):
        given = "is empty" if document.value is None else f"holds {shown(document.value)}"
        raise InputError(f"{given}; a scenario is a mapping with at least model and memory", where=str(path))
    changes = [parse_override(item) if isinstance(item, str) else item for item in overrides]
    return build_scenario(apply(document, changes), path.resolve().parent)


def build_scenario(document: Document, base_dir: Path) -> Scenario:
    """A scenario from a parsed document whose paths are relative to ``base_dir``. Raises as ``load_scenario`` does."""
    keys = check(ScenarioKeys, document.value, document)
    with located(document):
        model = _model(keys.model, document)
        hardware = check(HardwareKeys, keys.hardware, document, ("hardware",))
        engine = _engine(keys.engine, model, hardware, document)
        return Scenario(
            name=keys.name or Path(document.name).stem,
            question=" ".join(keys.question.split()),
            expected=" ".join(keys.expected.split()),
            model=model,
            gpu=find_gpu(hardware.gpu).name if hardware.gpu is not None else None,
            usage=hardware.usage,
            engine=engine,
            memory=_memory(keys.memory, document),
            workload=_workload(keys.workload, document),
            base_dir=base_dir,
            step_time=step_time_mapping(keys.step_time, document, base_dir),
            replicas=replica_keys(keys.replicas, engine, document),
            measure=measure_of(keys.measure, document),
            resets=resets_of(keys, document),
            variants=_variants(keys, document),
            seed=keys.seed,
            document=document,
        )


def _model(given: Any, document: Document) -> Model:
    if isinstance(given, str):
        return load_model(given, where="model")
    if isinstance(given, Mapping):
        return model_from_mapping(given, "model")
    message = f"expected a name of the catalogue or a mapping with layers, got {shown(given)}"
    raise error_at(document, ("model",), message)


def _engine(given: dict[str, Any], model: Model, hardware: HardwareKeys, document: Document) -> EngineConfig:
    keys = check(EngineKeys, given, document, ("engine",))
    flags = {
        name: value
        for name in keys.model_fields_set
        if (value := getattr(keys, name)) is not None or name in NULL_MEANS_SOMETHING
    }
    if "synthetic_acceptance_rates" in flags:
        flags["synthetic_acceptance_rates"] = tuple(flags["synthetic_acceptance_rates"])
    if "kv_cache_dtype_skip_layers" in flags:
        flags["kv_cache_dtype_skip_layers"] = tuple(map(str, flags["kv_cache_dtype_skip_layers"]))
    flags.setdefault("max_model_len", model.max_model_len)
    flags.setdefault("enable_prefix_caching", model.prefix_caching_by_default)
    flags.setdefault("enable_chunked_prefill", not model.has_encoder)
    flags.setdefault("async_scheduling", not (model.kernels and model.kernels.pooling))
    gpu = find_gpu(hardware.gpu, where="hardware.gpu") if hardware.gpu is not None else None
    flags.setdefault("flashinfer_gdn_prefill", gpu is None or gpu.exports_gdn_states)
    flags.setdefault("device_capability", "9.0" if gpu is None else gpu.capability)
    tokens, seqs = default_budgets(
        gpu,
        hardware.usage,
        flags["max_model_len"],
        max_num_batched_tokens=flags.get("max_num_batched_tokens"),
        max_num_seqs=flags.get("max_num_seqs"),
        enable_chunked_prefill=flags["enable_chunked_prefill"],
        world_size=flags.get("tensor_parallel_size", 1) * flags.get("pipeline_parallel_size", 1),
        largest_item_tokens=smallest_batch(model, flags),
    )
    return EngineConfig(**{**flags, "max_num_batched_tokens": tokens, "max_num_seqs": seqs})


def _memory(given: dict[str, Any], document: Document) -> Memory:
    keys = check(MemoryKeys, given, document, ("memory",))
    memory = {name: value for name in MemoryKeys.model_fields if (value := getattr(keys, name)) is not None}
    if len(memory) != 1:
        problem = f"gives {' and '.join(memory)}" if memory else "is missing or empty"
        raise error_at(document, ("memory",), f"{problem}; give exactly one of {', '.join(MemoryKeys.model_fields)}")
    return Memory(**memory)


def _workload(given: dict[str, Any], document: Document) -> dict[str, Any]:
    one_of = EXCLUSIVE[("workload",)]
    if not given:
        return {}
    if not one_of & given.keys():
        key = next(iter(given))
        raise error_at(document, ("workload", key), "needs {trace: PATH} or {synthetic: {…}} beside it")
    if "trace" in given and "synthetic" not in given:
        return check(TraceKeys, given, document, ("workload",)).model_dump()
    return check(SyntheticKeys, given, document, ("workload",)).model_dump()


def _variants(keys: ScenarioKeys, document: Document) -> dict[str, dict[str, Any]]:
    """The variants as written, after a look at whether each changes only keys that are there."""
    variants = {name: dict(changes) for name, changes in keys.variants.items()}
    for name, changes in variants.items():
        for override in flatten(document, name, changes):
            _check_variant_key(override, name, document)
    return variants


def _check_variant_key(override: Override, variant: str, document: Document) -> None:
    sections: dict[str, type[Keys]] = {"engine": EngineKeys, "hardware": HardwareKeys, "memory": MemoryKeys}
    top, *rest = override.path
    allowed = set(ScenarioKeys.model_fields) - {"name", "question", "expected", "variants"}
    where = ("variants", variant, *override.path)
    if top not in allowed:
        raise error_at(document, where, unknown_key(top, allowed))
    if top in sections and rest and (len(rest) > 1 or rest[0] not in sections[top].model_fields):
        raise error_at(document, where, unknown_key(".".join(rest), sections[top].model_fields))


def _with_absolute_trace(workload: dict[str, Any], base_dir: Path) -> dict[str, Any]:
    trace = workload.get("trace")
    if trace is None or trace.startswith("sample:"):
        return workload
    return {**workload, "trace": str(base_dir / trace)}
