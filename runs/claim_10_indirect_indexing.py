"""Claim 10: PoPE learns to index indirectly, RoPE does not; and what its softplus is worth.

python runs/claim_10_indirect_indexing.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=10,
    title="PoPE learns indirect indexing",
    said="accuracy on indirect indexing: PoPE 94.82 ± 2.91 %, RoPE 11.16 ± 2.45 %",
    source='Gopalakrishnan et al. (2025), Decoupling the "What" and "Where" With Polar Coordinate '
    "Positional Embeddings",
    setting="a string of up to 12 of 26 symbols, the symbol at an offset of up to 5 from another; "
    "2 layers of 4 heads",
    script="claim_10_indirect_indexing.py",
)
LENGTH = 12

TRIALS = grid(
    ["rope", "pope", "pope:magnitude=signed"],
    task="indexing",
    task_options=(("farthest", 5), ("symbols", 26)),
    seeds=SEEDS,
    train_length=LENGTH,
    lengths=(LENGTH, 2 * LENGTH),
    steps=3000,
    batch=32,
)


def judge(records):
    at = scores(records, "indexing", LENGTH)
    unit = "share of answers right"
    return [
        Statement("PoPE learns it", unit, at["pope"], "above", 0.9),
        Statement("PoPE before RoPE", unit, minus(at["pope"], at["rope"]), "above"),
        Statement(
            "softplus helps PoPE", unit, minus(at["pope"], at["pope:magnitude=signed"]), "above"
        ),
    ]


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
