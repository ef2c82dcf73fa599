r"""deterministic: the same configuration gives the same bits, always.

The answers to a fixed question (:mod:`ropewalk.checks.fingerprint`) are compared, tolerance 0:

- made anew under two global seeds (torch, NumPy, Python);
- made and asked under the default dtypes float64, bfloat16 and float16;
- after longer calls and bfloat16 calls to the same object, and to another one;
- with those of a fresh process, for encodings that the catalogue can make there.

The error is the largest difference ÷ the largest value. Without a way to make the encoding anew, a
copy is reset by the ``reset_parameters`` of its modules, which is where parameters are drawn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ropewalk.checks.content import default_dtype, seeded
from ropewalk.checks.fingerprint import disturb, fingerprint
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, one_line
from ropewalk.checks.reach import pristine, reach
from ropewalk.core import Encoding

TOLERANCE = 0.0
DEFAULT_DTYPES = (torch.float64, torch.bfloat16, torch.float16)
ONE_PROCESS = "compared within one process; catalogue entries are compared with a fresh one too"

_LONG, _SHORT = 12_000, 300
_HISTORIES = (
    ((_LONG, torch.bfloat16),),
    ((_LONG, torch.float64),),
    ((_LONG, torch.float32), (_SHORT, torch.bfloat16)),
)
"""Earlier calls, (tokens, dtype), after which the answers must be those of a fresh object."""


@measure(TOLERANCE)
def deterministic_error(
    encoding: Encoding,
    *,
    rebuild: Callable[[], Encoding] | None = None,
    elsewhere: Sequence[float] | None = None,
) -> Measurement:
    """The largest difference between answers that should be the same bits ÷ the largest value.

    Args:
        encoding: any.
        rebuild: makes the encoding anew; a reset copy if None.
        elsewhere: :func:`ropewalk.checks.fingerprint.fingerprint` from another process.
    """
    again = rebuild if rebuild is not None else lambda: _reset(encoding)
    far = reach(encoding)
    count, longest = far.count, far.count if far.ends else _LONG
    with seeded(1):
        first = fingerprint(again(), count)
        own = fingerprint(pristine(encoding), count)
    found: dict[str, list[float | str]] = {
        "seeds": [_gap(first, lambda: fingerprint(again(), count))],
        "default_dtypes": [
            _gap(first, lambda: fingerprint(again(), count), dtype) for dtype in DEFAULT_DTYPES
        ],
        "earlier_calls": [
            _gap(own.repeat(2), functools.partial(_after, encoding, count, longest, history))
            for history in _HISTORIES
        ],
    }
    if elsewhere is not None:
        there = torch.tensor(elsewhere, dtype=torch.float64)
        found["processes"] = [_gap(first, lambda: there)]
    problems = [gap for gaps in found.values() for gap in gaps if isinstance(gap, str)]
    figures = {
        name: max(float("inf") if isinstance(gap, str) else gap for gap in gaps)
        for name, gaps in found.items()
    }
    reason = problems[0] if problems else ONE_PROCESS if elsewhere is None else None
    return at_most(max(figures.values()), TOLERANCE, figures, reason)


def _gap(
    first: Tensor, answer: Callable[[], Tensor], dtype: torch.dtype | None = None
) -> float | str:
    """The difference of a later answer, under another seed or default dtype, ÷ the largest value.

    What the answer raises is returned as text.
    """
    try:
        if dtype is None:
            with seeded(2):
                other = answer()
        else:
            with seeded(1), default_dtype(dtype):
                other = answer()
    except Exception as error:
        return one_line(error) + (f", with the default dtype {dtype}" if dtype else "")
    if other.shape != first.shape:
        return f"{first.numel()} numbers become {other.numel()}"
    if torch.equal(first, other):
        return 0.0
    gap, size = (first - other).abs().max().item(), first.abs().max().item()
    return gap / size if size else gap


def _after(
    encoding: Encoding, count: int, longest: int, history: Sequence[tuple[int, torch.dtype]]
) -> Tensor:
    """The answers after these calls: of the copy that served them, and of another copy."""
    used = pristine(encoding)
    for tokens, dtype in history:
        disturb(used, min(tokens, longest), dtype)
    return torch.cat([fingerprint(each, count) for each in (used, pristine(encoding))])


def _reset(encoding: Encoding) -> Encoding:
    """A copy whose modules have drawn their parameters anew."""
    made = pristine(encoding)
    if made is not encoding:
        for module in made.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    return made


def assert_deterministic(
    encoding: Encoding, *, rebuild: Callable[[], Encoding] | None = None
) -> Measurement:
    """Raise AssertionError unless answers are the same bits always."""
    return judge("deterministic", encoding, deterministic_error(encoding, rebuild=rebuild))
