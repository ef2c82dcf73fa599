"""The rows of the GPU benchmark: which rotation, and every form of it in the same mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import ropewalk
from ropewalk.spectra import Spectrum, geometric

COPY = "copy"
MODES = (
    *("fresh", "out=", "in place", "forward+backward", "decode", "decode, graph"),
    *("normed", "into pages"),
)
EPS = 1e-6
"""Of the mean square, in rows of mode "normed"."""


class Row(NamedTuple):
    """One rotation of x ``[batch, heads, tokens, head_dim]`` in one mode; decode has q and k."""

    mode: str
    dtype: str
    shape: tuple[int, int, int, int]
    layout: str = "half"
    token_major: bool = False
    rotary_dim: int | None = None
    key_heads: int = 8

    @property
    def name(self) -> str:
        """For people."""
        parts = [self.mode, self.dtype, "×".join(map(str, self.shape))]
        parts += [self.layout] * (self.layout != "half") + ["token-major"] * self.token_major
        parts += [f"rotary_dim={self.rotary_dim}"] * (self.rotary_dim is not None)
        return " ".join(parts)

    def x(self, device: torch.device) -> Tensor:
        """Random values, in memory as the row says."""
        batch, heads, tokens, head_dim = self.shape
        shape = (batch, tokens, heads, head_dim) if self.token_major else self.shape
        x = torch.randn(shape, device=device, dtype=torch.float32).to(getattr(torch, self.dtype))
        return x.transpose(1, 2) if self.token_major else x

    def spectrum(self) -> Spectrum:
        """Base 10,000."""
        return geometric(self.shape[-1], rotary_dim=self.rotary_dim, layout=self.layout)


class Form(NamedTuple):
    """``run(x)`` gives what x becomes, or its gradient; ``lossy`` forms use tables in x's dtype."""

    run: Callable[[Tensor], Tensor]
    lossy: bool = False


def rows() -> Iterator[Row]:
    """The most telling first: what comes last may be left out when time is short."""
    prefill, large, narrow = (1, 32, 4096, 128), (4, 32, 8192, 128), (1, 32, 4096, 64)
    for dtype in ("bfloat16", "float32"):
        for mode in ("fresh", "out=", "in place"):
            yield Row(mode, dtype, prefill)
        yield Row("forward+backward", dtype, prefill)
    for batch in (1, 64):
        for mode in ("decode", "decode, graph"):
            yield Row(mode, "bfloat16", (batch, 32, 1, 128))
    for tokens in (4096, 64):
        yield Row("normed", "bfloat16", (1, 32, tokens, 128))
        yield Row("into pages", "bfloat16", (1, 8, tokens, 128))
    for dtype in ("bfloat16", "float32"):
        for mode in ("fresh", "out=", "in place"):
            yield Row(mode, dtype, large)
        yield Row("out=", dtype, prefill, token_major=True)
        yield Row("out=", dtype, prefill, "interleaved")
        yield Row("fresh", dtype, prefill, "interleaved")
        yield Row("out=", dtype, prefill, rotary_dim=64)
        yield Row("out=", dtype, narrow)
    for dtype in ("float16", "float64"):
        yield Row("out=", dtype, prefill)
    yield Row("forward+backward", "bfloat16", large)


def exact(row: Row, x: Tensor, where: Tensor, back: bool = False) -> Tensor:
    """The rotation in float64 with angles in float64: what every form is held against.

    Nothing of the kernel is used, and positions are small enough for the product.
    """
    first, second = _lanes(row)
    angle = where.double()[:, None] * _frequencies(row, x.device)
    cos, sin = angle.cos(), -angle.sin() if back else angle.sin()
    turned = x.to(torch.float64, copy=True)
    if row.mode == "normed":
        turned *= weight_of(x).double() / (turned.square().mean(-1, keepdim=True) + EPS).sqrt()
    a, b = turned[..., first].clone(), turned[..., second].clone()
    turned[..., first], turned[..., second] = a * cos - b * sin, a * sin + b * cos
    return turned


def weight_of(x: Tensor) -> Tensor:
    """The weights by which rows of mode "normed" multiply."""
    return torch.linspace(0.5, 1.5, x.shape[-1], device=x.device).to(x.dtype)


def _frequencies(row: Row, device: torch.device) -> Tensor:
    width = row.rotary_dim or row.shape[-1]
    exponent = torch.arange(0, width, 2, device=device, dtype=torch.float64) / width
    return 10_000.0**-exponent


