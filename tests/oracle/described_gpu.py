"""A GPU for vLLM on a machine without one: name, capability and memory are described, kernels are names.

Enough for vLLM to make an engine's configuration, pick attention backends and construct a model's classes on torch's
meta device, where no weight takes memory. Nothing that vLLM decides about caches is changed. What is stood in for: the
platform's answers about the device, compiled extensions and packages of kernels (never called while constructing), the
parallel groups of one rank, and packages that read images or sound.

Runs inside the oracle environment; :func:`install` comes before the first import of vLLM.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import torch
import torch.library
from torch.overrides import TorchFunctionMode

DEVICES = {
    "h100": ("NVIDIA H100 80GB HBM3", (9, 0), 80 << 30),
    "b200": ("NVIDIA B200", (10, 0), 180 << 30),
    "a100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80 << 30),
}
"""Name, capability and memory."""

EXTENSIONS = (
    *("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C"),
    *("vllm.cumem_allocator", "vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C"),
    *("vllm._flashmla_C", "vllm._flashmla_extension_C", "vllm._flashkda_C"),
)
PACKAGES = (
    *("cutlass", "flashinfer", "deep_gemm", "tilelang", "quack", "flash_mla", "tokenspeed_mla", "flash_kda", "fla"),
    *("causal_conv1d", "einops", "compressed_tensors", "timm", "torchvision", "loguru", "soundfile", "librosa", "cuda"),
)


class _AnyName(type):
    """The class of stand-in classes, which have every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Package(ModuleType):
    """A stand-in: functions and classes of any name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name) if name[0].islower() else _AnyName(name, (MagicMock,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every package that is not installed and that constructing a model only imports."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in PACKAGES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class OnMeta(TorchFunctionMode):  # type: ignore[misc]  # torch has no types here
    """What a constructor puts on a GPU goes to the meta device; what it asks of a tensor's values is 1."""

    VALUES: ClassVar[dict[str, Any]] = {"item": 1.0, "__bool__": True, "tolist": [1], "__float__": 1.0, "__int__": 1}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One call into torch."""
        given = dict(kwargs or {})
        if given.get("device") is not None and str(given["device"]) not in ("cpu", "meta"):
            given["device"] = "meta"
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], torch.Tensor):
            if name in self.VALUES and args[0].is_meta:
                return self.VALUES[name]
            if name == "cuda":
                return args[0].to("meta")
            if name == "to":
                args = tuple("meta" if _on_gpu(value) else value for value in args)
        return func(*args, **given)


def _on_gpu(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")


class _Stream:
    """A stream or an event."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what a stream takes."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return always(None)


def always(value: Any) -> Callable[..., Any]:
    """A function that returns ``value`` whatever it is given."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        return value

    return answer


def install(device: str) -> None:
    """Let vLLM find the device; before vLLM is imported."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    os.environ.update({**offline, "VLLM_LOGGING_LEVEL": "CRITICAL"})
    name, capability, memory = DEVICES[device]
    _torch(name, capability, memory)
    transformers_utils = importlib.import_module("transformers.utils.import_utils")
    for ask in [ask for ask in dir(transformers_utils) if ask.startswith("is_") and ask.endswith("_available")]:
        try:
            getattr(transformers_utils, ask)()  # kept by it: what stands in later is not taken for installed
        except TypeError:
            continue
    importlib.import_module("tvm_ffi")  # asks for CUDA's packages itself, and does without
    for extension in EXTENSIONS:
        sys.modules[extension] = ModuleType(extension)
        sys.modules[extension].__spec__ = importlib.machinery.ModuleSpec(extension, None)
    sys.meta_path.append(_Finder())
    _platform(name, capability, memory)
    _kernels(capability)


def _torch(name: str, capability: tuple[int, int], memory: int) -> None:
    """Torch's own answers about the device, and its registry of operators, which may lack the extensions'."""
    major, minor = capability
    sizes = {"multi_processor_count": 132, "warp_size": 32, "L2_cache_size": 50 << 20}
    properties = SimpleNamespace(
        name=name, major=major, minor=minor, total_memory=memory, shared_memory_per_block_optin=232448, **sizes
    )
    torch.version.cuda = "13.0"
    answers: dict[str, Any] = {
        "Stream": _Stream,
        "Event": _Stream,
        "current_stream": always(_Stream()),
        "current_device": always(0),
        "device_count": always(8),
        "is_available": always(True),
        "get_device_properties": always(properties),
        "get_device_capability": always(capability),
    }
    for key, value in answers.items():
        setattr(torch.cuda, key, value)
    torch.accelerator.empty_cache = always(None)
    namespace = importlib.import_module("torch._ops")._OpNamespace
    known = namespace.__getattr__

    def find(self: Any, operator: str) -> Any:
        try:
            return known(self, operator)
        except AttributeError:
            if operator.startswith("__") or not self.name.startswith("_"):
                raise
            return MagicMock(name=operator)

    namespace.__getattr__ = find
    register = torch.library.register_fake

    def register_if_there(*args: Any, **kwargs: Any) -> Any:
        try:
            decorate = register(*args, **kwargs)
        except RuntimeError:
            return lambda function: function
        return _lenient(decorate) if callable(decorate) else decorate

    torch.library.register_fake = register_if_there


