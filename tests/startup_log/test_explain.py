"""Startup logs of several releases and platforms: what is found in them, and that it adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.cli import main
from sim.errors import InputError
from sim.startup_log import explain_text, read_log
from sim.startup_log.named import models_named

EXCERPTS = Path(__file__).with_name("excerpts")

FOUND = {
    "v0.log": ("llama-3.1-8b", (0, 6), 1952, ()),
    "two-ranks.log": ("qwen3-next-80b-a3b", (0, 10), 7162, ()),
    "one-line.log": ("gemma-4-e2b", (0, 28), 1_693_480, ()),
    "cpu.log": ("qwen2.5-0.5b", (0, 30), 5461, ()),
    "ascend.log": ("qwen3-4b", (0, 10), 1428, ()),
    "refused.log": ("qwen3-30b-a3b", (0, 11), None, ()),
    "metrics.txt": ("qwen3.5-35b-a3b", None, 800, ("tensor_parallel_size 2",)),
    "fp8-not-said.log": ("qwen3.5-35b-a3b", (0, 21), 2876, ("kv_cache_dtype fp8",)),
}


def text(name: str) -> str:
    """One excerpt."""
    return (EXCERPTS / name).read_text(encoding="utf-8")


def test_there_is_an_answer_for_every_excerpt() -> None:
    assert sorted(path.name for path in EXCERPTS.iterdir()) == sorted(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_an_excerpt_is_read_and_adds_up(name: str) -> None:
    model, version, blocks, assumed = FOUND[name]
    found = explain_text(text(name))
    assert found.agrees, found.verdict
    assert found.inputs is not None
    assert found.verdict is not None
    assert (found.inputs.model.name, found.facts.version) == (model, version or found.facts.version)
    assert (found.verdict.num_blocks, found.assumed) == (blocks, assumed)
    assert len(found.verdict.checks) >= 1


def test_the_smallest_rank_decides() -> None:
    facts = read_log(text("two-ranks.log"))
    assert facts.all("available_gib") == [45.03, 44.59]
    assert facts.memory_ranges()[0][0] < int(44.59 * 2**30) < facts.memory_ranges()[0][1]


def test_of_two_starts_the_last_one_counts() -> None:
    before = "Available KV cache memory: 3.00 GiB\nGPU KV cache size: 65,520 tokens\n"
    again = explain_text(text("two-ranks.log").splitlines()[0] + "\n" + before + text("two-ranks.log"))
    assert again.agrees
    assert again.verdict is not None
    assert again.verdict.num_blocks == 7162


def test_ranks_that_print_a_line_each_give_the_least() -> None:
    lines = text("two-ranks.log")
    other = lines.splitlines()[6].replace("973,760", "983,280") + "\n"
    assert explain_text(lines + other).agrees


def test_the_model_of_a_draft_is_not_the_model() -> None:
    facts = read_log(
        "INFO [core.py:140] Initializing a V1 LLM engine (v0.20.0) with config: model='openai/gpt-oss-20b',"
        " speculative_config=SpeculativeConfig(method='eagle3', model='nvidia/draft', num_spec_tokens=3), seed=0"
    )
    assert facts.model == "openai/gpt-oss-20b"
    assert facts.args["speculative_config"] == {"method": "eagle3", "num_speculative_tokens": 3}


def test_the_printed_numbers_keep_their_lines_and_colours_are_gone() -> None:
    facts = read_log(text("two-ranks.log"))
    (tokens,) = facts.numbers["tokens"]
    assert (tokens.value, tokens.line) == (973_760, 7)
    assert "\x1b" not in tokens.text
    assert facts.args["tensor_parallel_size"] == 2
    assert read_log(text("cpu.log")).platform == "CPU"
    assert read_log(text("ascend.log")).platform == "NPU"


def test_a_number_that_is_off_is_said_to_be() -> None:
    wrong = text("v0.log").replace("1.56x", "1.66x").replace("kv_cache_size=3.81GiB", "")
    found = explain_text(wrong)
    assert not found.agrees
    assert (
        [check.name for check in found.verdict.checks if not check.agrees] == ["concurrency"]
        if found.verdict
        else False
    )


def test_advice_is_what_helps_most_first() -> None:
    factors = [advice.factor for advice in explain_text(text("one-line.log")).advice]
    assert factors == sorted(factors, reverse=True)
    flags = [advice.flag for advice in explain_text(text("one-line.log")).advice]
    assert "--kv-cache-dtype fp8" in flags
    assert not explain_text(text("refused.log")).advice


def test_a_model_given_outright_wins() -> None:
    nameless = text("one-line.log").replace("google/gemma-4-E2B-it", "/models/mine")
    found = explain_text(nameless, model="google/gemma-4-E2B-it")
    assert found.agrees
    assert not found.assumed


@pytest.mark.parametrize(
    ("name", "catalogue"),
    [
        ("RedHatAI/gemma-3-27b-it-quantized.w4a16", "gemma-3-27b"),
        ("Qwen/Qwen3.6-27B-FP8", "qwen3.5-27b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("/srv/models/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "llama-3.1-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "llama-3.1-8b"),
        ("unsloth/GLM-4.7-Flash-FP8-Dynamic", "glm-4.7-flash"),
    ],
)
def test_copies_and_fine_tunes_have_the_same_layers(name: str, catalogue: str) -> None:
    assert models_named(name)[0] == catalogue


def test_names_that_mean_nothing_mean_nothing() -> None:
    assert models_named("my-own-model") == []


@pytest.mark.parametrize("junk", ["", "hello\nworld\n", "\x00\xff binary", "vllm:num_requests_running 3\n"])
def test_what_is_no_log_is_one_line(junk: str) -> None:
    with pytest.raises(InputError, match="no line of a vLLM startup log"):
        explain_text(junk)


def test_the_command_reads_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-log", str(EXCERPTS / "two-ranks.log")]) == 0
    out = capsys.readouterr().out
    for words in ("agrees", "7,162 blocks of 6,684,672 bytes, 4 groups", "973,760", "of one group, not of the model"):
        assert words in out
    assert main(["explain-log", str(EXCERPTS / "metrics.txt"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["agrees"], data["num_blocks"], data["assumed"]) == (True, 800, ["tensor_parallel_size 2"])


@pytest.mark.parametrize("file", ["absent.log", "."])
def test_a_file_that_cannot_be_read_is_one_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-log", file]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "cannot be read" in err


def test_a_log_from_elsewhere_reads_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "Initializing a V1 LLM engine (v0.33.0) with config: model='google/gemma-3-27b-it'\n"
    lines += "Available KV cache memory: 40.0 GiB\nGPU KV cache size: 291,658 tokens\n"
    for name, raw in {
        "powershell": lines.encode("utf-16"),
        "narrow terminal": lines.replace(" ", "\n").encode(),
        "windows": lines.replace("\n", "\r\n").encode(),
    }.items():
        (tmp_path / name).write_bytes(raw)
        assert main(("explain-log", str(tmp_path / name))) == 0, name
        assert "291,658" in capsys.readouterr().out, name


def test_metrics_may_be_indented_and_an_ascend_log_names_no_npu() -> None:
    labels = 'block_size="16",kv_cache_memory_bytes="42949672960",num_gpu_blocks="32768"'
    page = f'    vllm:cache_config_info{{{labels}}} 1.0\r\n    vllm:up{{model_name="google/gemma-3-27b-it"}} 0\r\n'
    assert explain_text(page).agrees
    assert read_log("Platform plugin ascend is activated").platform == "NPU"


DRAFTS_OF_THREE = """\
vllm serve Qwen3.8-Flash-Next-NVFP4 --max-model-len 32768 --kv-cache-memory-bytes 5368709120 \\
  --no-enable-prefix-caching --max-num-batched-tokens 8192 --max-num-seqs 8 -sc.method mtp -sc.num_speculative_tokens 3
