"""The positions of the tokens of a cache, in whichever dimension they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.models.sides import Side
from ropewalk.positions.contract import integer_positions


@dataclass(frozen=True)
class Places:
    """int64 positions ``[tokens]`` or ``[batch, tokens]``, with a last dimension of several axes.

    ``name`` is the argument that they came by.
    """

    name: str
    positions: Tensor
    axes: int

    @staticmethod
    def of(
        name: str,
        positions: Tensor | None,
        sides: Sequence[tuple[Side, ...]],
        tokens: int = 0,
    ) -> Places:
        """Positions for the axes of ``sides``; 0 … tokens − 1 if there is one axis and none given.

        Raises:
            TypeError: they are no tensor of integers.
            ValueError: they do not fit the axes, or layers have different axes.
        """
        counts = {side.spectrum.axes for one in sides for side in one} or {1}
        if len(counts) > 1:
            raise ValueError(
                f"layers have {' and '.join(map(str, sorted(counts)))} axes, so no {name} fit all; "
                "move them one by one with ropewalk.models.rerotate_"
            )
        (axes,) = counts
        if positions is not None:
            try:
                return Places(name, integer_positions(positions, axes, name), axes)
            except ValueError as error:
                if positions.dim() == 3 and positions.shape[0] == axes:
                    raise ValueError(f"{error}; write {name}.movedim(0, -1)") from None
                raise
        if axes > 1:
            raise ValueError(
                f"{name}=None is 0 … T−1 on one axis, these layers have axes={axes}; give [tokens, "
                f"{axes}] or [batch, tokens, {axes}]. Text alone has the same number on each: "
                f"torch.arange(T)[:, None].expand(-1, {axes})"
            )
        return Places(name, torch.arange(tokens), axes)

    @property
    def _dim(self) -> int:
        return -1 if self.axes == 1 else -2

    def _only(self, first: int, end: int) -> Tensor:
        return self.positions.narrow(self._dim, first, end - first)

    def require(self, tokens: int) -> None:
        """Refuse positions of another number of tokens.

        Raises:
            ValueError: there are more or fewer.
        """
        found = self.positions.shape[self._dim]
        if found != tokens:
            raise ValueError(
                f"{self.name} have shape {tuple(self.positions.shape)}, that is {found} tokens; "
                f"the cache has {tokens} (sliding layers count those that they no longer hold)"
            )

    def last(self, stored: int, tokens: int) -> Tensor:
        """The positions of the last ``stored`` of ``tokens`` tokens."""
        self.require(tokens)
        return self._only(tokens - stored, tokens)

    def without(self, gap: slice, tokens: int) -> Places:
        """Those outside the gap, as they are."""
        self.require(tokens)
        parts = self._only(0, gap.start), self._only(gap.stop, tokens)
        return replace(self, positions=torch.cat(parts, dim=self._dim))

    def closed(self, gap: slice) -> Places:
        """Those outside the gap; what is behind it moves to where the gap began, row by row.

        Raises:
            ValueError: the axes would move by different numbers, as where a gap cuts an image.
        """
        tokens = self.positions.shape[self._dim]
        if gap.stop >= tokens:
            return self.without(gap, tokens)
        step = self._only(gap.stop, gap.stop + 1) - self._only(gap.start, gap.start + 1)
        if self.axes > 1 and bool((step != step[..., :1]).any()):
            raise ValueError(
                f"{self.name} move by {step.reshape(-1, self.axes)[0].tolist()} along their axes "
                f"across tokens {gap.start} … {gap.stop - 1}, which cuts an image or a video; give "
                "new_positions, or end the gap in text"
            )
        parts = self._only(0, gap.start), self._only(gap.stop, tokens) - step
        return replace(self, positions=torch.cat(parts, dim=self._dim))
