"""A draw of random positions, held by a module until it is told to draw again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ropewalk import positions as builders
from ropewalk.core import Encoding, integer_positions
from ropewalk.encodings.bounds import require_inside
from ropewalk.kernels.opaque import opaque
from ropewalk.spectra.arguments import check_int

Place = int | Sequence[int]
Self = TypeVar("Self", bound="Randomized")


def _empty(positions: Tensor, sample: Tensor) -> Tensor:
    return positions.new_empty(positions.shape)


def _batched(op):
    def rule(info, in_dims, positions, sample):
        at_positions, at_sample = in_dims
        if at_sample is None:
            return op(positions.movedim(at_positions, 0), sample), 0
        rows = [
            op(
                positions if at_positions is None else positions.select(at_positions, i),
                sample.select(at_sample, i),
            )
            for i in range(info.batch_size)
        ]
        return torch.stack(rows), 0

    return rule


@opaque("sampled(Tensor positions, Tensor sample) -> Tensor", fake=_empty, vmap=_batched)
def _sampled(positions: Tensor, sample: Tensor) -> Tensor:
    """sample[axis, p] for each position p of each axis; in the graph, so that it checks bounds."""
    axes, tokens = sample.shape
    require_inside(
        positions,
        tokens,
        f"this draw of {tokens} random positions",
        "; encoding.resample(tokens) draws for as many tokens as the text has",
    )
    if axes == 1:
        return sample[0][positions].contiguous()
    return torch.stack([sample[a][positions[..., a]] for a in range(axes)], dim=-1)


class Randomized(Encoding):
    """An encoding whose positions are looked up in a draw; see ropewalk.encodings.randomizing.

    Args:
        base: the encoding that gets the drawn positions.
        drawn: int64 ``[tokens]``, rising in each row, or ``[axes, tokens]``.
        limit: positions lie in [0, limit).

    Attributes:
        sample: the draw ``[axes, tokens]`` on the device of the module, which no checkpoint holds.
    """

    sample: Tensor

    def __init__(self, base: Any, drawn: Tensor, limit: int) -> None:
        super().__init__()
        served = getattr(base, "positions", None)
        if isinstance(served, int) and limit > served:
            raise ValueError(
                f"limit={limit} passes the {served} positions that {type(base).__name__} serves; "
                "give it a longer table or lower limit"
            )
        self.base, self.limit, self.axes = base, limit, base.axes
        self.drawn = _checked(drawn, self.axes, limit)
        self.register_derived()

    @property
    def positions(self) -> int:
        """How many tokens the draw serves: indices 0 … positions − 1."""
        return self.drawn.shape[-1]

    def resample(
        self: Self, tokens: int | None = None, *, generator: torch.Generator | None = None
    ) -> Self:
        """Draw anew, for ``tokens`` tokens (as many as before if None); returns the encoding.

        Call it between batches, not in compiled code. The memory of ``sample`` stays the same where
        the number of tokens does, as CUDA graphs need.

        Raises:
            TypeError, ValueError: as in :func:`ropewalk.positions.randomized`.
        """
        count = self.positions if tokens is None else tokens
        self.drawn = draw(count, self.limit, self.axes, generator)
        if self.sample.shape == self.drawn.shape and not self.sample.is_meta:
            self.sample.copy_(self.drawn)
        else:
            self.sample = self.drawn.to(self.sample.device)
        return self

    def with_positions(self: Self, drawn: Tensor) -> Self:
        """The same encoding, its parameters shared, with these positions; this one stays as it is.

        Args:
            drawn: int64 ``[tokens]`` or ``[axes, tokens]``, rising, in [0, limit).
        """
        return type(self)(self.base, drawn, self.limit).train(self.training)

    def reset_parameters(self) -> None:
        """Initialise the base anew; the draw stays."""
        getattr(self.base, "reset_parameters", lambda: None)()
        super().reset_parameters()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The draw, on ``device``."""
        return {"sample": self.drawn.to(device or torch.get_default_device(), copy=True)}

    def _at(self, positions: Tensor, name: str = "positions") -> Tensor:
        where = integer_positions(positions, self.axes, name)
        here = self.sample
        return _sampled(where, here if here.device == where.device else here.to(where.device))

    def _place(self, position: Place) -> Any:
        """The drawn position of one token index, for ``reference``."""
        if isinstance(position, int):
            return int(self.drawn[0, position])
        return [int(self.drawn[a, p]) for a, p in enumerate(position)]

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"tokens={self.positions}, limit={self.limit}"


def draw(tokens: int, limit: int, axes: int, generator: torch.Generator | None) -> Tensor:
    """Positions ``[axes, tokens]`` on the CPU."""
    if check_int("tokens", tokens, at_least=0) == 0:
        raise ValueError("tokens=0 must be at least 1: an encoding serves some token")
    return builders.randomized(tokens, limit, batch=axes, generator=generator, device="cpu")


def _checked(drawn: Tensor, axes: int, limit: int) -> Tensor:
    """A draw given by hand as int64 ``[axes, tokens]`` on the CPU."""
    rows = integer_positions(drawn, name="drawn").to("cpu")
    rows = rows[None] if rows.dim() == 1 and axes == 1 else rows
    if rows.dim() != 2 or rows.shape[0] != axes or not rows.shape[1]:
        wanted = "[tokens]" if axes == 1 else f"[{axes}, tokens]"
        raise ValueError(f"drawn has shape {tuple(drawn.shape)}; this encoding takes {wanted}")
    if bool((rows.diff(dim=-1) <= 0).any()) or rows.min() < 0 or rows.max() >= limit:
        raise ValueError(f"drawn must rise, each row from 0 or more to less than limit={limit}")
    return rows
