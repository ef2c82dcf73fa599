"""The attention layer of the walk: four heads with fixed random weights, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SEED = 0


def rms_normed(x: Tensor) -> Tensor:
    """x ÷ √mean(x²) along the last dimension, as the first norm of a Llama layer does."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True).clamp_min(1e-30))


def heads_for(dim: int) -> int:
    """Four heads where they divide ``dim`` into even widths, else two or one."""
    return next(h for h in (4, 2, 1) if dim % (2 * h) == 0 or h == 1)


def attention_layer(dim: int) -> nn.MultiheadAttention:
    """``torch.nn.MultiheadAttention`` with seeded weights; the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.MultiheadAttention(
            dim, heads_for(dim), bias=False, batch_first=True, dtype=torch.float64
        )
    return layer.requires_grad_(False)


def attended(
    layer: nn.MultiheadAttention, x: Tensor, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Outputs ``[T, D]`` and attention ``[heads, T, T]`` of tokens ``[T, D]``."""
    tokens = len(x)
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) if causal else None
    output, weights = layer(x[None], x[None], x[None], attn_mask=hidden, average_attn_weights=False)
    return output[0], weights[0]


def projected(layer: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v ``[heads, T, D/heads]`` of the same layer."""
    parts = (x @ layer.in_proj_weight.T).chunk(3, dim=-1)
    q, k, v = (p.unflatten(-1, (layer.num_heads, -1)).transpose(0, 1) for p in parts)
    return q, k, v


def merged(layer: nn.MultiheadAttention, y: Tensor) -> Tensor:
    """Heads ``[heads, T, D/heads]`` joined and projected: the layer's output ``[T, D]``."""
    return y.transpose(0, 1).flatten(-2) @ layer.out_proj.weight.T


def equal_pairs(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Index pairs i < j with the same token id."""
    return [(i, j) for j in range(len(ids)) for i in range(j) if ids[i] == ids[j]]


def relative_distances(y: Tensor) -> Tensor:
    """‖y_i − y_j‖ ÷ RMS ‖y‖, ``[T, T]``."""
    gaps = (y[:, None] - y[None]).norm(dim=-1)
    return gaps / y.square().sum(-1).mean().sqrt().clamp_min(1e-300)


def largest_over(distances: Tensor, pairs: Sequence[tuple[int, int]]) -> float:
    """The largest distance among ``pairs``."""
    return max(distances[i, j].item() for i, j in pairs)


def generator(seed: int = SEED) -> torch.Generator:
    """A private generator, so that the walk never touches the global one."""
    return torch.Generator().manual_seed(seed)
