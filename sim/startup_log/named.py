"""Which model of the catalogue a name in a log means: copies, fine-tunes and successors have the same layers."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from sim.models import Model, load_model, model_from_mapping, model_names
from sim.models.catalogue import catalogue

_TABLE = Path(__file__).with_name("same_layers.csv")
_SHAPE = re.compile(r"(\d+)\s*(?:full )?layers?\s*x\s*(\d+)\s*(?:kv(?: heads)?)?\s*x\s*(\d+)")
_BEFORE_SUPPORT = (
    (
        re.compile(r"voxtral.*realtime", re.IGNORECASE),
        {
            "name": "voxtral-mini-4b-realtime",
            "layers": [
                {"kind": "sliding_window", "count": 32, "window": 750, "num_kv_heads": 128, "head_size": 64},
                {"kind": "sliding_window", "count": 26, "window": 8192, "num_kv_heads": 8, "head_size": 128},
            ],
            "num_kv_heads": 8,
            "head_size": 128,
            "max_model_len": 131072,
        },
    ),
)
"""Layers of models that are in no catalogue: four encoder states of 32 heads a token count as 128 heads (0.16)."""

_NOISE = re.compile(
    r"[-_ ](?:it|instruct|chat|base|hf|fp8|fp4|nvfp4|mxfp4|awq|gptq|int4|int8|4bit|8bit|w4a16|w8a8|dynamic|bf16|gguf|"
    r"exl3|thinking|preview|quantized|autoround|mtp|qat|bnb|v\d+(?:\.\d+)?|\d{4})(?=[-_ ]|$)"
)


@cache
def _same_layers() -> list[tuple[re.Pattern[str], str]]:
    with _TABLE.open(encoding="utf-8", newline="") as lines:
        return [(re.compile(row["name"], re.IGNORECASE), row["catalogue"]) for row in csv.DictReader(lines)]


def models_named(name: str) -> list[str]:
    """Names of the catalogue that ``name`` may mean, the likeliest first; empty where nothing is alike.

    >>> models_named("RedHatAI/gemma-3-27b-it-FP8-dynamic")[0]
    'gemma-3-27b'
    """
    found = [known for known, entry in catalogue().items() if entry.get("checkpoint", "").lower() == name.lower()]
    found += [target for pattern, target in _same_layers() if pattern.search(name)]
    wanted = _plain(name)
    found += [known for known in model_names() if _plain(known) == wanted]
    spellings = {known: _plain(known) for known in model_names()}
    found += sorted(
        (known for known, plain in spellings.items() if re.search(rf"(?<![\w.]){re.escape(plain)}(?![\w.])", wanted)),
        key=len,
        reverse=True,
    )
    return [known for known in dict.fromkeys(found) if known in model_names()]


def _plain(name: str) -> str:
    name = name.rsplit("/", 1)[-1].lower().replace("_", "-")
    while (shorter := _NOISE.sub("", name)) != name:
        name = shorter
    return name.strip("- ")


def named_models(name: str) -> Iterator[Model]:
    """The models that ``name`` may mean; a shape written out (``40 layers x 8 kv x 128``) is a model too."""
    for known in models_named(name):
        yield load_model(known)
    for pattern, mapping in _BEFORE_SUPPORT:
        if pattern.search(name):
            yield model_from_mapping(mapping)
    for layers, heads, size in dict.fromkeys(_SHAPE.findall(name)):
        yield model_from_mapping(
            {
                "name": f"{layers} layers x {heads} x {size}",
                "layers": [{"kind": "full", "count": int(layers)}],
                "num_kv_heads": int(heads),
                "head_size": int(size),
                "max_model_len": 1 << 21,
            }
        )
