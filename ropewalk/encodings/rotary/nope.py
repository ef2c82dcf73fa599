r"""NoPE: no positional encoding; q and k are what they are.

.. math:: q_m^\top k_n = x_q^\top x_k

The order of tokens reaches the model through the causal mask alone, which lets a token see how many
came before. In layouts where some layers rotate and others do not, this is the other ones.

Source: Transformer Language Models without Positional Encodings Still Learn Positional Information
(Haviv et al., 2022); The Impact of Positional Encoding on Length Generalization in Transformers
(Kazemnejad et al., 2023). Confirmed: attention with it is attention without an encoding, bit for
bit (tests/test_catalogue_rotary.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ropewalk.catalog import Spec, register
from ropewalk.core import Rotary, token_positions
from ropewalk.encodings.width import check_dim
from ropewalk.kernels.plain import compute_dtype


class NoPE(Rotary):
    """The identity on q and k; x itself is handed back.

    Args:
        head_dim: width of a head.
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]``, once positions are known to fit it."""
        if q.dim() < 2 or q.shape[-1] != self.head_dim:
            raise ValueError(
                f"x has shape {tuple(q.shape)}; this encoding takes [..., heads, tokens, "
                f"{self.head_dim}]"
            )
        compute_dtype(q.dtype)
        token_positions(positions, offset, q, self.axes)
        return q

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]``, as q."""
        return self.encode_q(k, positions, offset=offset)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """The vector itself."""
        return [float(value) for value in x]

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}"


register(
    Spec(
        name="nope",
        family="rotary",
        factory=NoPE,
        title="no position: q and k as they are",
        equation=r"q_m^\top k_n = x_q^\top x_k",
        source="Haviv et al. (2022), Transformer Language Models without Positional Encodings "
        "Still Learn Positional Information",
        config={"head_dim": 64},
        claims={
            "unique": False,
            "linear": True,
            "relative": True,
            "norm": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "all positions are alike; order comes from the causal mask",
            "linear": "M_k is the identity",
            "relative": "scores depend on no position at all",
            "decay": "scores do not change with distance",
            "axes": "no axis at all",
        },
    )
)
