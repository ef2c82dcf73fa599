"""Is the kernel right on this device? Each check measures an error and states its bound.

The reference is float64 on the CPU, in plain tensor arithmetic with the CPU's own phases, which are
held against mpmath elsewhere. The same checks run in the tests, by Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

import ropewalk
from ropewalk.kernels import gpu
from ropewalk.kernels.angles import phase, sincos
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Spectrum, axial, geometric
from ropewalk.spectra.lanes import Turn

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
ROUNDING = {torch.float32: 4e-7, torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float64: 4e-15}


class Check(NamedTuple):
    """A measured error, relative to the largest value, and what it may be."""

    name: str
    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """nan does not."""
        return self.error <= self.bound

    @property
    def text(self) -> str:
        """For people."""
        verdict = "holds" if self.holds else "WRONG"
        return f"{verdict} {self.name}: error {self.error:.3g}, bound {self.bound:.3g}"


def reference(x: Tensor, where: Tensor, spectrum: Spectrum, inverse: bool = False) -> Tensor:
    """float64 on the CPU; ``where`` is [tokens] or [batch, tokens], then axes if several."""
    x, where = x.detach().double().cpu(), where.cpu()
    planes = where if spectrum.axes > 1 else where.unsqueeze(-1)
    sine, cosine = sincos(phase(planes, spectrum.on("cpu").tensor), torch.float64)
    factor = 1 / spectrum.attention_factor if inverse else spectrum.attention_factor
    if spectrum.heads is not None:
        group = x.shape[-3] // spectrum.heads
        sine, cosine = (t.repeat_interleave(group, -3) for t in (sine, cosine))
    elif sine.dim() > 2:
        sine, cosine = sine.unsqueeze(-3), cosine.unsqueeze(-3)
    sine = -sine if inverse else sine
    first, second = spectrum_lanes(spectrum, x)
    turned = x.clone()
    a, b = x[..., first], x[..., second]
    turned[..., first] = (a * cosine - b * sine) * factor
    turned[..., second] = (a * sine + b * cosine) * factor
    return turned


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest error relative to the largest value; nan where found has one."""
    found = found.detach().double().cpu()
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1)).item()


def spectra() -> dict[str, Spectrum]:
    """One for each way that lanes and frequencies can be laid out."""
    return {
        "half": geometric(64),
        "interleaved": geometric(64, layout="interleaved"),
        "partial, in the middle": geometric(80, rotary_dim=48, lane_offset=9),
        "partial, interleaved": geometric(40, rotary_dim=24, lane_offset=3, layout="interleaved"),
        "proportional": Spectrum((tuple(0.7**i for i in range(10)),), 48, pairing="proportional"),
        "two axes": axial(64),
        "own frequencies per key head": Spectrum(
            tuple((tuple(0.9 ** (i + h) for i in range(20)),) for h in range(4)), 40
        ),
        "factor": geometric(64).replace(attention_factor=1.25),
    }


def checks(
    device: torch.device,
    tokens: int = 300,
    most: int = 2**31,
    dtypes: Sequence[torch.dtype] = DTYPES,
) -> Iterator[Check]:
    """Every check; tests take few ``tokens`` and ``dtypes`` and a small largest offset ``most``."""
    yield from _angles(device)
    for name, spectrum in spectra().items():
        yield from _layouts(device, name, spectrum, tokens, dtypes)
    for dtype in dtypes:
        yield from _normed(device, tokens, dtype)
        yield from _into_pages(device, tokens, dtype)
    yield from _strides(device, tokens)
    yield from _unwritten(device)
    yield from _gradients(device, tokens)
    yield _beyond_32_bits(device, most)


def _angles(device: torch.device) -> Iterator[Check]:
    draw = torch.Generator().manual_seed(0)
    phases = torch.randint(-(2**63), 2**63 - 1, (4096,), generator=draw)
    exact = sincos(phases, torch.float64)
    for dtype, bound in ((torch.float32, 1.2e-7), (torch.float64, 1e-15)):
        cos, sin = (torch.empty(1, 4096, device=device, dtype=dtype) for _ in range(2))
        one = torch.ones(1, dtype=torch.int64, device=device)
        gpu.phase_tables(one, phases[None].to(device), 1.0, cos, sin)
        error = max(
            (s[0].double().cpu() - e).abs().max().item()
            for s, e in zip((sin, cos), exact, strict=True)
        )
        yield Check(f"sin and cos, {dtype}", error, bound)


