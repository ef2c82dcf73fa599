"""What was written, read back and held against the source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ropewalk.models.conversion import header
from ropewalk.models.conversion.header import Entry, Header
from ropewalk.models.conversion.plan import Plan
from ropewalk.models.conversion.probe import Reader, score_difference
from ropewalk.models.conversion.writing import Tell, chunks, moved, taken

TOLERANCE = 1e-9
"""Of scores in float64: only the order of the same products differs."""


def require_round_trip(
    old: tuple[Header, ...], folder: Path, plan: Plan, tell: Tell
) -> tuple[Header, ...]:
    """Every tensor, turned back, is the source's byte for byte; the headers of what was written.

    Raises:
        ValueError: one is not.
    """
    made = []
    for before in old:
        after = header.read(folder / before.path.name)
        made.append(after)
        if [_told(e) for e in before.entries] != [_told(e) for e in after.entries]:
            raise ValueError(f"{before.path.name} was not written with the tensors of its source")
        with before.path.open("rb") as a, after.path.open("rb") as b:
            for one, other in zip(before.entries, after.entries, strict=True):
                turn = plan.turns.get(one.name)
                if turn is not None:
                    data = moved(taken(b, other), other, turn, plan.layout)
                    _require_same(one.name, taken(a, one) == data)
                    tell(one.size)
                    continue
                pairs = zip(
                    chunks(a, one.begin, one.end), chunks(b, other.begin, other.end), strict=True
                )
                for left, right in pairs:
                    _require_same(one.name, left == right)
                    tell(len(left))
    return tuple(made)


def _told(entry: Entry) -> tuple[Any, ...]:
    return entry.name, entry.dtype, entry.shape, entry.size


def _require_same(name: str, same: bool) -> None:
    if not same:
        raise ValueError(
            f"tensor {name} does not come back as it was: the disk failed, or the source changed "
            "while it was read; nothing is kept"
        )


def require_scores(
    old: Mapping[str, Path] | Reader, new: Mapping[str, Path], plan: Plan, to: str
) -> float:
    """Largest relative difference of scores over all layers.

    Raises:
        ValueError: it is more than rounding.
    """
    worst = 0.0
    with ExitStack() as stack:
        before = old if isinstance(old, Reader) else reader(old, stack)
        after = reader(new, stack)
        for layer in plan.layers:
            if not layer.turned:
                continue
            worst = max(worst, score_difference(layer, before, after, plan.layout, to))
            if not worst <= TOLERANCE:
                raise ValueError(
                    f"{layer.name}: scores of q and k differ by {worst:.3g} of the largest after "
                    "the conversion; nothing is kept, please report it"
                )
    return worst


def reader(files: Mapping[str, Path], stack: ExitStack) -> Reader:
    """Slices of the tensors, by the safetensors package."""
    from safetensors import safe_open

    handles = {
        path: stack.enter_context(safe_open(str(path), framework="pt"))
        for path in set(files.values())
    }
    return Reader({name: handles[path] for name, path in files.items()})


def paths(headers: tuple[Header, ...]) -> dict[str, Path]:
    """tensor → its file."""
    return {entry.name: h.path for h in headers for entry in h.entries}
