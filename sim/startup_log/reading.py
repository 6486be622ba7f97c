"""From pasted text to facts: colours, prefixes, ranks and dictionaries taken apart."""

from __future__ import annotations

import ast
import re
from typing import Any

from sim.startup_log.facts import LogFacts
from sim.startup_log.metrics import is_metrics, read_metrics
from sim.startup_log.releases import release_of_line, release_of_text
from sim.startup_log.wording import WORDINGS
from sim.vllm_flags.table import flag_table

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\[\d+(?:;\d+)*m")
_SOURCE = re.compile(r"\[?\b(kv_cache_utils|model_runner|gpu_model_runner|model|worker|gpu_worker)\.py:(\d+)\]?")
_VERSION = re.compile(
    r"(?:API server version|vLLM version|LLM engine \(v|vllm[ =]+v?)\s*v?(\d+\.\d+[\w.+-]*)", re.IGNORECASE
)
_ONE_LINE = re.compile(r"KV cache size: [\d,]+ tokens, Maximum concurrency")
_MODEL = re.compile(r"\bmodel(?:_tag)?\s*[=:]\s*['\"]([^'\"]+)['\"]|['\"]model(?:_tag)?['\"]: ['\"]([^'\"]+)['\"]")
_SERVE = re.compile(r"\bvllm serve\s+(.+)$")
_ARGUMENTS = re.compile(r"(?:non-default args|args): (?:Namespace\((.*)\)|(\{.*\}))")
_PAIR = re.compile(r"\b(\w+)=('[^']*'|\"[^\"]*\"|\{[^{}]*\}|-?[\d.]+(?:e\d+)?|True|False|None|[\w./:-]+)")
_DTYPE = re.compile(r"Using (fp8\w*|int8\w*|int4\w*|nvfp4\w*|turboquant\w*) data type to store kv cache", re.IGNORECASE)
_BACKENDS = {
    "CPU KV cache size": "CPU",
    "detected platform cpu": "CPU",
    "VLLM_CPU_KVCACHE_SPACE": "CPU",
    "NPU": "NPU",
    "vllm_ascend": "NPU",
    "vllm-ascend": "NPU",
    "plugin ascend is activated": "NPU",
}
_PREFIX = re.compile(r"^\S+ +\| ?", re.MULTILINE)
_OFF = re.compile(r"(?:Turning off hybrid kv cache manager|hybrid kv cache manager is disabled)", re.IGNORECASE)


def read_log(text: str) -> LogFacts:
    """The facts in a startup log, or in a saved ``/metrics`` page; empty ones where there is nothing of vLLM's."""
    facts = LogFacts()
    if is_metrics(text):
        read_metrics(text, facts)
        return facts
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _ANSI.sub("", raw).strip()
        if line:
            _read_line(line, number, facts)
    if not facts.numbers:  # copied from a narrow terminal, perhaps, which broke the lines
        _read_line(" ".join(_PREFIX.sub("", _ANSI.sub("", text)).split()), 1, facts)
    return facts


def _read_line(line: str, number: int, facts: LogFacts) -> None:
    _read_version(line, facts)
    _read_arguments(line, facts)
    for marker, platform in _BACKENDS.items():
        if marker in line:
            facts.platform = platform
    if dtype := _DTYPE.search(line):
        facts.args.setdefault("kv_cache_dtype", dtype[1].lower())
    if _OFF.search(line):
        facts.args["disable_hybrid_kv_cache_manager"] = True
    for wording in WORDINGS:
        for match in wording.pattern.finditer(line):
            for name, text in zip(wording.names, match.groups()[-len(wording.names) :], strict=True):
                facts.add(name, float(text.replace(",", "")), number, line)


def _read_version(line: str, facts: LogFacts) -> None:
    """A release named outright wins over the one whose source has this line of code."""
    if found := _VERSION.search(line):
        facts.version_text = found[1]
        named = release_of_text(found[1])
        if named is not None:
            facts.version, facts.version_from = named, f"named: {found[1]}"
    if facts.version is None and _ONE_LINE.search(line):
        facts.version, facts.version_from = (0, 28), "both numbers on one line: 0.28 or later"
    source = _SOURCE.search(line)
    if source and facts.version is None and (release := release_of_line(source[1], int(source[2]))):
        facts.version, facts.version_from = release, f"{source[1]}.py:{source[2]}"


def _read_arguments(line: str, facts: LogFacts) -> None:
    if command := _SERVE.search(line):
        _take_command(command[1], facts)
    if found := _ARGUMENTS.search(line):
        _take(_namespace(found[1]) if found[1] else _literal(found[2]), facts)
    elif "with config:" in line:
        if drafts := _SPECULATIVE.search(line):
            facts.args["speculative_config"] = {"method": drafts[1], "num_speculative_tokens": int(drafts[2])}
        _take(_namespace(line.partition("with config:")[2]), facts, weak=True)
    if (model := _MODEL.search(line)) and facts.model is None:
        facts.model = model[1] or model[2]


def _literal(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {key: _value(raw) for key, raw in re.findall(r"'(\w+)': ('[^']*'|[^,'{}]+)", text)}
    return value if isinstance(value, dict) else {}


def _namespace(text: str) -> dict[str, Any]:
    """``key=value`` pairs; of a key inside another configuration, such as a draft's model, the first one counts."""
    found: dict[str, Any] = {}
    for key, raw in _PAIR.findall(text):
        found.setdefault(key, _value(raw))
    return found


def _value(text: str) -> Any:
    text = text.strip()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


_SPECULATIVE = re.compile(r"SpeculativeConfig\(method='(\w+)'.*?num_spec(?:ulative)?_tokens=(\d+)")


def _take(values: dict[str, Any], facts: LogFacts, *, weak: bool = False) -> None:
    """Keep what are flags of vLLM; the resolved configuration (``weak``) does not overrule what was asked for."""
    for key, value in values.items():
        if key in ("model", "model_tag") and isinstance(value, str) and value:
            facts.model = facts.model or value
        is_flag = f"--{key.replace('_', '-')}" in flag_table() and key != "model"
        if is_flag and value is not None and not (weak and key in facts.args):
            facts.args[key] = value


def _take_command(text: str, facts: LogFacts) -> None:
    """A shell line above the log; one that cannot be read is left alone."""
    from sim.errors import InputError
    from sim.vllm_flags import find_command, read_arguments

    try:
        positional, given = read_arguments(find_command([f"vllm serve {text}"]).arguments)
    except InputError:
        return
    if positional:
        facts.model = positional[0]
    facts.args |= {item.flag.key: item.value for item in given}
