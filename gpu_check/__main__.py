"""``python -m gpu_check`` is ``hybridkv gpu-check``, also where the package is not installed."""

from __future__ import annotations

import sys

from gpu_check.command import main

if __name__ == "__main__":
    sys.exit(main())
