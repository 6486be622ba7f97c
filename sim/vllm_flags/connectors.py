"""KV connectors: those that cannot serve several KV cache groups turn the hybrid manager off by being chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sim.errors import RefusalError

_WITH_HYBRID_SUPPORT: Final = frozenset(
    {
        "DecodeBenchConnector",
        "ExampleHiddenStatesConnector",
        "HiSparseConnector",
        "MoRIIOConnector",
        "MooncakeConnector",
        "MooncakeStoreConnector",
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
        "OffloadingConnector",
        "SimpleCPUOffloadConnector",
        "UMBPStoreConnector",
    }
)
"""Connectors that subclass SupportsHMA (vllm 0.33.0 distributed/kv_transfer/kv_connector/v1/base.py:101)."""


def hybrid_manager_after(values: Mapping[str, Any], notes: list[str]) -> dict[str, bool]:
    """``disable_hybrid_kv_cache_manager`` as the connector leaves it (vllm 0.33.0 config/vllm.py:2257-2290).

    Only where the user said nothing; told to keep it on beside such a connector, vLLM refuses: RefusalError.
    """
    unable = [name for name in _connectors(values.get("kv_transfer_config")) if name not in _WITH_HYBRID_SUPPORT]
    said = values.get("disable_hybrid_kv_cache_manager")
    if not unable or said:
        return {}
    if said is False:
        raise RefusalError(
            f"{unable[0]} cannot serve several KV cache groups, and the hybrid manager was asked for: vLLM refuses to"
            " start; leave that flag out",
            where="--kv-transfer-config",
        )
    notes.append(f"--kv-transfer-config: {unable[0]} turns the hybrid manager off")
    return {"disable_hybrid_kv_cache_manager": True}


def _connectors(config: Any) -> Iterator[str]:
    """The connectors a configuration names; a MultiConnector supports what all its children do."""
    if not isinstance(config, Mapping) or not config.get("kv_connector"):
        return
    if config["kv_connector"] != "MultiConnector":
        yield str(config["kv_connector"])
        return
    for child in (config.get("kv_connector_extra_config") or {}).get("connectors", ()):
        yield from _connectors(child)