GPU KV cache size: 105,202 tokens, Maximum concurrency for 32,768 tokens per request: 3.21x
"""
DRAFTS_NOT_SAID = """\
vllm serve Qwen/Qwen3.8-Flash-Next --enable-prefix-caching
Setting attention block size to 1600 tokens to ensure that attention page size is >= mamba page size.
Padding mamba page size by 0.88% to ensure that mamba page size and attention page size are exactly equal.
GPU KV cache size: 1,077,542 tokens, Maximum concurrency for 262,144 tokens per request: 4.11x
"""


@pytest.mark.parametrize(
    ("log", "assumed"), [(DRAFTS_OF_THREE, ()), (DRAFTS_NOT_SAID, ("a draft of one layer, 2 tokens",))]
)
def test_rings_and_averaged_keys_beside_states_add_up(log: str, assumed: tuple[str, ...]) -> None:
    found = explain_text(log)
    assert found.agrees, found.verdict
    assert found.inputs is not None
    assert (found.inputs.model.name, found.assumed) == ("qwen3.8-flash-next", assumed)


def test_groups_of_uneven_length_are_padding_to_releases_that_printed_it() -> None:
    found = explain_text(
        "vllm serve zai-org/GLM-5.3-Flash --tensor-parallel-size 4\n"
        "Add 2 padding layers, may waste at most 5.88% KV cache memory\n"
        "Available KV cache memory: 24.00 GiB\nSetting attention block size to 1152 tokens to ensure\n"
    )
    assert found.verdict is not None
    assert {check.name: check.agrees for check in found.verdict.checks}["padding_layers"]


def test_a_metric_that_no_gpu_can_have_is_not_counted() -> None:
    labels = 'block_size="16",num_gpu_blocks="100",kv_cache_memory_bytes="1e999",kv_cache_size_tokens="1600"'
    found = explain_text(f'vllm:cache_config_info{{{labels}}} 1.0\nvllm:up{{model_name="google/gemma-3-27b-it"}} 0\n')
    assert found.facts.last("available_bytes") is None
    assert found.facts.last("num_gpu_blocks") == 100


def test_memory_alone_says_what_would_have_been_printed() -> None:
    found = explain_text(
        "vLLM API server version 0.19.0\nvllm serve openai/gpt-oss-20b\nAvailable KV cache memory: 36.56 GiB\n"
    )
    assert (found.agrees, found.advice) == (False, ())
    assert [item.name for item in found.implied] == ["num_gpu_blocks", "tokens", "concurrency"]
    blocks = found.implied[0]
    assert blocks.least <= 36.56 * 2**30 / 393_216 <= blocks.most


def test_blocks_alone_say_how_much_memory_there_was() -> None:
    found = explain_text(
        "vllm serve Qwen/Qwen3.6-27B\nvLLM API server version 0.25.1\n"
        "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (614). Each decode sequence\n"
    )
    memory = found.implied[0]
    assert found.layout is not None
    assert (memory.name, round(memory.least * 2**30)) == ("available_gib", 614 * found.layout.block_bytes)


@pytest.mark.parametrize(
    "line", ["ValueError: No available memory for the cache blocks. Try", "Available KV cache memory: -0.87 GiB"]
)
def test_a_start_without_memory_is_said_to_be_one(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text(f"vllm serve Qwen/Qwen3-14B\n{line}\n", encoding="utf-8")
    assert main(["explain-log", str(tmp_path / "log")]) == 0
    assert "vLLM refuses to start" in capsys.readouterr().out


def test_a_log_that_names_no_model_finds_its_layers_and_dtype() -> None:
    found = explain_text(
        "ValueError: To serve at least one request with the models's max seq len (221000), (10.12 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (5.59 GiB). Based on the available memory, the"
        " estimated maximum model length is 122080. Try increasing `gpu_memory_utilization`\n"
    )
    assert found.agrees
    assert found.assumed == ("the model has the layers of qwen3-30b-a3b", "kv_cache_dtype fp8")


def test_an_encoder_of_several_states_a_token_beside_windows_adds_up() -> None:
    found = explain_text(
        "vllm serve mistralai/Voxtral-Mini-4B-Realtime-2602 --max-model-len 8192 --enforce-eager\n"
        "vLLM API server version 0.16.0\nAvailable KV cache memory: 9.58 GiB\n"
        "Add 6 padding layers, may waste at most 23.08% KV cache memory\nGPU KV cache size: 4,896 tokens\n"
        "Maximum concurrency for 8,192 tokens per request: 2.54x\n"
    )
    assert found.agrees, found.verdict
    assert (found.chosen, found.assumed) == (("max_num_batched_tokens 2,048",), ())


def test_a_search_says_how_many_settings_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXCERPTS / "fp8-not-said.log")
    assert main(["explain-log", file, "--json"]) == 0
    tried = json.loads(capsys.readouterr().out)["settings_tried"]
    assert tried == explain_text(Path(file).read_text(encoding="utf-8")).tried > 1
    assert main(["explain-log", file]) == 0
    assert f"tried    {tried} settings, the likeliest first" in capsys.readouterr().out
    assert main(["explain-log", str(EXCERPTS / "refused.log")]) == 0
    assert "settings, the likeliest first" not in capsys.readouterr().out
