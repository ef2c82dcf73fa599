"""Step 3: divide by the length, and one step is no longer one step."""

from __future__ import annotations

import torch

from ropewalk.encodings.additive import Normalised
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.step import Figure, Step, rounded

LENGTHS = (10, 100, 1000, 10000)


def run(text: Embedded) -> Step:
    """The code of the same positions at four lengths."""
    encoding = Normalised(1)
    line = torch.arange(10)
    codes = {n: encoding.encode(line, length=n, dtype=torch.float64)[:, 0] for n in LENGTHS}
    short, long = codes[LENGTHS[0]][5].item(), codes[LENGTHS[-1]][5].item()
    whole = encoding.encode(torch.arange(LENGTHS[-1]), length=LENGTHS[-1], dtype=torch.float64)
    distinct = len(torch.unique(whole.to(torch.bfloat16)))
    return Step(
        name="normalised",
        title="Divide by the length",
        question="What if the number is kept between 0 and 1?",
        verdict=(
            f"Bounded, but position 5 is {short:.4f} in ten tokens and {long:.4f} in ten thousand: "
            "a step of one token, learnt at one length, is another step at the next."
        ),
        evidence="proved",
        figures={
            "position_5_of_10": Figure(short, "code of position 5, length 10"),
            "position_5_of_10000": Figure(long, "code of position 5, length 10,000"),
            "step_ratio": Figure(
                (LENGTHS[-1] - 1) / (LENGTHS[0] - 1), "size of one step, length 10 ÷ length 10,000"
            ),
            "distinct_bf16_of_10000": Figure(
                distinct, "distinct codes of 10,000 positions in bfloat16"
            ),
        },
        paragraphs=(
            "E(p) = p/(L − 1) is at most 1 in each lane (which, over all lanes, still drowns a "
            "word of this size at the end of the text). But the code needs the length before the "
            "text is written, and a model that has learnt the distance of two neighbours at one "
            "length meets another distance at the next.",
        ),
        equations=(r"E(p, L) = \frac{p}{L-1}",),
        drawing={
            "lengths": list(LENGTHS),
            "codes": [
                [{"position": p, "code": rounded(c.item())} for p, c in enumerate(codes[n])]
                for n in LENGTHS
            ],
        },
    )
