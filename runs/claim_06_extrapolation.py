"""Claim 6: trained short and read at four times the length, some stay flat and RoPE does not.

python runs/claim_06_extrapolation.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=6,
    title="Beyond the trained length ALiBi, wavelets and Transformer-XL stay flat, RoPE does not",
    said="WikiText-103, trained at 512, perplexity at 512 and 2512: ALiBi 19.69 and 18.41, Ricker "
    "wavelets 19.19 and 17.99, Transformer-XL 19.96 and 19.05, no position 21.53 and 48.48, RoPE "
    "19.39 and 93.94",
    source="Oka et al. (2025), Wavelet-based Positional Representation for Long Context; Press et "
    "al. (2022), Train Short, Test Long",
    setting="characters of plays, trained at 128, the same characters scored with 128 and with 512 "
    "characters of context; 2 layers, 4 heads of 16 lanes, 600 steps",
    script="claim_06_extrapolation.py",
)
FLAT = 0.05
"""Bits per character within which a curve counts as flat, as for the property ``generalises``."""

TRIALS = grid(
    ["none", "rope", "alibi", "sinusoidal", "transformer_xl", "wavelet"],
    seeds=SEEDS,
    steps=600,
    lengths=(128, 256, 512, 640),
)


def judge(records):
    near, far = (scores(records, "characters", n) for n in (128, 512))
    rise = {name: minus(far[name], near[name]) for name in near}
    bits = "bits per character"
    flat = [
        ("alibi", "ALiBi"),
        ("wavelet", "Ricker wavelets"),
        ("transformer_xl", "Transformer-XL"),
    ]
    return [
        *(
            Statement(f"{title}: flat or falling at four times the length", bits, rise[name],
                      "below", FLAT)
            for name, title in flat
        ),
        Statement("RoPE rises", bits, rise["rope"], "above", FLAT),
        Statement("sinusoidal rises", bits, rise["sinusoidal"], "above", FLAT),
        Statement("no position rises less than RoPE", bits, minus(rise["none"], rise["rope"]),
                  "below"),
        Statement("no position rises more than ALiBi", bits, minus(rise["none"], rise["alibi"]),
                  "above"),
    ]  # fmt: skip


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
