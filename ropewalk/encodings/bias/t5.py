r"""T5: a learned number per head and bucket of distances, one by one near, logarithmic far.

.. math:: b_h(i, j) = W_{\mathrm{bucket}(i - j),\,h}, \qquad
   \mathrm{bucket}(Δ) = \begin{cases} Δ & Δ < e \\
   \min\bigl(n - 1,\; e + \lfloor (n - e)\,\tfrac{\ln(Δ/e)}{\ln(D/e)} \rfloor\bigr) & Δ \ge e
   \end{cases}, \qquad e = \lfloor n/2 \rfloor

with n buckets and D the distance (tokens) from which all share the last one. Causal: keys ahead of
the query fall into bucket 0. Bidirectional: n is half of the buckets for each side, and keys ahead
use the second half.

The logarithm is an integer comparison here: :math:`e + k` begins at the least Δ with
:math:`Δ^{n-e} e^k \ge D^k e^{n-e}`, so buckets are exact at any distance. transformers takes the
logarithm in float32. Up to 2³¹ that gives the same buckets for T5's own numbers and all others up
to D = 4096 that were tried, and one bucket too many just below two boundaries of n = 64, D = 2²⁰
(tests/test_catalogue_bias.py).

T5 itself uses no 1/√head_dim (pass ``scale=1.0`` to ``attend``) and shares one table between its
layers. The table is ``[buckets, heads]`` as in transformers, ``relative_attention_bias.weight``.

Source: Exploring the Limits of Transfer Learning (Raffel et al., 2020), §2.1 and the authors' code.
Confirmed: buckets with ``T5Attention._relative_position_bucket`` of transformers, and the missing
1/√d with its ``T5Attention``; initial values N(0, 1/d_model) are those of transformers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Bias
from ropewalk.encodings.offsets import offsets
from ropewalk.encodings.width import check_dim, check_floating, check_std, empty_parameter
from ropewalk.spectra.arguments import check_flag


def bucket_boundaries(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The distances at which buckets 1, 2, … begin, for one side; exact.

    Raises:
        ValueError: fewer than 2 buckets, or max_distance not above half of them.
    """
    if buckets < 2:
        raise ValueError(f"buckets={buckets} must be at least 2 for each side")
    near = buckets // 2
    far = buckets - near
    if max_distance <= near:
        raise ValueError(
            f"max_distance={max_distance} must be above {near}, where the buckets of single "
            "distances end; raise it or use fewer buckets"
        )

    def reaches(distance: int, k: int) -> bool:
        return distance**far * near**k >= max_distance**k * near**far

    starts, low = list(range(1, near + 1)), near
    for k in range(1, far):
        high = max_distance
        while high > low:
            middle = (low + high) // 2
            low, high = (low, middle) if reaches(middle, k) else (middle + 1, high)
        starts.append(low)
    return tuple(starts)


class T5(Bias):
    """A learned table of biases by bucket of distance.

    Args:
        heads: number of query heads.
        buckets: rows of the table; both sides together if bidirectional.
        max_distance: tokens from which all distances share a bucket.
        bidirectional: whether keys ahead of the query have buckets of their own.
        std: of the initial values; d_model ** −½ in transformers, here that of T5-small.
        device: of the table.
        dtype: of the table.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    boundaries: Tensor

    def __init__(
        self,
        heads: int,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
        std: float = 512**-0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        self.buckets = check_dim(buckets, "buckets")
        self.max_distance = check_dim(max_distance, "max_distance", at_most=1 << 40)
        check_flag("bidirectional", bidirectional)
        if bidirectional and buckets % 2:
            raise ValueError(
                f"buckets={buckets} must be even with bidirectional=True: half for each side; "
                f"use {buckets + 1}"
            )
        self.bidirectional = bidirectional
        self.side = buckets // 2 if bidirectional else buckets
        self.starts = bucket_boundaries(self.side, max_distance)
        self.std = check_std(std)
        self.weight = empty_parameter((buckets, heads), device, dtype)
        self.register_derived()
        self.reset_parameters()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The distances at which buckets begin, int64."""
        return {"boundaries": torch.tensor(self.starts, dtype=torch.int64, device=device)}

    def reset_parameters(self) -> None:
        """Draw new values."""
        nn.init.normal_(self.weight, std=self.std)
        super().reset_parameters()

    def bucket(self, offset: Tensor) -> Tensor:
        """The row of the table for int64 offsets i − j of any shape."""
        distance = offset.abs() if self.bidirectional else offset.clamp_min(0)
        row = torch.bucketize(distance, self.boundaries, right=True)
        return row + self.side * (offset < 0) if self.bidirectional else row

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``: rows of the table."""
        rows = self.bucket(offsets(q_positions, kv_positions).squeeze(-3))
        return functional.embedding(rows, self.weight).movedim(-1, -3).to(check_floating(dtype))

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One number of the table, its bucket found by counting in Python's integers."""
        ahead = k_position > q_position
        distance = abs(q_position - k_position) if self.bidirectional or not ahead else 0
        near = self.side // 2
        far = self.side - near
        row = min(distance, near)
        if distance >= near:
            steps = range(1, far)
            row += sum(distance**far * near**k >= self.max_distance**k * near**far for k in steps)
        row += self.side if self.bidirectional and ahead else 0
        return self.weight.detach().to(torch.float64)[row, head].item()

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return (
            f"heads={self.heads}, buckets={self.buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )


register(
    Spec(
        name="t5",
        family="bias",
        factory=T5,
        title="a learned number per bucket of distances",
        equation=r"b_h(i, j) = W_{\mathrm{bucket}(i - j),\,h},\quad \mathrm{bucket}(\Delta) = "
        r"\begin{cases} \Delta & \Delta < e \\ \min\bigl(n - 1,\; e + \lfloor (n - e)\,"
        r"\tfrac{\ln(\Delta/e)}{\ln(D/e)} \rfloor\bigr) & \Delta \ge e \end{cases}",
        source="Raffel et al. (2020), Exploring the Limits of Transfer Learning "
        "with a Unified Text-to-Text Transformer",
        config={"heads": 8},
        claims={
            "unique": False,
            "relative": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "far distances share buckets",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "the table is free",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
            "precision": "the values of a table round alike at every distance",
        },
        variants={"both sides": Variant({"bidirectional": True})},
    )
)
