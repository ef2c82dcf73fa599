"""How queries and keys are cut into tiles, so that most of them need no mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

from torch import Tensor

from ropewalk.attention.masks import Mask


class Tile(NamedTuple):
    """Queries ``q0`` … ``q1 − 1`` against keys ``k0`` … ``k1 − 1``."""

    q0: int
    q1: int
    k0: int
    k1: int
    rule: str
    """``all`` may be seen, a ``causal`` square, or a ``mask`` says which."""


def tiles_of(mask: Mask, size: int) -> Iterator[Tile]:
    """The tiles that hold something to see, by queries and then by keys."""
    owners = None if mask.segments is None else mask.segments.reshape(-1, mask.kv_tokens)
    cuts = _key_cuts(mask, size)
    spans = [_owners(owners, first, last) for first, last in cuts]
    for q0 in range(0, mask.q_tokens, size):
        q1 = min(q0 + size, mask.q_tokens)
        first, last = mask.reach(q0, q1)
        own = _owners(owners, q0 + mask.shift, q1 + mask.shift)
        for (k0, k1), their in zip(cuts, spans, strict=True):
            if k1 <= first or k0 >= last or own[0] > their[1] or own[1] < their[0]:
                continue
            alike = own == their and own[0] == own[1]
            rule = _rule(mask, q0, q1, k0, k1, alike)
            if rule is not None:
                yield Tile(q0, q1, k0, k1, rule)


def divided(tile: Tile, square: int) -> Iterator[Tile]:
    """A causal square as smaller ones and what lies between them."""
    if tile.rule != "causal" or tile.q1 - tile.q0 <= square:
        yield tile
        return
    half = (tile.q1 - tile.q0) // 2
    q, k = tile.q0 + half, tile.k0 + half
    yield from divided(Tile(tile.q0, q, tile.k0, k, "causal"), square)
    yield from divided(Tile(q, tile.q1, k, tile.k1, "causal"), square)
    yield Tile(q, tile.q1, tile.k0, k, "all")


def parted(tile: Tile, whole: Callable[[Tile], bool], least: int) -> Iterator[Tile]:
    """A tile that is not ``whole`` as smaller ones, down to ``least`` tokens."""
    longest = max(tile.q1 - tile.q0, tile.k1 - tile.k0)
    if tile.rule == "mask" or longest <= least or whole(tile):
        yield tile
        return
    pieces = divided(tile, longest // 2 + 1) if tile.rule == "causal" else _quarters(tile, least)
    for piece in pieces:
        yield from parted(piece, whole, least)


def _quarters(tile: Tile, least: int) -> Iterator[Tile]:
    """The halves of queries against the halves of keys; ``least`` tokens stay together."""
    for q0, q1 in _halves(tile.q0, tile.q1, least):
        for k0, k1 in _halves(tile.k0, tile.k1, least):
            yield Tile(q0, q1, k0, k1, tile.rule)


def _halves(start: int, stop: int, least: int) -> list[tuple[int, int]]:
    middle = (start + stop) // 2
    return [(start, stop)] if stop - start <= least else [(start, middle), (middle, stop)]


def _key_cuts(mask: Mask, size: int) -> list[tuple[int, int]]:
    """Runs of keys whose borders are borders of queries, so that the diagonal has squares."""
    borders = range(mask.shift % size, mask.kv_tokens, size)
    edges = sorted({0, *borders, mask.kv_tokens})
    return list(pairwise(edges))


def _owners(owners: Tensor | None, start: int, stop: int) -> tuple[int, int]:
    """The least and the largest segment of these tokens in any row.

    Padding makes the two differ, and tokens that are all padding share nothing with any.
    """
    if owners is None:
        return 0, 0
    low, high = (int(x) for x in owners[:, start:stop].aminmax())
    return (low, high) if high >= 0 else (2**63 - 1, -(2**63))


def _rule(mask: Mask, q0: int, q1: int, k0: int, k1: int, alike: bool) -> str | None:
    i0, i1 = q0 + mask.shift, q1 - 1 + mask.shift
    ahead, behind = k1 - 1 - i0, i1 - k0
    if mask.causal and k0 > i1:
        return None
    near = mask.window is None or max(0 if mask.causal else ahead, behind) < mask.window
    if not (near and alike):
        return "mask"
    if not mask.causal or ahead <= 0:
        return "all"
    return "causal" if (k0, k1 - 1) == (i0, i1) else "mask"


def runs(tiles: list[Tile], run: Callable[[Tile], int]) -> Iterator[list[Tile]]:
    """The tiles of one run after another, as they come."""
    for _, group in groupby(tiles, run):
        yield list(group)
