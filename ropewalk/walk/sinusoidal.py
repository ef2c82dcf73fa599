"""Step 5: round the square waves off, and a step becomes a rotation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.encodings.additive import Binary, Sinusoidal
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.step import Figure, Step, order, rounded

DIM = 64
RANGE = 8192
FAR = 1 << 20


def distance_by_offset(dim: int, positions: int) -> Tensor:
    """‖E(p + k) − E(p)‖ for k = 1 … positions − 1; the same for every p.

    √Σ over pairs of (2 − 2·cos kθ).
    """
    frequencies = torch.tensor(Sinusoidal(dim).spectrum.inv_freq, dtype=torch.float64)
    nearest = []
    for start in range(1, positions, 1 << 16):
        offsets = torch.arange(start, min(start + (1 << 16), positions), dtype=torch.float64)
        cosines = torch.cos(offsets[:, None] * frequencies)
        nearest.append((dim - 2 * cosines.sum(-1)).clamp_min(0).sqrt())
    return torch.cat(nearest)


def run(text: Embedded) -> Step:
    """The shift matrix with its sign, nearest neighbours by width, and the longest wavelength."""
    encoding = Sinusoidal(DIM)
    line = torch.arange(RANGE)
    codes = encoding.encode(line, dtype=torch.float64)
    k = 17
    matrix = encoding.shift_matrix(k)
    if matrix is None:
        raise AssertionError("an even width has a shift matrix")
    shifted = codes[k:]
    right = (codes[:-k] @ matrix.T - shifted).abs().max().item()
    wrong = (codes[:-k] @ matrix - shifted).abs().max().item()
    dims = (2, 4, 8, 16, 32, 64)
    nearest = {dim: distance_by_offset(dim, RANGE).min().item() for dim in dims}
    far = distance_by_offset(DIM, FAR).min().item()
    longest = 2 * math.pi / encoding.spectrum.inv_freq[-1]
    similarity = (codes[:512] @ codes[0]) / (DIM / 2)
    return Step(
        name="sinusoidal",
        title="Sines and cosines",
        question="What if the square waves become smooth ones?",
        verdict=(
            f"A step of k is one fixed rotation for every p: M_k E(p) = E(p + k) within "
            f"{order(right)}, while the rotation of the other sign misses by {wrong:.1f}. Codes "
            f"stay {nearest[DIM]:.2f} apart over {RANGE:,} positions at D = {DIM}, and {far:.2f} "
            f"over {FAR:,}, far past the longest wavelength of {longest:,.0f}, which is no "
            f"limit. At D = 4 the nearest two of {RANGE:,} codes are {nearest[4]:.3f} apart."
        ),
        evidence="proved",
        figures={
            "shift_error": Figure(right, "M_k E(p) − E(p + k), k = 17, largest entry"),
            "wrong_sign_error": Figure(wrong, "the same with M_−k"),
            **{
                f"nearest_d{dim}": Figure(
                    value, f"nearest two codes of {RANGE:,}, D = {dim}", dim in (4, DIM)
                )
                for dim, value in nearest.items()
            },
            "nearest_d64_far": Figure(far, f"nearest two codes of {FAR:,}, D = 64"),
            "longest_wavelength": Figure(longest, "longest wavelength at D = 64, positions"),
        },
        paragraphs=(
            "Replace each bit by a wave of the same kind of rhythm and give it a partner a quarter "
            "turn away. A pair (sin, cos) is a point on a circle, and one step turns it by a fixed "
            "angle; the matrix that turns all pairs does not depend on where one stands.",
            "M_k turns each (sin, cos) by −kθ and, written as (cos, sin), by +kθ. The sign is "
            "worth a test: the other one is wrong everywhere but at 0.",
            "2π · 10000 is often named as the limit of the context. It is not: the longest "
            "wavelength is 2π · base^((D−2)/D), and when the slowest pair has come round, the "
            "other pairs have not.",
        ),
        equations=(
            r"E(p)_{2i} = \sin(p\,\theta_i),\quad E(p)_{2i+1} = \cos(p\,\theta_i),"
            r"\quad \theta_i = 10000^{-2i/D}",
            r"E(p+k) = M_k\,E(p)",
        ),
        drawing={
            "bits": rounded(Binary(DIM, bits=8).encode(line[:64], dtype=torch.float64)),
            "codes": rounded(codes[:64], 3),
            "nearest": [{"dim": d, "distance": rounded(v)} for d, v in nearest.items()],
            "similarity": [
                {"offset": o, "dot": rounded(s.item(), 4)} for o, s in enumerate(similarity)
            ],
            "wavelengths": [rounded(2 * math.pi / f) for f in encoding.spectrum.inv_freq],
        },
    )
