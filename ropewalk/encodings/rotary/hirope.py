r"""HiRoPE: fast pairs turn with the token's place in its function, slow ones with the function's.

.. math:: \text{angle}_c = \begin{cases} i\,θ_c & c < d_s / 2 \\ j\,θ_c & c \ge d_s / 2
          \end{cases}

for token i of function j (or of any other unit of a text), with θ_c = base^(−2c/d) in radians per
position and d_s = d/2 of the lanes given to tokens. Each level meets small numbers only, so a model
trained on L tokens reads texts of many functions of L tokens. Positions are pairs (i, j);
:func:`ropewalk.positions.two_levels` counts them.

Scores are relative on each level: they depend on i − i' and j − j', not on how far apart two tokens
stand in the text.

Source: HiRoPE: Length Extrapolation for Code Models Using Hierarchical Position (Zhang et al.,
2024), §3. Confirmed: by a literal loop (tests/test_catalogue_rotary.py); the split of the lanes is
stated by secondary sources, and the paper itself was not read. Its window, within which tokens keep
their ordinary distance while the level above starts at the window's edge beyond it, gives each pair
of tokens one of two scores. No transform of q and k alone can do that; it is not part of this
encoding.
"""

from __future__ import annotations

from ropewalk.catalog import Spec, register
from ropewalk.encodings.rotary.rope import ROTATION_CLAIMS, ROTATION_REASONS, RoPE
from ropewalk.spectra import Layout, geometric
from ropewalk.spectra.arguments import check_even


def hirope(
    head_dim: int,
    base: float = 10000.0,
    *,
    token_dim: int | None = None,
    layout: Layout = "half",
) -> RoPE:
    """RoPE on the two axes token and function.

    Args:
        head_dim: width of a head, even.
        base: rope_theta.
        token_dim: d_s, lanes that turn with tokens: even, fewer than head_dim; about half if None.
        layout: how lanes pair.

    Raises:
        TypeError, ValueError: a value is out of range.
    """
    spectrum = geometric(head_dim, base, layout=layout)
    own = 2 * (head_dim // 4) if token_dim is None else check_even("token_dim", token_dim)
    if not 0 < own < head_dim:
        raise ValueError(
            f"token_dim={own} must leave lanes of head_dim={head_dim} for functions, and have "
            "some; use at least 4 lanes"
        )
    row = spectrum.inv_freq
    tokens, functions = row[: own // 2], row[own // 2 :]
    still = (0.0,)
    return RoPE(
        spectrum.replace(
            freqs=(tokens + still * len(functions), still * len(tokens) + functions),
        )
    )


register(
    Spec(
        name="hirope",
        family="rotary",
        factory=hirope,
        title="rotary on two levels: token in its function, function in the text",
        equation=r"\mathrm{angle}_c = i\,\theta_c\;(c < d_s / 2),\quad j\,\theta_c\text{ else}",
        source="Zhang et al. (2024), HiRoPE: Length Extrapolation for Code Models Using "
        "Hierarchical Position",
        config={"head_dim": 64},
        claims={**ROTATION_CLAIMS, "axes": True},
        reasons={
            "decay": ROTATION_REASONS["decay"],
            "unique": "pairs (token, function) are distinct",
            "relative": "in the indices of each level, not in places of the text",
            "axes": "the two levels",
        },
    )
)
