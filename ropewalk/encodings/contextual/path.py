r"""PaTH: from key to query, every token in between reflects the key a little.

.. math:: s_{ij} = s\; q_i^\top H_i H_{i-1} \cdots H_{j+1}\, k_j, \qquad
   H_t = I - β_t w_t w_t^\top, \qquad β_t = 2σ(u^\top x_t + b)

w is read from the hidden states x: low rank 32, a causal convolution of 3 tokens, SiLU, and unit
length per head. β lies in (0, 2), so H shrinks along w or mirrors it: singular values of a product
are at most 1.

*Cost.* For a chunk of C tokens with rows w the product is I − Wᵀ T W, T = (I + stril(D W Wᵀ))⁻¹ D,
D = diag β, and a query that has come to the chunk from the right sees its keys with

.. math:: Q K^\top - \operatorname{tril}(Q W^\top)\, T\, \operatorname{stril}(W K^\top)

and goes on to the left as Q − tril(Q Wᵀ) T W. One pass over chunks from the right gives the logits
of a block of queries, with memory for those logits and no matrix for any pair of tokens.

Source: PaTH Attention: Position Encoding via Accumulating Householder Transformations (Yang et al.,
2025), §3. Confirmed: projections, convolution, β and the side of the product as in the authors'
layer in flash-linear-attention (there with full rank where k has fewer heads than q: ``rank=None``;
unit length there adds 1e-6 under the root); the loop over tokens agrees, forward and backward.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual, integer_positions
from ropewalk.encodings.autocast import without_autocast
from ropewalk.encodings.reading import (
    causal_convolution,
    check_block,
    check_groups,
    head_width,
    hidden_states,
    in_heads,
    project,
    short_taps,
    to_heads,
)
from ropewalk.encodings.width import check_dim

CHUNK = 64


class PaTH(Contextual):
    """Accumulated Householder products; ``read`` binds them to hidden states.

    Args:
        content_dim: width of the hidden states.
        heads: number of query heads.
        head_dim: width of q and k; content_dim / heads if None.
        kv_heads: heads of k, each with a w of its own; as many as q if None.
        rank: inner width of the projection to w; one full projection if None.
        kernel: tokens of the convolution; neither convolution nor SiLU if None.
    """

    bilinear = True

    def __init__(
        self,
        content_dim: int,
        heads: int,
        head_dim: int | None = None,
        *,
        kv_heads: int | None = None,
        rank: int | None = 32,
        kernel: int | None = 3,
    ) -> None:
        super().__init__()
        self.content_dim = check_dim(content_dim, "content_dim")
        self.kv_heads = check_groups(heads, kv_heads)
        self.heads, self.head_dim = heads, head_width(content_dim, heads, head_dim)
        width = self.kv_heads * self.head_dim
        steps = [content_dim, *([] if rank is None else [check_dim(rank, "rank")]), width]
        self.to_w = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(steps))
        self.taps = None if kernel is None else short_taps(width, kernel)
        self.to_beta = nn.Linear(content_dim, self.kv_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch's own layers."""
        for layer in (*self.to_w, self.to_beta):
            layer.reset_parameters()  # pyright: ignore[reportCallIssue]
        if self.taps is not None:
            bound = self.taps.shape[-1] ** -0.5
            nn.init.uniform_(self.taps, -bound, bound)
        super().reset_parameters()

    def read(self, content: Tensor, segments: Tensor | None = None) -> Contextual:
        """w and β of hidden states ``[..., kv_tokens, content_dim]``.

        Args:
            content: the hidden states.
            segments: integers ``[..., kv_tokens]``; the convolution stays inside a segment.
        """
        x = hidden_states(content, self.content_dim)
        with without_autocast(x):
            w = project(x, list(self.to_w))  # pyright: ignore[reportArgumentType]
            if self.taps is not None:
                w = nn.functional.silu(causal_convolution(w, self.taps, segments))
            unit = nn.functional.normalize(in_heads(w, self.kv_heads), dim=-1)
            beta = 2 * project(x, [self.to_beta]).sigmoid().transpose(-1, -2)
            return Reflected(unit, beta, self.heads)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"content_dim={self.content_dim}, heads={self.heads}, head_dim={self.head_dim}"


