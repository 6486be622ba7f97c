"""Where a model is found: by name, path, folder, or id in the hub's cache; and what is said if it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sim.cli import main
from sim.errors import InputError
from sim.models import load_model, model_from_config
from sim.models.catalogue import catalogue, config_of
from sim.models.registry import known_architectures

CONFIG = config_of(catalogue()["gemma-3-1b"])
MEMORY = ["--available-kv-cache-memory-gib", "4"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def written(folder: Path) -> Path:
    """A folder with a config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def test_a_file_a_folder_and_a_cached_id(tmp_path: Path, cache: Path) -> None:
    folder = written(tmp_path / "mine")
    written(cache / "models--org--tiny" / "snapshots" / "abc")
    for name in (str(folder), str(folder / "config.json"), "org/tiny"):
        assert load_model(name).layers == load_model("gemma-3-1b").layers
    assert load_model(str(folder / "config.json")).name == "mine"


def test_an_old_quantization_file_beside_it(tmp_path: Path) -> None:
    folder = written(tmp_path)
    scheme = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(scheme), encoding="utf-8")
    assert load_model(str(folder)).kv_cache_dtype == "fp8_e4m3"


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "config.json:1: no JSON"), ("[]", "expected a mapping"), ("[" * 100_000, "cannot be read")],
)
def test_files_that_are_no_config(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_model(str(tmp_path))


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json in this folder"):
        load_model(str(tmp_path))


def test_what_is_not_here_is_not_fetched_unless_asked(cache: Path) -> None:
    with pytest.raises(InputError, match="unknown model 'org/absent'"):
        load_model("org/absent")
    assert not cache.exists()


def test_on_request_the_hub_is_asked_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), partial(Hub, asked.append))
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    try:
        assert load_model("org/tiny", allow_download=True).layers == load_model("org/tiny").layers
        assert asked == ["/org/tiny/resolve/main/config.json"]
        with pytest.raises(InputError, match="org/gone: cannot be fetched from"):
            load_model("org/gone", allow_download=True)
    finally:
        server.shutdown()
        server.server_close()


class Hub(BaseHTTPRequestHandler):
    """A hub with one model."""

    def __init__(self, note: Callable[[str], None], *arguments: Any) -> None:
        self.note = note
        super().__init__(*arguments)

    def do_GET(self) -> None:  # the name the standard library calls
        """Answer with the config, or with 404."""
        self.note(self.path)
        self.send_response(404 if "gone" in self.path else 200)
        self.end_headers()
        self.wfile.write(json.dumps(CONFIG).encode())

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def test_plan_takes_a_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(written(tmp_path / "mine")), *MEMORY]) == 0
    assert "22 sliding_window 512 + 4 full" in capsys.readouterr().out


def test_plan_of_a_bad_config_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_hidden_layers": "26"}), encoding="utf-8")
    assert main(["plan", str(path), *MEMORY]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_models_are_found_by_parts_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "gemma-3n", "openai/", "--json"]) == 0
    names = {entry["name"] for entry in json.loads(capsys.readouterr().out)}
    assert names == {"gemma-3n-e4b", "gemma-3n-e2b", "gpt-oss-20b", "gpt-oss-120b", "whisper-large-v3", "whisper-tiny"}
    assert main(["models", "no-such"]) == 2


def test_every_architecture_has_a_family() -> None:
    assert len(known_architectures()) > 200
    assert all(find_spec(f"sim.models.families.{family}") for family in known_architectures().values())


@pytest.mark.parametrize(
    ("architecture", "kinds", "dtype", "pooling"),
    [
        ("LlamaForSequenceClassification", {"full": 2}, "bfloat16", True),
        ("LlamaModel", {"full": 2}, "bfloat16", False),
        ("BertLMHeadModel", {"no_cache": 2}, "float16", True),
    ],
)
def test_pooling_models_have_the_layers_of_what_they_pool(
    architecture: str, kinds: dict[str, int], dtype: str, pooling: bool
) -> None:
    kind = "bert" if "Bert" in architecture else "llama"
    model = model_from_config({"architectures": [architecture], "model_type": kind, "num_hidden_layers": 2})
    assert model.kernels is not None
    assert (model.layer_counts, model.dtype, model.kernels.pooling) == (kinds, dtype, pooling)


def test_without_a_direction_nothing_is_kept() -> None:
    qwen = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 2, "is_causal": False}
    assert model_from_config(qwen).layer_counts == {"no_cache": 2}
    deepseek = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "is_causal": False}
    with pytest.raises(InputError, match="is_causal"):
        model_from_config(deepseek)
