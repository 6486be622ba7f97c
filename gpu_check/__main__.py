"""``python -m gpu_check``: says in one line what is missing, and ends with 2."""

from __future__ import annotations

import sys
from importlib.util import find_spec

EXIT_CODE = 2


def missing() -> str:
    """What keeps the check from running, in one line."""
    parts = ["this release has no GPU check yet (real buffers, a replayed run, measured step times)"]
    if find_spec("torch") is None:
        parts.append("PyTorch is not installed either: pip install 'hybridkv[gpu]'")
    return "gpu_check: nothing was checked: " + "; ".join(parts)


def main() -> int:
    """Print what is missing to stderr; returns the exit code."""
    print(missing(), file=sys.stderr)
    return EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
