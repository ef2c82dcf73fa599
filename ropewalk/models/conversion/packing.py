"""Where the heads of q and k start among the rows of a projection, however it is packed.

Every function takes the numbers of query heads ``h``, key heads ``k`` and lanes of a head ``d``,
and gives (starts of q, starts of k, number of rows).
"""

from __future__ import annotations

from collections.abc import Callable

Starts = tuple[tuple[int, ...], tuple[int, ...], int]


def blocks(h: int, k: int, d: int) -> Starts:
    """All of q, all of k, all of v."""
    q = tuple(i * d for i in range(h))
    return q, tuple((h + i) * d for i in range(k)), (h + 2 * k) * d


def by_head(h: int, k: int, d: int) -> Starts:
    """q, k and v of the first head, then of the next.

    Raises:
        ValueError: key heads are shared.
    """
    if h != k:
        raise ValueError(f"{h} query heads cannot be packed head by head with {k} key heads")
    return by_group(h, k, d)


def by_group(h: int, k: int, d: int) -> Starts:
    """The query heads that share a key head, this key head, its value head; then the next group."""
    own = h // k
    stride = (own + 2) * d
    q = tuple(g * stride + i * d for g in range(k) for i in range(own))
    return q, tuple(g * stride + own * d for g in range(k)), k * stride


def quarters(h: int, k: int, d: int) -> Starts:
    """Four parts, each with its heads of q, then of v, then of k (CodeGen).

    Raises:
        ValueError: key heads are shared, or four does not divide them.
    """
    if h != k or h % 4:
        raise ValueError(f"{h} query and {k} key heads cannot be packed in four parts")
    own, part = h // 4, 3 * (h // 4) * d
    q = tuple(p * part + i * d for p in range(4) for i in range(own))
    return q, tuple(start + 2 * own * d for start in q), 4 * part


PACKINGS: dict[str, Callable[[int, int, int], Starts]] = {
    "blocks": blocks,
    "by_head": by_head,
    "by_group": by_group,
    "quarters": quarters,
}
