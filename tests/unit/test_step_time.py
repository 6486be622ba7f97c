"""What a step costs, by hand: dense, experts, latents, states, windows, ranks; and whose coefficients are used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.core.price import Price
from sim.engine_config import EngineConfig
from sim.hardware import Gpu, find_gpu
from sim.models import Model, load_model
from sim.step_time import make_step_time
from sim.step_time.additive import COEFFICIENTS, additive_price, priors
from sim.step_time.fitted import fitted

BUDGETS: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 8}
H100, B200 = find_gpu("H100-80GB"), find_gpu("B200-180GB")


def price(model: Model, gpu: Gpu = H100, coefficients: dict[str, float] | None = None, **flags: Any) -> Price:
    """The price with one coefficient at 1 and the others at 0, or those given."""
    given = dict.fromkeys(COEFFICIENTS, 0.0) | (coefficients or {})
    return additive_price(given, model, EngineConfig(**{**BUDGETS, **flags}), gpu)


def test_a_token_is_multiplied_with_all_weights_and_the_head_once_a_request() -> None:
    model = load_model("llama-3.1-8b")
    head = 128_256 * 4096
    cost = price(model, coefficients={"a": 1.0})
    assert cost.token_ns == pytest.approx(2 * (model.params_active - head) / 989e3)
    assert cost.request_ns == pytest.approx(2 * head / 989e3)
    assert price(model, coefficients={"a": 1.0}, tensor_parallel_size=4).token_ns == pytest.approx(cost.token_ns / 4)


def test_fp8_weights_multiply_at_the_fp8_peak_and_attention_at_the_16_bit_one() -> None:
    model = load_model("llama-3.1-8b")
    quantized = replace(model, weight_bytes_per_param=1.0)
    both = {"a": 1.0, "a_attn": 1.0}
    assert price(quantized, coefficients=both).token_ns == pytest.approx(
        price(model, coefficients=both).token_ns * 989 / 1979
    )
    assert price(quantized, coefficients=both).pair_ns.tolist() == price(model, coefficients=both).pair_ns.tolist()


def test_experts_are_read_as_far_as_they_are_touched() -> None:
    model = load_model("gpt-oss-120b")
    cost = price(model, coefficients={"b": 1.0})
    assert cost.expert_ns == pytest.approx(model.expert_params * model.expert_bytes_per_param / 3350)
    assert (cost.experts, cost.experts_per_token) == (128, 4)
    assert cost.fixed_ns == pytest.approx(model.params_dense * 2 / 3350)


def test_latents_are_read_once_for_all_heads_and_shared_by_context_ranks() -> None:
    model = load_model("deepseek-v3.2")
    cost = price(model, coefficients={"b_kv": 1.0}, tensor_parallel_size=8)
    alone = price(model, coefficients={"b_kv": 1.0})
    split = price(model, coefficients={"b_kv": 1.0}, tensor_parallel_size=8, decode_context_parallel_size=8)
    assert cost.read_ns.tolist() == alone.read_ns.tolist()
    assert split.read_ns == pytest.approx(cost.read_ns / 8)


def test_sparse_attention_reads_what_its_indexer_chose_and_the_indexer_all() -> None:
    cost = price(load_model("deepseek-v3.2"), coefficients={"b_kv": 1.0})
    chosen, whole = (cost.window.tolist().index(span) for span in (2048, 0))
    assert cost.read_ns[chosen] == pytest.approx(61 * 576 * 2 / 3350)
    assert cost.read_ns[whole] == pytest.approx(61 * 132 / 3350)


def test_states_are_read_and_written_by_every_request() -> None:
    model = load_model("qwen3-next-80b-a3b")
    cost = price(model, coefficients={"b": 1.0})
    state = 32 * 128 * 128 * 2 + 3 * 8192 * 2  # one gated delta net and its convolution, in bfloat16
    assert cost.request_ns == pytest.approx(36 * 2 * state / 3350)
    assert price(model, coefficients={"b": 1.0}, tensor_parallel_size=2).request_ns == pytest.approx(
        cost.request_ns / 2
    )


def test_a_small_window_takes_the_tiles_of_its_kernel() -> None:
    """18 windows of 128 tokens, 2 KiB each: 4.5 times their bytes on Hopper, twice on Blackwell."""
    model = load_model("gpt-oss-120b")
    for gpu, times in ((H100, 4.5), (B200, 2.0)):
        cost = price(model, gpu, {"b_kv": 1.0}, kv_cache_dtype="bfloat16", device_capability=gpu.capability)
        window = cost.window.tolist().index(128)
        assert cost.read_ns[window] == pytest.approx(times * 18 * 2048 / gpu.mem_bw_gbs)


def test_all_reduces_send_two_hidden_states_a_layer_around_the_ring() -> None:
    model = load_model("llama-3.1-8b")
    sent = 2 * 32 * 4096 * 2 * 2 * 3 / 4
    assert price(model, coefficients={"g": 1.0}, tensor_parallel_size=4).token_ns == pytest.approx(sent / 450)
    assert price(model, coefficients={"g": 1.0}).token_ns == 0


def test_tokens_go_to_the_experts_of_other_engines_and_back() -> None:
    """24 layers of 2,880 in bfloat16 on two engines of two ranks: three of four tokens come from elsewhere, twice."""
    model = load_model("gpt-oss-20b")
    spread: dict[str, Any] = {"tensor_parallel_size": 2, "data_parallel_size": 2, "enable_expert_parallel": True}
    reduced = price(model, coefficients={"g": 1.0}, tensor_parallel_size=2).token_ns
    gathered = price(model, coefficients={"g": 1.0}, **spread).token_ns - reduced
    assert gathered == pytest.approx(2 * 24 * 2880 * 2 * 2 * 3 / 4 / 450)
    chosen = price(model, coefficients={"g": 1.0}, **spread, all2all_backend="deepep_low_latency").token_ns - reduced
    assert chosen == pytest.approx(2 * 24 * 2880 * 2 * 4 / 2 * 3 / 4 / 450)


def test_an_estimate_says_that_shared_experts_were_not_measured() -> None:
    model, flags = load_model("gpt-oss-120b"), dict[str, Any](data_parallel_size=2)
    for shared in (False, True):
        engine = EngineConfig(**BUDGETS, **flags, enable_expert_parallel=shared)
        assert ("experts shared" in make_step_time({"kind": "additive"}, model, engine, H100).error_class) is shared


def test_experts_of_one_engine_and_dense_models_send_nothing_more() -> None:
    ones = dict.fromkeys(COEFFICIENTS, 1.0)
    for name, flag in (("gpt-oss-20b", "tensor_parallel_size"), ("llama-3.1-8b", "data_parallel_size")):
        model, flags = load_model(name), dict[str, Any]({flag: 2})
        plain = price(model, H100, ones, **flags)
        spread = price(model, H100, ones, **flags, enable_expert_parallel=True)
        assert spread[:7] == plain[:7]


def test_engines_that_share_experts_read_their_part_of_what_all_tokens_touch() -> None:
    model = load_model("gpt-oss-20b")
    alone = price(model, coefficients={"b": 1.0})
    four = price(model, coefficients={"b": 1.0}, data_parallel_size=4, enable_expert_parallel=True)
    assert four.expert_ns == pytest.approx(alone.expert_ns / 4)
    touched = [1 - (1 - each.experts_per_token / each.experts) ** n for each, n in ((alone, 4 * 5), (four, 5))]
    assert touched[0] == pytest.approx(touched[1])


def test_priors_know_4_bit_experts_and_fp8_caches_on_hopper() -> None:
    engine = EngineConfig(**BUDGETS, kv_cache_dtype="fp8")
    model = load_model("gpt-oss-120b")
    assert priors(model, engine, H100)["a"] > 1.5 * priors(model, engine, B200)["a"]
    assert priors(model, engine, H100)["b_kv"] > priors(model, engine, B200)["b_kv"]


def test_a_fitted_family_is_chosen_by_itself_and_says_how_far_to_trust_it() -> None:
    engine = EngineConfig(**BUDGETS)
    found = make_step_time({"kind": "additive"}, load_model("gpt-oss-120b"), engine, H100)
    assert found.settings["origin"]["vllm"] == "0.18.0"
    assert found.error_class.startswith("measured for gpt-oss-120b on H100-80GB, vLLM 0.18.0: mean error TPOT ")
    sibling = make_step_time({"kind": "additive"}, load_model("gpt-oss-20b"), engine, H100)
    assert sibling.settings["a"] == found.settings["a"]
    assert "used here for another model: TPOT within 10-30 %" in sibling.error_class


def test_what_is_given_is_not_replaced_and_what_was_not_measured_is_a_prior() -> None:
    engine, model = EngineConfig(**BUDGETS), load_model("gpt-oss-120b")
    given = make_step_time({"kind": "additive", "a": 3.0}, model, engine, H100)
    assert (given.settings["a"], given.settings["g"]) == (3.0, priors(model, engine, H100)["g"])
    other = load_model("qwen3-14b")
    assert fitted(other, H100, COEFFICIENTS) is None
    assert "priors" in make_step_time({"kind": "additive"}, other, engine, H100).error_class
