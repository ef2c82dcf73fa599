r"""Shaw: learned vectors for clipped offsets, added to keys and to values.

.. math:: e_{ij} = \frac{q_i^\top (k_j + a^K_{ij})}{\sqrt d}, \qquad
   z_i = \sum_j α_{ij}\,(v_j + a^V_{ij}), \qquad
   a_{ij} = w_{\mathrm{clip}(j - i,\; -c,\; c)}

with tables of 2c + 1 vectors for keys and for values, shared by all heads. The products
:math:`q_i^\top w` are taken with the rows of the table and then handed out by offset, and weights
are summed by offset before they meet the rows for values, so no tensor has a vector for each pair.

Source: Self-Attention with Relative Position Representations (Shaw et al., 2018), equations 3–5 and
§3.3. Confirmed with tensor2tensor's ``dot_product_attention_relative``: offsets j − i, clipping,
one table for all heads, and the initial values of TensorFlow's ``get_variable``, Glorot's uniform
ones. The clipping distance 16 is that of the paper's base model, from memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual
from ropewalk.encodings.offsets import at_rows, offsets
from ropewalk.encodings.width import check_dim, empty_parameter
from ropewalk.spectra.arguments import WIDEST, check_int


class Shaw(Contextual):
    """Learned vectors by clipped offset.

    Args:
        head_dim: width of q and k.
        clip: offsets beyond ± this many tokens share a vector.
        value_dim: width of v; head_dim if None, and 0 for keys alone.
        device: of the tables.
        dtype: of the tables.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    value: nn.Parameter | None

    def __init__(
        self,
        head_dim: int,
        *,
        clip: int = 16,
        value_dim: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        self.clip = check_dim(clip, "clip")
        width = head_dim if value_dim is None else value_dim
        self.value_dim = check_int("value_dim", width, at_least=0, at_most=WIDEST)
        rows = 2 * clip + 1
        self.key = empty_parameter((rows, head_dim), device, dtype)
        self.value = None
        if width:
            self.value = empty_parameter((rows, width), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        nn.init.xavier_uniform_(self.key)
        if self.value is not None:
            nn.init.xavier_uniform_(self.value)
        super().reset_parameters()

    def rows(self, block: Block) -> Tensor:
        """The row of the tables for each pair, int64 ``[..., 1, q_tokens, kv_tokens]``."""
        ahead = -offsets(block.q_positions, block.kv_positions)
        return ahead.clamp(-self.clip, self.clip) + self.clip

    def bias(self, block: Block) -> Tensor:
        """scale · q·a, ``[..., H, q_tokens, kv_tokens]``.

        Raises:
            ValueError: q has another width.
        """
        if block.q.shape[-1] != self.head_dim:
            raise ValueError(f"q has head_dim {block.q.shape[-1]}; this table has {self.head_dim}")
        scores = (block.q * block.scale) @ self.key.to(block.q.dtype).T
        return at_rows(scores, self.rows(block))

    def values(self, weights: Tensor, block: Block) -> Tensor | None:
        """Σ α a, ``[..., H, q_tokens, value_dim]``."""
        if self.value is None:
            return None
        rows = self.rows(block).expand(weights.shape)
        table = self.value.to(weights.dtype)
        sums = weights.new_zeros(*weights.shape[:-1], table.shape[0])
        return sums.scatter_add(-1, rows, weights) @ table

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, clip={self.clip}, value_dim={self.value_dim}"


register(
    Spec(
        name="shaw",
        family="contextual",
        factory=Shaw,
        title="learned vectors for clipped offsets, added to keys and values",
        equation=r"e_{ij} = \tfrac{1}{\sqrt d}\, q_i^\top (k_j + a^K_{ij}),\quad "
        r"z_i = \sum_j \alpha_{ij}(v_j + a^V_{ij}),\quad "
        r"a_{ij} = w_{\mathrm{clip}(j - i,\, \pm c)}",
        source="Shaw et al. (2018), Self-Attention with Relative Position Representations",
        config={"head_dim": 64},
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
            "unique": "offsets beyond the clipping distance share a vector",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "the tables are free",
            "deterministic": "drawn at random, then trained",
            "axes": "one axis",
        },
        variants={
            "keys alone": Variant({"value_dim": 0, "clip": 4}),
            "nothing clipped": Variant(
                {"clip": 2048},
                {"unique": True, "precision": None},
                "every offset that is asked for has its own vector; far away the rounding is that"
                " of the last one, as it was drawn",
                when=lambda config: config.get("clip", 16) >= 2047,
            ),
        },
    )
)
