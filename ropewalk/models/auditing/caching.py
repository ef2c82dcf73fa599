"""A prompt read at once, and in pieces with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.models.auditing.compare import difference
from ropewalk.models.auditing.kinds import results as kinds
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.subject import SHORT, Subject, pair, recurrent, tried


def check_cache(subject: Subject) -> Check:
    """A prompt read at once, and read token by token with a cache; positions counted and given."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        if reader.cached is None:
            return "it keeps no cache"
        ids = reader.tokens(2, SHORT)
        full, figures = reader(ids).values, {}
        for way, sizes, positions in _ways(subject):
            subject.state.restore()
            pieces = in_pieces(reader, ids, sizes, positions)
            if pieces is None:
                return "it returns no cache"
            figures[way] = difference(pieces, full)
            if figures[way] > subject.allowed:
                if way == "in chunks" and recurrent(reader):
                    del figures[way]
                    continue
                hint = "" if way == "one by one" else f" ({way})"
                check.find(
                    kinds.CACHED_UNLIKE,
                    None,
                    **pair(figures[way], subject.allowed),
                    hint=hint,
                )
                break
        check.figures = {way.replace(" ", "_"): apart for way, apart in figures.items()}
        return None

    return tried("cached decoding = full pass", subject, run)


def _ways(subject: Subject) -> list[tuple[str, tuple[int, ...], Tensor | None]]:
    """Ways to read a prompt in pieces."""
    one_by_one = (5, *(1,) * (SHORT - 5))
    ways: list[tuple[str, tuple[int, ...], Tensor | None]] = [("one by one", one_by_one, None)]
    where = subject.positions(torch.arange(SHORT))
    if where is not None:
        ways.append(("with position_ids given", one_by_one, where[0]))
    return [*ways, ("in chunks", (5, 2, 5), None)]


def in_pieces(
    reader: Reader,
    ids: Tensor,
    sizes: tuple[int, ...],
    positions: Tensor | None,
    last: bool = False,
) -> Tensor | None:
    """The values of ``ids`` read piece by piece with one cache; None if there is none.

    ``last`` wants only the last value of each piece.
    """
    cache, found, start = None, [], 0
    for size in sizes:
        piece = slice(start, start + size)
        where = None
        if positions is not None:
            where = positions[piece].expand(len(ids), -1).to(ids.device)
        made = reader(ids[:, piece], where, cache=cache, caching=True, last=1 if last else None)
        cache, start = made.cache, start + size
        if cache is None:
            return None
        found.append(made.values)
    return torch.cat(found, dim=1)
