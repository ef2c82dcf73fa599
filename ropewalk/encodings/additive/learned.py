r"""Learned: one trained vector per position.

.. math:: E(p) = W_{p + \text{offset}}, \qquad W \sim \mathcal N(0, 0.02^2) \text{ at the start}

A table of ``length`` rows; a position outside it is an error, never a wrap. ``row_offset`` is the
row of position 0: 2 for BART and OPT (1026 rows serve 1024 tokens) and for RoBERTa, whose
padding_idx is 1. :meth:`Learned.resized` interpolates the table for another length or grid.

Source: Convolutional Sequence to Sequence Learning (Gehring et al., 2017); BERT (Devlin et al.,
2018) for the initial standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, integer_positions
from ropewalk.encodings.bounds import require_inside
from ropewalk.encodings.resize import Interpolation, resize_table
from ropewalk.encodings.width import check_dim, check_floating, check_std, empty_parameter
from ropewalk.kernels.opaque import opaque
from ropewalk.spectra.arguments import check_int, shown


def _same_rows(positions: Tensor, row_offset: int, length: int) -> Tensor:
    return torch.empty_like(positions)


def _batched(op):
    def rule(info, in_dims, positions, row_offset, length):
        return op(positions, row_offset, length), in_dims[0]

    return rule


@opaque(
    "rows(Tensor positions, int row_offset, int length) -> Tensor", fake=_same_rows, vmap=_batched
)
def _rows(positions: Tensor, row_offset: int, length: int) -> Tensor:
    """positions + row_offset, once all of them are known to be in the table; compiled code too."""
    rows = positions + row_offset
    require_inside(
        positions,
        length - row_offset,
        f"this learned table of {length} rows",
        (f" (position 0 is row {row_offset})" if row_offset else "")
        + "; shorten the text or train a longer table",
    )
    return rows


class Learned(Additive):
    """A trained table.

    Args:
        dim: width of a code.
        length: rows of the table, ``row_offset`` included.
        row_offset: the row of position 0.
        std: standard deviation of the initial values.
        device: of the table.
        dtype: of the table.
    """

    def __init__(
        self,
        dim: int,
        length: int = 1024,
        *,
        row_offset: int = 0,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim = check_dim(dim)
        self.length = check_dim(length, "length", at_most=1 << 40)
        self.row_offset = check_int("row_offset", row_offset, at_least=0)
        if self.row_offset >= length:
            raise ValueError(f"row_offset={shown(row_offset)} leaves no row of length={length}")
        self.std = check_std(std)
        self.weight = empty_parameter((length, dim), device, dtype)
        self.reset_parameters()

    @property
    def positions(self) -> int:
        """How many positions the table serves: 0 … positions − 1."""
        return self.length - self.row_offset

    def reset_parameters(self) -> None:
        """Draw new values."""
        nn.init.normal_(self.weight, std=self.std)

    def resized(
        self,
        size: int | Sequence[int],
        *,
        grid: Sequence[int] | None = None,
        prefix: int = 0,
        mode: Interpolation = "cubic",
        antialias: bool = False,
        align_corners: bool = False,
    ) -> Learned:
        """A table for another length or grid, interpolated from this one, which stays as it is.

        Arguments and errors as in :func:`ropewalk.encodings.resize.resize_table`; ``size`` and
        ``prefix`` count positions, so the ``row_offset`` rows before them are kept as well.

        Example:
            >>> vit = Learned(768, 1 + 14 * 14)  # a class token, then a grid
            >>> vit.resized((16, 16), prefix=1).positions
            257
        """
        weight = resize_table(
            self.weight.detach(),
            size,
            grid=grid,
            prefix=self.row_offset + prefix,
            mode=mode,
            antialias=antialias,
            align_corners=align_corners,
        )
        made = Learned(
            self.dim,
            len(weight),
            row_offset=self.row_offset,
            std=self.std,
            device="meta",  # draws nothing
            dtype=weight.dtype,
        )
        made.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
        return made.train(self.training)

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``, rows of the table.

        Raises:
            ValueError: a position is outside 0 … positions − 1.
        """
        where = integer_positions(positions)
        rows = _rows(where, self.row_offset, self.length)
        return functional.embedding(rows, self.weight).to(check_floating(dtype))

    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position."""
        if not 0 <= position < self.positions:
            raise ValueError(f"position {position} is outside 0 … {self.positions - 1}")
        return self.weight[position + self.row_offset].detach().to(torch.float64).tolist()

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"dim={self.dim}, length={self.length}, row_offset={self.row_offset}"


register(
    Spec(
        name="learned",
        family="additive",
        factory=Learned,
        title="one trained vector per position",
        equation=r"E(p) = W_{p}, \quad W \in \mathbb{R}^{L \times D}",
        source="Gehring et al. (2017), Convolutional Sequence to Sequence Learning",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "extends": False,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "with random values; training may merge codes",
            "linear": "rows are free",
            "relative": "added before the projections",
            "norm": "the code is added",
            "bounded": "a finite table",
            "decay": "additive codes have no score of their own",
            "extends": "the table ends",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
            "precision": "rounding is relative to values of one size",
        },
        variants={
            "short table": Variant(
                {"length": 64},
                {"linear": None, "relative": None, "precision": None},
                "too few rows to measure it",
                when=lambda config: config.get("length", 1024) < 16 * config["dim"],
            ),
        },
    )
)
