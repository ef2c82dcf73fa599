r"""Randomized: codes of positions drawn at random from a longer text, in their order.

.. math:: E'(t) = E(s_t), \qquad s_0 < s_1 < \dots < s_{T-1} \text{ drawn from } [0, L)

The entry of the catalogue adds codes, sinusoidal ones unless said. For any other encoding, rotary
or bias too: ``from ropewalk.encodings import randomized; randomized(encoding, tokens)``. When to
draw, and what is confirmed, says :mod:`ropewalk.encodings.randomizing`.

Source: Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et al.,
2023), §3. Confirmed against the authors' code: L = 2048, sorted, without replacement.
"""

from __future__ import annotations

from typing import Any

from ropewalk.catalog import Spec, get, register
from ropewalk.encodings.randomizing import RandomizedAdditive, randomized


def randomized_code(
    dim: int,
    tokens: int = 512,
    *,
    limit: int = 2048,
    of: str = "sinusoidal",
    seed: int = 0,
    **config: Any,
) -> RandomizedAdditive:
    """An additive encoding of the catalogue with random positions.

    Args:
        dim: width of the code.
        tokens: token indices 0 … tokens − 1 are served, until ``resample(tokens)``.
        limit: positions lie in [0, limit).
        of: name of the additive encoding that gets them.
        seed: of the first draw.
        config: further arguments of that encoding.

    Raises:
        TypeError, ValueError: a value is out of range, or ``of`` is not additive.

    Example:
        >>> encoding = randomized_code(64, tokens=40)
        >>> for x in batches:  # in evaluation too
        ...     y = encoding.resample(x.shape[-2])(x)
    """
    spec = get(of)
    if spec.family != "additive":
        raise ValueError(
            f"of={of!r} is {spec.family}; ropewalk.encodings.randomized(make({of!r}, …), tokens) "
            "takes it"
        )
    return randomized(spec.make(dim=dim, **config), tokens, limit, seed=seed)


register(
    Spec(
        name="randomized",
        family="additive",
        factory=randomized_code,
        title="positions drawn at random from a longer text, in order",
        equation=r"E'(t) = E(s_t),\quad s_0 < \dots < s_{T-1} \text{ drawn from } [0, L)",
        source="Ruoss et al. (2023), Randomized Positional Encodings Boost Length Generalization "
        "of Transformers",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": False,
            "relative": False,
            "norm": False,
            "extends": False,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "unique": "a draw holds no position twice",
            "linear": "the next token is a random step away",
            "relative": "added before the projections, and steps are random",
            "norm": "the code is added",
            "bounded": "a draw ends",
            "decay": "additive codes have no score of their own",
            "extends": "a draw ends; resample(tokens) draws for another length",
            "deterministic": "the draw follows from the seed; calls draw nothing",
            "axes": "one axis",
            "precision": "as the base: sinusoidal phases are integers",
        },
    )
)
