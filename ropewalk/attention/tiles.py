r"""Attention tile by tile with a fused kernel, joined by log-sum-exp.

.. math:: y = \sum_t e^{\ell_t - \ell} y_t, \qquad \ell = \log \sum_t e^{\ell_t}

A tile is a run of queries against a run of keys. One that no query may see is left out, one that
all may see whole, or a causal square, needs no mask, and the others get one of their own size. So a
window costs T·window, fewer queries than keys cost no mask, and memory grows with T. Backward gives
each tile the log-sum-exp of the whole row, and the tile's share of the gradient comes out.

A bias enters a tile as channels where it factors (its positions measured from the nearest keys, so
that digits stay few and logits small at any length), and as a block of numbers elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ropewalk.attention.channels import padded, widened
from ropewalk.attention.masks import Mask
from ropewalk.attention.terms import Terms
from ropewalk.attention.tiling import Tile, divided, parted, runs, tiles_of
from ropewalk.core import wide_dtype
from ropewalk.kernels.fused import eager, forward_mode
from ropewalk.kernels.kinds import ordinary

TILE = 2048
"""Queries and keys of a tile without numbers of its own for each head."""
SQUARE = {torch.float32: 256}
"""On the diagonal, where the keys that weigh most have channels of any size, tiles are smaller.

A float32 logit is off by 2^−24 of a channel; halves are rounded more coarsely anyway.
"""
BIAS_TILE = 512
"""Queries and keys of a tile that may hold a bias for each head."""
PART = 256
"""Queries and keys of the least tile that is divided because part of it may have channels."""
_DTYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})


def usable(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel that also tells the log-sum-exp can be called: eager, on a CPU.

    It has no second derivative; ``sdpa_kernel(SDPBackend.MATH)`` keeps it away.
    """
    return (
        q.device.type == "cpu"
        and eager()
        and torch.backends.cuda.flash_sdp_enabled()  # named so, yet it rules on a CPU too
        and not forward_mode()
        and ordinary(q, k, v)
        and q.dtype in _DTYPES
        and all(x.numel() for x in (q, k, v))
    )


@dataclass(frozen=True)
class Plan:
    """The tiles of a call, and how each is computed."""

    mask: Mask
    terms: Terms
    scale: float
    tiles: list[Tile]
    size: int
    """Queries, and keys, of a run; no tile crosses the border of one."""

    @property
    def by_queries(self) -> Iterator[tuple[slice, list[Tile]]]:
        """The tiles of each run of queries."""
        for tiles in runs(self.tiles, lambda tile: tile.q0 // self.size):
            yield slice(min(t.q0 for t in tiles), max(t.q1 for t in tiles)), tiles

    @property
    def by_keys(self) -> Iterator[tuple[slice, list[Tile]]]:
        """The tiles of each run of keys."""

        def run(tile: Tile) -> int:
            return (tile.k0 - self.mask.shift) // self.size

        for tiles in runs(sorted(self.tiles, key=run), run):
            yield slice(min(t.k0 for t in tiles), max(t.k1 for t in tiles)), tiles


def tiled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    mask: Mask,
    terms: Terms,
    *,
    size: int,
    square: int | None = None,
    whole: Callable[[Tile], bool] | None = None,
) -> Tensor:
    """Attention of ``[rows, heads, tokens, head_dim]``.

    Args:
        size: tokens of the largest tile; smaller for a window, so that few keys out of sight are
            read.
        square: tokens of the largest tile on the diagonal, if fewer.
        whole: tiles for which it is false are divided, down to PART tokens.
    """
    while mask.window is not None and size > 64 and size >= 2 * mask.window:
        size //= 2
    tiles = list(tiles_of(mask, size))
    if square is not None:
        tiles = [small for tile in tiles for small in divided(tile, square)]
    if whole is not None:
        tiles = [small for tile in tiles for small in parted(tile, whole, PART)]
    return _Tiled.apply(q, k, v, Plan(mask, terms, scale, tiles, size))  # pyright: ignore[reportReturnType]


def cast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In the dtype of autocast, as PyTorch's own attention takes them."""
    kind = q.device.type
    if not torch.is_autocast_enabled(kind) or q.dtype == torch.float64:
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    return q.to(dtype), k.to(dtype), v.to(dtype)


# --- one tile -----------------------------------------------------------------------------------


