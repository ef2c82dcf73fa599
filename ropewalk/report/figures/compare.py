"""Whether two SVG figures show the same.

The last bit of a sine differs between machines, and so may a rounded coordinate. Two figures are
the same if their words and structure are, no coordinate or colour is more than a step apart, and no
number in words differs beyond its third digit.
"""

from __future__ import annotations

import re
from itertools import zip_longest

_HEAT = re.compile(
    r'<g class="heat" data-size="(\d+) (\d+)" data-most="(\d+)"[^>]*?transform="([^"]*)".*?</g>',
    re.S,
)
_LEVEL = re.compile(r'data-level="(\d+)"[^>]* d="([^"]*)"')
_RUN = re.compile(r"M(\d+) (\d+)h(\d+)")
_PIECE = re.compile(r"(<[^>]*>)")
_COORDINATES = re.compile(r'(?<= d=")[^"]*|(?<= [xy]=")[^"]*')
_PLACE = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-−+]?\d+)?")
STEP = 1
"""How far apart two rounded coordinates, or two colours, may be."""
SHARE = 0.011
"""How far apart two numbers in words may be: a step of the third digit."""


def same(one: str, other: str) -> bool:
    """Whether two SVG documents show the same figure, but for a rounding."""
    if one == other:
        return True
    if any(
        a is None or b is None or len(a) != len(b) or _apart(a, b) > STEP
        for a, b in zip_longest(levels(one), levels(other))
    ):
        return False
    pieces = (_PIECE.split(_HEAT.sub(r"<g \4/>", text)) for text in (one, other))
    return all(
        a is not None and b is not None and (_same_tag if a.startswith("<") else _same_words)(a, b)
        for a, b in zip_longest(*pieces)
    )


def levels(figure: str) -> list[list[int]]:
    """The colours of each heat map of a figure, row by row."""
    return [_grid(found) for found in _HEAT.finditer(figure)]


def _grid(found: re.Match[str]) -> list[int]:
    columns, rows, most = (int(found[i]) for i in (1, 2, 3))
    grid = [most] * (columns * rows)
    for level, path in _LEVEL.findall(found[0]):
        for x, y, width in _RUN.findall(path):
            start = int(y) * columns + int(x)
            grid[start : start + int(width)] = [int(level)] * int(width)
    return grid


def _same_tag(a: str, b: str) -> bool:
    """The same but for coordinates, which may be a step apart."""
    places = ([_PLACE.findall(c) for c in _COORDINATES.findall(tag)] for tag in (a, b))
    blank = (_COORDINATES.sub(lambda m: _PLACE.sub("0", m[0]), tag) for tag in (a, b))
    return len(set(blank)) == 1 and all(
        _apart(map(float, p), map(float, q)) <= STEP for p, q in zip(*places, strict=True)
    )


def _same_words(a: str, b: str) -> bool:
    """The same but for the third digit of its numbers."""
    if _WORD.sub("0", a) != _WORD.sub("0", b):
        return False
    pairs = zip(*([_number(w) for w in _WORD.findall(text)] for text in (a, b)), strict=True)
    return all(abs(p - q) <= SHARE * max(abs(p), abs(q)) for p, q in pairs)


def _apart(a, b) -> float:
    return max((abs(p - q) for p, q in zip(a, b, strict=True)), default=0)


def _number(word: str) -> float:
    return float(word.replace(",", "").replace("−", "-"))
