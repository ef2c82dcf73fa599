r"""precision: low precision costs the same at every position.

.. math:: \max_b \; e(b) / e(0) \;\le\; 1.5, \qquad b \in \{0, 256, 4096, 131072, 2^{31}\}

e(b) is the bfloat16 error at positions b + o, o random below 64, against the ``reference`` loop:

- rotary: RMS error of the logits ÷ ‖q‖‖k‖, with q and k held in bfloat16 and encoded as in use;
- additive: RMS rounding of the code ÷ the RMS distance to the next position's code;
- bias: RMS rounding of the bias, which is a logit, at offsets b + o;
- contextual: the same in sequences of b + 64 tokens (b ≤ 4096), against float64; the whole logit
  where it is qᵀ T(i, j) k.

What happens to be exact near 0 (small integers, slow pairs that have not turned yet) must be
compared with something, so e(0) counts as at least half a unit roundoff ÷ √head_dim for logits,
which is about what rounding q and k once costs, and 1/16 of a unit roundoff of a step between
neighbours, or of the RMS bias. Bases that a table lacks are left out; if none but 0 fits, its end
is one. Figures: e(b) per dtype, float16 too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian, integers
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.reach import reach
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

TOLERANCE = 1.5
BASES = (0, 256, 4096, 131072, 2**31)
SPREAD = 64
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
JUDGED = "bfloat16"

_TOKENS = 48


@measure(TOLERANCE)
def precision_error(encoding: Encoding) -> Measurement:
    """The worst ratio of the bfloat16 error at a base to that at base 0."""
    far = reach(encoding)
    longest = 4096 + SPREAD if isinstance(encoding, Contextual) else far.count - 1
    bases = [base for base in BASES if base + SPREAD <= longest]
    if len(bases) == 1 and longest >= 2 * SPREAD:
        bases.append(longest - SPREAD)
    if len(bases) < 2:
        return not_applicable(f"positions end at {far.count - 1}: nothing to compare base 0 with")
    figures: dict[str, float] = {}
    for base in bases:
        for name, error in _errors(encoding, base).items():
            figures[f"{name}_at_{base}"] = error
    least = _least(encoding) * torch.finfo(DTYPES[JUDGED]).eps / 2
    anchor = max(figures[f"{JUDGED}_at_0"], least)
    worst = max(figures[f"{JUDGED}_at_{base}"] for base in bases)
    error = worst / anchor if anchor else (0.0 if worst == 0 else math.inf)
    reason = None if len(bases) == len(BASES) else f"bases up to {bases[-1]}"
    return at_most(error, TOLERANCE, figures, reason)


def _errors(encoding: Encoding, base: int) -> dict[str, float]:
    """e(base) by dtype name."""
    line = base + integers(SPREAD, _TOKENS, seed=90)
    places = probes.on_axes(line, encoding.axes)
    if isinstance(encoding, Rotary):
        return _of_logits(encoding, places)
    if isinstance(encoding, Additive):
        return _of_codes(encoding, places, base + SPREAD + 1)
    if isinstance(encoding, Bias):
        return _of_biases(encoding, places)
    if isinstance(encoding, Contextual):
        return _of_read(encoding, base)
    raise TypeError(f"{type(encoding).__name__} belongs to no family")


def _rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _where(encoding: Encoding, place: Tensor) -> int | Sequence[int]:
    """A position as ``reference`` takes it."""
    place = probes.asked(encoding, place)
    return int(place) if place.dim() == 0 else tuple(place.tolist())


def _of_logits(encoding: Rotary, places: Tensor) -> dict[str, float]:
    """RMS logit error ÷ ‖q‖‖k‖ of head 0; q and k are values that the dtype holds exactly."""
    found = {}
    for name, dtype in DTYPES.items():
        q, k = gaussian(2, len(places), encoding.head_dim, seed=91).to(dtype)
        turned_q = probes.vectors(encoding, q, places, "q")[0]
        turned_k = probes.vectors(encoding, k, places, "k")[0]
        q, k = q.to(torch.float64), k.to(torch.float64)
        exact = _exact(encoding, q, places, "q") @ _exact(encoding, k, places, "k").T
        sizes = q.norm(dim=-1)[:, None] * k.norm(dim=-1)
        found[name] = _rms((turned_q @ turned_k.T - exact) / sizes)
    return found


def _exact(encoding: Rotary, x: Tensor, places: Tensor, side: probes.Side) -> Tensor:
    """x by the reference loop, which transforms as q; a k of its own way, in float64."""
    if side == "k" and not _sides_agree(encoding):
        return probes.vectors(encoding, x, places, "k")[0]
    rows = [
        encoding.reference(row.tolist(), _where(encoding, place))
        for row, place in zip(x, places, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _sides_agree(encoding: Rotary) -> bool:
    places = probes.on_axes(torch.arange(1, 5), encoding.axes)
    x = gaussian(4, encoding.head_dim, seed=92)
    q, k = (probes.vectors(encoding, x, places, side) for side in probes.SIDES)
    return torch.allclose(q, k, rtol=1e-3, atol=1e-3)


def _of_codes(encoding: Additive, places: Tensor, length: int) -> dict[str, float]:
    """RMS rounding of codes ÷ RMS distance to the code of the next position."""
    exact, after = (
        torch.tensor(
            [encoding.reference(_where(encoding, place), length) for place in line],  # pyright: ignore[reportArgumentType]
            dtype=torch.float64,
        )
        for line in (places, places + 1)
    )
    step = _rms(after - exact)
    return {
        name: _share(
            _rms(probes.codes(encoding, places, length=length, dtype=dtype, finite=False) - exact),
            step,
        )
        for name, dtype in DTYPES.items()
    }


def _share(error: float, step: float) -> float:
    return error / step if step else (0.0 if error == 0 else math.inf)


def _of_biases(encoding: Bias, places: Tensor) -> dict[str, float]:
    """RMS rounding of the bias of all heads at these offsets."""
    key = torch.zeros_like(places[:1])
    exact = _reference_biases(encoding, places)
    return {
        name: _rms(probes.biases(encoding, places, key, dtype, finite=False)[..., 0] - exact)
        for name, dtype in DTYPES.items()
    }


def _reference_biases(encoding: Bias, places: Tensor) -> Tensor:
    """``reference`` of every head at these offsets from 0, ``[heads, n]``."""
    origin = _where(encoding, torch.zeros_like(places[0]))
    rows = [
        [encoding.reference(head, _where(encoding, place), origin) for place in places]  # pyright: ignore[reportArgumentType]
        for head in range(encoding.heads)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _of_read(encoding: Contextual, base: int) -> dict[str, float]:
    """RMS rounding of the last query's bias at offsets base … base + 63."""
    exact = _last_row(encoding, base, torch.float64)
    near = _last_row(encoding, base, torch.float32)
    return {name: _rms(near.to(dtype).to(torch.float64) - exact) for name, dtype in DTYPES.items()}


