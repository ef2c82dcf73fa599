r"""DAPE: a small network adjusts a position bias to the scores it is added to.

.. math:: A = S + B + f([S; B]), \qquad S = s\,QK^\top,\quad f: \mathbb R^{2H} \to
   \mathbb R^{32} \to \mathbb R^{H}

f acts on the 2H numbers of a pair of tokens (heads are its channels), with a LeakyReLU (slope .01)
between its two layers. With ``kernel`` 3 this is version 2: both layers are convolutions over
neighbouring keys.

*No leak.* A convolution at key j reads j + 1, which for j = i is a key that the query must not see.
Scores, bias and hidden numbers of such keys are therefore 0, as the mask says, before each
convolution. Version 2 of the source takes the lower triangle of the scores; the hidden numbers are
masked here too, so that one query against a cache gives what the full pass gives.

B is any bias of the catalogue; its properties (relative, bounded, decay, precision) are inherited.

Source: DAPE: Data-Adaptive Positional Encoding for Length Extrapolation (Zheng et al., 2024), §3;
DAPE V2 (Zheng et al., 2025). Confirmed: version 1 as in the code chuanyang-Zheng/DAPE, for ALiBi,
KERPLE and FIRE (2H → 32 → H, torch's initial values, S already scaled). The code of version 2 was
not at hand: that its second layer is 1 × 3 too is from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, make, register
from ropewalk.core import Bias, Block, Contextual, integer_positions
from ropewalk.encodings.width import check_dim
from ropewalk.spectra.arguments import shown


class DAPE(Contextual):
    """A bias and its adjustment.

    Args:
        heads: number of query heads.
        base: the bias, by its name in the catalogue, or as an object of as many heads.
        base_config: further arguments of the named bias.
        kernel: keys that each layer reads, odd: 1 for version 1, 3 for version 2.
        width: hidden channels.
    """

    def __init__(
        self,
        heads: int,
        base: str | Bias = "alibi",
        *,
        base_config: Mapping[str, Any] | None = None,
        kernel: int = 1,
        width: int = 32,
    ) -> None:
        super().__init__()
        self.heads = check_dim(heads, "heads")
        if isinstance(base, Bias) and base_config is not None:
            raise TypeError("base_config is for a base given by name; this one is made already")
        if base_config is not None and not isinstance(base_config, Mapping):
            raise TypeError(
                f"base_config={shown(base_config)} must be a dictionary of arguments of the base"
            )
        made = _named(base, heads, base_config or {}) if isinstance(base, str) else base
        if not isinstance(made, Bias):
            raise TypeError(f"base={shown(base)} is no bias; name one, such as 'alibi'")
        if made.heads != heads:
            raise ValueError(f"base has heads={made.heads}; heads={heads}")
        if check_dim(kernel, "kernel") % 2 == 0:
            raise ValueError(f"kernel={kernel} must be odd, so that it is centred on its key")
        self.axes, self.kernel = made.axes, kernel
        self.base = made
        self.first = nn.Conv2d(2 * heads, check_dim(width, "width"), (1, kernel))
        self.second = nn.Conv2d(width, heads, (1, kernel))

    def reset_parameters(self) -> None:
        """As torch's own layers; the base too."""
        for layer in (self.base, self.first, self.second):
            layer.reset_parameters()
        super().reset_parameters()

    def bias(self, block: Block) -> Tensor:
        """B + f([S; B]), ``[..., heads, q_tokens, kv_tokens]``."""
        for name in ("q_positions", "kv_positions"):
            integer_positions(getattr(block, name), self.axes, name=name)
        scores = block.content
        if scores.shape[-3] != self.heads:
            raise ValueError(f"q has {scores.shape[-3]} heads; this encoding has {self.heads}")
        base = self.base.bias(block.q_positions, block.kv_positions, scores.dtype)
        x = torch.cat((scores, base.expand_as(scores)), dim=-3)
        hidden = nn.functional.leaky_relu(self._across(x, self.first, block.allowed))
        return base + self._across(hidden, self.second, block.allowed)

    def _across(self, x: Tensor, layer: nn.Conv2d, allowed: Tensor | None) -> Tensor:
        """A layer over channels and neighbouring keys of x ``[..., channels, q, k]``."""
        weight, bias = (p.to(x.dtype) for p in layer.parameters())
        if self.kernel > 1 and allowed is not None:
            x = x.masked_fill(~allowed, 0.0)
        reach, keys = self.kernel // 2, x.shape[-1]
        x = nn.functional.pad(x, (reach, reach))
        total = bias[:, None, None]
        for tap in range(self.kernel):
            near = x.narrow(-1, tap, keys)
            total = total + torch.einsum("oc,...cqk->...oqk", weight[:, :, 0, tap], near)
        return total

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"heads={self.heads}, kernel={self.kernel}"


def _named(base: str, heads: int, config: Mapping[str, Any]) -> object:
    try:
        return make(base, heads=heads, **config)
    except (TypeError, ValueError) as error:
        given = f" with base_config={shown(config)}" if config else ""
        raise type(error)(f"base={shown(base)}{given}: {error}") from error


register(
    Spec(
        name="dape",
        family="contextual",
        factory=DAPE,
        title="a bias adjusted by a network that sees the scores",
        equation=r"A = S + B + f([S; B])",
        source="Zheng et al. (2024), DAPE: Data-Adaptive Positional Encoding for Length "
        "Extrapolation; (2025), DAPE V2",
        config={"heads": 8},
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
            "unique": "as its base is",
            "linear": "a bias has no code to shift",
            "relative": "where its base depends on distance alone",
            "norm": "q and k are untouched",
            "bounded": "its base grows with distance",
            "decay": "the network may raise any score",
            "deterministic": "the network is drawn at random, then trained",
            "axes": "one axis",
            "precision": "its base rounds by its size",
        },
        variants={
            "base T5": Variant(
                {"base": "t5"},
                {"unique": False, "bounded": True, "precision": True},
                "as T5: buckets merge, and hold a number of one size at any distance",
            ),
            "base Sandwich": Variant(
                {"base": "sandwich"},
                {"unique": False, "bounded": True, "precision": True},
                "as Sandwich: within bounds, with distant offsets close to one another",
            ),
            "base FIRE": Variant(
                {"base": "fire"},
                {"relative": False, "bounded": True, "precision": True},
                "as FIRE: beyond L its normaliser grows with the query's position",
            ),
            "version 2": Variant(
                {"kernel": 3},
                {"relative": False},
                "the first keys of a text read zeros before them",
                {"offset": "keys read those before a slice"},
                when=lambda config: config.get("kernel", 1) > 1,
            ),
            "of KERPLE": Variant({"base": "kerple"}),
            "of FIRE": Variant(
                {"base": "fire"},
                {"relative": False, "bounded": True, "precision": True},
                "FIRE's normaliser grows with the query's position, and its values stay bounded; "
                "as drawn: the network may be trained to anything",
            ),
        },
    )
)
