"""Random positions that keep their order: a longer text, seen through a short one."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.spectra.arguments import FARTHEST, check_int, shown

_DENSE = 4
"""From one position in this many on, a whole permutation is no larger than a rejection sample."""


def randomized(
    tokens: int,
    limit: int,
    *,
    batch: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """``tokens`` different positions from [0, limit) in rising order, every set equally likely.

    A model trained on these has seen every position and distance below ``limit`` by the time texts
    get that long. Draw for the length of the text itself: the first of many are not a draw of few.

    Args:
        tokens: how many, from 0 to ``limit``.
        limit: positions lie below it, at most 2⁵³; 2048 in the paper.
        batch: rows drawn apart; if None one row, which the paper's code shares over the batch.
        generator: where chance comes from, PyTorch's global generator of the CPU if None. Drawn on
            its device.
        device: of the result.

    Returns:
        int64 ``[tokens]``, or ``[batch, tokens]``. Time and memory grow with ``tokens`` alone. The
        chance of a position departs from uniform by at most limit · 2⁻⁶² of itself.

    Raises:
        TypeError: a count is not an int.
        ValueError: more tokens than positions, or a count out of range.

    Source: Randomized Positional Encodings Boost Length Generalization of Transformers (Ruoss et
    al., 2023), §3.
    """
    if check_int("limit", limit, at_least=1) > 1 << 53:
        raise ValueError(f"limit={limit} must be at most 2**53")
    if check_int("tokens", tokens, at_least=0) > limit:
        raise ValueError(
            f"tokens={tokens} different positions do not fit below limit={limit}; raise limit to "
            "the longest text there will be"
        )
    rows = 1 if batch is None else check_int("batch", batch, at_least=0, at_most=FARTHEST)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator={shown(generator)} must be a torch.Generator, or None")
    home = torch.device("cpu") if generator is None else generator.device
    drawn = torch.empty(rows, tokens, dtype=torch.int64, device=home)
    for row in range(rows):
        drawn[row] = _subset(tokens, limit, generator, home)
    return (drawn[0] if batch is None else drawn).to(
        torch.get_default_device() if device is None else device
    )


def _subset(
    tokens: int, limit: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """A random set, sorted: a random part of a set that any relabelling leaves as likely."""
    if limit <= _DENSE * tokens:
        order = torch.randperm(limit, generator=generator, device=device)
        return order[:tokens].sort().values
    pool = torch.empty(0, dtype=torch.int64, device=device)
    while len(pool) < tokens:
        # of 2⁶², since a draw below 2³² takes 32 random bits, too few to be even over the range
        more = torch.randint(1 << 62, (2 * tokens,), generator=generator, device=device) % limit
        pool = torch.cat((pool, more)).unique()
    order = torch.randperm(len(pool), generator=generator, device=device)
    return pool[order[:tokens]].sort().values
