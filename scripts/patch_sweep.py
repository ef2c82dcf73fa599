"""Patch a tiny random model of every architecture and compare its outputs before and after.

    python scripts/patch_sweep.py [--write] [ARCHITECTURE …]

``--write`` puts the table into docs/patched.md.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import tiny_models
import tiny_parts
import torch

import ropewalk
from ropewalk.models import applied, forms, fused, idiom, places, rotation

PAGE = Path(__file__).resolve().parent.parent / "docs" / "patched.md"
BOUND = 2e-6
LEAST = 1e-4
"""Effect of a rotation left out below which a model says nothing about it."""


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
        """As :func:`ropewalk.models.forms.turned`."""
        here = places.here()
        if here is not None and here.left is None:
            self.places.append(here)
        return forms.turned(*args)


@contextmanager
def replaced_turn(model: Any, turn: Any) -> Iterator[Any]:
    """Let ``turn`` do what ``model`` rotates with, at settled places too."""
    modules: tuple[Any, ...] = (rotation, idiom, applied)
    with ExitStack() as stack:
        for place in filter(None, map(fused.place_of, model.modules())):
            place.settled = False
        stack.enter_context(mock.patch.object(places.Place, "settle"))
        for module in modules:
            stack.enter_context(mock.patch.object(module, "turned", turn))
        yield turn


def sweep_unit(unit: tiny_models.Unit | tiny_parts.Alone, row: Row) -> None:
    """Build one model, patch it and compare."""
    if isinstance(unit, tiny_models.Unit):
        compare(unit, row, *tiny_models.working(unit, run))
        return
    try:
        compare(unit, row, *tiny_parts.working_alone(unit, run))
    except NothingRan:  # tables of the other kind are left alone, as they should be
        compare(unit, row, *tiny_parts.working_alone(unit, run, interleaved=True))


class NothingRan(ValueError):
    """No fused rotation ran."""


def compare(
    unit: tiny_models.Unit | tiny_parts.Alone, row: Row, model: Any, given: dict[str, Any]
) -> None:
    """Outputs before and after the patch, and with the rotation left out."""
    before = run(model, given)
    if difference(before, run(model, given)) > 0:
        raise ValueError("it gives other outputs at a second call")
    if not ropewalk.models.patch(model):
        return
    run(model, given)  # each place compares its first call with the model's own
    after = [run(model, given)]
    with replaced_turn(model, Recorder()) as recorder:
        after.append(run(model, given))
    owner = {id(fused.place_of(m)): type(m).__name__ for m in model.modules()}
    ran = {owner[id(place)] for place in recorder.places}
    if not ran:
        raise NothingRan("no rotation ran")
    with replaced_turn(model, lambda tensors, *_: tensors):
        effect = difference(before, run(model, given))
    if effect < LEAST:
        raise ValueError("its outputs do not depend on the rotation")
    row.ran |= ran
    row.units.append(unit.name)
    row.error = max(row.error, *(difference(before, outputs) for outputs in after))
    row.effect = min(row.effect, effect)
    ropewalk.models.unpatch(model)
    if difference(before, run(model, given)) > 0:
        raise ValueError("unpatch does not restore")


def sweep(file: str) -> Row:
    """One architecture: run model classes until every class that rotates has run."""
    module = tiny_models.load(file)
    wanted = {cls.__name__ for cls in tiny_models.owners(module)}
    row = Row(file, sorted(wanted))
    alone = [tiny_parts.Alone(file, cls) for cls in tiny_models.owners(module)]
    for unit in [*tiny_models.units(file), *alone]:
        if wanted <= row.ran:
            break
        if isinstance(unit, tiny_parts.Alone) and unit.model.__name__ in row.ran:
            continue
        try:
            sweep_unit(unit, row)
        except Exception as error:
            row.problems.append(f"{unit.name}: {type(error).__name__} {str(error)[:160]}")
    return row


NOTES = {
    "FalconFlashAttention2": "runs with flash attention only",
    "MiniMaxM3VLIndexer": "returns the blocks that it chose, no numbers to compare",
    "VJEPA2RopeAttention": "left: it computes its angles inside, in two layouts at once",
    "MusicFlamingoModel": "rotates audio features by time stamps; needs a processor's input",
    "DeepseekV4HCACompressor": "compresses sequences longer than a tiny model's",
    "NeuCodecAttention": "rotates by the number of the head, which no output depends on",
    "Xcodec2Attention": "rotates by the number of the head, which no output depends on",
}
"""Why some classes that rotate were not run."""


def note(row: Row, cls: str) -> str:
    """Why ``cls`` was not run."""
    if cls in NOTES:
        return NOTES[cls]
    reasons = [p for p in row.problems if p.startswith(cls)] or row.problems or ["not reached"]
    return reasons[0].split(": ", 1)[-1][:90].replace("|", "/").replace("\n", " ")


def page(rows: list[Row]) -> str:
    """The committed table."""
    import transformers

    rotating = [row for row in rows if row.owners]
    whole = [row for row in rotating if set(row.owners) <= row.ran]
    lines = [
        "# Patched architectures",
        "",
        "Written by `scripts/patch_sweep.py --write`; do not edit.",
        "",
        f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, kernel "
        f"{ropewalk.kernels.active()}. Of {len(rotating)} modeling files in which a class rotates "
        f"q or k, {len(whole)} ran with every such class patched, "
        f"{sum(bool(row.ran) for row in rotating)} with at least one. Each row is a tiny random "
        "model in float32, or where that cannot be built the class alone, run before and after the "
        "patch with equal inputs. *Error* is the largest difference of an output over its largest "
        "value; the bound is 2e-6. *Without* is the same with the rotation left out: how much a "
        "wrong one would show.",
        "",
        "| architecture | rotates in | ran | error | without | not run |",
        "|---|---|---|---|---|---|",
    ]
    for row in rotating:
        missing = [f"{cls}: {note(row, cls)}" for cls in row.owners if cls not in row.ran]
        cells = [
            row.file.split("/")[1].removeprefix("modeling_"),
            ", ".join(row.owners),
            ", ".join(row.units) or "–",
            f"{row.error:.1e}" if row.ran else "–",
            f"{row.effect:.1e}" if row.ran else "–",
            "; ".join(missing) or "–",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    others = ", ".join(
        row.file.split("/")[1].removeprefix("modeling_") for row in rows if not row.owners
    )
    lines += ["", f"Speak of rotations but rotate nothing themselves: {others}.", ""]
    return "\n".join(lines)


def quiet() -> None:
    """No warnings, no progress bars."""
    import warnings

    from transformers import logging

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()


def main(arguments: list[str]) -> int:
    """Sweep what is named, or all; 1 if an error is too large."""
    quiet()
    write = "--write" in arguments
    chosen = [a for a in arguments if a != "--write"]
    rows = []
    for file in tiny_models.modeling_files():
        if chosen and file.split("/")[0] not in chosen:
            continue
        start = time.time()
        row = sweep(file)
        rows.append(row)
        missing = sorted(set(row.owners) - row.ran)
        name = file.split("/")[1].removeprefix("modeling_")
        print(
            f"{name:28} {row.error:.1e} without {row.effect:.1e} {time.time() - start:5.1f} s",
            row.units,
        )
        for problem in row.problems if missing else ():
            print("      ", problem)
        sys.stdout.flush()
    rotating = [row for row in rows if row.owners]
    print(sum(set(row.owners) <= row.ran for row in rotating), "of", len(rotating))
    if write:
        PAGE.write_text(page(rows), encoding="utf-8")
    return int(any(row.error > BOUND for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
