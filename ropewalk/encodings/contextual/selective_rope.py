r"""Selective RoPE: each token says by how much the rotation goes on.

.. math:: φ_t = \operatorname{conv}_4(U D\,\hat x)_t, \qquad
   α_t = τ \odot \sum_{l \le t} φ_l, \qquad s_{ij} = s\,(R(α_i)\,q_i)^\top (R(α_j)\,k_j)

x̂ are the hidden states, of unit length per head; D and U have a rank of 16 in between; the causal
convolution of 4 tokens is by channel; τ_c = θ^(−2c/d) with θ = 5·10⁵ is a fixed temperature for
each pair of lanes. q and k of a token turn by the same angles, so fused attention runs unchanged.

*Precision.* Angles are sums over the whole text. They are float64, and only their cos and sin are
rounded, so a million tokens cost no more than ten. They are floats and no integer phases, because
gradients go through them.

Source: Selective Rotary Position Embedding (Movahedi et al., 2025), §4. Confirmed: the module
SelectiveRoPE of the authors' code timurcarstensen/selective-rope in its default parametrization
(no bias, no gate; its τ takes no gradient either): rank, convolution, unit length per head,
temperature, sum and sense of rotation; a loop over tokens agrees. Its option to leave the
convolution out telescopes the sum and is another encoding, not offered here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Contextual, Rotary, token_positions, wide_dtype
from ropewalk.encodings.autocast import without_autocast
from ropewalk.encodings.reading import (
    causal_convolution,
    check_groups,
    head_width,
    hidden_states,
    in_heads,
    project,
    short_taps,
    to_heads,
)
from ropewalk.encodings.width import check_dim
from ropewalk.kernels import rotate_by
from ropewalk.spectra.arguments import check_base, check_even, check_option
from ropewalk.spectra.geometric import powers
from ropewalk.spectra.lanes import LAYOUTS, Layout, pair_slices


class SelectiveRoPE(Contextual):
    """Angles read from hidden states; ``read`` gives the rotation.

    Args:
        content_dim: width of the hidden states, a multiple of the heads of k.
        heads: number of query heads.
        head_dim: width of q and k, even; content_dim / heads if None.
        kv_heads: heads of k, each with its own angles; as many as q if None.
        rank: inner width of the projection.
        kernel: tokens of the convolution.
        base: θ of the temperature.
        layout: how lanes pair, see :class:`ropewalk.Spectrum`.
    """

    bilinear = True
    temperature: Tensor

    def __init__(
        self,
        content_dim: int,
        heads: int,
        head_dim: int | None = None,
        *,
        kv_heads: int | None = None,
        rank: int = 16,
        kernel: int = 4,
        base: float = 500000.0,
        layout: Layout = "half",
    ) -> None:
        super().__init__()
        self.content_dim = check_dim(content_dim, "content_dim")
        self.kv_heads = check_groups(heads, kv_heads)
        if content_dim % self.kv_heads:
            raise ValueError(
                f"content_dim={content_dim} is not a multiple of the {self.kv_heads} heads of k, "
                "by which hidden states are brought to unit length"
            )
        check_option("layout", layout, LAYOUTS)
        self.heads = heads
        self.head_dim = check_even("head_dim", head_width(content_dim, heads, head_dim))
        self.base = check_base(base)
        self.layout: Layout = layout
        width = self.kv_heads * self.head_dim // 2
        self.down = nn.Linear(content_dim, check_dim(rank, "rank"), bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        self.taps = short_taps(width, kernel)
        self.register_derived()
        self.reset_parameters()

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The temperature of each pair, in float64."""
        row = powers(self.base, self.head_dim // 2, self.head_dim)
        return {"temperature": torch.tensor(row, dtype=torch.float64, device=device)}

    def reset_parameters(self) -> None:
        """As torch's own layers."""
        self.down.reset_parameters()
        self.up.reset_parameters()
        bound = self.taps.shape[-1] ** -0.5
        nn.init.uniform_(self.taps, -bound, bound)
        super().reset_parameters()

    def read(self, content: Tensor, segments: Tensor | None = None) -> Rotary:
        """The rotation of hidden states ``[..., kv_tokens, content_dim]``.

        Args:
            content: the hidden states.
            segments: integers ``[..., kv_tokens]``; the convolution stays inside a segment.
        """
        x = hidden_states(content, self.content_dim)
        with without_autocast(x):
            unit = nn.functional.normalize(x.unflatten(-1, (self.kv_heads, -1)), dim=-1).flatten(-2)
            steps = causal_convolution(project(unit, [self.down, self.up]), self.taps, segments)
            sums = in_heads(steps, self.kv_heads).to(torch.float64).cumsum(-2)
            same = self.temperature.device == sums.device
            rates = self.temperature if same else self.derive(sums.device)["temperature"]
            return Turned(sums * rates, self.heads, self.head_dim, self.layout)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"content_dim={self.content_dim}, heads={self.heads}, head_dim={self.head_dim}"


class Turned(Rotary):
    """A rotation by angles of tokens, float64 ``[..., kv_heads, tokens, head_dim / 2]``.

    Positions play no part: k are all the tokens and q the last of them, or those from ``offset``.
    """

    def __init__(self, angles: Tensor, heads: int, head_dim: int, layout: Layout) -> None:
        super().__init__()
        self.angles, self.heads, self.head_dim = angles, heads, head_dim
        self.layout: Layout = layout

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` turned by the angles of its tokens.

        Raises:
            ValueError: there are more tokens than were read, or the heads are others.
        """
        token_positions(positions, None, q, 1)
        tokens, read = q.shape[-2], self.angles.shape[-2]
        first = read - tokens if offset is None else offset
        if isinstance(first, Tensor):
            raise TypeError("offset must be an int here: rows are bound to the tokens they read")
        if first < 0 or first + tokens > read:
            raise ValueError(
                f"x has {tokens} tokens, offset={offset}, of {read} that were read; read the "
                "hidden states of all of them"
            )
        if q.dim() < 3 or q.shape[-3] % self.angles.shape[-3]:
            raise ValueError(f"x {tuple(q.shape)} has no multiple of {self.angles.shape[-3]} heads")
        angles = to_heads(self.angles.narrow(-2, first, tokens), q.shape[-3])
        angles = angles[(None,) * max(q.dim() - angles.dim(), 0)]
        wide = wide_dtype(q.dtype)
        return rotate_by(q, angles.cos().to(wide), angles.sin().to(wide), layout=self.layout)

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]``, as q."""
        return self.encode_q(k, positions, offset=offset)

    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One vector of the first row and head, at the token of index ``position``."""
        assert isinstance(position, int)
        lanes = range(self.head_dim)
        first, second = pair_slices(self.head_dim, self.head_dim // 2, self.layout, 0, "standard")
        angles = self.angles.detach().reshape(-1, *self.angles.shape[-2:])[0, position].tolist()
        result = list(x)
        for a, b, angle in zip(lanes[first], lanes[second], angles, strict=True):
            cos, sin = math.cos(angle), math.sin(angle)
            result[a], result[b] = x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos
        return result


register(
    Spec(
        name="selective_rope",
        family="contextual",
        factory=SelectiveRoPE,
        title="rotary by angles that the content adds up",
        equation=r"(R(\alpha_i)\,q_i)^\top (R(\alpha_j)\,k_j),\quad \alpha_t = \tau \odot "
        r"\sum_{l \le t} \operatorname{conv}(U D\,\hat x)_l",
        source="Movahedi et al. (2025), Selective Rotary Position Embedding",
        config={"content_dim": 64, "heads": 8},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": True,
            "bounded": True,
            "decay": False,
            "extends": True,
            "deterministic": False,
            "precision": True,
        },
        reasons={
            "unique": "among equal tokens that turn at all",
            "linear": "the map of a step is that of its token",
            "relative": "the convolution reads tokens before the key, at the start zeros",
            "decay": "for any distance some q and k peak there",
            "deterministic": "projections are drawn at random, then trained",
            "axes": "one axis",
        },
        variants={
            "no neighbours": Variant(
                {"kernel": 1},
                {"relative": True},
                "it depends on the tokens from the key to the query alone",
                {"offset": ""},
            ),
        },
        waivers={"offset": "the convolution reads the tokens before a slice"},
    )
)
