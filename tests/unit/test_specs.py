"""Pages, admission and window arithmetic of one layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import InputError
from sim.specs import FullAttentionSpec, SlidingWindowSpec, merge_specs, resident_blocks, state_content_bytes
from sim.units import dtype_bytes, format_bytes, format_gib

FULL = FullAttentionSpec(16, 8, 64, "bfloat16")
WINDOW = SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=128)


@pytest.mark.parametrize(
    ("spec", "page"),
    [
        (FullAttentionSpec(16, 16, 128, "bfloat16"), 131072),  # Gemma-3-27B
        (SlidingWindowSpec(16, 8, 64, "bfloat16", sliding_window=128), 32768),  # gpt-oss
        (FullAttentionSpec(16, 8, 64, "fp8"), 16384),
        (FullAttentionSpec(16, 8, 64, "float32"), 65536),
        (FullAttentionSpec(16, 8, 64, "int8_per_token_head"), 17408),  # 8 bytes of scales per token and head
        (FullAttentionSpec(16, 8, 64, "int4_per_token_head"), 9216),
        (FullAttentionSpec(16, 4, 192, "bfloat16", head_size_v=128), 40960),
        (FullAttentionSpec(16, 8, 64, "bfloat16", page_size_padded=40000), 40000),
    ],
)
def test_page_size(spec: FullAttentionSpec | SlidingWindowSpec, page: int) -> None:
    assert spec.page_size_bytes == page


def test_padding_leaves_the_natural_page_known() -> None:
    assert replace(FULL, page_size_padded=40000).unpadded_page_size_bytes == 32768


def test_v_is_as_wide_as_k_unless_given() -> None:
    assert replace(FULL, head_size_v=None) == FULL
    assert FULL.head_size_v == 64
    assert state_content_bytes(64, 0, "bfloat16") == 128


def test_full_attention_is_charged_for_every_block() -> None:
    assert [FULL.max_admission_blocks(16384, length) for length in (1, 16, 17, 131072)] == [1, 1, 2, 8192]


def test_a_window_is_charged_for_itself_and_what_is_in_flight() -> None:
    assert [WINDOW.max_admission_blocks(8192, length) for length in (1, 2068, 131072)] == [2, 131, 521]


def test_one_token_more_is_skipped_than_the_window_suggests() -> None:
    spec = SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=32)
    assert [spec.num_skipped_tokens(n) for n in (0, 31, 32, 112)] == [0, 0, 1, 81]
    assert FULL.num_skipped_tokens(10_000) == 0


def test_a_window_of_one_token_keeps_nothing() -> None:
    spec = SlidingWindowSpec(16, 1, 64, "bfloat16", sliding_window=1)
    assert [resident_blocks(spec, n) for n in (1, 16, 17)] == [1, 0, 1]


def test_every_field_is_part_of_a_specs_identity() -> None:
    changed = (replace(WINDOW, page_size_padded=32768), replace(WINDOW, head_size_v=32), replace(WINDOW, block_size=32))
    assert all(spec != WINDOW for spec in changed)
    assert replace(FULL, sliding_window=128) != FULL


def test_full_specs_merge_across_one_noted_window() -> None:
    noted = replace(FULL, sliding_window=128)
    assert merge_specs([FULL, noted, FULL]) == noted
    assert merge_specs([FULL, FULL]) == FULL


def test_what_does_not_merge() -> None:
    assert merge_specs([FULL, WINDOW]) is None
    assert merge_specs([WINDOW, FULL]) is None
    assert merge_specs([WINDOW, replace(WINDOW, sliding_window=129)]) is None
    assert merge_specs([FULL, replace(FULL, num_kv_heads=4)]) is None
    assert merge_specs([replace(FULL, sliding_window=128), replace(FULL, sliding_window=256)]) is None


def test_an_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"dtype 'bfloat61' is not modelled \(nearest: 'bfloat16'\)"):
        dtype_bytes("bfloat61")


def test_sizes_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 3 << 40)] == ["0 B", "1023 B", "1 KiB", "3 TiB"]
    assert [format_gib(n) for n in (1 << 30, 123456789)] == ["1.0", "0.11"]
