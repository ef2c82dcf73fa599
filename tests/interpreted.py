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

from ropewalk.kernels.gpu import turn_normed  # noqa: E402

# The interpreter sums by numpy if it knows the function, and calls any other for each element.
added = turn_normed.add
turn_normed.add = triton.language.standard._sum_combine
