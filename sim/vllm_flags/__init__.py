"""vLLM 0.33.0's own command line: which flags there are, what each touches, and what a given one asks for."""

from __future__ import annotations

from sim.vllm_flags.command import ServeCommand, find_command, looks_like_command
from sim.vllm_flags.config_file import arguments_of_config, is_vllm_config
from sim.vllm_flags.reader import Given, read_arguments
from sim.vllm_flags.settings import ServeSettings, settings_of
from sim.vllm_flags.table import Flag, flag_table

__all__ = [
    "Flag",
    "Given",
    "ServeCommand",
    "ServeSettings",
    "arguments_of_config",
    "find_command",
    "flag_table",
    "is_vllm_config",
    "looks_like_command",
    "read_arguments",
    "settings_of",
]
