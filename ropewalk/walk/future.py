"""Step 9: what rotation leaves open — slow pairs, low precision, longer texts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ropewalk import records
from ropewalk.encodings.rotary import RoPE
from ropewalk.kernels import rotate_by
from ropewalk.spectra import geometric
from ropewalk.walk import stretched
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.held import RECORD, on_text
from ropewalk.walk.layer import generator
from ropewalk.walk.step import Figure, Step, rounded

HEAD_DIM, BASE, CONTEXT = 64, 100_000.0, 8192
"""SmolLM2-135M's own."""
PLACES = (0, 128, 256, 1024, 8192, 131072)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def logit_error(dtype: torch.dtype, position: int, angles: torch.dtype | None = None) -> float:
    """RMS error of ⟨R q, R k⟩ ÷ ‖q‖‖k‖ near ``position``, with q and k kept in ``dtype``.

    Angles are exact phases, or a product of position and frequency in the dtype ``angles``.
    """
    rope, draw = RoPE(HEAD_DIM), generator(5)
    q, k = (torch.randn(1, 512, HEAD_DIM, dtype=torch.float64, generator=draw) for _ in "qk")
    i, j = (position + torch.randint(0, 64, (512,), generator=draw) for _ in "ij")
    exact = (rope.encode_q(q, i) * rope.encode_k(k, j)).sum(-1)
    if angles is None:
        stored = rope.encode_q(q.to(dtype), i), rope.encode_k(k.to(dtype), j)
    else:
        stored = _by_product(q.to(dtype), i, angles), _by_product(k.to(dtype), j, angles)
    found = (stored[0].double() * stored[1].double()).sum(-1)
    size = q.norm(dim=-1) * k.norm(dim=-1)
    return ((found - exact) / size).square().mean().sqrt().item()


