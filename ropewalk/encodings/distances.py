"""A bias as numbers by distance, where it is a function of distance."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.core import Bias

FAR = 1 << 40
"""Positions up to here are tried."""
SAME = 1e-9
"""What numbers for the same distance may differ by, of their size."""


def lines(encoding: Bias, length: int) -> Tensor:
    """The bias at distances 0 … length − 1, float64 ``[2, heads, length]`` on the CPU.

    The first half is for keys before the query, the second for keys after it.
    """
    zero = torch.zeros(length, dtype=torch.int64)
    return _both(encoding, zero)


def holds_to(encoding: Bias, expected: Tensor) -> int | None:
    """Positions up to which the bias is that function of distance; None: wherever it was tried.

    Every distance is tried at places drawn at random: anywhere up to 2⁴⁰, and if it is another
    function there, at positions 0 … length − 1, their last one included.

    Args:
        expected: :func:`lines` of the bias.

    Raises:
        ValueError: it is no function of distance even there.
    """
    length = expected.shape[-1]
    draw = torch.Generator().manual_seed(0)
    share = torch.rand(length, generator=draw, dtype=torch.float64)
    near, far = (share * (1 << 12)).long(), (share * FAR).long()
    if all(_differs(_both(encoding, places), expected) is None for places in (near, far)):
        return None
    room = length - 1 - torch.arange(length)
    for places in (room, (share * (room + 1)).long()):
        distance = _differs(_both(encoding, places), expected)
        if distance is not None:
            raise ValueError(
                f"{type(encoding).__name__} is no function of distance: at distance {distance} "
                f"the key at position 0 and the key at {int(places[distance])} get different "
                "numbers; use the encoding as it is, or a smaller length"
            )
    return length


def _both(encoding: Bias, places: Tensor) -> Tensor:
    """The bias at each distance, with the earlier of the two tokens at ``places``."""
    later = places + torch.arange(len(places))
    return torch.stack((_pairs(encoding, later, places), _pairs(encoding, places, later)))


def _pairs(encoding: Bias, q_positions: Tensor, kv_positions: Tensor) -> Tensor:
    """One number for each pair, ``[heads, pairs]``."""
    device = place(encoding)
    q, k = (x.to(device)[:, None] for x in (q_positions, kv_positions))
    with torch.no_grad():
        found = encoding.bias(q, k, torch.float64)
    return found.reshape(len(q_positions), encoding.heads).T.cpu()


def _differs(found: Tensor, expected: Tensor) -> int | None:
    """A distance at which the two differ."""
    close = torch.isclose(found, expected, rtol=SAME, atol=SAME, equal_nan=True)
    wrong = ~close.flatten(0, 1).all(0)
    return int(wrong.nonzero()[-1]) if bool(wrong.any()) else None


def place(encoding: Bias) -> torch.device:
    """Where an encoding keeps its numbers; the CPU if it has none."""
    own = (*encoding.parameters(), *encoding.buffers())
    return own[0].device if own else torch.device("cpu")