def _lanes(row: Row) -> tuple[slice, slice]:
    width = row.rotary_dim or row.shape[-1]
    if row.layout == "interleaved":
        return slice(0, width, 2), slice(1, width, 2)
    return slice(0, width // 2), slice(width // 2, width)


def forms(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    """Every form of a row; the copy moves the bytes that any of them has to move."""
    from gpu_fusions import into_pages, normed

    made = {
        "fresh": _fresh,
        "out=": _out,
        "in place": _in_place,
        "forward+backward": _backward,
        "decode": _decode,
        "decode, graph": _decode,
        "normed": normed,
        "into pages": into_pages,
    }[row.mode](row, x, where)
    return made


def tables_of(row: Row, where: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin ``[tokens, pairs]``."""
    angle = where.double()[:, None] * _frequencies(row, where.device)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _usual(row: Row) -> bool:
    """Whether peers can do it: the half layout and a whole head."""
    return row.layout == "half" and row.rotary_dim is None


def _compiled() -> Callable[..., Tensor]:
    from gpu_peers import eager

    torch._dynamo.reset()
    return torch.compile(eager, fullgraph=True, dynamic=False)


def _fresh(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    from gpu_peers import complex_product, eager, flash_like

    steps = row.spectrum().on(x.device)
    cos, sin = tables_of(row, where, torch.float32)
    made = {
        COPY: Form(torch.clone),
        "ropewalk": Form(lambda x: ropewalk.rotate(x, where, steps)),
    }
    if _usual(row):
        wide = [t.repeat(1, 2).to(x.dtype) for t in (cos, sin)]
        compiled = _compiled()
        made["eager"] = Form(lambda x: eager(x, *wide), lossy=True)
        made["compiled"] = Form(lambda x: compiled(x, *wide), lossy=True)
        made["flash-like"] = Form(lambda x: flash_like(x, cos, sin, torch.empty_like(x)))
    if row.layout == "interleaved" and row.dtype == "float32":
        turns = torch.complex(cos, sin)
        made["complex product"] = Form(lambda x: complex_product(x, turns))
    return made


def _out(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    from gpu_peers import addcmul, flash_like

    steps = row.spectrum().on(x.device)
    accurate = torch.float64 if row.dtype == "float64" else torch.float32
    cos, sin = tables_of(row, where, accurate)
    out = torch.empty_like(x)
    layout = row.layout
    made = {
        COPY: Form(lambda x: out.copy_(x)),
        "ropewalk": Form(lambda x: ropewalk.rotate(x, where, steps, out=out)),
        "ropewalk, given tables": Form(
            lambda x: ropewalk.rotate_by(x, cos, sin, layout=layout, out=out)
        ),
    }
    if _usual(row):
        wide = [t.repeat(1, 2).to(x.dtype) for t in (cos, sin)]
        made["addcmul"] = Form(lambda x: addcmul(x, *wide, out), lossy=True)
        if row.dtype != "float64":
            made["flash-like"] = Form(lambda x: flash_like(x, cos, sin, out))
    return made


def _in_place(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    from gpu_peers import flash_like, liger_like

    steps = row.spectrum().on(x.device)
    cos, sin = tables_of(row, where, torch.float32)
    narrow = cos.to(x.dtype), sin.to(x.dtype)
    out = torch.empty_like(x)
    return {
        COPY: Form(lambda x: out.copy_(x)),
        "ropewalk": Form(lambda x: ropewalk.rotate_(x, where, steps)),
        "flash-like": Form(lambda x: flash_like(x, cos, sin, x)),
        "liger-like": Form(lambda x: liger_like(x, *narrow), lossy=True),
    }


def _backward(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    """What comes back is the gradient, of which x is the cotangent too."""
    from gpu_peers import eager

    steps = row.spectrum().on(x.device)
    wide = [t.repeat(1, 2).to(x.dtype) for t in tables_of(row, where, torch.float32)]
    compiled = _compiled()

    def with_gradient(turn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(turn(leaf), leaf, x)[0]

        return run

    return {
        COPY: Form(lambda x: (x.clone(), x.clone())[1]),
        "ropewalk": Form(with_gradient(lambda x: ropewalk.rotate(x, where, steps))),
        "eager": Form(with_gradient(lambda x: eager(x, *wide)), lossy=True),
        "compiled": Form(with_gradient(lambda x: compiled(x, *wide)), lossy=True),
    }


def _decode(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    """q is x; k has fewer heads and its values do not matter."""
    from gpu_peers import eager, liger_like

    steps = row.spectrum().on(x.device)
    wide = [t.repeat(1, 2).to(x.dtype) for t in tables_of(row, where, torch.float32)]
    halves = [t.to(x.dtype).contiguous() for t in tables_of(row, where, torch.float32)]
    k = x[:, : row.key_heads].clone()
    compiled = _compiled()
    return {
        COPY: Form(lambda q: (q.clone(), k.clone())[0]),
        "ropewalk": Form(lambda q: ropewalk.rotate_qk(q, k, where, steps)[0]),
        "ropewalk, in place": Form(lambda q: ropewalk.rotate_qk_(q, k, where, steps)[0]),
        "eager": Form(lambda q: (eager(q, *wide), eager(k, *wide))[0], lossy=True),
        "compiled": Form(lambda q: (compiled(q, *wide), compiled(k, *wide))[0], lossy=True),
        "liger-like": Form(
            lambda q: (liger_like(q, *halves), liger_like(k, *halves))[0], lossy=True
        ),
    }
