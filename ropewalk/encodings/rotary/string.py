r"""Cayley-STRING: axial RoPE after a learned change of basis.

.. math:: T(p) = \mathrm{RoPE}(p)\,P, \qquad P = (I - S)(I + S)^{-1}, \qquad S = A - A^\top

P is orthogonal for every A, so the score q·Pᵀ R(Δ) P·k is that of axial RoPE on Pq and Pk: relative
for any P. With one P for all heads of a layer a trained P could be multiplied into W_q and W_k; it
is another way to train, not another function. S is skew and so I + S can always be solved.

Source: Learning the RoPEs: Better 2D and 3D Position Encodings with STRING (Schenck et al., 2025),
§3.2. Confirmed: orthogonality and the equality of scores (tests/test_catalogue_axes.py). Not
confirmed: how the authors initialise S; here A ~ N(0, std²), and std = 0 starts at P = I.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Rotary, wide_dtype
from ropewalk.encodings.autocast import without_autocast
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.encodings.turning import by_blocks, check_vectors, skew
from ropewalk.encodings.width import check_dim, check_std, empty_parameter
from ropewalk.spectra import Layout, Spectrum, axial


class StringRoPE(Rotary):
    """Axial RoPE in a learned orthonormal basis.

    Args:
        head_dim: width of a head, a multiple of 2·axes.
        heads: heads of k with a basis of their own, each serving its group of q's heads; 1 shares
            one basis.
        base: of the axial frequencies, which are fixed.
        axes: number of position axes.
        std: standard deviation of the initial A.
        layout: how lanes pair.
        unit: size of one integer position in coordinates.
        device, dtype: of the parameter ``weight``, A as ``[heads, head_dim, head_dim]``.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(
        self,
        head_dim: int,
        heads: int,
        base: float = 100.0,
        *,
        axes: int = 2,
        std: float = 0.02,
        layout: Layout = "half",
        unit: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dim(axes, "axes")
        self.rope = RoPE(axial(head_dim, base, axes=axes, layout=layout, unit=unit))
        self.head_dim, self.axes = head_dim, axes
        self.heads = check_dim(heads, "heads")
        self.std = check_std(std, at_least=0)
        shape = (heads, head_dim, head_dim)
        self.weight = empty_parameter(shape, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw A."""
        nn.init.normal_(self.weight, std=self.std)
        self.rope.reset_parameters()
        super().reset_parameters()

    @property
    def spectrum(self) -> Spectrum:
        """The axial frequencies behind the change of basis."""
        return self.rope.spectrum

    def basis(self) -> Tensor:
        """P ``[heads, head_dim, head_dim]`` in float64, differentiable."""
        matrix = skew(self.weight)
        one = torch.eye(self.head_dim, dtype=matrix.dtype, device=matrix.device)
        with without_autocast(matrix):  # (I + S)⁻¹ and I − S commute
            return torch.linalg.solve(one + matrix, one - matrix)

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` in the basis P, and turned; H a multiple of heads."""
        check_vectors(q, self.head_dim, self.heads)
        basis = self.basis().to(wide_dtype(q.dtype))
        return self.rope.encode_q(by_blocks(q, basis.unsqueeze(1)), positions, offset=offset).to(
            q.dtype
        )

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]``, as q."""
        return self.encode_q(k, positions, offset=offset)

    def undo(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """x turned back, out of the basis; it undoes :meth:`encode_k`, see ``RoPE.undo``."""
        check_vectors(x, self.head_dim, self.heads)
        wide = wide_dtype(x.dtype)
        back = self.rope.undo(x.to(wide), positions, offset=offset)
        return by_blocks(back, self.basis().to(wide).mT.unsqueeze(1)).to(x.dtype)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of head ``head`` (of k) by literal loops in float64."""
        matrix = skew(self.weight[min(head, self.heads - 1)].detach().to("cpu"))
        one = torch.eye(self.head_dim, dtype=matrix.dtype)
        rows = ((one - matrix) @ torch.linalg.inv(one + matrix)).tolist()
        mixed = [sum(entry * value for entry, value in zip(row, x, strict=True)) for row in rows]
        return self.rope.reference(mixed, position)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, heads={self.heads}, axes={self.axes}, std={self.std}"


register(
    Spec(
        name="string",
        family="rotary",
        factory=StringRoPE,
        title="axial rotary in a learned orthonormal basis (Cayley-STRING)",
        equation=r"T(p) = \mathrm{RoPE}(p)\,P,\quad P = (I - S)(I + S)^{-1},\; S = A - A^\top",
        source="Schenck et al. (2025), Learning the RoPEs: "
        "Better 2D and 3D Position Encodings with STRING",
        config={"head_dim": 64, "heads": 2},
        claims={**ROTATION_CLAIMS, "axes": True, "deterministic": False},
        reasons={
            "decay": ROTATION_REASONS["decay"],
            "deterministic": "the basis is drawn at random, then trained",
        },
        variants={
            "identity": Variant(
                {"std": 0.0},
                {"deterministic": True},
                "P = I: axial RoPE at the start",
            ),
        },
    )
)
