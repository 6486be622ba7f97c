"""A case's layers one by one. Both sides of the oracle read them here, so neither vLLM nor the project is needed."""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]

SHORT = {"full": "full_attention", "sliding_window": "sliding_window"}
"""The kinds of the short form ``{kind, count, window, num_kv_heads, head_size, dtype}``."""


def is_short(config: dict[str, Any]) -> bool:
    """Whether the layers are in the short form, whose block size is the engine's."""
    return any("window" in entry for entry in config["layers"])


def named_layers(config: dict[str, Any]) -> list[Entry]:
    """One entry per layer in the form of ``planning_specs.our_spec``, in construction order.

    >>> shape = {"num_kv_heads": 1, "head_size": 8, "dtype": "bfloat16"}
    >>> short = [{"kind": "full", "window": None, "count": 2, **shape}]
    >>> [(entry["name"], entry["kind"]) for entry in named_layers({"layers": short, "block_size": 4})]
    [('layer.0', 'full_attention'), ('layer.1', 'full_attention')]
    """
    short = is_short(config)
    single = [_long(entry, config["block_size"]) if short else entry for entry in config["layers"]]
    repeated = [entry for entry in single for _ in range(entry.get("count", 1))]
    return [
        {"name": f"layer.{index}", **{key: value for key, value in entry.items() if key != "count"}}
        for index, entry in enumerate(repeated)
    ]


def _long(entry: Entry, block_size: int) -> Entry:
    """The planning form of an entry in the short form."""
    kept = {key: entry[key] for key in ("count", "num_kv_heads", "head_size", "dtype")}
    made = {"kind": SHORT[entry["kind"]], "block_size": block_size, **kept}
    made["head_size_v"] = entry.get("head_size_v") or entry["head_size"]
    if entry["kind"] == "sliding_window":
        made["sliding_window"] = entry["window"]
    return made


def kinds_of(config: dict[str, Any]) -> list[str]:
    """The kinds of layers of a case, each once; states with the mode they are kept in, windows that are replayed so.

    Besides, ``context parallel`` where tokens are dealt out to ranks, ``kv events`` where those are compared.


    >>> kinds_of({"layers": [{"kind": "mamba", "mamba_cache_mode": "align"}, {"kind": "mla_attention"}]})
    ['mamba align', 'mla_attention']
    """
    besides = ["context parallel"] if config.get("decode_context_parallel_size", 1) > 1 else []
    besides += ["kv events"] if config.get("enable_kv_cache_events") else []
    return sorted({_kind_of(entry) for entry in config["layers"]}) + besides


def _kind_of(entry: Entry) -> str:
    if entry["kind"] == "mamba":
        return f"mamba {entry['mamba_cache_mode']}"
    kind: str = entry["kind"]
    return "bounded_replay" if entry.get("bounded_replay") else SHORT.get(kind, kind)


def keeps_states(config: dict[str, Any]) -> bool:
    """Whether some layer keeps a state instead of tokens."""
    return any(entry["kind"] == "mamba" for entry in config["layers"])


def has_encoder(config: dict[str, Any]) -> bool:
    """Whether some layer reads the output of an encoder."""
    return any(entry["kind"] == "cross_attention" for entry in config["layers"])
