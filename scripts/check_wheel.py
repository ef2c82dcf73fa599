"""Install a wheel into a fresh environment with a given torch, and run the kernel's tests there.

    python scripts/check_wheel.py dist/ropewalk-*.whl --torch 2.10.0 --python python3.13

It downloads that torch with all it needs, several gigabytes on Linux, and removes it afterwards.
The tests see the installed package alone, not this checkout.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "test_kernel.py",
    "test_kernel_places.py",
    "test_rotate.py",
    "test_phases.py",
    "test_processes.py",
    "test_direct.py",
)
NEEDED = ("pytest", "hypothesis", "mpmath")


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command, and leave with its status if it fails."""
    result = subprocess.run([str(part) for part in command], cwd=cwd, check=False)
    if result.returncode:
        sys.exit(result.returncode)


def main() -> None:
    """Make the environment, install, test."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("wheel", type=Path)
    options.add_argument("--torch", default="2.10.0", help="the version to install (2.10.0)")
    options.add_argument("--python", default=sys.executable, help="the Python to do it with (this)")
    chosen = options.parse_args()
    wheel = chosen.wheel.resolve(strict=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(chosen.python, "-m", "venv", folder / "venv", cwd=folder)
        python = folder / "venv" / "bin" / "python"
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, f"torch=={chosen.torch}", wheel, *NEEDED, cwd=folder)
        shutil.copytree(ROOT / "tests", folder / "tests")
        shutil.copy(ROOT / "pyproject.toml", folder)
        run(python.with_name("ropewalk"), "--version", cwd=folder)
        run(python, "-m", "pytest", *(f"tests/{test}" for test in TESTS), cwd=folder)


if __name__ == "__main__":
    main()
