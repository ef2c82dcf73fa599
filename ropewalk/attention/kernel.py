"""scaled_dot_product_attention, with causality as its only rule or with a bias and a mask."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from ropewalk.attention.masks import Mask


def one_call(q: Tensor, k: Tensor, v: Tensor, scale: float | None, mask: Mask) -> Tensor:
    """Attention by one kernel without a mask; ``mask.one_call`` must hold."""
    return functional.scaled_dot_product_attention(
        q,
        k,
        v,
        is_causal=decided(mask.causal and mask.q_tokens == mask.kv_tokens),
        scale=scale,
        enable_gqa=grouped(q, k),
    ).to(q.dtype)


def masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    bias: Tensor | None,
    allowed: Tensor | None,
) -> Tensor:
    """Attention with a bias and a mask; rows that may see nothing give 0."""
    if allowed is None:
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=scale, enable_gqa=grouped(q, k)
        )
    visible = allowed.any(-1, keepdim=True)
    safe = allowed | ~visible
    mask = safe if bias is None else bias.masked_fill(~safe, float("-inf"))
    result = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped(q, k)
    )
    return result.masked_fill(~visible, 0.0)


def grouped(q: Tensor, k: Tensor) -> bool:
    """Whether several query heads share one key head."""
    return decided(q.shape[-3] != k.shape[-3])


def decided(condition: bool) -> bool:
    """``condition`` as a plain bool: with dynamic shapes a compiler holds a symbol until asked."""
    if condition:  # noqa: SIM103 (returned as it is, the symbol would stay)
        return True
    return False
