"""Compiles the Triton kernel for GPUs that are not here, and prints what came out, a line of JSON each.

A process of its own: in this one Triton interprets. ``python -m tests.gpu_check.compile_kernels``
"""

from __future__ import annotations

import json
import sys
from typing import Any

HEADS, KV_HEADS, BLOCK_SIZE = 32, 8, 16
POINTERS = {
    **dict.fromkeys(("query", "k_cache", "v_cache", "out"), "*bf16"),
    **dict.fromkeys(("block_table", "tiles", "query_start", "seq_lens"), "*i32"),
    **dict.fromkeys(("parts", "stats"), "*fp32"),
}


def compiled(capability: int, head_size: int, rows: int, keys: int, splits: int, window: int) -> dict[str, Any]:
    """The kernel for one shape: bytes of machine code, of shared memory, and how many copies run ahead."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from gpu_check.kernels.triton_kernel import attend

    page = (BLOCK_SIZE * KV_HEADS * 2 * head_size, KV_HEADS * head_size, head_size, head_size, head_size)
    constants: dict[str, Any] = {
        "q_layout": (HEADS * head_size, head_size),
        "k_layout": page,
        "v_layout": page,
        "out_layout": (HEADS * head_size, head_size),
        "heads": (HEADS, HEADS // KV_HEADS),
        "span": (window, 0),
        "block_size": BLOCK_SIZE,
        "num_rows": rows,
        "num_keys": keys,
        "num_splits": splits,
        "precision": "tf32",
    }
    signature = {**POINTERS, "table_row": "i32", "scale_log2": "fp32", **dict.fromkeys(constants, "constexpr")}
    aligned = {(attend.arg_names.index(name),): [["tt.divisibility", 16]] for name in POINTERS}
    source = ASTSource(fn=attend, signature=signature, constexprs=constants, attrs=aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, "num_stages": 3})
    return {
        "capability": capability,
        "machine_code_bytes": len(kernel.asm["cubin"]),
        "shared_bytes": kernel.metadata.shared,
        "copies_ahead": kernel.asm["ptx"].count("cp.async.c"),
    }


def main() -> int:
    """Decoding with split keys in a window on three generations of GPUs, and a chunk of a prompt on one."""
    for capability in (80, 90, 100):
        _write(compiled(capability, 128, 16, 64, 2, 1024))
    _write(compiled(90, 128, 64, 64, 1, 0))
    return 0


def _write(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    sys.exit(main())
