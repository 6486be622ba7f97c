"""vLLM's configuration files: flags without their dashes as YAML or JSON (vllm 0.33.0 utils/argparse_utils.py:594)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.scenario.strict_yaml import read_yaml
from sim.vllm_flags.table import flag_table

_SCENARIO_SECTIONS = frozenset({"engine", "memory", "hardware", "workload", "step_time", "question", "variants"})


def arguments_of_config(path: Path) -> list[str]:
    """The arguments that a configuration file stands for; InputError where it cannot be read as one."""
    content = read_yaml(path, str(path)).value
    if not isinstance(content, Mapping):
        raise InputError("expected a mapping of vLLM's flags, such as max-model-len: 8192", where=str(path))
    return [word for key, value in content.items() for word in _words(str(key), value)]


def _words(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag] if value else _denied(flag)
    if isinstance(value, list):
        return [flag, *map(str, value)] if value else []
    return [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]


def _denied(flag: str) -> list[str]:
    """A switch that is off; a flag that knows no no is left out, as vLLM does."""
    known = flag_table().get(flag)
    return [f"--no-{flag.removeprefix('--')}"] if known is None or known.value == "switch" else []


def is_vllm_config(content: Any) -> bool:
    """Whether a file's content is a configuration of vLLM rather than a scenario or a model's config.json.

    >>> is_vllm_config({"model": "m", "tensor-parallel-size": 2}), is_vllm_config({"model": "m", "memory": {}})
    (True, False)
    """
    if not isinstance(content, Mapping) or _SCENARIO_SECTIONS & content.keys():
        return False
    if "model_type" in content or "architectures" in content:
        return False
    flags = {f"--{str(key).replace('_', '-')}" for key in content} - {"--model", "--seed"}
    return any(flag in flag_table() for flag in flags)
