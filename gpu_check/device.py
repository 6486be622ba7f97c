"""The device a check runs on: chosen, named, and asked for its memory. The one place that says how to get torch."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from sim.errors import InputError, nearest

DEVICES = ("auto", "cuda", "cpu")
INSTALL = "PyTorch is not installed: pip install 'hybridkv[gpu]'"


@dataclass(frozen=True, slots=True)
class Device:
    """What the report names: the device, its driver (None on a CPU) and the torch that drives it.

    ``total_bytes`` of memory: the GPU's, or this machine's. ``capability`` is CUDA's, as in ``9.0``; None on a CPU.
    """

    kind: Literal["cuda", "cpu"]
    name: str
    driver: str | None
    torch_version: str
    total_bytes: int
    capability: str | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.kind == "cuda"

    @property
    def torch_device(self) -> Any:
        """The ``torch.device``."""
        import torch

        return torch.device(self.kind)

    @property
    def slug(self) -> str:
        """The name as the name of a folder.

        >>> Device("cuda", "NVIDIA H100 80GB HBM3", "550.1", "2.13.0", 1 << 36).slug
        'nvidia-h100-80gb-hbm3'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def free_bytes(self) -> int:
        """Memory that is free now, in bytes: as the CUDA driver says, or what Linux calls available.

        On other systems the half of what the machine has.
        """
        if self.is_cuda:
            import torch

            return int(torch.cuda.mem_get_info()[0])
        lines = _lines("/proc/meminfo")
        found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(found[0]) * 1024 if found else self.total_bytes // 2

    def described(self) -> dict[str, Any]:
        """The device as the report's JSON has it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "driver": self.driver,
            "compute_capability": self.capability,
            "total_bytes": self.total_bytes,
            "torch": self.torch_version,
        }


def require_torch() -> None:
    """Raise InputError with the command that installs torch, where it is missing."""
    if find_spec("torch") is None:
        raise InputError(INSTALL, where="gpu-check")


def choose_device(wanted: str) -> Device:
    """The device called ``wanted``: ``cuda``, ``cpu``, or ``auto`` for a GPU where there is one.

    Raises InputError for another word, for ``cuda`` without a GPU, and where torch is not installed.
    """
    if wanted not in DEVICES:
        close = nearest(wanted, DEVICES)
        hint = f"; nearest is {close}" if close else ""
        raise InputError(f"is one of {', '.join(DEVICES)}, got {wanted!r}{hint}", where="--device")
    require_torch()
    import torch

    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return Device("cpu", _cpu_name(), None, torch.__version__, _machine_bytes())
    if not torch.cuda.is_available():
        built = "finds no GPU" if torch.version.cuda else "is a build without CUDA"
        raise InputError(
            f"cuda cannot be used: torch {torch.__version__} {built}; --device cpu works", where="--device"
        )
    properties = torch.cuda.get_device_properties(0)
    capability = f"{properties.major}.{properties.minor}"
    return Device("cuda", properties.name, _driver(), torch.__version__, int(properties.total_memory), capability)


def _driver() -> str:
    """The version of the NVIDIA driver as Linux tells it, and CUDA's, which torch was built for."""
    import torch

    words = " ".join(_lines("/proc/driver/nvidia/version")[:1]).split()
    version = next((word for word in words if word[0].isdigit() and "." in word), "unknown")
    return f"{version} (CUDA {torch.version.cuda})"


def _cpu_name() -> str:
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} threads"


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _lines(path: str) -> list[str]:
    place = Path(path)
    return place.read_text(encoding="utf-8", errors="replace").splitlines() if place.is_file() else []
