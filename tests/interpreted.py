"""Importing this makes the Triton kernels of the test process interpreted ones, or skips."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton")

from triton.runtime.interpreter import InterpretedFunction  # noqa: E402

from ropewalk.kernels.gpu.launch import kernels  # noqa: E402

with triton.knobs.runtime.scope():
    triton.knobs.runtime.interpret = True
    loaded = kernels()

if not isinstance(loaded.turn_by_phases, InterpretedFunction):
    pytest.skip("this process has compiled kernels already", allow_module_level=True)
