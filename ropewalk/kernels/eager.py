"""The kernel's operators in PyTorch's own operations, for where no compiled kernel is.

The usual x·cos + rotate_half(x)·sin makes seven passes over memory and as many fresh tensors. Here
results are written where they belong, in blocks of tokens whose few temporaries stay in the cache.
Products and sums are separate operations, so the result is that of the plain form bit for bit;
addcmul would fuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.kernels.angles import tables_by_torch
from ropewalk.kernels.copies import first_copies
from ropewalk.kernels.memory import expanded, writable
from ropewalk.kernels.plain import broadcast_tables, compute_dtype
from ropewalk.positions.contract import token_positions
from ropewalk.spectra.lanes import slices

_BLOCK = 1 << 19
"""Elements of a block: a few of its copies fit the cache."""
_FEW = 8
"""Tokens whose tables are kept: every layer of a decode step asks for the same, and to compute them
takes longer than to turn by them."""


def rotate(
    x: Tensor,
    out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """x turned by phases, into out."""
    tables = _by_phases(x, positions, offset, steps, scale, lanes)
    _turn(x, out, *_over(tables, x, steps.dim() == 3), lanes)


def rotate_qk(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """q and k turned by the same phases."""
    _require_alike(q, k)
    tables = _by_phases(q, positions, offset, steps, scale, lanes)
    per_head = steps.dim() == 3
    for_q = _over(tables, q, per_head)
    for_k = _over(tables, k, per_head) if per_head else for_q
    _turn(q, q_out, *for_q, lanes)
    _turn(k, k_out, *for_k, lanes)


def rotate_qk_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """:func:`rotate_qk` in place."""
    if expanded(k):
        raise RuntimeError("k is expanded")  # before q is written
    rotate_qk(q, k, q, k, positions, offset, steps, scale, lanes)


def rotate_by(x: Tensor, out: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> None:
    """x turned by given tables, into out."""
    _turn(x, out, *_given(x, cosine, sine, lanes), lanes)


def rotate_qk_by(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    cosine: Tensor,
    sine: Tensor,
    lanes: int,
) -> None:
    """q and k turned by given tables."""
    _require_alike(q, k)
    tables = _given(q, cosine, sine, lanes)
    if cosine.dim() == q.dim() > 2 and cosine.shape[-3] not in (1, k.shape[-3]):
        raise RuntimeError("tables do not fit the heads of k")
    _turn(q, q_out, *tables, lanes)
    _turn(k, k_out, *tables, lanes)


def advise(out: Tensor) -> None:
    """Nothing to ask for."""


def _require_alike(q: Tensor, k: Tensor) -> None:
    if q.dtype != k.dtype or q.shape[:-3] != k.shape[:-3] or q.shape[-2:] != k.shape[-2:]:
        raise RuntimeError("q and k differ in dtype, batch, tokens or head_dim")
    _require_beside(q, k)


def _require_beside(x: Tensor, *others: Tensor) -> None:
    """Refuse what PyTorch would take, and read nothing of or give nothing for."""
    if any(t.layout is not torch.strided or t.device != x.device for t in others):
        raise RuntimeError("tensors are strided, and on one device")


# --- tables: every value stands twice, as lanes do, and the first sine of two is negative --------


def _by_phases(
    x: Tensor, positions: Tensor | None, offset: int, steps: Tensor, scale: float, lanes: int
) -> tuple[Tensor, Tensor]:
    _require_beside(x, steps)
    if steps.dtype != torch.int64 or steps.dim() not in (2, 3):
        raise RuntimeError("steps are int64 [heads?, axes, pairs]")
    axes, wide = steps.shape[-2], compute_dtype(x.dtype)
    tokens = x.shape[-2]
    if positions is None and axes == 1 and tokens <= _FEW and _is_kept(steps):
        places = tuple(range(offset, offset + tokens))
        return _of_few(places, (tokens,), steps, steps._version, scale, lanes, wide)
    where = token_positions(positions, offset if positions is None else None, x, axes)
    if where.numel() <= _FEW and where.is_cpu and _is_kept(steps):
        row = axes == 1 and where.shape == (1, tokens) and x.dim() > 3  # the same for all of x
        places, shape = tuple(where.flatten().tolist()), (tokens,) if row else where.shape
        return _of_few(places, shape, steps, steps._version, scale, lanes, wide)
    return _of(where, steps, scale, lanes, wide)


def _is_kept(steps: Tensor) -> bool:
    """Whether steps tell when they change, and to look at positions does not mean to wait."""
    return steps.is_cpu and not steps.is_inference()


@lru_cache(maxsize=64)
def _of_few(
    places: tuple[int, ...],
    shape: tuple[int, ...],
    steps: Tensor,
    version: int,
    scale: float,
    lanes: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Tables of a few positions of this shape; the version is that of steps, which may change."""
    with torch.inference_mode(False):
        return _of(
            torch.tensor(places, dtype=torch.int64).reshape(shape), steps, scale, lanes, dtype
        )