class Reflected(Contextual):
    """w ``[..., kv_heads, tokens, head_dim]`` and β ``[..., kv_heads, tokens]`` read."""

    bilinear = True

    def __init__(self, w: Tensor, beta: Tensor, heads: int) -> None:
        super().__init__()
        self.tokens, self.heads, self.head_dim = w.shape[-2], heads, w.shape[-1]
        self.chunks = -(-self.tokens // CHUNK)
        fill = self.chunks * CHUNK - self.tokens
        w = nn.functional.pad(w, (0, 0, 0, fill)).unflatten(-2, (self.chunks, CHUNK))
        beta = nn.functional.pad(beta, (0, fill)).unflatten(-1, (self.chunks, CHUNK))
        inner = (beta[..., None] * (w @ w.transpose(-1, -2))).tril(-1)
        self.w = w
        self.inverse = torch.linalg.solve_triangular(
            inner, torch.diag_embed(beta), upper=False, unitriangular=True
        )

    def logits(self, block: Block) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``.

        Raises:
            ValueError: attention is not causal, or q and k are not of the tokens read.
        """
        integer_positions(block.q_positions, name="q_positions")
        check_block(block, self.tokens, self.heads, "PaTH", self.w.shape[:-4])
        if not block.causal:
            raise ValueError("PaTH goes from a key to later queries only: use causal=True")
        if block.q.shape[-1] != self.head_dim:
            raise ValueError(f"q has head_dim {block.q.shape[-1]}; PaTH has {self.head_dim}")
        if not self.chunks:
            return block.content
        q, dtype, queries = block.q * block.scale, block.q.dtype, block.q.shape[-2]
        own = block.first + torch.arange(queries, device=q.device)[:, None]
        fill = self.chunks * CHUNK - self.tokens
        keys = nn.functional.pad(block.k, (0, 0, 0, fill))
        w, inverse = (to_heads(x.to(dtype), self.heads, -4) for x in (self.w, self.inverse))
        parts = []
        for chunk in reversed(range(self.chunks)):
            start = chunk * CHUNK
            here, k = w.select(-3, chunk), keys.narrow(-2, start, CHUNK)
            passed = start + torch.arange(CHUNK, device=q.device) <= own
            along = (q @ here.transpose(-1, -2)).masked_fill(~passed, 0.0)
            along = along @ inverse.select(-3, chunk)
            between = (here @ k.transpose(-1, -2)).tril(-1)
            parts.append(q @ k.transpose(-1, -2) - along @ between)
            q = q - along @ here
        return torch.cat(parts[::-1], dim=-1).narrow(-1, 0, self.tokens)


register(
    Spec(
        name="path",
        family="contextual",
        factory=PaTH,
        title="keys reflected by every token on the way to the query",
        equation=r"q_i^\top \prod_{t=i}^{j+1} (I - \beta_t w_t w_t^\top)\, k_j",
        source="Yang et al. (2025), PaTH Attention",
        config={"content_dim": 64, "heads": 8},
        claims={
            "unique": False,
            "linear": False,
            "relative": False,
            "norm": False,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "among equal tokens (1 − β)ⁿ goes to 0 or stays at ±1; others are told apart",
            "linear": "the map of a step is that of its token",
            "relative": "the convolution reads tokens before the key, at the start zeros",
            "norm": "H shrinks along w unless β is 0 or 2",
            "decay": "for all contents: β = 0 leaves a key as it is",
            "deterministic": "projections are drawn at random, then trained",
            "axes": "one axis",
        },
        variants={
            "no convolution": Variant(
                {"kernel": None},
                {"relative": True},
                "it depends on the tokens from the key to the query alone",
                {"offset": ""},
            ),
        },
        waivers={"offset": "the convolution reads the tokens before a slice"},
    )
)
