"""The kernel under AddressSanitizer, in short; ``make sanitize`` runs all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.kernels.build import compiler

ROOT = Path(__file__).resolve().parent.parent


def has_sanitizer() -> bool:
    """Whether the compiler brings AddressSanitizer as a library to preload."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        asked = [*compiler(), "-print-file-name=libasan.so"]
    except ValueError:
        return False
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return os.path.isabs(told)


pytestmark = pytest.mark.skipif(not has_sanitizer(), reason="no AddressSanitizer of GCC here")


def sanitized(*tests: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/sanitize.py", "address+quick", "--", *tests],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=600,
    )


def test_rotations_stay_inside_their_tensors():
    chosen = "same_bits or gaps or one_pass or views or around_the_cache"
    result = sanitized("tests/test_kernel.py", "-k", chosen)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert " passed" in result.stdout or "[100%]" in result.stdout


def test_reading_outside_would_be_found():
    result = sanitized("tests/reads_outside.py")
    assert result.returncode == 1
    assert "ERROR: AddressSanitizer" in result.stderr
    assert "rows.cpp" in result.stderr
