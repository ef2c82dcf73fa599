"""Checks: every property of an encoding as a measurement and a judgement.

``*_error(encoding)`` measures and returns a :class:`Measurement`; ``assert_*(encoding)`` judges and
raises AssertionError with encoding, property, error and tolerance. :func:`check` measures all
properties of a catalogue entry, or of an encoding of your own, in the catalogue or not:

>>> class Turns(ropewalk.Additive):
...     def __init__(self):
...         super().__init__()
...         self.dim = 6
...     def encode(self, positions, *, length=None, dtype=torch.float32):
...         hands = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)
...         angles = positions[..., None] * hands
...         return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)
...     def reference(self, position, length=None):
...         angles = [position * f for f in (1.0, 0.1, 0.01)]
...         return [f(a) for f in (math.sin, math.cos) for a in angles]
>>> report = ropewalk.checks.check(Turns())
>>> report.properties["bounded"].holds
True

A :class:`~ropewalk.core.Rotary` gives ``head_dim``, ``encode_q``, ``encode_k`` and ``reference``, a
:class:`~ropewalk.core.Bias` gives ``heads``, ``bias`` and ``reference``.

:class:`EncodingContract` is a test class of laws that every encoding must keep, whatever it claims.

Estimators are in float64 with seeded Gaussian content from private generators, so results are the
same from run to run and global random state is left alone. Positions to 2³¹ are asked for: a table
may raise beyond its end, with any exception, and is then measured to its end.
"""

from __future__ import annotations

from ropewalk.checks.axes import assert_axes, axes_error
from ropewalk.checks.bounded import assert_bounded, bounded_error
from ropewalk.checks.contract import EncodingContract
from ropewalk.checks.decay import assert_decay, decay_error
from ropewalk.checks.deterministic import assert_deterministic, deterministic_error
from ropewalk.checks.extends import assert_extends, extends_error
from ropewalk.checks.generalises import assert_generalises, generalises_error
from ropewalk.checks.learnable import assert_learnable, learnable_error
from ropewalk.checks.linear import assert_linear, linear_error
from ropewalk.checks.measurement import Measurement
from ropewalk.checks.norm import assert_norm, norm_error
from ropewalk.checks.precision import assert_precision, precision_error
from ropewalk.checks.relative import assert_relative, relative_error
from ropewalk.checks.report import MEASURES, Report, Result, check, check_all
from ropewalk.checks.unique import assert_unique, unique_error

__all__ = [
    "MEASURES",
    "EncodingContract",
    "Measurement",
    "Report",
    "Result",
    "assert_axes",
    "assert_bounded",
    "assert_decay",
    "assert_deterministic",
    "assert_extends",
    "assert_generalises",
    "assert_learnable",
    "assert_linear",
    "assert_norm",
    "assert_precision",
    "assert_relative",
    "assert_unique",
    "axes_error",
    "bounded_error",
    "check",
    "check_all",
    "decay_error",
    "deterministic_error",
    "extends_error",
    "generalises_error",
    "learnable_error",
    "linear_error",
    "norm_error",
    "precision_error",
    "relative_error",
    "unique_error",
]
