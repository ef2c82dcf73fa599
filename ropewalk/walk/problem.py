r"""Step 1: attention cannot tell equal tokens apart.

Self-attention commutes with every permutation P of its tokens, A(Px) = P·A(x); so two tokens with
equal embeddings get equal outputs.
"""

from __future__ import annotations

import torch

from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.layer import (
    attended,
    attention_layer,
    equal_pairs,
    generator,
    largest_over,
    relative_distances,
    rms_normed,
)
from ropewalk.walk.step import Figure, Step, order, rounded


def run(text: Embedded) -> Step:
    """Measure it on a four-head layer with the text's own embeddings."""
    x = rms_normed(text.vectors)
    layer = attention_layer(x.shape[-1])
    output, weights = attended(layer, x)
    causal, _ = attended(layer, x, causal=True)
    distance, causal_distance = relative_distances(output), relative_distances(causal)
    shuffle = torch.randperm(len(x), generator=generator(1))
    shuffled, _ = attended(layer, x[shuffle])
    equivariance = ((shuffled - output[shuffle]).norm() / output.norm()).item()
    pairs = equal_pairs(text.ids)
    figures = {
        "tokens": Figure(len(text.tokens), "tokens in the text"),
        "equal_pairs": Figure(len(pairs), "pairs of equal tokens"),
        "permutation_error": Figure(
            equivariance, "‖A(Px) − P·A(x)‖ ÷ ‖A(x)‖ for a random order of the tokens"
        ),
    }
    if pairs:
        figures["equal_tokens_distance"] = Figure(
            largest_over(distance, pairs), "largest relative distance between their outputs"
        )
        figures["causal_mask_distance"] = Figure(
            largest_over(causal_distance, pairs), "the same with a causal mask and no encoding"
        )
    return Step(
        name="problem",
        title="Attention does not know order",
        question="Does attention notice in which order its tokens stand?",
        verdict=_verdict(text, pairs, figures),
        evidence="proved",
        figures=figures,
        paragraphs=(
            "Attention compares every token with every other and sums. Nothing in that sum says "
            "where a token stands: shuffle the sentence, and the outputs are shuffled with it.",
            "So equal tokens get equal outputs, whatever the weights are. The numbers are those of "
            "a four-head layer with random weights, in float64, without a mask.",
            "A causal mask separates them, and by no small amount: each sees a different past. "
            "That tells something of the order. It is not a place, and not a distance.",
        ),
        equations=(r"A(Px) = P\,A(x)", r"x_i = x_j \;\Rightarrow\; A(x)_i = A(x)_j"),
        drawing={
            "tokens": text.tokens,
            "attention": rounded(weights),
            "distance": rounded(distance),
            "equal": [list(pair) for pair in pairs],
            "causal_distance": rounded(causal_distance),
        },
    )


def _verdict(text: Embedded, pairs: list[tuple[int, int]], figures: dict[str, Figure]) -> str:
    if len(text.ids) == 1:
        return (
            "One token has no order to show. A text such as “The dog chased another dog” shows "
            "that equal tokens get equal outputs, wherever they stand."
        )
    if not pairs:
        return (
            "No token appears twice in this text, so equal outputs cannot be shown with it; that "
            "attention commutes with any order of its tokens can, and does "
            f"({order(figures['permutation_error'].value)}). A text such as "
            f"“The dog chased another dog” shows both.{_lookalikes(text)}"
        )
    if len(set(text.ids)) == 1:
        return (
            "All tokens of this text are equal, and so are all outputs; a causal mask does not "
            "help, since a mean of equal values is that value. Differences need a text with other "
            "tokens in it."
        )
    i, j = pairs[0]
    return (
        f"Without a position, {_quoted(text.tokens[i])} at {i} and at {j} get the same output "
        f"(distance {order(figures['equal_tokens_distance'].value)} of their size; four heads, "
        "random weights). A causal mask alone separates them by "
        f"{figures['causal_mask_distance'].value:.2g} of their size, since each sees a different "
        f"past: that is order, not place.{_lookalikes(text)}"
    )


def _quoted(token: str) -> str:
    return f"“{token.strip() or token}”"


def _lookalikes(text: Embedded) -> str:
    """A remark on words that read the same and are different tokens."""
    for j, token in enumerate(text.tokens):
        for i in range(j):
            same = text.tokens[i].strip().lower() == token.strip().lower() != ""
            if same and text.ids[i] != text.ids[j]:
                return (
                    f" (“{text.tokens[i]}” at {i} and “{token}” at {j} are different tokens: a "
                    "leading space or a capital makes another one.)"
                )
    return ""
