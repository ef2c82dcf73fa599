r"""FoPE: cos and sin of each pair become sums over all frequencies, as a Fourier series has them.

.. math:: \cos'_{c}(p) = \sum_{ω} W^{\cos}_{ω c} \cos(pω), \qquad
          \sin'_{c}(p) = \sum_{ω} W^{\sin}_{ω c} \sin(pω), \qquad W = I + \text{noise}

over the frequencies ω = base^(−2c/d), in radians per position, that complete a turn within the
training length: ω ≥ 2π/L. The two matrices of each KV head are drawn once and stay, unless
``learnable``. The pairs whose frequency is dropped get cos' = sin' = 1 at every position, as in the
authors' code: turned by 45° and √2 as long, in q and k alike, they carry content alone.

With W = I it is RoPE of the kept pairs. Otherwise cos'² + sin'² is not constant and the score of
two tokens depends on both positions: FoPE is no rotation and not relative.

The noise is Xavier-normal with a gain of .3, drawn as the authors' code draws it: over the array of
all heads, whose fans PyTorch takes to be kept · kept and heads · kept.

Source: Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length
Generalization (Hua et al., 2024), §4 and appendix. Confirmed: by the authors' code, with which the
matrices share their names (sin_coef, cos_coef) and shape [heads, kept, kept], and by vLLM's. Where
there are more than d/4 kept frequencies the authors' code gives only d/4 lanes to them; vLLM, and
this, give as many as are kept. The paper's listing divides each column by its sum; the settings
that are published with the code, and vLLM, do not, nor does this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Rotary, wide_dtype
from ropewalk.encodings.literal import turned
from ropewalk.encodings.rotary.rope import ROTATION_REASONS
from ropewalk.encodings.tables import places, turn
from ropewalk.encodings.width import check_dim, empty_parameter
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Layout, Spectrum, exact_angle, full_turns, geometric
from ropewalk.spectra.arguments import check_number


class FoPE(Rotary):
    """Fourier position embedding.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        heads: KV heads that have matrices of their own, each serving a group of heads; 1 for all.
        length: L, tokens of a training sequence.
        gain: of the noise; 0 gives RoPE of the kept pairs.
        learnable: train the matrices.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range, or no frequency completes a turn in L.
    """

    steps: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        heads: int = 1,
        length: int = 4096,
        gain: float = 0.3,
        learnable: bool = False,
        layout: Layout = "half",
    ) -> None:
        super().__init__()
        self.spectrum = geometric(head_dim, base, layout=layout)
        self.head_dim = head_dim
        self.heads = check_dim(heads, "heads")
        self.gain = check_number("gain", gain, at_least=0)
        if not isinstance(learnable, bool):
            raise TypeError(f"learnable={learnable!r} must be a bool")
        self.kept = tuple(f for f in full_turns(self.spectrum, length).inv_freq if f)
        if not self.kept:
            raise ValueError(
                f"length={length} lets no frequency complete a turn; the fastest needs 7 positions"
            )
        count = len(self.kept)
        shape = (self.heads, count, count)
        self.sin_coef = empty_parameter(shape).requires_grad_(learnable)
        self.cos_coef = empty_parameter(shape).requires_grad_(learnable)
        self.register_derived()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices anew: the identity, and noise."""
        with torch.no_grad():
            for matrix in (self.sin_coef, self.cos_coef):
                nn.init.xavier_normal_(matrix, gain=self.gain)
                matrix += torch.eye(len(self.kept), device=matrix.device, dtype=matrix.dtype)
        super().reset_parameters()

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` by the sums of its heads."""
        where = places(q, positions, offset, self.spectrum)
        steps = self.steps if self.steps.device == q.device else self.derive(q.device)["steps"]
        wide = wide_dtype(q.dtype)
        tables = phase_tables(where, steps, 1.0, wide)
        cos, sin = (
            self._mixed(table, matrix.to(q.device, wide))
            for table, matrix in zip(tables, (self.cos_coef, self.sin_coef), strict=True)
        )
        return turn(q, cos, sin, self.spectrum, per_head=self.heads > 1)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]``, as q."""
        return self.encode_q(k, positions, offset=offset)

    def _mixed(self, table: Tensor, matrix: Tensor) -> Tensor:
        """``[..., T, kept]`` times the matrices: ``[..., heads, T, pairs]``, no heads if 1.

        Added up in the order of frequencies: a matrix product rounds a token otherwise in another
        batch, and autocast takes it for its own.
        """
        table, matrix = (table, matrix[0]) if self.heads == 1 else (table.unsqueeze(-3), matrix)
        total = table[..., :1] * matrix[..., :1, :]
        for i in range(1, len(self.kept)):
            total = total + table[..., i : i + 1] * matrix[..., i : i + 1, :]
        return functional.pad(total, (0, self.spectrum.pairs - len(self.kept)), value=1.0)

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of KV head ``head`` by a literal float64 loop."""
        where = position if isinstance(position, int) else position[0]
        phases = [exact_angle(where, f) for f in self.kept]
        stands = [1.0] * (self.spectrum.pairs - len(self.kept))
        sums = []
        for function, matrix in ((math.cos, self.cos_coef), (math.sin, self.sin_coef)):
            columns = zip(
                *matrix.detach()[head % self.heads].to("cpu", torch.float64).tolist(), strict=True
            )
            values = [function(t) for t in phases]
            sums.append(
                [math.fsum(w * v for w, v in zip(c, values, strict=True)) for c in columns] + stands
            )
        return turned(x, self.spectrum, zip(*sums, strict=True))

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the kept frequencies."""
        return {"steps": Spectrum((self.kept,), 2 * len(self.kept)).on(device).tensor}

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"head_dim={self.head_dim}, heads={self.heads}, kept={len(self.kept)}, "
            f"gain={self.gain}, layout={self.spectrum.layout!r}"
        )


register(
    Spec(
        name="fope",
        family="rotary",
        factory=FoPE,
        title="Fourier: cos and sin become fixed sums over all frequencies",
        equation=r"\cos'_c(p) = \sum_\omega W^{\cos}_{\omega c} \cos(p\omega),\quad "
        r"\sin'_c(p) = \sum_\omega W^{\sin}_{\omega c} \sin(p\omega)",
        source="Hua et al. (2024), Fourier Position Embedding: Enhancing Attention's Periodic "
        "Extension for Length Generalization",
        config={"head_dim": 64},
        claims={
            "unique": True,
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
            **ROTATION_REASONS,
            "linear": "mixed cosines of several frequencies are no rotation",
            "relative": "cos'(i)cos'(j) + sin'(i)sin'(j) is no function of i − j",
            "norm": "cos'² + sin'² is not constant",
            "deterministic": "the matrices are drawn at random",
        },
        variants={
            "no noise": Variant(
                {"gain": 0.0},
                {"linear": True, "relative": True, "deterministic": True},
                "W = I: RoPE of the kept pairs, the others √2 as long",
            ),
        },
    )
)
