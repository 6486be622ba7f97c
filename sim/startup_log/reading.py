"""From pasted text to facts: which lines say what of the model, the release, the flags and the numbers."""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from sim.startup_log.commands import command_of
from sim.startup_log.facts import LogFacts
from sim.startup_log.lines import clean_lines, unbroken_lines
from sim.startup_log.metrics import is_metrics, read_metrics
from sim.startup_log.platforms import platform_of
from sim.startup_log.releases import release_of_line, release_of_text
from sim.startup_log.wording import WORDINGS
from sim.vllm_flags.table import flag_table

_SOURCE = re.compile(r"\[?\b(kv_cache_utils|model_runner|gpu_model_runner|model|worker|gpu_worker)\.py:(\d+)\]?")
_VERSION = re.compile(
    r"(?:API server version|vLLM version|LLM engine \(v|vllm-openai:v?|█ +version |\bvllm[ =:]+v?)[ :]*v?"
    r"(\d+\.\d+[\w.+-]*)",
    re.IGNORECASE,
)
_ONE_LINE = re.compile(r"KV cache size: [\d,]+ tokens, Maximum concurrency")
_MODEL = re.compile(
    r"\bmodel(?:_tag)?[\"']?\s*[=:]\s*['\"]([^'\"]+)['\"]|Starting to load model (\S+?)\.\.\.|█ +model +([^\s█]+)"
)
_ARGUMENTS = re.compile(r"(?:non-default args|args): (?:Namespace\((.*)\)|(\{.*\}))")
_CUT_ARGUMENTS = re.compile(r"(?:non-default args|args): (?:Namespace\(|\{)(.*)$")
_PAIR = re.compile(r"\b(\w+)=('[^']*'|\"[^\"]*\"|\{[^{}]*\}|-?[\d.]+(?:e\d+)?|True|False|None|[\w./:-]+)")
_ITEM = re.compile(r"'(\w+)': ('[^']*'|\"[^\"]*\"|\{[^{}]*\}|[^,'{}]+)")
_DTYPE = re.compile(r"Using (fp8\w*|int8\w*|int4\w*|nvfp4\w*|turboquant\w*) data type to store kv cache", re.IGNORECASE)
_OFF = re.compile(r"(?:Turning off hybrid kv cache manager|hybrid kv cache manager is disabled)", re.IGNORECASE)
_SPECULATIVE = re.compile(r"SpeculativeConfig\(method='(\w+)'.*?num_spec(?:ulative)?_tokens=(\d+)")
_NAMED: Final = re.compile(r"(?<![\w./:@-])([A-Za-z][\w.-]+/[A-Za-z][\w.-]*\w)(?![\w/(])")

_MOST_BROKEN: Final = 1 << 20
"""Characters of a text whose line breaks are doubted."""


def read_log(text: str) -> LogFacts:
    """The facts in a startup log, or in a saved ``/metrics`` page; empty ones where there is nothing of vLLM's."""
    facts = LogFacts()
    if is_metrics(text):
        read_metrics(text, facts)
        return facts
    for number, line in clean_lines(text):
        _read_line(line, number, facts)
    if len(text) <= _MOST_BROKEN:
        _mend(text, facts)
    return facts


def _mend(text: str, facts: LogFacts) -> None:
    """What is only read when lines are put together that something has broken; and a model named in passing."""
    readings = []
    for joint in ("", " "):
        reading = LogFacts()
        for number, line in unbroken_lines(text, joint=joint):
            _read_line(line, number, reading)
        readings.append(reading)
    other = max(readings, key=lambda reading: len(reading.numbers))
    if other.numbers.keys() > facts.numbers.keys():
        facts.take_missing(other)
    if facts.model is None and facts.numbers:
        from sim.startup_log.named import models_named

        facts.model = next((name for name in _NAMED.findall(text[: 1 << 16]) if models_named(name)), None)


def _read_line(line: str, number: int, facts: LogFacts) -> None:
    _read_version(line, facts)
    _read_arguments(line, facts)
    facts.platform = platform_of(line) or facts.platform
    if dtype := _DTYPE.search(line):
        facts.args.setdefault("kv_cache_dtype", dtype[1].lower())
    facts.no_memory = facts.no_memory or "No available memory for the cache blocks" in line
    if _OFF.search(line):
        facts.args["disable_hybrid_kv_cache_manager"] = True
    for wording in WORDINGS:
        for match in wording.pattern.finditer(line):
            for name, text in zip(wording.names, match.groups()[-len(wording.names) :], strict=True):
                facts.add(name, _number(text), number, line)


def _number(text: str) -> float:
    """A printed number; no pool and no model is larger than what is cut off here."""
    try:
        return max(-1e18, min(float(text.replace(",", "")), 1e18))
    except ValueError:  # commas or signs alone
        return 0.0


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
    if source and facts.version is None and (release := release_of_line(source[1], int(source[2][:9]))):
        facts.version, facts.version_from = release, f"{source[1]}.py:{source[2]}"


def _read_arguments(line: str, facts: LogFacts) -> None:
    if command := command_of(line):
        facts.model = command[0] or facts.model
        facts.args |= command[1]
    if found := _ARGUMENTS.search(line):
        _take(_namespace(found[1]) if found[1] else _literal(found[2]), facts)
    elif found := _CUT_ARGUMENTS.search(line):
        _take(_namespace(found[1]) | _items(found[1]), facts)
    elif "with config:" in line:
        if drafts := _SPECULATIVE.search(line):
            facts.args["speculative_config"] = {"method": drafts[1], "num_speculative_tokens": int(drafts[2][:9])}
        _take(_namespace(line.partition("with config:")[2]), facts, weak=True)
    if facts.model is None and (named := _MODEL.search(line)):
        facts.model = next(name for name in named.groups() if name is not None)


def _literal(text: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _items(text)
    return value if isinstance(value, dict) else {}


def _items(text: str) -> dict[str, Any]:
    """``'key': value`` pairs, as far as they can be made out."""
    return {key: _value(raw) for key, raw in _ITEM.findall(text)}


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
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _take(values: dict[Any, Any], facts: LogFacts, *, weak: bool = False) -> None:
    """Keep what are flags of vLLM; the resolved configuration (``weak``) does not overrule what was asked for."""
    for key, value in values.items():
        if not isinstance(key, str):
            continue
        if key in ("model", "model_tag") and isinstance(value, str) and value:
            facts.model = facts.model or value
        is_flag = f"--{key.replace('_', '-')}" in flag_table() and key != "model"
        if is_flag and value is not None and not (weak and key in facts.args):
            facts.args[key] = value
