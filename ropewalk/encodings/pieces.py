"""Rotations chosen for each pair of tokens: what ReRoPE, Self-Extend and dual chunks share.

RoPE turns q by its position and k by its own. Here there are several *pieces*, each with its own
places for queries and keys, and every pair (i, j) takes the logit of one piece. One softmax over
the chosen logits is what merging the pieces by their log-sum-exp gives.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ropewalk.core import Block, Contextual, integer_positions, token_positions
from ropewalk.encodings.rotary.rope import RoPE
from ropewalk.kernels import Steps, rotate
from ropewalk.spectra import Spectrum

Side = Literal["q", "k"]


def one_axis(head_dim: int | Spectrum, base: float | None, **how: Any) -> Spectrum:
    """The spectrum of :class:`RoPE` with these arguments.

    Raises:
        TypeError, ValueError: an argument is out of range, or the spectrum has several axes.
    """
    spectrum = RoPE(head_dim, base, **how).spectrum
    if spectrum.axes != 1 or spectrum.heads is not None:
        raise ValueError(
            f"the spectrum has axes={spectrum.axes}, heads={spectrum.heads}; distances are chosen "
            "along one axis, for all heads alike"
        )
    return spectrum


class Pieces(Contextual):
    """Logits by the rotation of one piece for each pair.

    A subclass names its ``pieces`` and gives :meth:`place`, :meth:`applies` and :meth:`distance`.
    The first piece serves every pair that no other claims. The others are defined for keys before
    the query; for keys after it query and key change roles, so that a distance turns its sign. (The
    sources are causal. Which of the two holds goes by position; a causal mask goes by index.)
    """

    bilinear = True
    pieces: ClassVar[tuple[str, ...]]
    steps: Tensor

    def __init__(self, spectrum: Spectrum) -> None:
        super().__init__()
        self.spectrum = spectrum
        self.head_dim = spectrum.head_dim
        self.register_derived()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """int64 steps."""
        return {"steps": Steps.of(self.spectrum, device).tensor}

    @property
    def attention_factor(self) -> float:
        """By which cos and sin are multiplied."""
        return self.spectrum.attention_factor

    @abstractmethod
    def place(self, piece: str, side: Side, positions: Tensor) -> Tensor:
        """By which positions of the spectrum queries, or keys, at ``positions`` turn."""

    @abstractmethod
    def applies(self, piece: str, i: Tensor, j: Tensor) -> Tensor:
        """Where a piece but the first serves queries at i and keys at j, for i after j."""

    @abstractmethod
    def distance(self, i: int, j: int) -> float:
        """By how much a query at i and a key at j are turned apart: the literal reference."""

    def stretch(self, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
        """A factor of each query, ``[..., q_tokens]``; None for 1."""
        return None

    def _turn(self, x: Tensor, place: Tensor) -> Tensor:
        steps = self.steps if self.steps.device == x.device else self.derive(x.device)["steps"]
        return rotate(x, place, Steps(steps, self.spectrum))

    def _piece(self, piece: str | None) -> str:
        if piece is None:
            return self.pieces[0]
        if piece not in self.pieces:
            raise ValueError(f"piece={piece!r} is unknown; use one of {self.pieces}")
        return piece

    def encode_q(
        self,
        q: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
        piece: str | None = None,
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` turned as a piece turns queries; the first piece if None."""
        where = token_positions(positions, offset, q, 1)
        return self._turn(q, self.place(self._piece(piece), "q", where))

    def encode_k(
        self,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
        piece: str | None = None,
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` turned as a piece turns keys; for caches."""
        where = token_positions(positions, offset, k, 1)
        return self._turn(k, self.place(self._piece(piece), "k", where))

    def logits(self, block: Block) -> Tensor:
        """``[..., H, q_tokens, kv_tokens]``."""
        i = integer_positions(block.q_positions, name="q_positions")
        j = integer_positions(block.kv_positions, name="kv_positions")
        factor = self.stretch(i, block.q.dtype)
        q = block.q * block.scale
        q = q if factor is None else q * factor.unsqueeze(-2)[..., None]
        row, column = i[..., :, None], j[..., None, :]

        def part(piece: str, asking: Side, asked: Side) -> Tensor:
            turned = self._turn(q, self.place(piece, asking, i))
            return turned @ self._turn(block.k, self.place(piece, asked, j)).transpose(-1, -2)

        found = part(self.pieces[0], "q", "k")
        for piece in self.pieces[1:]:
            before = (row > column) & self.applies(piece, row, column)
            after = (row < column) & self.applies(piece, column, row)
            found = torch.where(before.unsqueeze(-3), part(piece, "q", "k"), found)
            found = torch.where(after.unsqueeze(-3), part(piece, "k", "q"), found)
        return found

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}"


PIECE_CLAIMS: dict[str, bool | None] = {
    "unique": False,
    "relative": False,
    "norm": True,
    "bounded": True,
    "decay": False,
    "extends": True,
    "deterministic": True,
    "precision": True,
}
"""What rotations chosen per pair hold where the choice goes by floors."""

PIECE_REASONS = {
    "linear": "no one map per position: what turns apart is a pair",
    "decay": "for any distance some q and k peak there",
    "axes": "one axis",
}