def _last_row(encoding: Contextual, base: int, dtype: torch.dtype) -> Tensor:
    heads, dim = probes.contextual_size(encoding)
    q, k = gaussian(2, heads, BASES[2] + SPREAD, dim, seed=93).to(dtype)[..., -base - SPREAD :, :]
    line = probes.on_axes(torch.arange(base + SPREAD), encoding.axes)
    found = probes.read_biases(encoding, q[:, -1:], k, line[-1:], line)
    if encoding.bilinear:
        found = found + (q[:, -1:] @ k.transpose(-1, -2)).to(torch.float64)
    return found[:, 0, :SPREAD]


def _least(encoding: Encoding) -> float:
    """The least that e(0) counts as, in unit roundoffs."""
    if isinstance(encoding, Rotary):
        return 0.5 / math.sqrt(encoding.head_dim)
    if isinstance(encoding, Bias):
        line = probes.on_axes(integers(SPREAD, _TOKENS, seed=90), encoding.axes)
        return _rms(_reference_biases(encoding, line)) / 16
    if isinstance(encoding, Contextual):
        return _rms(_last_row(encoding, 0, torch.float64)) / 16
    return 1 / 16


def assert_precision(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless low precision costs the same at every position."""
    return judge("precision", encoding, precision_error(encoding))
