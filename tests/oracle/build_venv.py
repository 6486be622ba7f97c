"""Make the oracle's environment: the pinned vLLM, its Python dependencies and a CPU build of torch, nothing else.

    python tests/oracle/build_venv.py            # .venv-oracle, vllm as pinned in requirements.txt
    python tests/oracle/build_venv.py 0.34.0     # .venv-oracle-0.34.0, the same pins with that vllm (or VLLM=0.34.0)

``HYBRIDKV_ORACLE_VENV`` names another folder. A complete environment is found again by a marker that holds a digest of
what was asked for. The last line printed is the path of its Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REQUIREMENTS = HERE / "requirements.txt"
MARKER = "oracle-complete.txt"


def pins(version: str | None) -> list[str]:
    """The pinned requirements, with ``version`` in place of the pinned vllm."""
    lines = [line.strip() for line in REQUIREMENTS.read_text().splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    if version:
        wanted = [f"vllm=={version}" if line.startswith("vllm==") else line for line in wanted]
    return wanted


def pinned_version() -> str:
    """The vLLM release the project models."""
    return next(line.removeprefix("vllm==") for line in pins(None) if line.startswith("vllm=="))


def folder(version: str | None) -> Path:
    """Where the environment of a vLLM release lies."""
    chosen = os.environ.get("HYBRIDKV_ORACLE_VENV")
    if chosen and (not version or version == pinned_version()):
        return Path(chosen).resolve()
    base = Path(chosen).resolve() if chosen else ROOT / ".venv-oracle"
    return base if not version or version == pinned_version() else base.with_name(f"{base.name}-{version}")


def python_of(venv: Path) -> Path:
    """The environment's Python."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def digest(version: str | None) -> str:
    """What a complete environment's marker says."""
    return sha256("\n".join(pins(version)).encode()).hexdigest()


def is_complete(version: str | None) -> bool:
    """Whether the environment was built to its end from these pins."""
    marker = folder(version) / MARKER
    return python_of(folder(version)).exists() and marker.exists() and marker.read_text().strip() == digest(version)


def build(version: str | None) -> Path:
    """Build the environment unless it is complete; its Python. Ends the program where pip or the check fails."""
    venv = folder(version)
    python = python_of(venv)
    if is_complete(version):
        return python
    print(f"Building the oracle's environment in {venv} (about 2 GB, one to four minutes)", flush=True)
    (venv / MARKER).unlink(missing_ok=True)
    if not python.exists():
        run([sys.executable, "-m", "venv", str(venv)])
    run([str(python), "-m", "pip", "install", "--quiet", "--quiet", "--no-deps", *pins(version)])
    check = "import torch; assert torch.version.cuda is None and torch.version.hip is None, torch.__version__"
    if subprocess.run([str(python), "-c", check], check=False, capture_output=True).returncode != 0:
        sys.exit(
            "tests/oracle: pip installed a torch that is no CPU build, or one that does not start here; point pip at"
            f" the CPU builds (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), remove {venv} and run this again"
        )
    (venv / MARKER).write_text(digest(version) + "\n")
    return python


def run(command: list[str]) -> None:
    """Run a command; end the program with its exit code if it fails."""
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        sys.exit(f"tests/oracle: {' '.join(command[:5])} … ended with {code}")


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("VLLM", "")
    print(build(asked or None))
