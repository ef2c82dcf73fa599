"""FlexAttention: a bias and rules compiled into the kernel, where that runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ropewalk.attention.call import Call
from ropewalk.attention.modifiers import mask, score_mod
from ropewalk.core import Bias, Contextual, Rotary
from ropewalk.kernels.fused import eager

try:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError:  # pragma: no cover (a PyTorch built without it)
    create_block_mask = flex_attention = None


def obstacle(call: Call) -> str | None:
    """Why FlexAttention cannot do a call; None if it can."""
    if flex_attention is None:
        return "this PyTorch has no FlexAttention"
    encoding = call.encoding
    if isinstance(encoding, Contextual):
        return f"{type(encoding).__name__} reads whole rows of content, a score_mod one score"
    if isinstance(encoding, Bias) and type(encoding).score is Bias.score:
        return f"{type(encoding).__name__} gives no score(head, q_position, kv_position)"
    tensors = (call.q, call.k, call.v)
    if any(not x.numel() for x in tensors):
        return "there are no tokens, rows or lanes"
    if call.q.device.type not in ("cpu", "cuda"):
        return f"FlexAttention does not run on {call.q.device.type}"
    if call.q.device.type == "cpu":
        wanted = [*tensors]
        if isinstance(encoding, (Bias, Rotary)):
            wanted += list(encoding.parameters())
        if torch.is_grad_enabled() and any(x.requires_grad for x in wanted):
            return "FlexAttention has no gradient on a CPU"
        if call.q.dtype == torch.float64:
            return "FlexAttention has no float64 on a CPU"
    elif call.q.dtype == torch.float64:
        return "FlexAttention has no float64"
    if not (eager() or torch.compiler.is_compiling()):
        return "FlexAttention is not traced or transformed here"
    return None


def compute(call: Call) -> Tensor:
    """Attention by FlexAttention."""
    assert create_block_mask is not None
    flat = call.in_rows()
    rules = flat.mask
    seen = None
    if rules.causal or not rules.plain:
        rows = None if rules.segments is None or rules.segments.dim() == 1 else len(rules.segments)
        seen = create_block_mask(
            mask(
                causal=rules.causal,
                window=rules.window,
                segments=rules.segments,
                offset=rules.shift,
            ),
            rows,
            None,
            rules.q_tokens,
            rules.kv_tokens,
            device=flat.q.device,
        )
    score = None
    if isinstance(flat.encoding, Bias):
        score = score_mod(
            flat.encoding, q_positions=flat.q_positions, kv_positions=flat.kv_positions
        )
    result = _kernel()(
        flat.q,
        flat.k,
        flat.v,
        score_mod=score,
        block_mask=seen,
        scale=flat.scale,
        enable_gqa=flat.q.shape[1] != flat.k.shape[1],
    )
    return result.reshape(*call.q.shape[:-1], call.v.shape[-1])


def _kernel() -> Callable[..., Tensor]:
    assert flex_attention is not None
    return flex_attention if torch.compiler.is_compiling() else _compiled()


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Tensor]:
    assert flex_attention is not None
    return torch.compile(flex_attention)