def _lenient(decorate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        try:
            return decorate(function)
        except RuntimeError:
            return function

    return apply


def _platform(name: str, capability: tuple[int, int], memory: int) -> None:
    """vLLM's platform, answering for the device."""
    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    def reaches(cls: Any, wanted: Any, device_id: int = 0) -> bool:
        return bool(capability >= (wanted if isinstance(wanted, tuple) else divmod(wanted, 10)))

    answers: dict[str, Callable[..., Any]] = {
        "get_device_capability": always(DeviceCapability(*capability)),
        "has_device_capability": reaches,
        "get_device_name": always(name),
        "get_device_total_memory": always(memory),
        "is_fully_connected": always(True),
        "get_cuda_runtime_major": always(13),
        "device_count": always(8),
        "num_compute_units": always(132),
        "set_device": always(None),
        "import_kernels": always(None),
        "is_pin_memory_available": always(False),
    }
    methods = {key: classmethod(value) for key, value in answers.items()}
    vllm.platforms._current_platform = type("DescribedPlatform", (CudaPlatformBase,), methods)()


def _kernels(capability: tuple[int, int]) -> None:
    """Which kernels an installation on the device has: those that vLLM's CUDA wheel brings."""
    import vllm.triton_utils
    import vllm.utils.flashinfer as flashinfer
    import vllm.v1.attention.backends.flashinfer as flashinfer_backend
    import vllm.v1.attention.ops.flashmla as flashmla
    import vllm.vllm_flash_attn.flash_attn_interface as flash_attention
    from vllm.model_executor.models import registry

    major = capability[0]
    versions = {2, *((3,) if major == 9 else ()), *((4,) if major in (9, 10) else ())}
    flash_attention.is_fa_version_supported = lambda version, *_, **__: version in versions
    flash_attention.fa_version_unsupported_reason = lambda version, *_, **__: None if version in versions else "no"
    flashmla.is_flashmla_dense_supported = lambda: (major == 9, None if major == 9 else "only on Hopper")
    flashmla.is_flashmla_sparse_supported = lambda: (major in (9, 10), None if major in (9, 10) else "no")
    flashinfer.has_flashinfer = lambda: True
    flashinfer.has_nvidia_artifactory = always(True)  # where FlashInfer finds kernels of Blackwell's attention
    flashinfer_backend._get_multi_ctas_kv_counter_buffer = always(None)
    flashinfer.has_flashinfer_sm90_nope_mla = lambda: False
    vllm.triton_utils.triton.Config = _TritonConfig
    registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(
        self.load_model_cls()
    )


class _TritonConfig:
    """What autotuning lists."""

    def __init__(self, kwargs: Any = None, num_stages: int = 1, num_warps: int = 4, **_: Any) -> None:
        self.kwargs, self.num_stages, self.num_warps = kwargs or {}, num_stages, num_warps


class Group:
    """One rank's place among ``size``."""

    def __init__(self, size: int) -> None:
        self.world_size, self.ranks, self.last_rank = size, list(range(size)), size - 1
        self.rank = self.rank_in_group = self.local_rank = self.first_rank = 0
        self.is_first_rank = self.is_last_rank = True
        self.device_group = self.cpu_group = SimpleNamespace(size=lambda: size, rank=lambda: 0)
        self.device = torch.device("cpu")

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def install_groups(tensor_parallel_size: int) -> None:
    """The parallel groups of one rank, as if the others ran."""
    import vllm.distributed.parallel_state as state

    for name in ("_TP", "_EP", "_WORLD", "_ETP"):
        setattr(state, name, Group(tensor_parallel_size))
    for name in ("_PP", "_DP", "_DCP", "_PCP", "_EPLB"):
        setattr(state, name, Group(1))
    state._NODE_COUNT = 1
