r"""FoX: every token may forget the past; a logit is lowered by what was forgotten in between.

.. math:: f_t = σ(w_h^\top x_t + b_h), \qquad c_t = \sum_{l \le t} \ln f_l, \qquad
   b_{ij} = c_i - c_j = \sum_{l=j+1}^{i} \ln f_l \;\le\; 0

one gate per head, read from the hidden state x of the layer. The source is causal; a key after the
query (attention that is not causal) gets the sum over the tokens between in the same way, −\|c_i −
c_j\|, which is an extension of ours.

*Precision.* A float32 sum over a million tokens would lose digits that two neighbours need. Sums
are float64; a block of queries takes them relative to its first query before they become float32,
so that a bias errs by 1e-7 of itself.

Source: Forgetting Transformer: Softmax Attention with a Forget Gate (Lin et al., 2025), §3. Gate,
bias and heads are as in flash-linear-attention's layer, whose gate is a linear map with bias and
torch's initial values; the authors' own layer was not opened. Confirmed: a literal loop agrees
(tests/test_catalogue_contextual.py). It falls with distance for any one content, but not for all:
gates of 1 leave it flat, and then no two places are told apart.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Block, Contextual, integer_positions
from ropewalk.encodings.autocast import without_autocast
from ropewalk.encodings.reading import check_block, hidden_states, project
from ropewalk.encodings.width import check_dim
from ropewalk.spectra.arguments import LARGEST, check_number


class FoX(Contextual):
    """Forget gates, one per query head; ``read`` binds them to hidden states.

    Args:
        content_dim: width of the hidden states.
        heads: number of query heads.
        gate_bias: what b starts at; drawn as torch's Linear does if None. Large values start with
            no forgetting.
    """

    def __init__(self, content_dim: int, heads: int, *, gate_bias: float | None = None) -> None:
        super().__init__()
        self.content_dim = check_dim(content_dim, "content_dim")
        self.heads = check_dim(heads, "heads")
        if gate_bias is not None:
            check_number("gate_bias", gate_bias, at_least=-LARGEST, at_most=LARGEST)
        self.gate_bias = gate_bias
        self.gate = nn.Linear(content_dim, heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As torch's Linear, with b = ``gate_bias`` where given."""
        self.gate.reset_parameters()
        if self.gate_bias is not None:
            nn.init.constant_(self.gate.bias, self.gate_bias)
        super().reset_parameters()

    def read(self, content: Tensor) -> Contextual:
        """The gates of hidden states ``[..., kv_tokens, content_dim]``, summed."""
        x = hidden_states(content, self.content_dim)
        with without_autocast(x):
            logs = nn.functional.logsigmoid(project(x, [self.gate]))
        return Forgotten(logs.to(torch.float64).cumsum(-2).transpose(-1, -2))

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"content_dim={self.content_dim}, heads={self.heads}"


class Forgotten(Contextual):
    """Gates read: c as float64 ``[..., heads, kv_tokens]``."""

    def __init__(self, sums: Tensor) -> None:
        super().__init__()
        self.sums = sums
        self.heads = sums.shape[-2]

    def bias(self, block: Block) -> Tensor:
        """−\\|c_i − c_j\\|, ``[..., heads, q_tokens, kv_tokens]``."""
        integer_positions(block.q_positions, name="q_positions")
        check_block(block, self.sums.shape[-1], self.heads, "FoX", self.sums.shape[:-2])
        queries = block.q.shape[-2]
        own = self.sums.narrow(-1, block.first, queries)
        anchor = own[..., :1]
        asking, asked = ((c - anchor).to(block.q.dtype) for c in (own, self.sums))
        return -(asking[..., :, None] - asked[..., None, :]).abs()


register(
    Spec(
        name="fox",
        family="contextual",
        factory=FoX,
        title="forget gates: a logit is lowered by what was forgotten in between",
        equation=r"b_{ij} = c_i - c_j,\quad c_t = \sum_{l \le t} \ln\sigma(w_h^\top x_l + b_h)",
        source="Lin et al. (2025), Forgetting Transformer",
        config={"content_dim": 64, "heads": 8},
        claims={
            "unique": True,
            "relative": True,
            "bounded": False,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": False,
        },
        reasons={
            "unique": "unless a gate is 1",
            "linear": "a bias has no code to shift",
            "relative": "it depends on the tokens from the key to the query alone",
            "norm": "q and k are untouched",
            "bounded": "grows with every token",
            "decay": "not for all contents: gates of 1 leave it flat",
            "deterministic": "gates are drawn at random, then trained",
            "axes": "one axis",
            "precision": "a sum rounds by its size",
        },
        variants={
            "gates of 1": Variant(
                {"gate_bias": 1000.0},
                {"unique": False, "bounded": True, "precision": True, "deterministic": True},
                "ln σ(1000) is 0: nothing is forgotten",
            ),
        },
    )
)
