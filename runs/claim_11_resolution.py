"""Claim 11: on pictures of another resolution than trained, mixed before axial before learned.

python runs/claim_11_resolution.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=11,
    title="At another resolution mixed frequencies are before axial, axial before a learned table",
    said="ViT on ImageNet-1k, trained at 224 and read at up to 512: RoPE-Mixed before RoPE-Axial "
    "before the learned table, interpolated, with the gap growing with the resolution",
    source="Heo et al. (2024), Rotary Position Embedding for Vision Transformer",
    setting="scikit-learn's digits, a pixel a token, trained at 8 × 8 and read enlarged to 12 × 12 "
    "and 16 × 16; rotations meet rows and columns they were not trained on, the table is stretched "
    "over the picture; encoder of 2 layers of 4 heads, 600 steps of 32 pictures",
    script="claim_11_resolution.py",
)

TRIALS = grid(
    ["learned", "axial", "mixed"],
    task="digits",
    seeds=SEEDS,
    train_length=8,
    lengths=(8, 12, 16),
    steps=600,
    batch=32,
)


def judge(records):
    found = []
    for n in (12, 16):
        at = scores(records, "digits", n)
        unit = f"share of pictures right at {n} × {n}, the difference"
        found += [
            Statement(f"{n} × {n}: mixed before axial", unit, minus(at["mixed"], at["axial"]),
                      "above"),
            Statement(f"{n} × {n}: axial before learned", unit,
                      minus(at["axial"], at["learned"]), "above"),
        ]  # fmt: skip
    return found


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
