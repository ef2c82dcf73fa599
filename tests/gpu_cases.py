"""Tensors, positions and spectra for the GPU kernel, and what it has to make of them in float64."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

import ropewalk
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Spectrum

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
EPS = {torch.float32: 4e-7, torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float64: 3e-15}
"""Of the largest value. The interpreter truncates to bfloat16, where a GPU rounds."""


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)


def exact(x: Tensor, where: Tensor, spectrum: Spectrum, inverse: bool = False) -> Tensor:
    """float64, by plain tensor arithmetic on the CPU."""
    return ropewalk.rotate(x.double(), where, spectrum, inverse=inverse)


def assert_turned(found: Tensor, expected: Tensor, slack: float = 0.0) -> None:
    """found is ``expected`` but for rounding, and for angles wrong by ``slack``."""
    assert found.shape == expected.shape
    if found.numel():
        size = max(1.0, expected.abs().max().item())
        error = (found.double() - expected).abs().max().item()
        assert error <= (EPS[found.dtype] + slack) * size  # nan is not


@st.composite
def rotations(draw):
    """(spectrum, shape of x, positions): any layout, pairing, axes, heads, leading dimensions."""
    layout, pairing = draw(
        st.sampled_from(
            [("half", "standard"), ("interleaved", "standard"), ("half", "proportional")]
        )
    )
    pairs, axes = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    head_dim = before + 2 * pairs + after
    if pairing == "proportional":
        head_dim = 2 * (before + pairs + after)
    own, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rows = drawn((own, axes, pairs), torch.float64, draw(st.integers(0, 99))).tolist()
    spectrum = Spectrum(
        rows if own > 1 else rows[0],  # pyright: ignore[reportArgumentType] (lists are frozen)
        head_dim,
        layout=layout,
        lane_offset=before,
        pairing=pairing,
        attention_factor=draw(st.sampled_from([1.0, 1.25])),
    )
    lead = draw(st.permutations([1, 1, 1, 2, 3]))[: draw(st.integers(0, 5))]
    tokens = draw(st.integers(1, 9))
    kept = draw(st.integers(0, len(lead)))
    place = [1 if draw(st.booleans()) else n for n in lead[len(lead) - kept :]]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    spread = draw(st.sampled_from([2**4, 2**31, 2**62]))
    where = torch.randint(-spread, spread, (*place, tokens, axes), generator=generator)
    if draw(st.booleans()):  # axes first in memory
        where = where.movedim(-1, 0).contiguous().movedim(0, -1)
    where = where.squeeze(-1) if axes == 1 else where
    return spectrum, (*lead, own * group, tokens, head_dim), where


@st.composite
def strided(draw, x: Tensor, writable: bool = False) -> Tensor:
    """The values of x in another place: dimensions permuted in memory, gaps, an odd start."""
    order = draw(st.permutations(range(x.dim())))
    gap = draw(st.sampled_from([1, 1, 2, 3]))
    start = draw(st.sampled_from([0, 0, 1, 8]))
    sizes = [x.shape[d] for d in order]
    memory = torch.full((start + math.prod(sizes) * gap,), 7.0, dtype=x.dtype)
    moved = memory[start:].view(*sizes, gap)[..., 0]
    moved = moved.permute([order.index(d) for d in range(x.dim())])
    moved.copy_(x)
    return moved


def reference(x: Tensor, where: Tensor, spectrum: Spectrum, inverse: bool) -> Tensor:
    """float64; positions get the head dimension that plain arithmetic wants of them."""
    factor = spectrum.attention_factor
    cos, sin = spectrum.replace(attention_factor=1.0).tables(where, torch.float64)
    cos, sin = (cos / factor, -sin / factor) if inverse else (cos * factor, sin * factor)
    if spectrum.heads is None:
        cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
    else:
        group = x.shape[-3] // spectrum.heads
        cos, sin = cos.repeat_interleave(group, -3), sin.repeat_interleave(group, -3)
    a, b = spectrum_lanes(spectrum, x)
    turned = x.double().clone()
    first, second = x[..., a].double(), x[..., b].double()
    turned[..., a], turned[..., b] = first * cos - second * sin, first * sin + second * cos
    return turned


def bits(x: Tensor) -> Tensor:
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
