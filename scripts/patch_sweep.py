"""Patch a tiny random model of every architecture and compare its outputs before and after.

    python scripts/patch_sweep.py [ARCHITECTURE …]
"""

from __future__ import annotations

import copy
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

import ropewalk
import tiny_models
from ropewalk.models import forms, fused, idiom, methods, places, recognise


@dataclass
class Row:
    """What came out for one architecture."""

    file: str
    owners: list[str]
    ran: set[str] = field(default_factory=set)
    units: list[str] = field(default_factory=list)
    error: float = 0.0
    effect: float = float("inf")
    problems: list[str] = field(default_factory=list)


def difference(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    """Largest max-abs difference over max-abs of the outputs."""
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        finite = torch.isfinite(x) & torch.isfinite(y)
        if not bool((finite == torch.isfinite(x)).all()):
            return float("inf")
        if finite.any():
            scale = x[finite].abs().max().item() or 1.0
            worst = max(worst, (x[finite] - y[finite]).abs().max().item() / scale)
    return worst


def run(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """The floating outputs of one call."""
    torch.manual_seed(0)
    with torch.no_grad():
        return tiny_models.outputs(model(**copy.deepcopy(given)))


class Recorder:
    """Rotates, and notes at which places."""

    def __init__(self) -> None:
        self.places: list[Any] = []

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        self.places.append(places.here())
        return forms.turned(*args)


@contextmanager
def replaced_turn(turn: Any) -> Iterator[Any]:
    """Let ``turn`` do what patched models rotate with."""
    for module in (recognise, idiom, methods):
        module.turned = turn
    try:
        yield turn
    finally:
        for module in (recognise, idiom, methods):
            module.turned = forms.turned


def sweep_unit(unit: tiny_models.Unit | tiny_models.Alone, row: Row) -> None:
    """Build one model, patch it and compare."""
    if isinstance(unit, tiny_models.Unit):
        compare(unit, row, *tiny_models.working(unit, run))
        return
    try:
        compare(unit, row, *tiny_models.working_alone(unit, run))
    except NothingRan:  # tables of the other kind are left alone, as they should be
        compare(unit, row, *tiny_models.working_alone(unit, run, interleaved=True))


class NothingRan(ValueError):
    """No fused rotation ran."""


def compare(
    unit: tiny_models.Unit | tiny_models.Alone, row: Row, model: Any, given: dict[str, Any]
) -> None:
    """Outputs before and after the patch, and with the rotation left out."""
    before = run(model, given)
    if difference(before, run(model, given)) > 0:
        raise ValueError("it gives other outputs at a second call")
    if not ropewalk.models.patch(model):
        return
    after = run(model, given)
    with replaced_turn(Recorder()) as recorder:
        after = run(model, given)
    owner = {id(fused.place_of(m)): type(m).__name__ for m in model.modules()}
    ran = {owner[id(place)] for place in recorder.places}
    if not ran:
        raise NothingRan("no rotation ran")
    with replaced_turn(lambda tensors, *_: tensors):
        effect = difference(before, run(model, given))
    row.ran |= ran
    row.units.append(unit.name)
    row.error = max(row.error, difference(before, after))
    row.effect = min(row.effect, effect)
    ropewalk.models.unpatch(model)
    if difference(before, run(model, given)) > 0:
        raise ValueError("unpatch does not restore")


def sweep(file: str) -> Row:
    """One architecture: run model classes until every class that rotates has run."""
    module = tiny_models.load(file)
    wanted = {cls.__name__ for cls in tiny_models.owners(module)}
    row = Row(file, sorted(wanted))
    alone = [tiny_models.Alone(file, cls) for cls in tiny_models.owners(module)]
    for unit in [*tiny_models.units(file), *alone]:
        if wanted <= row.ran:
            break
        if isinstance(unit, tiny_models.Alone) and unit.model.__name__ in row.ran:
            continue
        try:
            sweep_unit(unit, row)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            row.problems.append(
                f"{unit.name}: {type(error).__name__} {str(error)[:160]} ({where.name}:{where.lineno})"
            )
    return row


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    from transformers import logging

    logging.set_verbosity_error()
    chosen = sys.argv[1:]
    good = 0
    rows = []
    for file in tiny_models.modeling_files():
        if chosen and file.split("/")[0] not in chosen:
            continue
        start = time.time()
        row = sweep(file)
        rows.append(row)
        missing = sorted(set(row.owners) - row.ran)
        good += bool(row.owners) and not missing
        print(
            "OK " if row.owners and not missing else "-- ",
            f"{file.split('/')[1][9:]:28} {row.error:.1e} effect {row.effect:.1e} {time.time() - start:5.1f}s",
            row.units,
            f"MISSING {missing}" if missing else "",
            flush=True,
        )
        if missing or chosen:
            for problem in row.problems:
                print("      ", problem, flush=True)
    print(good, "of", len(rows))
