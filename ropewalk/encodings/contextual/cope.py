r"""CoPE: positions that count what the content says, instead of tokens.

.. math:: g_{ij} = σ(s\,q_i^\top k_j), \qquad p_{ij} = \min\Bigl(\sum_{l \ge j} g_{il},\;
   P - 1\Bigr), \qquad b_{ij} = q_i^\top e[p_{ij}]

The sum runs over the keys that query i may see, from j on; e is a table of P vectors, read between
its rows by linear interpolation, and starts at 0.

*Scaling.* Gates read the scaled logit s·q·k (s = 1/√d), and q·e is not scaled. That this is how the
authors' code has it is from memory; the paper's equations leave s out of both.

Source: Contextual Position Encoding: Learning to Count What's Important (Golovneva et al., 2024),
§4 and the listing of the appendix. Confirmed: a literal loop over every pair agrees, forward and
backward; the sum sees the mask, so that what comes later changes nothing (tests/test_catalogue_
contextual.py). With trained rows, gates that are 0 leave tokens at one place, and sums beyond P − 1
are cut: positions are not unique.
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual, integer_positions
from ropewalk.encodings.width import check_dim, check_std, empty_parameter


class CoPE(Contextual):
    """Contextual positions, one table for all heads.

    Args:
        head_dim: width of q and k.
        npos_max: rows P of the table; sums of gates end at P − 1.
        std: standard deviation of the initial rows; 0 starts without any position, as the source.
    """

    def __init__(self, head_dim: int, npos_max: int = 64, *, std: float = 0.0) -> None:
        super().__init__()
        self.head_dim = check_dim(head_dim, "head_dim")
        self.npos_max = check_dim(npos_max, "npos_max")
        self.std = check_std(std, at_least=0)
        self.weight = empty_parameter((npos_max, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zeros, or normal numbers of deviation ``std``."""
        if self.std:
            nn.init.normal_(self.weight, std=self.std)
        else:
            nn.init.zeros_(self.weight)
        super().reset_parameters()

    def bias(self, block: Block) -> Tensor:
        """q · e[p], ``[..., H, q_tokens, kv_tokens]``.

        Raises:
            ValueError: q has another width.
        """
        integer_positions(block.q_positions, name="q_positions")
        if block.q.shape[-1] != self.head_dim:
            raise ValueError(f"q has head_dim {block.q.shape[-1]}; this table has {self.head_dim}")
        gates = block.content.sigmoid()
        if block.allowed is not None:
            gates = gates.masked_fill(~block.allowed, 0.0)
        counted = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.npos_max - 1)
        rows = block.q @ self.weight.to(block.q.dtype).T
        below = counted.detach().floor()
        lower = below.nan_to_num().long().clamp(0, self.npos_max - 1)
        upper = (lower + 1).clamp(max=self.npos_max - 1)
        start = rows.gather(-1, lower)
        return start + (counted - below) * (rows.gather(-1, upper) - start)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"head_dim={self.head_dim}, npos_max={self.npos_max}, std={self.std}"


register(
    Spec(
        name="cope",
        family="contextual",
        factory=CoPE,
        title="positions counted by gates that read the content",
        equation=r"b_{ij} = q_i^\top e[p_{ij}],\quad p_{ij} = \min\Bigl(\sum_{l \ge j}"
        r"\sigma(s\,q_i^\top k_l),\; P - 1\Bigr)",
        source="Golovneva et al. (2024), Contextual Position Encoding",
        config={"head_dim": 64},
        claims={
            "unique": False,
            "relative": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "the table starts at 0",
            "linear": "a bias has no code to shift",
            "norm": "q and k are untouched",
            "decay": "any row may be the largest",
            "axes": "one axis",
            "relative": "it depends on the tokens from the key to the query alone",
        },
        variants={
            "random table": Variant(
                {"std": 1.0},
                {"deterministic": False},
                "rows drawn at random; sums of gates beyond the table share its last row",
                when=lambda config: config.get("std", 0.0) > 0,
            ),
            "long random table": Variant(
                {"std": 1.0, "npos_max": 4096},
                {"deterministic": False, "unique": True},
                "rows drawn at random, more than there are tokens",
                when=lambda config: (
                    config.get("std", 0.0) > 0 and config.get("npos_max", 64) >= 2048
                ),
            ),
        },
    )
)
