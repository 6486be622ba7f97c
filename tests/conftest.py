"""What all tests share: a derandomised Hypothesis, figures without a screen, and the optional folder of shared data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels on CPU tensors; 0 compiles them, for the tests that need CUDA

# `ci` draws the same examples each time, so a run says the same twice. Look for new ones with
# HYPOTHESIS_PROFILE=explore and write what it finds down as an example of its own.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of full traces, startup logs and measurements beside a checkout; skips where it is absent."""
    folder = Path(os.environ.get("HYBRIDKV_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the shared data folder, which is not beside this checkout ({folder})")
    return folder
