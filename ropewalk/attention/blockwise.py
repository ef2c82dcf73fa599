"""Attention a run of queries at a time, recomputed in backward: memory grows with T, not T²."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ropewalk.attention.arguments import check_logits, check_moved, logit_scale, narrowed
from ropewalk.attention.kernel import masked
from ropewalk.attention.masks import Mask
from ropewalk.core import Bias, Block, Contextual, wide_dtype
from ropewalk.encodings.autocast import without_autocast
from ropewalk.kernels.fused import transformed

QUERY_BLOCK = 256
"""Queries whose bias and mask are held at once."""


def plain(q: Tensor, k: Tensor, v: Tensor, scale: float | None, mask: Mask) -> Tensor:
    """No bias, but a mask; in the dtype of q, as the kernel does it."""

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        stop = start + part.shape[-2]
        first, last = mask.reach(start, stop)
        keys, values = (x.narrow(-2, first, last - first) for x in (keys, values))
        allowed = mask.tile(start, stop, first, last, part.device)
        return masked(part, keys, values, scale, None, allowed).to(q.dtype)

    return by_blocks(block, q, k, v)


def biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Bias,
    q_positions: Tensor,
    kv_positions: Tensor,
    scale: float | None,
    mask: Mask,
) -> Tensor:
    """A bias added to the logits in at least float32, whether or not it learns."""
    wide = wide_dtype(q.dtype)

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        stop = start + part.shape[-2]
        first, last = mask.reach(start, stop)
        keys, values = (x.narrow(-2, first, last - first).to(wide) for x in (keys, values))
        allowed = mask.tile(start, stop, first, last, part.device)
        with without_autocast(part):
            bias = encoding.bias(
                narrowed(q_positions, start, stop, encoding.axes),
                narrowed(kv_positions, first, last, encoding.axes),
                wide,
            )
            check_logits(encoding, "bias", bias, part, keys)
            return masked(part.to(wide), keys, values, scale, bias, allowed).to(q.dtype)

    return by_blocks(block, q, k, v)


def contextual(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Contextual,
    q_positions: Tensor,
    kv_positions: Tensor,
    scale: float | None,
    mask: Mask,
) -> Tensor:
    """Logits that read content, from all the keys at once, in at least float32."""
    wide = wide_dtype(q.dtype)
    repeats = q.shape[-3] // k.shape[-3]
    scale = logit_scale(scale, q)

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        stop = start + part.shape[-2]
        allowed = mask.rows(start, stop, part.device)
        where = narrowed(q_positions, start, stop, encoding.axes)
        part, keys, values = part.to(wide), keys.to(wide), values.to(wide)
        with without_autocast(part):
            keys, values = (x.repeat_interleave(repeats, dim=-3) for x in (keys, values))
            seen = Block(
                part, keys, where, kv_positions, allowed, scale, mask.shift + start, mask.causal
            )
            logits = encoding.logits(seen)
            check_logits(encoding, "logits", logits, part, keys)
            weights = _weights(logits, allowed)
            result = weights @ values
            moved = encoding.values(weights, seen)
            if moved is None:
                return result.to(q.dtype)
            check_moved(encoding, moved, result)
            return (result + moved).to(q.dtype)

    return by_blocks(block, q, k, v)


def by_blocks(block: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``block`` over runs of queries; in training each is recomputed rather than stored."""
    cuts = _cuts(q.shape[-2])
    if len(cuts) == 2:
        return block(q, k, v, 0)
    outputs = []
    for start, stop in pairwise(cuts):
        part = q.narrow(-2, start, stop - start)
        if torch.is_grad_enabled() and not transformed():
            outputs.append(checkpoint(block, part, k, v, start, use_reentrant=False))
        else:
            outputs.append(block(part, k, v, start))
    return torch.cat(outputs, dim=-2)


def _cuts(tokens: int) -> list[int]:
    """Where runs of at most QUERY_BLOCK queries begin and end.

    Their number is a power of two, so compiled code needs a graph per doubling of tokens and not
    one per length. An exported graph serves every length, and has one run.
    """
    runs = 1
    while not torch.compiler.is_exporting() and runs * QUERY_BLOCK < tokens:
        runs *= 2
    return [run * tokens // runs for run in range(runs)] + [tokens]


def _weights(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; rows that may see nothing give 0."""
    if allowed is None:
        return logits.softmax(-1)
    visible = allowed.any(-1, keepdim=True)
    hidden = ~(allowed | ~visible)
    return logits.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(~visible, 0.0)
