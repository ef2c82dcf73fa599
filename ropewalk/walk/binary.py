"""Step 4: write the position in bits, and watch the code jump."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.encodings.additive import Binary, Sinusoidal
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.step import Figure, Step, rounded

BITS = 8
SHOWN = 252


def jumps(codes: Tensor) -> Tensor:
    """‖E(p + 1) − E(p)‖ for consecutive rows."""
    return codes.diff(dim=0).norm(dim=-1)


def turns(codes: Tensor) -> Tensor:
    """‖(E(p + 1) − E(p)) − (E(p) − E(p − 1))‖: by how much the slope of the path jumps."""
    return codes.diff(n=2, dim=0).norm(dim=-1)


def run(text: Embedded) -> Step:
    """Jumps of value and of slope along 256 positions, beside a sinusoid of as many lanes."""
    binary, smooth = Binary(BITS, bits=BITS), Sinusoidal(BITS)
    line = torch.arange(2**BITS + 1)
    bits = binary.encode(line, dtype=torch.float64)
    waves = smooth.encode(line, dtype=torch.float64)
    bits_jump, waves_jump = jumps(bits[:-1]), jumps(waves)
    written = "".join(str(int(b)) for b in bits[SHOWN].flip(0))
    flips = bits[:-1].diff(dim=0).abs().sum(-1)
    slow = torch.arange(0, 8.001, 0.1, dtype=torch.float64)
    periods = torch.tensor([2.0, 4.0, 8.0], dtype=torch.float64)
    path = 0.5 - 0.5 * torch.cos(2 * torch.pi * slow[:, None] / (2 * periods))
    return Step(
        name="binary",
        title="Write it in bits",
        question="What if the position is written in binary, one bit to a lane?",
        verdict=(
            f"{SHOWN} becomes {written}: bounded, unique and exact in every dtype. But one step "
            f"flips {flips.mean().item():.2f} bits on average and {int(flips.max())} at worst, "
            f"and its slope jumps by up to {turns(bits[:-1]).max().item():.2f} where that of a "
            f"sinusoid changes by {turns(waves).max().item():.2f} at most. No linear map takes p "
            "to p + k."
        ),
        evidence="measured",
        figures={
            "code_of_252": Figure(int(written), "code of 252, highest bit first"),
            "flips_max": Figure(flips.max().item(), "bits flipped by one step, most"),
            "flips_mean": Figure(flips.mean().item(), "bits flipped by one step, mean"),
            "jump_max": Figure(bits_jump.max().item(), "‖E(p+1) − E(p)‖, largest"),
            "jump_mean": Figure(bits_jump.mean().item(), "‖E(p+1) − E(p)‖, mean"),
            "slope_jump_max": Figure(
                turns(bits[:-1]).max().item(), "jump of the slope along the path, largest"
            ),
            "sinusoid_jump_max": Figure(waves_jump.max().item(), "the sinusoid's largest jump"),
            "sinusoid_slope_jump_max": Figure(
                turns(waves).max().item(), "the sinusoid's largest change of slope"
            ),
        },
        paragraphs=(
            "Each lane is a square wave: the lowest bit turns every step, the next every second "
            "one, and so on. The walk from 0 to 7 visits the corners of a cube, leaping along "
            "edges and sometimes straight across.",
            "Smooth is not better for free: how loud a code is beside the word matters as much as "
            "how smooth it is, and nothing here says that smooth codes train better. What bits "
            "cannot give is a linear step from p to p + k.",
        ),
        equations=(r"E(p)_k = \lfloor p/2^k \rfloor \bmod 2",),
        drawing={
            "bits": rounded(bits[:32]),
            "jump": rounded(bits_jump[:256]),
            "smooth_jump": rounded(waves_jump[:256]),
            "path": rounded(bits[:9, :3]),
            "smooth_path": rounded(path),
        },
    )
