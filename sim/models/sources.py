"""Where a config.json is found: a file, a folder, the local cache of the Hugging Face hub, and on request the hub."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError

_LARGEST_BYTES: Final = 64 << 20
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_TIMEOUT_S: Final = 20


def find_config(target: str, *, allow_download: bool = False) -> Path | None:
    """The file that holds the config of ``target``, None where there is none.

    ``target`` is a config.json, a folder with one, or an id of the hub that lies in the local cache; with
    ``allow_download`` it is fetched into a folder of that cache's layout otherwise. Raises InputError for a folder
    without a config, and where the hub has none.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError("no config.json in this folder", where=target)
        return path / "config.json"
    if path.is_file():
        return path
    if not _REPOSITORY.fullmatch(target):
        return None
    cached = _in_cache(target)
    return _download(target) if cached is None and allow_download else cached


def read_config(path: Path) -> dict[str, Any]:
    """The parsed config, with the quantization of an older ModelOpt beside it.

    Raises InputError, with the line, for what is no JSON. vllm 0.33.0 transformers_utils/config.py:953.
    """
    raw = _read_json(path)
    beside = path.with_name("hf_quant_config.json")
    if isinstance(raw, dict) and "quantization_config" not in raw and beside.is_file():
        return {**raw, "quantization_config": _read_json(beside)}
    found: dict[str, Any] = raw
    return found


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputError(f"{path.stat().st_size:,} bytes are no config.json", where=str(path))
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"no JSON: {error.msg}", where=f"{path}:{error.lineno}") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error


def _cache() -> Path:
    """The hub's cache, by the environment variables of huggingface_hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name])
    home = os.environ.get("HF_HOME")
    return (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def _in_cache(repository: str) -> Path | None:
    folder = _cache() / f"models--{repository.replace('/', '--')}"
    main = folder / "refs" / "main"
    revisions = [main.read_text(encoding="utf-8").strip()] if main.is_file() else []
    snapshots = folder / "snapshots"
    if snapshots.is_dir():
        revisions += sorted(entry.name for entry in snapshots.iterdir())
    found = (snapshots / revision / "config.json" for revision in revisions)
    return next((path for path in found if path.is_file()), None)


def _download(repository: str) -> Path:
    from urllib.error import URLError
    from urllib.request import urlopen

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{endpoint}/{repository}/resolve/main/config.json"
    try:
        with urlopen(url, timeout=_TIMEOUT_S) as answer:
            content = answer.read(_LARGEST_BYTES)
    except (URLError, OSError, ValueError) as error:
        raise InputError(f"cannot be fetched from {url}: {error}", where=repository) from error
    path = _cache() / f"models--{repository.replace('/', '--')}" / "snapshots" / "main" / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
