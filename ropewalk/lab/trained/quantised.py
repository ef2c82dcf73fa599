"""Keys as they come back from few bits: the nearest numbers of a format under shared scales.

With a = max |x| over what shares a scale and m the largest number of the format,

    x' = a/m · nearest(m · x/a)

so the largest of them comes back as itself, and what is all 0 stays 0. Integers are symmetric:
m = 127 or 7, steps a/m, and an error of at most half a step. The 8-bit floats are those of
Micikevicius et al. 2022 (arXiv 2209.05433), PyTorch's float8_e4m3fn and float8_e5m2, but rounded
once, where PyTorch takes float64 to them by way of float32. Ties go to even. Scales are kept in
full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Format:
    """Numbers from ``-largest`` to ``largest``; ``nearest`` rounds float64 tensors to them."""

    name: str
    bits: int
    largest: float
    nearest: Callable[[Tensor], Tensor]


def _floats(mantissa: int, smallest: int) -> Callable[[Tensor], Tensor]:
    """To floats with so many bits of mantissa, whose least normal number is 2^smallest."""

    def nearest(codes: Tensor) -> Tensor:
        exponent = torch.frexp(codes).exponent.clamp(min=smallest + 1) - 1 - mantissa
        return torch.ldexp(torch.round(torch.ldexp(codes, -exponent)), exponent)

    return nearest


FORMATS = {
    each.name: each
    for each in (
        Format("int8", 8, 127.0, torch.round),
        Format("int4", 4, 7.0, torch.round),
        Format("e4m3", 8, 448.0, _floats(3, -6)),
        Format("e5m2", 8, 57344.0, _floats(2, -14)),
    )
}
SHARES = {"channel": "tokens", "token": "lanes"}
"""What has a scale of its own → over what it is shared; heads and rows never share one."""


def formats_of(names: Sequence[str]) -> tuple[str, ...]:
    """Names of formats, each once, without the spaces around them.

    Raises:
        ValueError: there are none, or one is unknown.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names))
    unknown = [name for name in found if name not in FORMATS]
    if unknown or not found:
        raise ValueError(f"formats has {', '.join(unknown) or 'none'}; use {', '.join(FORMATS)}")
    return found


def quantised(x: Tensor, form: str, per: str, *, tokens: int = -2) -> Tensor:
    """``x`` through ``form`` and back, in its own dtype.

    Args:
        x: real floating ``[…, tokens, lanes]``.
        form: a key of ``FORMATS``.
        per: ``"channel"``, a scale for each lane over the tokens; ``"token"``, one for each token
            over its lanes.
        tokens: the dimension of the tokens.

    Raises:
        TypeError: x does not hold real floating numbers.
        ValueError: form or per is unknown, x has fewer than two dimensions, or not all its numbers
            are finite.
    """
    if form not in FORMATS:
        raise ValueError(f"form={form!r} is unknown; use one of {', '.join(FORMATS)}")
    if per not in SHARES:
        raise ValueError(f"per={per!r} is unknown; use one of {', '.join(SHARES)}")
    if not x.is_floating_point():
        raise TypeError(f"x has dtype {x.dtype}; give real floating numbers")
    if x.dim() < 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; give at least tokens and lanes")
    if not x.numel():
        return x.clone()
    if not x.isfinite().all():
        raise ValueError("x holds nan or infinity, which no scale can hold; look where it comes in")
    wide = x.double()
    largest = wide.abs().amax(dim=tokens if per == "channel" else -1, keepdim=True)
    share = torch.where(largest > 0, wide / largest, 0.0)
    m = FORMATS[form].largest
    return (FORMATS[form].nearest(share * m) / m * largest).to(x.dtype)


def squared_error(found: Tensor, x: Tensor) -> float:
    """Σ (x' − x)² ÷ Σ x², in float64; 0 where both are 0 throughout."""
    apart, size = (found.double() - x.double()).square().sum(), x.double().square().sum()
    return (apart / size).item() if apart else 0.0
