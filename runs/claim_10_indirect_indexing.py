"""Claim 10: PoPE learns to index indirectly, RoPE does not; and what its softplus is worth.

python runs/claim_10_indirect_indexing.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores, unlearned

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=10,
    title="PoPE learns indirect indexing",
    said="accuracy on indirect indexing: PoPE 94.82 ± 2.91 %, RoPE 11.16 ± 2.45 %",
    source='Gopalakrishnan et al. (2025), Decoupling the "What" and "Where" With Polar Coordinate '
    "Positional Embeddings",
    setting="strings of up to 8 of 16 symbols, the symbol at an offset of up to 2 from another, 8 "
    "questions each; 2 layers of 4 heads of 16 lanes, 800 steps of 32 strings",
    script="claim_10_indirect_indexing.py",
)
LENGTH = 8

TRIALS = grid(
    ["rope", "pope", "pope:magnitude=signed"],
    task="indexing",
    task_options=(("farthest", 2), ("symbols", 16)),
    seeds=SEEDS,
    train_length=LENGTH,
    lengths=(LENGTH, 2 * LENGTH),
    steps=800,
    batch=32,
)


def judge(records):
    at = scores(records, "indexing", LENGTH)
    unit, idle = "share of answers right", unlearned(at, 0.5)
    plain = minus(at["pope"], at["pope:magnitude=signed"])
    return [
        Statement("PoPE learns it", unit, at["pope"], "above", 0.9, idle),
        Statement("PoPE before RoPE", unit, minus(at["pope"], at["rope"]), "above", 0.0, idle),
        Statement("softplus helps PoPE", unit, plain, "above", 0.0, idle),
    ]


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