def _places(spectrum: Spectrum, shape: tuple[int, ...], seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    axes = (spectrum.axes,) if spectrum.axes > 1 else ()
    return torch.randint(-(2**62), 2**62, (*shape, *axes), generator=draw)


def _values(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draw, dtype=torch.float64).to(device, dtype)


def _turn(spectrum: Spectrum, x: Tensor, inverse: bool = False) -> Turn:
    return spectrum.turns[inverse]


def _layouts(
    device: torch.device, name: str, spectrum: Spectrum, tokens: int, dtypes: Sequence[torch.dtype]
) -> Iterator[Check]:
    """Every dtype: fresh, inverse in place, and q and k in one launch."""
    steps = spectrum.on(device).tensor
    where = _places(spectrum, (2, tokens), 1).to(device)
    for dtype in dtypes:
        q = _values((2, 8, tokens, spectrum.head_dim), dtype, device, 2)
        k = _values((2, 4, tokens, spectrum.head_dim), dtype, device, 3)
        outs = [torch.full_like(t, math.nan) for t in (q, k)]
        gpu.rotate_qk(q, k, outs[0], outs[1], where, 0, steps, *_turn(spectrum, q))
        errors = [
            difference(o, reference(t, where, spectrum)) for o, t in zip(outs, (q, k), strict=True)
        ]
        expected = reference(q, where, spectrum, inverse=True)
        gpu.rotate(q, q, where, 0, steps, *_turn(spectrum, q, inverse=True))
        errors.append(difference(q, expected))
        yield Check(f"{name}, {dtype}", _worst(errors), ROUNDING[dtype])


def _normed(device: torch.device, tokens: int, dtype: torch.dtype) -> Iterator[Check]:
    """q fresh and k in place, divided by their root mean squares, weighed and turned."""
    for name, spectrum in spectra().items():
        q = _values((2, 8, tokens, spectrum.head_dim), dtype, device, 14)
        k = _values((2, 4, tokens, spectrum.head_dim), dtype, device, 15) * 3
        weight, out = _values(q.shape[-1:], dtype, device, 16), torch.full_like(q, math.nan)
        where = _places(spectrum, (2, tokens), 17)
        expected = []
        for x, w in ((q, weight.double().cpu()), (k, 1.0)):
            y = x.double().cpu()
            y = w * y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            expected.append(reference(y, where, spectrum))
        steps, turn = spectrum.on(device).tensor, _turn(spectrum, q)
        gpu.normed(q, k, out, k, weight, None, 1e-6, where.to(device), 0, steps, *turn)
        errors = [difference(out, expected[0]), difference(k, expected[1])]
        yield Check(f"normed, {name}, {dtype}", _worst(errors), 2 * ROUNDING[dtype])


def _into_pages(device: torch.device, tokens: int, dtype: torch.dtype) -> Iterator[Check]:
    """Keys turned and values copied to slots in no order; rows without one, and one outside."""
    blocks, size = 2 + tokens // 16, 16
    draw = torch.Generator().manual_seed(18)
    slots = torch.randperm(blocks * size, generator=draw)[:tokens]
    slots[::5], slots[1] = -1, blocks * size
    kept = (slots >= 0) & (slots < blocks * size)
    at = slots[kept] // size, slots[kept] % size
    for name, spectrum in spectra().items():
        k = _values((4, tokens, spectrum.head_dim), dtype, device, 19)
        v = _values((6, tokens, 40), dtype, device, 20)
        where = _places(spectrum, (tokens,), 21)
        pages = _values((blocks, size, 4, spectrum.head_dim), dtype, device, 22)
        v_pages = _values((blocks, 6, size, 40), dtype, device, 23).transpose(1, 2)
        expected, v_expected = pages.double().cpu(), v_pages.double().cpu()
        turned = reference(k[None], where, spectrum)[0].transpose(0, 1)
        expected[at], v_expected[at] = turned[kept], v.double().cpu().transpose(0, 1)[kept]
        steps, turn = spectrum.on(device).tensor, _turn(spectrum, k)
        there = slots.to(device, torch.int32), where.to(device)
        gpu.into_pages(k, v, pages, v_pages, *there, 0, steps, *turn)
        yield Check(f"into pages, {name}, {dtype}", difference(pages, expected), ROUNDING[dtype])
        unlike = float((v_pages.double().cpu() != v_expected).sum())
        yield Check(f"values into pages, {name}, {dtype}", unlike, 0.0)


def _worst(errors: list[float]) -> float:
    return math.nan if any(math.isnan(e) for e in errors) else max(errors)


def _strides(device: torch.device, tokens: int) -> Iterator[Check]:
    """Token-major, a slice of packed qkv, lanes apart, expanded, an odd start."""
    spectrum, dtype = geometric(64), torch.bfloat16
    steps, where = spectrum.on(device).tensor, _places(spectrum, (tokens,), 4).to(device)
    packed = _values((2, tokens, 3, 4, 64), dtype, device, 5)
    views = {
        "token-major": packed[:, :, 0].contiguous().transpose(1, 2),
        "packed qkv": packed[:, :, 1].transpose(1, 2),
        "every second lane": _values((2, 4, tokens, 128), dtype, device, 6)[..., ::2],
        "expanded": packed[:1, :, 2, :1].transpose(1, 2).expand(2, 4, tokens, 64),
        "odd start": _values((8 * tokens * 64 + 1,), dtype, device, 7)[1:].view(2, 4, tokens, 64),
    }
    for name, x in views.items():
        out = torch.full_like(x, math.nan)
        gpu.rotate(x, out, where, 0, steps, *_turn(spectrum, x))
        yield Check(name, difference(out, reference(x, where, spectrum)), ROUNDING[dtype])
        cos, sin = spectrum.tables(where)
        gpu.rotate_by(x, out.fill_(math.nan), cos, sin, 32 << 32)
        yield Check(
            f"{name}, tables", difference(out, reference(x, where, spectrum)), ROUNDING[dtype]
        )


def _unwritten(device: torch.device) -> Iterator[Check]:
    """Around a result inside a larger memory nothing changes, nor do passing lanes in place."""
    spectrum = geometric(24, rotary_dim=10, lane_offset=3)
    memory = _values((4, 40, 40), torch.float32, device, 8)
    before = memory.clone()
    x = memory[1:3, 5:38, 8:32]
    where = torch.arange(33, device=device)
    gpu.rotate(x, x, where, 0, spectrum.on(device).tensor, *_turn(spectrum, x))
    after = memory.clone()
    after[1:3, 5:38, 11:21] = before[1:3, 5:38, 11:21]
    yield Check("nothing else is written", float((after != before).sum()), 0.0)


def _gradients(device: torch.device, tokens: int) -> Iterator[Check]:
    """The public operation, its backward and its tables."""
    spectrum = geometric(64).replace(attention_factor=1.25)
    where = _places(spectrum, (2, tokens), 9).to(device)
    x = _values((2, 4, tokens, 64), torch.float32, device, 10).requires_grad_()
    cotangent = _values((2, 4, tokens, 64), torch.float32, device, 11)
    (found,) = torch.autograd.grad(ropewalk.rotate(x, where, spectrum), x, cotangent)
    expected = reference(cotangent, where, spectrum, inverse=True) * 1.25**2
    yield Check("gradient", difference(found, expected), ROUNDING[torch.float32])


def _beyond_32_bits(device: torch.device, most: int) -> Check:
    """Two heads that lie ``most`` elements apart."""
    spectrum = geometric(64)
    x = torch.empty(most + 2**12, device=device, dtype=torch.bfloat16)
    x = x.as_strided((2, 32, 64), (most, 64, 1))
    x.copy_(_values((2, 32, 64), torch.bfloat16, device, 12))
    where = _places(spectrum, (32,), 13).to(device)
    expected = reference(x, where, spectrum)
    gpu.rotate(x, x, where, 0, spectrum.on(device).tensor, *_turn(spectrum, x))
    return Check(f"offsets of {most}", difference(x, expected), ROUNDING[torch.bfloat16])
