"""Claim 4: removing RoPE's slowest quarter costs nothing; removing three quarters, or all, does.

python runs/claim_04_p_rope.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=4,
    title="p-RoPE: the slowest quarter of the frequencies can go",
    said="Gemma-2B pre-trained on Wiki/FlanV2, perplexity on Wiki: RoPE 4.463, 0.75-RoPE 4.441, "
    "0.25-RoPE 4.530 (+1.5 %), no position 4.859 (+8.9 %)",
    source="Barbero et al. (2024), Round and Round We Go! What makes Rotary Positional Encodings "
    "useful?, table 2",
    setting="characters of plays, trained and read at 128; 2 layers of 4 heads, 600 steps",
    script="claim_04_p_rope.py",
)
MARGIN = 0.03
"""Bits per character that count as no loss; 1 % of what RoPE reaches."""

TRIALS = grid(
    ["none", "rope", "p_rope:fraction=0.75", "p_rope:fraction=0.25"],
    seeds=SEEDS,
    steps=600,
    lengths=(128, 256, 512, 640),
)


def judge(records):
    at = scores(records, "characters", 128)
    rope, bits = at["rope"], "bits per character"
    most, least = (minus(at[f"p_rope:fraction={r}"], rope) for r in (0.75, 0.25))
    return [
        Statement("0.75-RoPE is no worse than RoPE", bits, most, "below", MARGIN),
        Statement("0.25-RoPE is worse than RoPE", bits, least, "above"),
        Statement("no position is worse than RoPE", bits, minus(at["none"], rope), "above"),
    ]


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
