"""Step 6: what is wanted is the distance; adding blurs it, turning keeps it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk.encodings.additive import Sinusoidal
from ropewalk.encodings.rotary import RoPE
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.integer import focus
from ropewalk.walk.step import Figure, Step, order, rounded

DISTANCE = 3
PLACES = 512


def _turned(vector: Tensor, positions: Tensor) -> Tensor:
    """One embedding rotated to each position, ``[positions, D]``."""
    rope = RoPE(len(vector))
    return rope.encode_q(vector.expand(1, len(positions), -1), positions)[0]


def run(text: Embedded) -> Step:
    """Similarity of two words three tokens apart, along 512 absolute positions."""
    first = text.vectors[focus(text)]
    other = 0 if focus(text) else -1
    second = text.vectors[other]
    first, second = _even(first), _even(second)
    names = [text.tokens[i].strip() or text.tokens[i] for i in (focus(text), other)]
    words = f"“{names[0]}” and “{names[1]}”" if len(text.ids) > 1 else f"“{names[0]}” and itself,"
    here = torch.arange(PLACES)
    there = here + DISTANCE
    encode = Sinusoidal(len(first)).encode
    added = first + encode(here, dtype=torch.float64), second + encode(there, dtype=torch.float64)
    turned = _turned(first, here), _turned(second, there)
    adding = functional.cosine_similarity(*added, dim=-1)
    rotating = functional.cosine_similarity(*turned, dim=-1)
    growth = added[0].norm(dim=-1) / first.norm()
    kept = (turned[0].norm(dim=-1) / first.norm() - 1).abs().max().item()
    spread_added = (adding.max() - adding.min()).item()
    spread_turned = (rotating.max() - rotating.min()).item()
    return Step(
        name="relative",
        title="Distance is what matters",
        question="Does the similarity of two words depend on where the sentence starts?",
        verdict=(
            f"{words} {DISTANCE} tokens apart: with added sinusoids their cosine wanders by "
            f"{spread_added:.3f} as the sentence moves along, with rotated vectors by "
            f"{order(spread_turned)}. Adding multiplies the norm by {growth.max().item():.1f}; "
            f"turning keeps it ({order(kept)})."
        ),
        evidence="measured",
        figures={
            "adding_spread": Figure(spread_added, "spread of the cosine over 512 places, adding"),
            "rotating_spread": Figure(
                spread_turned, "spread of the cosine over 512 places, rotating"
            ),
            "adding_norm_ratio": Figure(
                growth.max().item(), "norm after ÷ norm before, adding, largest"
            ),
            "rotating_norm_error": Figure(kept, "|norm after ÷ norm before − 1|, rotating"),
        },
        paragraphs=(
            "“The word before” should mean the same at the start and at the end of a text. The dot "
            "product of two sinusoidal codes depends on their distance alone, but the word is in "
            "the sum too: word · code cross terms depend on the absolute place, and learned "
            "projections mix them further.",
            "The shift matrix of the last step is a rotation. Use it on the word itself rather "
            "than on a code beside it, and only the distance is left.",
        ),
        equations=(
            r"\langle e_a + E(i),\, e_b + E(j)\rangle = \langle e_a, e_b\rangle "
            r"+ \langle e_a, E(j)\rangle + \langle E(i), e_b\rangle + \langle E(i), E(j)\rangle",
            r"\langle R(i)\,e_a,\, R(j)\,e_b\rangle = \langle e_a,\, R(j-i)\,e_b\rangle",
        ),
        drawing={
            "distance": DISTANCE,
            "positions": here[::4].tolist(),
            "adding": rounded(adding[::4]),
            "rotating": rounded(rotating[::4]),
        },
    )


def _even(vector: Tensor) -> Tensor:
    """The vector without its last entry where its width is odd, since lanes turn in pairs."""
    return vector[: len(vector) // 2 * 2]
