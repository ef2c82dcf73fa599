"""Claim 7: a wavelet encoding needs several scales to read beyond its trained length.

python runs/claim_07_wavelet_scales.py
"""

from __future__ import annotations

from claims import SEEDS, Claim, Statement, main, minus, scores

from ropewalk.lab.trial import grid

CLAIM = Claim(
    number=7,
    title="Wavelets need scales",
    said="WikiText-103, trained at 512, perplexity at 2512: Ricker at eight scales 17.99, at the "
    "scales 1 and 2 70.80, Haar at one scale 299.26",
    source="Oka et al. (2025), Wavelet-based Positional Representation for Long Context",
    setting="characters of plays, trained at 128 and read at 640; 2 layers, 4 heads of 16 lanes, "
    "600 steps",
    script="claim_07_wavelet_scales.py",
)
ALL, TWO, ONE = "wavelet", "wavelet:scales=(1.0,2.0)", "wavelet:kind=haar:scales=1"

TRIALS = grid([ALL, TWO, ONE], seeds=SEEDS, steps=600, lengths=(128, 256, 512, 640))


def judge(records):
    at = scores(records, "characters", 640)
    bits = "bits per character at 5 times the length"
    return [
        Statement("Ricker at two scales is worse than at eight", bits, minus(at[TWO], at[ALL]),
                  "above"),
        Statement("Haar at one scale is worse than Ricker at eight", bits,
                  minus(at[ONE], at[ALL]), "above"),
        Statement("Haar at one scale is worse than Ricker at two", bits, minus(at[ONE], at[TWO]),
                  "above"),
    ]  # fmt: skip


if __name__ == "__main__":
    main(CLAIM, TRIALS, judge)