def _of(
    where: Tensor, steps: Tensor, scale: float, lanes: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    cosine, sine = tables_by_torch(where, steps, scale, dtype)
    return _twice(cosine, -sine if lanes & 1 else sine, lanes)


def _given(x: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> tuple[Tensor, Tensor]:
    """Given tables in the dtype of the arithmetic, broadcast over x."""
    _require_beside(x, cosine, sine)
    if cosine.dtype != sine.dtype:
        raise RuntimeError("cos and sin differ in dtype")
    cosine, sine = first_copies(cosine, sine, lanes)
    shape = cosine.shape
    if shape != sine.shape or not 2 <= len(shape) <= x.dim():
        raise RuntimeError("cos and sin differ in shape, or have more dimensions than x")
    if not cosine.is_floating_point() or not sine.is_floating_point():
        raise RuntimeError("tables are floating")
    wide = compute_dtype(x.dtype)
    tables = cosine.to(wide), sine.to(wide)
    if len(shape) == x.dim():
        return _twice(*tables, lanes)
    return _twice(*_over(tables, x, False), lanes)


def _twice(cosine: Tensor, sine: Tensor, lanes: int) -> tuple[Tensor, Tensor]:
    if lanes & 2:
        return cosine.repeat_interleave(2, -1), torch.stack((-sine, sine), dim=-1).flatten(-2)
    return torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)


def _over(tables: tuple[Tensor, Tensor], x: Tensor, per_head: bool) -> tuple[Tensor, Tensor]:
    cosine, sine = tables
    if cosine.dim() <= 2:
        return tables
    try:
        return broadcast_tables(cosine, x, per_head), broadcast_tables(sine, x, per_head)
    except ValueError as error:
        raise RuntimeError(str(error)) from None  # as all kernels refuse


# --- turning ------------------------------------------------------------------------------------


def _turn(x: Tensor, out: Tensor, cosine: Tensor, sine: Tensor, lanes: int) -> None:
    """x turned into out, which is x itself or other memory."""
    pairs = cosine.shape[-1] // 2
    first, second = slices(lanes, pairs)
    if second.stop > x.shape[-1] or out.shape != x.shape or out.dtype != x.dtype:
        raise RuntimeError("lanes or out do not fit x")
    if x.layout is not torch.strided or out.layout is not torch.strided:
        raise RuntimeError("x and out are strided")
    if not writable(x, out):
        raise RuntimeError("out overlaps x and is not x itself")
    if not _broadcasts(cosine.shape[:-1], x.shape[:-1]):
        raise RuntimeError("tables do not broadcast over x")
    if x is not out and 2 * pairs != x.shape[-1]:
        _pass(x, out, first, second)
    together = first.step or second.start == first.stop
    whole = together and 2 * pairs == x.shape[-1]
    small = x.numel() <= _BLOCK or not x.is_cpu
    for a, b, c, s in [(x, out, cosine, sine)] if small else _blocks(x, out, cosine, sine):
        if whole:
            _turn_lanes(a, b, c, s, lanes)
        elif together:
            start = first.start
            _turn_lanes(a.narrow(-1, start, 2 * pairs), b.narrow(-1, start, 2 * pairs), c, s, lanes)
        else:
            turned = torch.cat((a[..., first], a[..., second]), dim=-1)
            _turn_lanes(turned, turned, c, s, lanes)
            b[..., first], b[..., second] = turned.split(pairs, -1)


def _broadcasts(tables: torch.Size, x: torch.Size) -> bool:
    """Whether sizes of tables are those of x, or 1."""
    return tables == x[-1:] or all(
        t in (1, n) for t, n in zip(reversed(tables), reversed(x), strict=False)
    )


def _turn_lanes(a: Tensor, b: Tensor, c: Tensor, s: Tensor, lanes: int) -> None:
    """Lanes a, both halves of all pairs side by side, turned into b."""
    same = a.dtype == c.dtype
    wide = a if same else a.to(c.dtype)
    if lanes & 2:
        over = wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        over = torch.roll(wide, c.shape[-1] // 2, -1)  # the halves change places
    over.mul_(s)
    if same:
        torch.mul(wide, c, out=b).add_(over)
    else:
        b.copy_(wide.mul_(c).add_(over))


def _pass(x: Tensor, out: Tensor, first: slice, second: slice) -> None:
    """Copy the lanes that do not turn."""
    gap = (second.stop, second.stop) if first.step else (first.stop, second.start)
    for a, b in ((0, first.start), gap, (second.stop, x.shape[-1])):
        if a < b:
            out[..., a:b] = x[..., a:b]


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """All of them in blocks of tokens; tables may have one token for all."""
    x = tensors[0]
    tokens = x.shape[-2]
    block = max(1, _BLOCK * tokens // x.numel())
    for start in range(0, tokens, block):
        size = min(block, tokens - start)
        yield tuple(t if t.shape[-2] == 1 else t.narrow(-2, start, size) for t in tensors)
