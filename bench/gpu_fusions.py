"""What a server does around a rotation in one launch, and what it would do one after the other."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_forms import COPY, EPS, Form, Row, tables_of, weight_of
from torch import Tensor
from torch.nn.functional import rms_norm

import ropewalk
from ropewalk.kernels import gpu

SIZE = 16
"""Tokens of a page."""


def normed(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    """Each head divided by its root mean square, weighed and turned."""
    from gpu_peers import eager

    spectrum, weight = row.spectrum(), weight_of(x)
    steps, turn = spectrum.on(x.device), spectrum.turns[False]
    wide = [t.repeat(1, 2).to(x.dtype) for t in tables_of(row, where, torch.float32)]
    compiled = _compiled(lambda x: eager(rms_norm(x, x.shape[-1:], weight, EPS), *wide))

    def together(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        gpu.normed(x, None, out, None, weight, None, EPS, where, 0, steps.tensor, *turn)
        return out

    def apart(x: Tensor) -> Tensor:
        return ropewalk.rotate_(rms_norm(x, x.shape[-1:], weight, EPS), where, steps)

    return {
        COPY: Form(torch.clone),
        "ropewalk": Form(together),
        "norm, then ropewalk": Form(apart, lossy=True),
        "compiled": Form(compiled, lossy=True),
    }


def _compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, dynamic=False)


def into_pages(row: Row, x: Tensor, where: Tensor) -> dict[str, Form]:
    """x as keys turned into pages, and values copied; what comes back are the keys there.

    Slots follow one another, so that the pages can be read as a row; what a device does to write
    whole rows does not depend on where they go.
    """
    steps = row.spectrum().on(x.device)
    _, heads, tokens, head_dim = row.shape
    v = torch.randn_like(x[0]).transpose(0, 1).contiguous()
    pages, v_pages = (torch.empty_like(v).view(-1, SIZE, heads, head_dim) for _ in range(2))
    slots = torch.arange(tokens, device=x.device)
    there = pages.view(tokens, heads, head_dim).transpose(0, 1)[None]

    def copied(x: Tensor) -> Tensor:
        v_pages.copy_(v.view(v_pages.shape))
        return there.copy_(x)

    def fused(x: Tensor, check_slots: bool) -> Tensor:
        k = x[0].transpose(0, 1)
        ropewalk.rotate_into_pages(
            k, where, steps, pages, slots, v=v, v_pages=v_pages, check_slots=check_slots
        )
        return there

    def apart(x: Tensor) -> Tensor:
        turned = ropewalk.rotate(x[0], where, steps).transpose(0, 1)
        pages.view(v.shape).index_copy_(0, slots, turned)
        v_pages.view(v.shape).index_copy_(0, slots, v)
        return there

    return {
        COPY: Form(copied),
        "ropewalk": Form(lambda x: fused(x, False)),
        "ropewalk, slots checked": Form(lambda x: fused(x, True)),
        "rotate, then scatter": Form(apart),
    }
