"""How a launch is cut into programs: a pure function of sizes, nothing is tuned at run time.

A program takes a block of rows and a share of the heads. It computes the block's sin and cos once,
keeps them in registers and turns head after head, so more heads a program means less arithmetic and
more programs means a fuller device.
"""

from __future__ import annotations

from typing import NamedTuple

BYTES_A_THREAD = 16
"""Of each half of the pairs: the widest load there is."""
THREADS = 128
SEGMENT = 128
"""Lanes that pass through are copied in runs of at most this many."""
COPIES = 4
"""Loads of a thread for the lanes that pass through, for each of the lanes that turn."""
SCALED = 1
"""The same where they are scaled on their way, and so take registers in float32."""
RESIDENT = 8
"""Programs that one multiprocessor holds at a time, at about 64 registers a thread."""
WAVES = 4
"""Fillings of the device from which an unfilled last one hardly counts."""
HEADS = 8
"""Heads from which sin and cos are a small part of a program's arithmetic."""


class Plan(NamedTuple):
    """Rows and pairs of a program's block, shares of the heads that share angles, warps."""

    block_rows: int
    block_pairs: int
    shares: int
    warps: int


def power_of_two(n: int) -> int:
    """The smallest power of two ≥ n."""
    return 1 << max(n - 1, 0).bit_length()


def plan(
    rows: int,
    outer: int,
    heads: int,
    own: int,
    pairs: int,
    passing: int,
    element_size: int,
    processors: int,
    loads: int = COPIES,
) -> Plan:
    """The cut of a rotation.

    Args:
        rows: rows of the inner dimension; ``outer`` times that in all.
        outer: see ``rows``.
        heads: heads of the tensor (the larger, of q and k) that share their angles.
        own: heads with angles of their own.
        pairs: rotated pairs of lanes.
        passing: lanes of the longest run that is copied, 0 if none is.
        element_size: bytes of a value.
        processors: multiprocessors of the device.
        loads: of a thread for the lanes that pass through: :data:`COPIES` or :data:`SCALED`.
    """
    block_pairs = power_of_two(pairs)
    width = max(block_pairs, min(power_of_two(passing), SEGMENT) // loads)
    each = BYTES_A_THREAD // element_size
    block_rows = max(1, min(THREADS * each // width, power_of_two(rows)))
    warps = min(8, max(1, block_rows * width // (32 * each)))
    programs = -(-rows // block_rows) * outer * own
    full = processors * RESIDENT
    shares = max(
        _share(heads, programs, full, at_least=1),
        _share(heads, programs, full * WAVES, at_least=HEADS),
    )
    return Plan(block_rows, block_pairs, shares, warps)


def _share(heads: int, programs: int, wanted: int, at_least: int) -> int:
    """The fewest equal shares that make ``wanted`` programs while each has ``at_least`` heads."""
    equal = [n for n in range(1, heads + 1) if heads % n == 0 and heads // n >= at_least]
    return next((n for n in equal if n * programs >= wanted), max(equal, default=1))
