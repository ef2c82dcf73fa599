"""Step 7: rotate q and k, in each of the forms in which people write it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.attention import attend
from ropewalk.encodings.rotary import RoPE
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.integer import focus
from ropewalk.walk.layer import (
    attention_layer,
    equal_pairs,
    generator,
    largest_over,
    merged,
    projected,
    relative_distances,
    rms_normed,
)
from ropewalk.walk.step import Figure, Step, order, rounded

SHIFTS = (0, 1, 64, 256, 1000, 4096, 65536, 1 << 20)


def elementwise(x: Tensor, positions: Tensor, frequencies: tuple[float, ...]) -> Tensor:
    """The interleaved formula written out: x ⊙ cos + swap(x) ⊙ sin, ``[T, D]``."""
    angle = positions.to(torch.float64)[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    cos, sin = (f(angle).repeat_interleave(2, dim=-1) for f in (torch.cos, torch.sin))
    swapped = torch.stack((-x[:, 1::2], x[:, 0::2]), dim=-1).flatten(-2)
    return x * cos + swapped * sin


def forms_error(x: Tensor) -> float:
    """Largest difference between element-wise, matrix, op and permuted half-layout forms."""
    tokens, dim = x.shape
    positions = torch.arange(tokens)
    interleaved, half = RoPE(dim, layout="interleaved"), RoPE(dim)
    op = interleaved.encode_q(x[None], positions)[0]
    by_matrix = torch.stack([interleaved.matrix(p) @ row for p, row in enumerate(x)])
    by_hand = elementwise(x, positions, interleaved.spectrum.inv_freq)
    lanes = torch.cat((torch.arange(0, dim, 2), torch.arange(1, dim, 2)))
    permuted = torch.empty_like(op)
    permuted[:, lanes] = half.encode_q(x[None, :, lanes], positions)[0]
    return max((op - other).abs().max().item() for other in (by_matrix, by_hand, permuted))


def shift_errors(dim: int) -> list[dict[str, float]]:
    """Change of a score when both positions move, exact and with positions rounded to bfloat16."""
    rope, draw = RoPE(dim), generator(3)
    q, k = (torch.randn(1, 32, dim, dtype=torch.float64, generator=draw) for _ in range(2))
    here = torch.randint(0, 256, (32,), generator=draw)
    there = torch.randint(0, 256, (32,), generator=draw)

    def scores(i: Tensor, j: Tensor) -> Tensor:
        return rope.encode_q(q, i)[0] @ rope.encode_k(k, j)[0].T

    exact = scores(here, there)

    def error(shift: int, bf16: bool) -> float:
        i, j = here + shift, there + shift
        if bf16:
            i, j = i.to(torch.bfloat16).long(), j.to(torch.bfloat16).long()
        return ((scores(i, j) - exact).abs().max() / exact.std()).item()

    return [{"shift": s, "exact": error(s, False), "bf16": error(s, True)} for s in SHIFTS]


def _outputs(layer, x: Tensor, rope: RoPE) -> Tensor:
    q, k, v = projected(layer, x)
    return merged(layer, attend(q, k, v, rope, causal=False))


def _weights(layer, x: Tensor, rope: RoPE | None) -> Tensor:
    """Attention averaged over heads, ``[T, T]``."""
    q, k, _ = projected(layer, x)
    if rope is not None:
        q, k = rope(q, k)
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1).mean(0)


def run(text: Embedded) -> Step:
    """All forms against each other; the equal tokens of the text; shifts; a flat sentence."""
    dim = text.vectors.shape[-1]
    layer = attention_layer(dim)
    head_dim = dim // layer.num_heads
    figures: dict[str, Figure] = {}
    if head_dim % 2:
        raise ValueError(f"embeddings of width {dim} leave an odd head_dim; lanes turn in pairs")
    rope = RoPE(head_dim)
    normed = rms_normed(text.vectors)
    forms = forms_error(normed[:, : dim // 2 * 2])
    shifts = shift_errors(64)
    figures["forms_error"] = Figure(
        forms, "element-wise, matrix, op and permuted half layout, largest difference"
    )
    figures["shift_error"] = Figure(
        max(s["exact"] for s in shifts), "score(i+t, j+t) − score(i, j), t ≤ 2²⁰, in score stds"
    )
    figures["shift_error_bf16_positions"] = Figure(
        max(s["bf16"] for s in shifts), "the same with positions rounded to bfloat16"
    )
    q, _, _ = projected(layer, normed)
    turned = rope.encode_q(q, offset=1000)
    figures["norm_error"] = Figure(
        (turned.norm(dim=-1) / q.norm(dim=-1) - 1).abs().max().item(), "|‖R q‖ ÷ ‖q‖ − 1|"
    )
    pairs = equal_pairs(text.ids)
    if pairs:
        for key, x, label in (
            ("equal_tokens_distance", normed, "equal tokens' outputs, RMS-normed embeddings"),
            ("equal_tokens_distance_raw", text.vectors, "the same on raw embeddings"),
        ):
            distances = relative_distances(_outputs(layer, x, rope))
            figures[key] = Figure(largest_over(distances, pairs), label)
    flat = normed[focus(text)].expand(5, -1)
    spread = relative_distances(_outputs(layer, flat, rope)).max().item()
    figures["flat_sentence_distance"] = Figure(spread, "outputs of five equal tokens, largest gap")
    return Step(
        name="rotary",
        title="Rotate q and k",
        question="What if position turns the vectors that are compared?",
        verdict=_verdict(figures, alone=len(set(text.ids)) == 1),
        evidence="proved",
        figures=figures,
        paragraphs=(
            "RoPE turns each pair of lanes of q and k by position · frequency, and leaves the "
            "values alone. Turning both by the same extra angle changes no dot product, so the "
            "score knows the distance and not the place.",
            "The matrix of two-by-two blocks, the element-wise formula with its swapped neighbours "
            "and the half layout of NeoX and Llama are one thing: the last is a permutation of the "
            "lanes, which a checkpoint has either gone through or not.",
            "Positions must stay exact. Rounded to bfloat16, 1,024 positions are 513 different "
            "ones. ropewalk keeps positions and frequencies as integers, so no cast reaches them.",
            "And position is seen only against something: a sentence of equal tokens has equal "
            "outputs under RoPE too, since a mean of equal values is that value.",
        ),
        equations=(
            r"\begin{pmatrix} y_0 \\ y_1 \end{pmatrix} = \begin{pmatrix} \cos p\theta & "
            r"-\sin p\theta \\ \sin p\theta & \cos p\theta \end{pmatrix}"
            r"\begin{pmatrix} x_0 \\ x_1 \end{pmatrix}",
            r"\langle R(m)\,q,\; R(n)\,k\rangle = \langle q,\; R(n-m)\,k\rangle",
        ),
        drawing={
            "frequencies": list(RoPE(64).spectrum.inv_freq),
            "tokens": text.tokens,
            "before": rounded(_weights(layer, normed, None)),
            "after": rounded(_weights(layer, normed, rope)),
            "shift": [
                {"shift": s["shift"], "exact": rounded(s["exact"]), "bf16": rounded(s["bf16"])}
                for s in shifts
            ],
        },
    )


def _verdict(figures: dict[str, Figure], alone: bool) -> str:
    value = {name: figure.value for name, figure in figures.items()}
    if "equal_tokens_distance" not in value:
        differ = "No token of this text appears twice: how far equal ones move apart is not shown. "
    elif alone:
        differ = "All tokens of this text are equal, and stay equal: position needs a contrast. "
    else:
        differ = (
            f"Equal tokens now differ by {value['equal_tokens_distance']:.2f} of their size "
            f"({value['equal_tokens_distance_raw']:.2g} on raw, un-normed embeddings). "
        )
    return (
        f"{differ}Every written form is the same rotation ({order(value['forms_error'])}), norms "
        f"are kept ({order(value['norm_error'])}) and scores depend on distance alone "
        f"({order(value['shift_error'])} for shifts up to a million), unless positions are rounded "
        f"to bfloat16 ({value['shift_error_bf16_positions']:.1f} standard deviations). A sentence "
        "of equal tokens "
        f"stays identical ({order(value['flat_sentence_distance'])})."
    )
