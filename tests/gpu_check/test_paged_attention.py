"""Every kernel that runs here computes what the slow, obvious attention computes, and reads nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the checks on a device need PyTorch: pip install 'hybridkv[gpu]'")

from gpu_check.kernels import AttentionShape, make_batch, padded_table, paged_attention  # noqa: E402
from gpu_check.kernels import triton_attention as launching  # noqa: E402
from gpu_check.kernels.batch import first_key  # noqa: E402
from gpu_check.kernels.triton_loading import interpreted  # noqa: E402
from tests.gpu_check.dense import dense_attention  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
DECODE = ((100, 1), (33, 1), (1, 1), (64, 1))
CHUNKS = ((30, 30), (90, 17), (61, 2), (16, 16))
MIXED = ((100, 1), (45, 20), (7, 7), (32, 1))


@dataclass(frozen=True)
class Case:
    """Heads, pages, span, and (tokens in the cache, new tokens) of each request."""

    requests: tuple[tuple[int, int], ...] = MIXED
    kv_heads: int = 2
    group: int = 2
    size: int = 64
    size_v: int = 64
    block_size: int = 16
    window: int = 0
    chunk: int = 0


CASES = {
    "decode": Case(DECODE),
    "decode in a window": Case(DECODE, window=20),
    "window of one token": Case(window=1),
    "window of whole blocks": Case(window=32),
    "window longer than any request": Case(window=4096),
    "chunks of prompts": Case(CHUNKS),
    "chunks in a window": Case(CHUNKS, window=24),
    "mixed": Case(),
    "mixed in a window": Case(window=50),
    "chunked local": Case(chunk=32),
    "chunks that divide no block": Case(CHUNKS, chunk=25),
    "one KV head for all": Case(kv_heads=1, group=8, window=40),
    "groups of five": Case(kv_heads=2, group=5),
    "more heads than a tile's rows": Case(kv_heads=1, group=20, window=33),
    "one query head each": Case(kv_heads=4, group=1),
    "heads of 128": Case(DECODE, size=128, size_v=128, window=64),
    "heads of 96": Case(size=96, size_v=96),
    "values narrower than keys": Case(size=96, size_v=64, window=40),
    "blocks of one token": Case(((20, 1), (9, 5)), block_size=1, window=6),
    "blocks of 128": Case(((200, 1), (140, 9)), block_size=128, window=130, kv_heads=1),
    "blocks of 48": Case(((100, 1), (60, 9)), block_size=48),
}


@dataclass(frozen=True)
class Cache:
    """What a case looks like in memory, and the keys and values of each request as plain tokens."""

    query: Any
    k_cache: Any
    v_cache: Any
    tables: list[list[int]]
    tokens: list[tuple[Any, Any]]


def filled(case: Case, dtype: Any) -> Cache:
    """Tokens scattered over shuffled blocks; NaN wherever attention has no business: other blocks, slots, tables."""
    generator = torch.Generator().manual_seed(7)

    def noise(*shape: int) -> Any:
        return torch.randn(shape, generator=generator).to(dtype)

    counts = [-(-tokens // case.block_size) for tokens, _ in case.requests]
    ids = (torch.randperm(sum(counts), generator=generator) + 1).tolist()
    pages = (sum(counts) + 1, case.block_size, case.kv_heads)
    k_cache, v_cache = (torch.full((*pages, size), float("nan"), dtype=dtype) for size in (case.size, case.size_v))
    tables, tokens = [], []
    for (end, new), count in zip(case.requests, counts, strict=True):
        table, ids = ids[:count], ids[count:]
        keys, values = noise(end, case.kv_heads, case.size), noise(end, case.kv_heads, case.size_v)
        first = first_key(end - new, case.window, case.chunk)
        for token in range(first, end):
            place = table[token // case.block_size], token % case.block_size
            k_cache[place], v_cache[place] = keys[token], values[token]
        freed = first // case.block_size
        tables.append([0] * freed + table[freed:])
        tokens.append((keys, values))
    heads = case.kv_heads * case.group
    return Cache(noise(sum(new for _, new in case.requests), heads, case.size), k_cache, v_cache, tables, tokens)


def expected(case: Case, cache: Cache, scale: float) -> Any:
    at, rows = 0, []
    for (end, new), (keys, values) in zip(case.requests, cache.tokens, strict=True):
        query = cache.query[at : at + new]
        rows.append(dense_attention(query, keys, values, end - new, case.window, case.chunk, scale))
        at += new
    return torch.cat(rows)


def largest_error(case: Case, cache: Cache, kernel: str, device: str = "cpu") -> float:
    scale = case.size**-0.5
    found = paged_attention(
        cache.query.to(device),
        cache.k_cache.to(device),
        cache.v_cache.to(device),
        padded_table(cache.tables, device),
        [end for end, _ in case.requests],
        [new for _, new in case.requests],
        scale=scale,
        window=case.window,
        chunk=case.chunk,
        kernel=kernel,
    )
    return float((found.cpu().double() - expected(case, cache, scale)).abs().max())


@pytest.fixture
def triton() -> None:
    pytest.importorskip("triton", reason="Triton has no release for this platform")
    if not interpreted():
        pytest.skip("Triton's kernels are compiled in this process: TRITON_INTERPRET is not 1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_gathered_blocks(name: str, dtype: Any) -> None:
    case = CASES[name]
    assert largest_error(case, filled(case, dtype), "gather") <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_the_triton_kernel_interpreted(name: str, dtype: Any, triton: None) -> None:
    case = CASES[name]
    assert largest_error(case, filled(case, dtype), "triton") <= TOLERANCE[dtype]


def test_a_wrong_block_is_noticed(triton: None) -> None:
    """The comparison can fail: two blocks of a table exchanged give another result."""
    case = Case(DECODE)
    cache = filled(case, torch.float32)
    cache.tables[0][0], cache.tables[0][1] = cache.tables[0][1], cache.tables[0][0]
    assert largest_error(case, cache, "gather") < 1e-5  # all keys are seen, in whatever order
    cache.tables[0][0] = cache.tables[1][0]
    for kernel in ("gather", "triton"):
        assert largest_error(case, cache, kernel) > 1e-2


def test_strided_caches(triton: None) -> None:
    """K and V in one page, heads before slots: strides are all the kernels go by."""
    case = Case(window=20)
    cache = filled(case, torch.float32)
    page = torch.stack((cache.k_cache, cache.v_cache), 1).transpose(2, 3).contiguous().transpose(2, 3)
    strided = Cache(cache.query, page[:, 0], page[:, 1], cache.tables, cache.tokens)
    for kernel in ("gather", "triton"):
        assert largest_error(case, strided, kernel) <= 1e-5


def test_values_that_are_a_part_of_their_keys() -> None:
    """Latent attention: one head of 576, of which the first 512 are the value."""
    case = Case(kv_heads=1, group=4, size=576, size_v=512)
    cache = filled(case, torch.float32)
    latent = Cache(
        cache.query, cache.k_cache, cache.k_cache[..., :512], cache.tables, [(k, k[..., :512]) for k, _ in cache.tokens]
    )
    assert largest_error(case, latent, "gather") <= 1e-5


@pytest.mark.parametrize("splits", [1, 2, 8, 32])
def test_any_number_of_splits(splits: int, triton: None) -> None:
    """Also more splits than there are keys: those without any add nothing."""
    case = Case(((300, 1), (5, 1)), window=280, kv_heads=1)
    cache = filled(case, torch.float32)
    shape = AttentionShape(2, 1, 64, 64, 16, torch.float32, 0.125, case.window)
    batch = make_batch(padded_table(cache.tables, "cpu"), [300, 5], [1, 1])
    out = torch.empty_like(cache.query)
    launching.prepare(shape, batch, splits=splits)(cache.query, cache.k_cache, cache.v_cache, out)
    assert float((out.double() - expected(case, cache, 0.125)).abs().max()) <= 1e-5


@pytest.mark.parametrize("config", launching.DECODE_CONFIGS, ids=str)
def test_every_configuration(config: launching.Config, triton: None) -> None:
    case = Case(((150, 1), (5, 1)))
    cache = filled(case, torch.float32)
    shape = AttentionShape(4, 2, 64, 64, 16, torch.float32, 0.125)
    batch = make_batch(padded_table(cache.tables, "cpu"), [150, 5], [1, 1])
    out = torch.empty_like(cache.query)
    launching.prepare(shape, batch, decode=config)(cache.query, cache.k_cache, cache.v_cache, out)
    assert float((out.double() - expected(case, cache, 0.125)).abs().max()) <= 1e-5


def test_what_does_not_belong_together_is_refused() -> None:
    table = padded_table([[1]], "cpu")
    with pytest.raises(ValueError, match="2 new tokens of 1"):
        make_batch(table, [1], [2])
    with pytest.raises(ValueError, match="1 tables, 2 seq_lens"):
        make_batch(table, [1, 1], [1, 1])
    cache = filled(CASES["mixed"], torch.float32)
    with pytest.raises(ValueError, match="keys"):
        paged_attention(cache.query[..., :32], cache.k_cache, cache.v_cache, table, [1], [1], scale=1.0)


def test_what_a_kernel_cannot_do_it_says() -> None:
    wide = AttentionShape(4, 1, 576, 512, 16, torch.float32, 1.0)
    batch = make_batch(padded_table([[1]], "cpu"), [1], [1])
    from gpu_check.kernels import prepare

    with pytest.raises(RuntimeError, match="triton: heads of 576 elements are wider than 256"):
        prepare("triton", wide, batch)
    with pytest.raises(RuntimeError, match=r"flashinfer: .*(not installed|needs a GPU|16-bit)"):
        prepare("flashinfer", wide, batch)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: none here")
@pytest.mark.parametrize("kernel", ["gather", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name: str, dtype: Any, kernel: str) -> None:
    if kernel == "triton" and interpreted():
        pytest.skip("TRITON_INTERPRET is 1: the kernel is interpreted in this process, not compiled")
    case = CASES[name]
    assert largest_error(case, filled(case, dtype), kernel, "cuda") <= TOLERANCE[dtype]
