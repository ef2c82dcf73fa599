r"""Dual chunk attention: no distance leaves the range that a model was trained on.

.. math:: d = (i \bmod s) - (j \bmod s) + \begin{cases} 0 & \text{same chunk} \\
   \min(s,\; C - i \bmod s) & \text{the chunk before} \\
   \min(2s - 1, C) - i \bmod s & \text{earlier chunks} \end{cases}

with chunks of s = C − local tokens. Keys turn by j mod s. Queries turn by i mod s within their
chunk (``intra``), by min(i mod s + s, C) against the chunk before (``successive``: exact distances
for the first ``local`` tokens), and by min(2s − 1, C) against all earlier ones (``inter``). A cache
holds each key turned once, whatever the piece.

The code runs three attentions and merges them by log-sum-exp, which is one softmax over the logits
that are chosen here.

Source: Training-Free Long-Context Scaling of Large Language Models (An et al., 2024), §3.
Confirmed: the code HKUNLP/ChunkLlama has C = ¾ of the trained length L and these places; its local
window is L/16 in one file and L/8 in another: L/8 here, and to be stated where it matters. The
paper caps distances at L − 1 where the code has C. A loop over distances agrees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.encodings.pieces import PIECE_CLAIMS, PIECE_REASONS, Pieces, Side, one_axis
from ropewalk.encodings.width import check_dim
from ropewalk.spectra import Layout, Spectrum


class DualChunk(Pieces):
    """RoPE within chunks, capped between them.

    Args:
        head_dim: width of a head, or a Spectrum of one axis.
        original_length: tokens L that the model was trained on.
        chunk_size: largest distance C; ¾ L if None.
        local: tokens before a chunk that its first tokens see at exact distances; L/8 if None.
        base, layout, rotary_dim, scaling: as in :class:`ropewalk.RoPE`.
    """

    pieces = ("intra", "successive", "inter")

    def __init__(
        self,
        head_dim: int | Spectrum,
        base: float | None = None,
        *,
        original_length: int = 4096,
        chunk_size: int | None = None,
        local: int | None = None,
        layout: Layout | None = None,
        rotary_dim: int | None = None,
        scaling: Any = None,
    ) -> None:
        super().__init__(
            one_axis(head_dim, base, layout=layout, rotary_dim=rotary_dim, scaling=scaling)
        )
        length = check_dim(original_length, "original_length", at_most=1 << 40)
        size = length * 3 // 4 if chunk_size is None else chunk_size
        near = length // 8 if local is None else local
        self.chunk_size = check_dim(size, "chunk_size", at_most=1 << 40)
        if isinstance(near, bool) or not isinstance(near, int):
            raise TypeError(f"local={near!r} must be an int, or None")
        if not 0 <= near < size:
            raise ValueError(f"local={near} must be from 0 to chunk_size − 1 = {size - 1}")
        self.local = near
        self.chunk = size - near

    def place(self, piece: str, side: Side, positions: Tensor) -> Tensor:
        """Places within the chunk; queries further on for earlier chunks."""
        within = torch.remainder(positions, self.chunk)
        if side == "k" or piece == "intra":
            return within
        if piece == "successive":
            return (within + self.chunk).clamp(max=self.chunk_size)
        return torch.full_like(within, min(2 * self.chunk - 1, self.chunk_size))

    def applies(self, piece: str, i: Tensor, j: Tensor) -> Tensor:
        """By how many chunks lie between."""
        first, second = (torch.div(x, self.chunk, rounding_mode="floor") for x in (i, j))
        between = first - second
        return between == 1 if piece == "successive" else between > 1

    def distance(self, i: int, j: int) -> float:
        """d, with the sign of i − j."""
        if i < j:
            return -self.distance(j, i)
        chunks = i // self.chunk - j // self.chunk
        asking = (
            i % self.chunk,
            min(i % self.chunk + self.chunk, self.chunk_size),
            min(2 * self.chunk - 1, self.chunk_size),
        )
        return asking[min(chunks, 2)] - j % self.chunk

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, chunk_size={self.chunk_size}, local={self.local}"


register(
    Spec(
        name="dual_chunk",
        family="contextual",
        factory=DualChunk,
        title="rotary within chunks, capped distances between them",
        equation=r"q_i^\top R(j \bmod s - p_{ij})\,k_j,\quad p_{ij} = i \bmod s,\;"
        r"\min(i \bmod s + s, C),\; \min(2s - 1, C)",
        source="An et al. (2024), Training-Free Long-Context Scaling of Large Language Models",
        config={"head_dim": 64, "original_length": 1024},
        claims=PIECE_CLAIMS,
        reasons={
            **PIECE_REASONS,
            "unique": "keys of different chunks share a distance",
            "relative": "chunks begin where the text begins",
        },
        variants={
            "long chunks": Variant(
                {"original_length": 4096},
                {"unique": True},
                "all distances that are asked for lie in one chunk",
                when=lambda config: DualChunk(**config).chunk >= 2048,
            ),
        },
    )
)
