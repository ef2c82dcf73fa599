r"""RoPE-Mixed: every pair turns along a direction of its own, learned per head.

.. math:: \text{angle}_{h,c} = \sum_a p_a f_{h,a,c}
          \qquad (x f^x_{h,c} + y f^y_{h,c} \text{ in two dimensions})

f are parameters in radians per coordinate. At the start, with d = head_dim and one random angle
φ_h per head,

.. math:: (f^x, f^y)_{h,j} = m_j(\cos φ_h, \sin φ_h), \quad
          (f^x, f^y)_{h,d/4+j} = m_j(-\sin φ_h, \cos φ_h), \quad m_j = \mathrm{base}^{-4j/d}

for j < d/4: an axial spectrum turned by φ_h. With n axes, which is this library's extension, the
axial spectrum is turned by a random orthonormal frame per head.

A frequency is a float, and rounds as one when the module is cast; the phase of an integer position
is exact for the value it holds (:mod:`ropewalk.kernels.learned`), so the score is relative at any
position, and :attr:`MixedRoPE.spectrum` gives the same bits.

Source: Rotary Position Embedding for Vision Transformer (Heo et al., 2024), §3.2, and the authors'
code: base 10, angles uniform in [0, 2π), lanes interleaved, the first axis the columns, a set of
frequencies per layer, stored as [axes, heads, d/2]. Confirmed: against that initialisation written
out (tests/test_catalogue_axes.py); by hand, the results of RotaryEmbeddingMixed of timm 1.0.31.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import token_positions, wide_dtype
from ropewalk.encodings.alike import Alike
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS
from ropewalk.encodings.literal import angles, turned
from ropewalk.encodings.turning import check_vectors, turned_by_tables
from ropewalk.encodings.width import check_dim, empty_parameter
from ropewalk.kernels.learned import learned_tables
from ropewalk.spectra import Layout, Spectrum, axial
from ropewalk.spectra.arguments import check_flag, check_number


class MixedRoPE(Alike):
    """RoPE with learned directions and speeds.

    Args:
        head_dim: width of a head, a multiple of 2·axes.
        heads: heads of k with frequencies of their own; each serves its group of q's heads.
        base: m_j falls from 1 to about 1/base.
        axes: number of position axes.
        rotate: False leaves out the random frame, which gives the axial spectrum in every head.
        layout: how lanes pair; the authors' checkpoints are ``"interleaved"``.
        unit: size of one integer position in coordinates, see :func:`ropewalk.positions.fixed`.
        device, dtype: of the frequencies ``freqs`` ``[heads, axes, head_dim/2]``.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    freqs: Tensor

    def __init__(
        self,
        head_dim: int,
        heads: int,
        base: float = 10.0,
        *,
        axes: int = 2,
        rotate: bool = True,
        layout: Layout = "half",
        unit: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dim(axes, "axes")
        self.start = axial(head_dim, base, axes=axes, layout=layout)
        self.head_dim, self.axes = head_dim, axes
        self.layout: Layout = layout
        self.heads = check_dim(heads, "heads")
        self.unit = check_number("unit", unit, above=0)
        self.rotate = check_flag("rotate", rotate)
        shape = (heads, axes, head_dim // 2)
        self.freqs = empty_parameter(shape, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a frame for each head."""
        with torch.no_grad():
            start = torch.tensor(
                self.start.freqs, dtype=torch.float64, device=self.freqs.device
            )  # block-sparse, [axes, pairs]
            frame = _frames(self.heads, self.axes, start.device) if self.rotate else None
            self.freqs.copy_(start.expand_as(self.freqs) if frame is None else frame @ start)
        super().reset_parameters()

    @property
    def spectrum(self) -> Spectrum:
        """The frequencies as they are now: frozen, with the same integer phases."""
        held = self.freqs.detach().to("cpu", torch.float64).tolist()
        freqs = tuple(tuple(map(tuple, matrix)) for matrix in held)
        return Spectrum(freqs, self.head_dim, layout=self.layout, unit=self.unit)

    def turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        """x ``[..., H, T, head_dim]`` turned, H a multiple of heads."""
        check_vectors(x, self.head_dim, self.heads)
        where = token_positions(positions, offset, x, self.axes)
        tables = learned_tables(where, self.freqs, wide_dtype(x.dtype), self.unit)
        return turned_by_tables(x, *tables, self.layout, inverse)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of head ``head`` (of k) turned by a literal loop with exact angles."""
        held = self.freqs[min(head, self.heads - 1)].detach().to("cpu", torch.float64).tolist()
        own = Spectrum(tuple(map(tuple, held)), self.head_dim, layout=self.layout, unit=self.unit)
        return turned(x, own, ((math.cos(t), math.sin(t)) for t in angles(own, position)))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, heads={self.heads}, axes={self.axes}"


def _frames(heads: int, axes: int, device: torch.device) -> Tensor:
    """A random orthonormal frame per head, ``[heads, axes, axes]``, its columns the directions."""
    if axes == 2:
        angle = torch.rand(heads, dtype=torch.float64, device=device) * (2 * math.pi)
        cos, sin = torch.cos(angle), torch.sin(angle)
        return torch.stack((cos, -sin, sin, cos), dim=-1).reshape(heads, 2, 2)
    drawn = torch.randn(heads, axes, axes, dtype=torch.float64, device=device)
    frame, corner = torch.linalg.qr(drawn)
    return frame * torch.sign(torch.diagonal(corner, dim1=-2, dim2=-1))[:, None, :]


register(
    Spec(
        name="mixed",
        family="rotary",
        factory=MixedRoPE,
        title="rotary along learned directions, per head",
        equation=r"\mathrm{angle}_{h,c} = \textstyle\sum_a p_a f_{h,a,c}",
        source="Heo et al. (2024), Rotary Position Embedding for Vision Transformer",
        config={"head_dim": 64, "heads": 2},
        claims={**ROTATION_CLAIMS, "axes": True, "deterministic": False},
        reasons={
            "decay": ROTATION_REASONS["decay"],
            "deterministic": "one angle per head is drawn at random, then trained",
            "unique": "with the initial frequencies; training may merge positions",
        },
        variants={
            "unrotated": Variant(
                {"rotate": False},
                {"deterministic": False},
                "the axial spectrum in every head; parameters round it to the default dtype",
            ),
        },
    )
)