def _by_product(x: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    frequencies = torch.tensor(RoPE(HEAD_DIM).spectrum.inv_freq, dtype=torch.float64).to(dtype)
    angle = positions.to(dtype)[:, None] * frequencies
    return rotate_by(x, angle.cos(), angle.sin())


def run(text: Embedded) -> Step:
    """Turning pairs, precision now; usage and bands from the stored record of SmolLM2-135M."""
    wavelengths = [2 * math.pi / f for f in geometric(HEAD_DIM, BASE).inv_freq]
    slow = sum(w > CONTEXT for w in wavelengths)
    precision = [
        {"dtype": str(d).removeprefix("torch."), "angles": "exact", "position": p, "error": e}
        for d in DTYPES
        for p in PLACES
        for e in [rounded(logit_error(d, p))]
    ]
    precision += [
        {"dtype": "bfloat16", "angles": "same dtype", "position": p, "error": e}
        for p in PLACES
        for e in [rounded(logit_error(torch.bfloat16, p, torch.bfloat16))]
    ]
    exact = [row for row in precision if row["dtype"] == "bfloat16" and row["angles"] == "exact"]
    rough = [row for row in precision if row["angles"] == "same dtype"]
    at_1024 = PLACES.index(1024)
    figures = {
        "pairs": Figure(len(wavelengths), "pairs of SmolLM2-135M (head_dim 64, θ = 100,000)"),
        "pairs_never_turning": Figure(
            slow, f"of them do not complete one turn within {CONTEXT:,} tokens"
        ),
        "bf16_exact_at_1024": Figure(
            exact[at_1024]["error"], "logit error at 1,024, bfloat16 q and k, exact angles"
        ),
        "bf16_exact_at_131072": Figure(exact[-1]["error"], "the same at 131,072"),
        "bf16_angles_at_1024": Figure(
            rough[at_1024]["error"], "logit error at 1,024, angles in bfloat16 too"
        ),
    }
    record = records.load("usage_smollm2")
    usage = _usage(record, figures)
    longer = records.load("extend_smollm2")
    if longer is not None:
        figures |= stretched.figures(longer)
    held, paragraphs = on_text(records.load(RECORD))
    figures |= held
    return Step(
        name="future",
        title="What comes next",
        question="Is rotation the end of the path?",
        verdict=_verdict(slow, len(wavelengths), figures),
        evidence="measured",
        figures=figures,
        paragraphs=(
            f"{slow} of the {len(wavelengths)} pairs of SmolLM2-135M never come round once in its "
            "whole context. Barbero et al. (2024) find that such pairs carry meaning rather than "
            "place, and that their rotation can go, or had better go: p-RoPE gives the slowest "
            "pairs frequency 0. Bayram (2026, arXiv 2606.21249) finds retrieval heads that rely on "
            "those very bands.",
            *_on_bands(record),
            "Precision: casting q and k costs the same at every position as long as the angles are "
            "exact. Angles computed in bfloat16 are "
            f"{rough[1]['error'] / exact[1]['error']:.0f} times worse at 128 already.",
            "Keys kept at 8 or 4 bits with a scale a channel have a larger error after rotation "
            "than before it, since rotation mixes the channels that have offsets of their own.",
            *(() if longer is None else (stretched.paragraph(longer),)),
            *paragraphs,
        ),
        equations=(r"\theta_c = 0 \quad \text{for the slowest pairs (p-RoPE)}",),
        drawing={
            "wavelengths": [
                {"pair": c, "wavelength": rounded(w), "turns": w <= CONTEXT}
                for c, w in enumerate(wavelengths)
            ],
            "context": CONTEXT,
            "precision": precision,
            **usage,
            "lengths": None if longer is None else stretched.curves(longer),
            "native": None if longer is None else longer["native"],
        },
        remarks=_literature(record),
    )


def _usage(record: dict[str, Any] | None, figures: dict[str, Figure]) -> dict[str, Any]:
    """Drawings and figures of the stored record; nothing without one."""
    if record is None:
        return {"usage": None, "bands": None, "quantised": None}
    shares = [row["share"] for row in record["usage"]]
    slowest_half = sum(shares[len(shares) // 2 :])
    figures["usage_slowest_half"] = Figure(
        slowest_half, "share of ‖q‖‖k‖ in the slowest half of the pairs"
    )
    for row in record["bands"]:
        key = f"{row['band'].replace(' ', '_').replace('-', '_')}_{row['length']}_ratio"
        figures[key] = Figure(
            row["after"] / row["before"],
            f"perplexity after ÷ before, {row['band']}, {row['length']} tokens",
            row["band"] == "slowest quarter position-free",
        )
    for row in record["quantised"]:
        key = f"int{row['bits']}_{row['when'].replace(' ', '_')}"
        figures[key] = Figure(
            row["error"],
            f"relative squared error of {row['bits']}-bit keys, {row['when']}",
            row["bits"] == 4,
        )
    return {
        "usage": [{"pair": c, "share": rounded(s)} for c, s in enumerate(shares)],
        "bands": [
            {k: rounded(v) if isinstance(v, float) else v for k, v in row.items()}
            for row in (
                {key: r[key] for key in ("band", "length", "before", "after")}
                for r in record["bands"]
            )
        ],
        "quantised": [
            {"bits": r["bits"], "when": r["when"], "error": rounded(r["error"])}
            for r in record["quantised"]
        ],
    }


def _literature(record: dict[str, Any] | None) -> tuple[str, ...]:
    """The papers on both sides, a line each."""
    entries = [] if record is None else record["literature"]
    return tuple(f"{entry['authors']} ({entry['year']}): {entry['claim']}" for entry in entries)


def _on_bands(record: dict[str, Any] | None) -> tuple[str, ...]:
    """How the record's bands are to be read; nothing without one."""
    if record is None:
        return ()
    return (
        "The table gives perplexity before and after on SmolLM2-135M: position-free means "
        "frequency 0 with the content kept, zeroed means q and k set to 0 there. Content lives in "
        "the slow pairs, and what their rotation is worth depends on the length.",
        *_truncated(record),
    )


def _truncated(record: dict[str, Any]) -> tuple[str, ...]:
    """p-RoPE without training, at each length; nothing in a record without it."""
    rows: dict[str, list[str]] = {}
    for row in record.get("p_rope", ()):
        ratio = f"× {row['after'] / row['before']:.3g} at {row['length']:,}"
        rows.setdefault(row["band"].removesuffix(" position-free"), []).append(ratio)
    told = "; ".join(f"{name}: {' and '.join(ratios)}" for name, ratios in rows.items())
    return (f"p-RoPE without training, perplexity by length – {told} tokens.",) if told else ()


def _verdict(slow: int, pairs: int, figures: dict[str, Figure]) -> str:
    value = {name: figure.value for name, figure in figures.items()}
    parts = [
        f"{slow} of SmolLM2-135M's {pairs} pairs do not complete one turn in its {CONTEXT:,} "
        "tokens.",
    ]
    if "usage_slowest_half" in value:
        free, gone = "slowest_quarter_position_free", "slowest_quarter_zeroed"
        parts.append(
            f"The slowest half carries {value['usage_slowest_half']:.0%} of ‖q‖‖k‖. Letting "
            "the slowest quarter stand still multiplies perplexity by "
            f"{value[f'{free}_512_ratio']:.3f} at 512 tokens and {value[f'{free}_4096_ratio']:.2f} "
            f"at 4,096; removing it altogether by {value[f'{gone}_512_ratio']:.0f} at 512. Norm is "
            "not positional use."
        )
    parts.append(
        f"In bfloat16, exact angles err by {value['bf16_exact_at_131072']:.1e} even at 131,072; "
        f"bfloat16 angles by {value['bf16_angles_at_1024']:.2g} at 1,024."
    )
    return " ".join(parts)
