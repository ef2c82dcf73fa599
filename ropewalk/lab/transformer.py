r"""A small transformer that takes any encoding: the example of how ropewalk is used.

.. math:: x ← x + \operatorname{attend}(q, k, v), \qquad x ← x + W_2\,\mathrm{gelu}(W_1 \hat x),
   \qquad (q, k, v) = W \hat x, \quad \hat x = \operatorname{RMSNorm}(x)

An encoding may act in two places. An additive one acts once, on the embeddings:
``x = encoding(x, positions)``. Any other acts in every layer, inside ``attend(q, k, v, encoding)``;
a plan says which acts in which layer. Nothing else in the model knows which encoding it has.

Embeddings start with entries of unit variance, which is where the paper's √D puts them, so that a
sinusoid of unit amplitude neither drowns them nor is drowned.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ropewalk.attention import attend
from ropewalk.core import Additive, Contextual, Encoding
from ropewalk.plan import Plan


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm.

    Args:
        dim: width D, a multiple of ``heads``.
        heads: H; each is D/H wide.
        layers: of the whole model; what a block adds to x starts 1/√(2·layers) as large.
        causal: a token sees those before it; otherwise all see all.
    """

    def __init__(self, dim: int, heads: int, layers: int, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp_norm = nn.RMSNorm(dim)
        self.widen = nn.Linear(dim, 4 * dim, bias=False)
        self.narrow = nn.Linear(4 * dim, dim, bias=False)
        for linear in (self.qkv, self.out, self.widen, self.narrow):
            small = 2 * layers if linear in (self.out, self.narrow) else 1
            nn.init.normal_(linear.weight, std=(small * linear.in_features) ** -0.5)

    def forward(
        self,
        x: Tensor,
        encoding: Encoding | None,
        positions: Tensor | None,
        **sees: Any,
    ) -> Tensor:
        """x ``[B, T, D]`` after this block.

        Args:
            x: ``[B, T, D]``.
            encoding: rotary, a bias, contextual or None.
            positions: of the tokens.
            sees: ``window`` or ``segments`` of :func:`ropewalk.attend`.
        """
        hidden = self.norm(x)
        qkv = self.qkv(hidden).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        if isinstance(encoding, Contextual) and encoding.content_dim is not None:
            encoding = encoding.read(hidden)
        y = attend(
            q,
            k,
            v,
            encoding,
            q_positions=positions,
            kv_positions=positions,
            causal=self.causal,
            **sees,
        )
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.narrow(functional.gelu(self.widen(self.mlp_norm(x))))


class Transformer(nn.Module):
    """A decoder, or with ``causal=False`` an encoder.

    Args:
        vocabulary: number of token ids; None where vectors of ``channels`` go in.
        encoding: any encoding of the catalogue, sized for this model (additive: ``dim``; rotary:
            ``head_dim`` = dim/heads; bias: ``heads``); a :class:`~ropewalk.plan.Plan` that says
            which layer has which; or None: order through the mask alone.
        dim: width D.
        layers: number of blocks.
        heads: number of heads.
        classes: logits that come out; as many as ``vocabulary`` if None.
        channels: width of the vectors that go in, instead of ids.
        causal: a token sees those before it; otherwise all see all.
        pooled: one answer for the whole sequence, from the mean over its tokens.
        axes: of the positions it is given. An encoding of one axis numbers the tokens of a grid row
            by row instead.

    Raises:
        TypeError: ``encoding`` is neither, or it is not clear what goes in.
        ValueError: dim is not a multiple of heads, the plan is for another number of layers, or an
            encoding has other axes.

    Example:
        >>> model = Transformer(96, ropewalk.make("rope", head_dim=16), dim=64, heads=4)
        >>> logits = model(torch.tensor([[7, 1, 7]]))
    """

    def __init__(
        self,
        vocabulary: int | None,
        encoding: Encoding | Plan | None = None,
        *,
        dim: int = 64,
        layers: int = 2,
        heads: int = 4,
        classes: int | None = None,
        channels: int | None = None,
        causal: bool = True,
        pooled: bool = False,
        axes: int = 1,
    ) -> None:
        super().__init__()
        if encoding is not None and not isinstance(encoding, Encoding | Plan):
            raise TypeError(
                f"encoding must be an Encoding, a Plan or None, got {type(encoding).__name__}; "
                "ropewalk.make(name, …) builds one"
            )
        if dim < 1 or heads < 1 or dim % heads:
            raise ValueError(f"dim={dim} must be a multiple of heads={heads}")
        if isinstance(encoding, Plan) and encoding.layers not in (None, layers):
            raise ValueError(f"the plan has {encoding.layers} layers, the model {layers}")
        for each in _all(encoding):
            if axes > 1 and each.axes not in (1, axes):
                raise ValueError(
                    f"{type(each).__name__} has {each.axes} axes, the positions have {axes}"
                )
        classes = vocabulary if classes is None else classes
        if (vocabulary is None) == (channels is None) or classes is None:
            raise TypeError("give vocabulary for ids, or channels and classes for vectors")
        if vocabulary is not None:
            self.embedding = nn.Embedding(vocabulary, dim)
        else:
            self.embedding = nn.Linear(channels or 0, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, layers, causal) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, classes, bias=False)
        nn.init.normal_(self.embedding.weight, std=1.0 if channels is None else channels**-0.5)
        nn.init.normal_(self.head.weight, std=dim**-0.5)
        self.encoding = encoding
        self.pooled, self.axes = pooled, axes

    def forward(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits ``[B, T, classes]`` at each token, or ``[B, 1, classes]`` of a pooled model.

        Args:
            inputs: ids ``[B, T]``, or vectors ``[B, T, channels]``.
            positions: ``[T]`` or ``[B, T]`` (``, axes``), and 0 … T−1 if None.
        """
        x, inside = self.embedding(inputs), self.encoding
        if isinstance(inside, Additive):
            x, inside = inside(x, self._of(inside, positions)), None
        for i, block in enumerate(self.blocks):
            sees: dict[str, Any] = {}
            encoding = inside
            if isinstance(inside, Plan):
                sees = inside.layer(i, tokens=x.shape[1])
                encoding = sees.pop("encoding")
            x = block(x, encoding, self._of(encoding, positions), **sees)
        x = self.norm(x)
        return self.head(x.mean(1, keepdim=True) if self.pooled else x)

    def _of(self, encoding: Encoding | None, positions: Tensor | None) -> Tensor | None:
        """The positions as an encoding takes them."""
        flat = self.axes > 1 and (encoding is None or encoding.axes == 1)
        return None if flat else positions


def _all(encoding: Encoding | Plan | None) -> list[Encoding]:
    found = [x.encoding for x in encoding.period] if isinstance(encoding, Plan) else [encoding]
    return [each for each in found if each is not None]
