r"""A small decoder that takes any encoding: the example of how ropewalk is used.

.. math:: x ← x + \operatorname{attend}(q, k, v), \qquad x ← x + W_2\,\mathrm{gelu}(W_1 \hat x),
   \qquad (q, k, v) = W \hat x, \quad \hat x = \operatorname{RMSNorm}(x)

There is one encoding for the whole model, and two places where it may act. An additive one acts
once, on the embeddings: ``x = encoding(x, positions)``. Any other acts in every layer, inside
``attend(q, k, v, encoding)``. Nothing else in the model knows which encoding it has.

Embeddings start with entries of unit variance, which is where the paper's √D puts them, so that a
sinusoid of unit amplitude neither drowns them nor is drowned.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ropewalk.attention import attend
from ropewalk.core import Additive, Contextual, Encoding


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm.

    Args:
        dim: width D, a multiple of ``heads``.
        heads: H; each is D/H wide.
        layers: of the whole model; what a block adds to x starts 1/√(2·layers) as large.
    """

    def __init__(self, dim: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp_norm = nn.RMSNorm(dim)
        self.widen = nn.Linear(dim, 4 * dim, bias=False)
        self.narrow = nn.Linear(4 * dim, dim, bias=False)
        for linear in (self.qkv, self.out, self.widen, self.narrow):
            small = 2 * layers if linear in (self.out, self.narrow) else 1
            nn.init.normal_(linear.weight, std=(small * linear.in_features) ** -0.5)

    def forward(self, x: Tensor, encoding: Encoding | None, positions: Tensor | None) -> Tensor:
        """x ``[B, T, D]`` after this block; ``encoding`` is rotary, a bias, contextual or None."""
        hidden = self.norm(x)
        qkv = self.qkv(hidden).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        if isinstance(encoding, Contextual) and encoding.content_dim is not None:
            encoding = encoding.read(hidden)
        y = attend(q, k, v, encoding, q_positions=positions, kv_positions=positions)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.narrow(functional.gelu(self.widen(self.mlp_norm(x))))


class Transformer(nn.Module):
    """A causal language model.

    Args:
        vocabulary: number of token ids.
        encoding: any encoding of the catalogue, sized for this model (additive: ``dim``; rotary:
            ``head_dim`` = dim/heads; bias: ``heads``), or None: order through the mask alone.
        dim: width D.
        layers: number of blocks.
        heads: number of heads.

    Raises:
        TypeError: ``encoding`` is not an encoding.
        ValueError: dim is not a multiple of heads.

    Example:
        >>> model = Transformer(96, ropewalk.make("rope", head_dim=16), dim=64, heads=4)
        >>> logits = model(torch.tensor([[7, 1, 7]]))
    """

    def __init__(
        self,
        vocabulary: int,
        encoding: Encoding | None = None,
        *,
        dim: int = 64,
        layers: int = 2,
        heads: int = 4,
    ) -> None:
        super().__init__()
        if encoding is not None and not isinstance(encoding, Encoding):
            raise TypeError(
                f"encoding must be an Encoding or None, got {type(encoding).__name__}; "
                "ropewalk.make(name, …) builds one"
            )
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim={dim} must be a multiple of heads={heads}")
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, layers) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        nn.init.normal_(self.embedding.weight)
        nn.init.normal_(self.head.weight, std=dim**-0.5)
        self.encoding = encoding

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits ``[B, T, vocabulary]`` of the token after each of ``ids`` ``[B, T]``.

        Positions are ``[T]`` or ``[B, T]`` (``, axes``), and 0 … T−1 if None.
        """
        x, inside = self.embedding(ids), self.encoding
        if isinstance(inside, Additive):
            x, inside = inside(x, positions), None
        for block in self.blocks:
            x = block(x, inside, positions)
        return self.head(self.norm(x))
