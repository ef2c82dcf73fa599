"""Turning into pages against turning, then scattering: medians of interleaved runs.

Both write the same bits, which is asserted first.

``python bench/pages.py [TOKENS …]``, on the number of threads that PyTorch takes.
"""

from __future__ import annotations

import sys

import torch

from ropewalk import rotate, rotate_into_pages
from ropewalk.bench.timing import Effort, interleaved, ratio
from ropewalk.spectra import geometric

HEADS, DIM, SIZE, ROUNDS = 8, 128, 16, 31


def measured(tokens: int, dtype: torch.dtype) -> float:
    """How many times longer turning, then scattering takes than one fused write."""
    spectrum = geometric(DIM, 5e5)
    k, v = torch.randn(2, tokens, HEADS, DIM).to(dtype)
    pages, v_pages = torch.zeros(2, tokens // SIZE + 8, SIZE, HEADS, DIM, dtype=dtype)
    slots = torch.randperm(tokens // SIZE + 8)[:, None] * SIZE + torch.arange(SIZE)
    slots = slots.flatten()[:tokens].contiguous()
    positions = torch.arange(tokens)

    def fused() -> None:
        rotate_into_pages(k, positions, spectrum, pages, slots, v=v, v_pages=v_pages)

    def apart() -> None:
        turned = rotate(k.transpose(0, 1), positions, spectrum).transpose(0, 1)
        pages.flatten(0, 1)[slots] = turned
        v_pages.flatten(0, 1)[slots] = v

    fused()
    written = pages.clone(), v_pages.clone()
    apart()
    assert torch.equal(written[0], pages), "keys differ"
    assert torch.equal(written[1], v_pages), "values differ"
    times = interleaved({"fused": fused, "apart": apart}, Effort(ROUNDS, seconds=None))
    return ratio(times, "apart", "fused")


if __name__ == "__main__":
    for count in [int(n) for n in sys.argv[1:]] or [1, 64, 2048]:
        for kind in (torch.bfloat16, torch.float32):
            times = measured(count, kind)
            print(f"{count:6} tokens {kind!s:15} same pages; apart ÷ fused {times:.2f}")