class _Prepared(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    dead: Tensor | None
    """Queries that see nothing of the tile, ``[rows or 1, 1, q_tokens]``."""
    row: Tensor | None
    causal: bool


def _prepared(q: Tensor, k: Tensor, v: Tensor, plan: Plan, tile: Tile) -> _Prepared:
    """What the kernel takes for one tile."""
    q, k, v = q[:, :, tile.q0 : tile.q1], k[:, :, tile.k0 : tile.k1], v[:, :, tile.k0 : tile.k1]
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    term = plan.terms(tile)
    row = None
    if term.factors is not None:
        q, k = widened(q, k, term.factors, plan.scale, v.shape[-1])
        row = term.factors.row
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (padded(x, width) for x in (q, k, v))
    mask, dead = term.bias, None
    if tile.rule != "all" and (tile.rule == "mask" or mask is not None):
        allowed = plan.mask.tile(tile.q0, tile.q1, tile.k0, tile.k1, q.device)
        if allowed is not None:
            allowed = allowed if allowed.dim() == 4 else allowed[None, None]
            dead = ~allowed.any(-1)
            blank = torch.zeros((), dtype=wide_dtype(q.dtype)) if mask is None else mask
            mask = torch.where(allowed, blank, float("-inf"))
    return _Prepared(q, k, v, mask, dead, row, tile.rule == "causal" and mask is None)


def _ahead(one: _Prepared, scale: float) -> tuple[Tensor, Tensor]:
    """The output of one tile and its log-sum-exp in float64, −inf where nothing is seen."""
    mask = one.mask
    if mask is not None and one.dead is not None:
        mask = torch.where(one.dead[..., None], 0.0, mask)
    out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        one.q, one.k, one.v, 0.0, one.causal, attn_mask=mask, scale=scale
    )
    total = total.to(torch.float64)
    total = total if one.row is None else total + one.row
    return out, total if one.dead is None else total.masked_fill(one.dead, float("-inf"))


def _back(
    one: _Prepared, scale: float, grad: Tensor, out: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The tile's share of the gradients, from the output and log-sum-exp of whole rows."""
    own = total if one.row is None else total - one.row
    own = own.masked_fill(total == float("-inf"), 0.0).to(wide_dtype(one.q.dtype))
    if one.dead is not None:
        own = own.masked_fill(one.dead, 0.0)  # masked anyway; any finite number will do
    width = one.v.shape[-1]
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        padded(grad, width),
        one.q,
        one.k,
        one.v,
        padded(out, width),
        own,
        0.0,
        one.causal,
        attn_mask=one.mask,
        scale=scale,
    )


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        wide, value_dim = wide_dtype(q.dtype), v.shape[-1]
        out = q.new_zeros(*q.shape[:3], value_dim)
        total = q.new_full(q.shape[:3], float("-inf"), dtype=torch.float64)
        for run, tiles in plan.by_queries:
            joined = out[:, :, run].to(wide)  # float32 adds where it lies, others in a copy
            for tile in tiles:
                rows = slice(tile.q0 - run.start, tile.q1 - run.start)
                part, own = _ahead(_prepared(q, k, v, plan, tile), plan.scale)
                before = total[:, :, tile.q0 : tile.q1]
                share = torch.sigmoid(own - before).nan_to_num(0.0)  # nothing seen so far: 0
                joined[:, :, rows].lerp_(part[..., :value_dim].to(wide), share.to(wide)[..., None])
                total[:, :, tile.q0 : tile.q1] = torch.logaddexp(before, own)
            if wide != q.dtype:
                out[:, :, run] = joined
        ctx.save_for_backward(q, k, v, out, total)
        ctx.plan = plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v, out, total = ctx.saved_tensors
        plan: Plan = ctx.plan
        wide = wide_dtype(q.dtype)
        dq = torch.zeros(q.shape, dtype=wide)
        dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        for run, tiles in plan.by_keys:
            sums = dk[:, :, run].to(wide), dv[:, :, run].to(wide)
            for tile in tiles:
                queries = slice(tile.q0, tile.q1)
                keys = slice(tile.k0 - run.start, tile.k1 - run.start)
                one = _prepared(q, k, v, plan, tile)
                mine, *others = _back(
                    one, plan.scale, grad[:, :, queries], out[:, :, queries], total[:, :, queries]
                )
                dq[:, :, queries] += mine[..., : q.shape[-1]]
                for into, more in zip(sums, others, strict=True):
                    into[:, :, keys] += _gathered(more[..., : into.shape[-1]], into)
            if wide != q.dtype:
                dk[:, :, run], dv[:, :, run] = sums
        return dq.to(q.dtype), dk, dv, None


def _gathered(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of shared keys: the sum over the query heads that share them."""
    if grad.shape[1] == x.shape[1]:
        return grad
    return grad.unflatten(1, (x.shape[1], -1)).sum(2)
