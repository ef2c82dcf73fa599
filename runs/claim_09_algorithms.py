"""Claim 9: what copies, reverses and adds beyond the length it was trained on.

python runs/claim_09_algorithms.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, shares, unlearned

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=9,
    title="Beyond the trained length no position is best at algorithms, and random ones help",
    said="107M parameters, ten tasks: no position generalises best to longer inputs, before T5, "
    "ALiBi, rotary and absolute codes; random positions raise the accuracy at unseen lengths by "
    "12 points on average over 15 tasks",
    source="Kazemnejad et al. (2023), The Impact of Positional Encoding on Length Generalization "
    "in Transformers; Ruoss et al. (2023), Randomized Positional Encodings Boost Length "
    "Generalization of Transformers",
    setting="copy and reverse of 16 symbols, addition with the sum written from its last digit; "
    "trained up to length n = 10, 8 and 3, share of symbols right at 2n; 2 layers of 4 heads, 1500 "
    "steps of 32 examples",
    script="claim_09_algorithms.py",
)
BASES = ("sinusoidal", "rope", "alibi")
LIMIT = {"copy": 64, "reverse": 64, "addition": 64}
"""Of the positions that are drawn, well above the tokens of the longest example."""
SHORT = {"copy": 10, "reverse": 8, "addition": 3}
STEPS = 1500
LEARNED = 0.7
"""Share of symbols right at the trained length that some encoding must reach."""


def trials(task):
    n = SHORT[task]
    labels = ["none", *BASES, *(f"{base}~{LIMIT[task]}" for base in BASES)]
    options = (("order", "answer"),) if task == "addition" else (("symbols", 16),)
    return grid(
        labels,
        task=task,
        seeds=SEEDS,
        steps=STEPS,
        train_length=n,
        lengths=(n, 2 * n),
        task_options=options,
        batch=32,
    )


TRIALS = [each for task in SHORT for each in trials(task)]


def judge(records):
    unit = "share of symbols right at twice the length, the difference"
    found = []
    for task, n in SHORT.items():
        near, at = (shares(records, task, length) for length in (n, 2 * n))
        idle = unlearned(near, LEARNED)
        found += [
            Statement(f"{task}: no position before {other}", unit, minus(at["none"], at[other]),
                      "above", 0.0, idle)
            for other in BASES
        ]  # fmt: skip
        found += [
            Statement(f"{task}: random positions help {base}", unit,
                      minus(at[f"{base}~{LIMIT[task]}"], at[base]), "above", 0.0, idle)
            for base in BASES
        ]  # fmt: skip
    return found


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
