r"""bounded: what the encoding adds or multiplies does not grow with position.

.. math:: \max_{p < 2^{31}} |c(p)| \;/\; \max_{p < 8192} |c(p)| \;\le\; 1.01

|c(p)| is the largest lane of an additive code, the largest singular value of a rotary T(p), the
largest bias of any head at offset p. Positions to 2³¹ are sampled: both ends, powers of two and
their neighbours, and random ones of every size. A contextual bias is asked in a sequence of 8192
tokens, and in the same sequence eight times over, so that the far one has no other content; where
logits are qᵀ T(i, j) k it is the largest singular value of T. Null for finite tables, which end
before they can grow; a rotary encoding or a bias whose positions end for want of range is measured
up to there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian, integers
from ropewalk.checks.measurement import Measurement, at_most, judge, measure, not_applicable
from ropewalk.checks.reach import FAR, reach
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

TOLERANCE = 1.01
NEAR = 8192
_TIMES = 8


@measure(TOLERANCE)
def bounded_error(encoding: Encoding) -> Measurement:
    """The largest value at positions below 2³¹ ÷ the largest below 8192; null for tables."""
    if isinstance(encoding, Contextual):
        if encoding.bilinear:
            return _of_pairs(encoding)
        return _ratio(_read(encoding, 1), _read(encoding, _TIMES), f"up to {_TIMES * NEAR} tokens")
    far = reach(encoding)
    if far.ends and (isinstance(encoding, Additive) or far.count <= NEAR):
        return not_applicable("a finite table")
    extent = min(FAR, far.count)
    near = largest(encoding, min(NEAR, extent))
    return _ratio(near, max(near, largest(encoding, extent)), far.reason)


def _ratio(near: float, far: float, reason: str | None) -> Measurement:
    figures = {"largest_near": near, "largest_far": far}
    return at_most(
        far / near if near else (1.0 if far == 0 else float("inf")), TOLERANCE, figures, reason
    )


def sampled(stop: int, count: int, axes: int) -> Tensor:
    """About ``count`` positions in [0, stop): ends, powers of two and neighbours, random sizes."""
    powers = [2**n + d for n in range(stop.bit_length()) for d in (-1, 0, 1)]
    fixed = torch.tensor(sorted({0, stop - 1, *(p for p in powers if p < stop)}))
    sizes = integers(2**62, count, seed=50)
    caps = (stop * torch.logspace(-6, 0, count, base=10.0, dtype=torch.float64)).long().clamp_min(1)
    line = torch.cat((fixed, sizes % caps))
    if axes == 1:
        return line
    others = [line[integers(len(line), len(line), seed=51 + axis)] for axis in range(1, axes)]
    return torch.cat((probes.on_axes(line, axes), torch.stack((line, *others), dim=-1)))


def largest(encoding: Encoding, extent: int) -> float:
    """The largest |c(p)| over sampled positions below ``extent``."""
    if isinstance(encoding, Additive):
        places = sampled(extent, 2048, encoding.axes)
        return probes.codes(encoding, places, length=extent).abs().max().item()
    if isinstance(encoding, Rotary):
        places = sampled(extent, 64, encoding.axes)
        return max(
            torch.linalg.matrix_norm(probes.operators(encoding, places, side), 2).max().item()
            for side in probes.SIDES
        )
    if isinstance(encoding, Bias):
        last = probes.on_axes(torch.tensor([extent - 1]), encoding.axes)
        places = sampled(extent, 2048, encoding.axes)
        return probes.biases(encoding, last, places).abs().max().item()
    raise TypeError(f"{type(encoding).__name__} belongs to no family")


def _read(encoding: Contextual, times: int) -> float:
    """The largest bias of the last query in a sequence of 8192 tokens, ``times`` over."""
    heads, dim = probes.contextual_size(encoding)
    q, k = gaussian(heads, 1, dim, seed=53), gaussian(heads, NEAR, dim, seed=54)
    line = probes.on_axes(torch.arange(times * NEAR), encoding.axes)
    found = probes.read_biases(encoding, q, k.repeat(1, times, 1), line[-1:], line)
    return found.abs().max().item()


def _of_pairs(encoding: Contextual) -> Measurement:
    """The largest singular values of T, at positions or along hidden states."""
    if encoding.content_dim is None:
        origin = probes.on_axes(torch.zeros(1, dtype=torch.int64), encoding.axes)
        near, far = (
            _strongest(probes.pair_operators(encoding, places, origin))
            for places in (sampled(end, 64, encoding.axes) for end in (NEAR, FAR))
        )
        return _ratio(near, max(near, far), None)
    near, far = (_along(encoding, tokens) for tokens in (NEAR // 8, NEAR))
    return _ratio(near, far, f"sequences of {NEAR} tokens")


def _along(encoding: Contextual, tokens: int) -> float:
    """The largest singular value of T between the last of random hidden states and others."""
    line = probes.on_axes(torch.arange(tokens), encoding.axes)
    content = probes.hidden_tokens(encoding, tokens, seed=55)
    pairs = probes.pair_operators(encoding, line[-1:], line, content)
    return _strongest(pairs[:, :, [*range(0, tokens, 61), tokens - 1]])


def _strongest(pairs: Tensor) -> float:
    return torch.linalg.matrix_norm(pairs, 2).max().item()


def assert_bounded(encoding: Encoding) -> Measurement:
    """Raise AssertionError unless the encoding's values stay within those of the first 8192."""
    return judge("bounded", encoding, bounded_error(encoding))
