"""Convert a tiny random model of every architecture and compare what it computes.

    python scripts/convert_sweep.py [--write] [ARCHITECTURE …]

Each model is saved, converted to the other layout, loaded again from what was written, and run with
its own rotation replaced by the same one for the other layout: outputs must agree, and must not
without that. Types that ropewalk does not know are tried in every packing, so that the table in
``ropewalk/models/conversion/families.py`` can be kept. ``--write`` puts the list into
docs/converted.md.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tiny_models
import torch
from patch_sweep import difference
from patch_sweep import run as run_whole

from ropewalk.configs import resolve
from ropewalk.configs.layouts import RECORD
from ropewalk.models import convert, patch
from ropewalk.models.conversion import families
from ropewalk.models.conversion.names import part_of
from ropewalk.models.conversion.record import layouts
from ropewalk.models.fused import place_of

BOUND, SEEN = 2e-5, 1e-3
PAGE = Path(__file__).resolve().parent.parent / "docs" / "converted.md"
CANDIDATES = [
    families.Family(),
    families.Family(gated=True),
    *(families.Family(packing) for packing in ("blocks", "by_head", "by_group", "quarters")),
]


def run(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """The floating outputs of one call, without logits that are masked out."""
    return [x.masked_fill(x.abs() > 1e30, 0) for x in run_whole(model, given)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what loading and saving print."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def unevenly(model: Any) -> None:
    """Give lanes different scales where a norm has the same for all: moving them then shows."""
    random = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.dim() == 1 and len(parameter) > 1 and bool((parameter == parameter[0]).all()):
            parameter.data.uniform_(0.5, 1.5, generator=random)


def relaid(model: Any, layout: str) -> int:
    """Let the rotations in the self attention of the text part turn pairs of another layout."""
    count = 0
    for path, module in model.named_modules():
        place, part = place_of(module), part_of(f"{path}.q_proj.weight")
        if place is not None and part is not None and part.role == "q":
            if place.left:
                raise ValueError(f"left by the patch: {place.left}")
            place.layout = layout
            count += 1
    return count


@dataclass(frozen=True)
class Tried:
    """What came out for one model: relative errors of its outputs, and of attention run alone."""

    model_type: str
    was: str
    error: float
    effect: float
    alone: dict[str, float | str]

    @property
    def fine(self) -> bool:
        """Whether outputs agree, and would not without the other rotation."""
        return self.error <= BOUND and self.effect >= SEEN

    def __str__(self) -> str:
        return f"error {self.error:.1e}, effect {self.effect:.1e}, alone {self.alone}"


def try_out(unit: tiny_models.Unit, folder: Path) -> Tried:
    """Convert a tiny model of this class there and back, and run it.

    Raises:
        Exception: it cannot be built, converted or loaded.
    """
    with quiet():
        return compared(*tiny_models.working(unit, run), folder)


def compared(model: Any, given: dict[str, Any], folder: Path) -> Tried:
    """Convert ``model`` there and back, and run what was written.

    Raises:
        Exception: it cannot be converted or loaded, or does not come back.
    """
    unevenly(model)
    wanted = run(model, given)
    model.save_pretrained(folder / "a")
    (was,) = map(str, layouts(resolve(folder / "a")))
    to = "half" if was == "interleaved" else "interleaved"
    done = convert(folder / "a", folder / "b", to=to)
    convert(folder / "b", folder / "c", to=was)
    for path in (folder / "a").glob("*.safetensors"):
        if path.read_bytes() != (folder / "c" / path.name).read_bytes():
            raise ValueError("it does not come back")
    again = type(model).from_pretrained(folder / "b").float().eval()
    plain = difference(wanted, run(again, given))
    if done.recorded not in (None, RECORD):  # its class turns what the config says
        effect = difference(wanted, run(_as_before(type(model), folder), given))
        return Tried(str(done.model_type), was, plain, effect, done.modules)
    patch(again)
    run(again, given)
    if not relaid(again, to):
        raise ValueError("no rotation of its attention can be replaced")
    error = difference(wanted, run(again, given))
    return Tried(str(done.model_type), was, error, plain, done.modules)


def _as_before(cls: Any, folder: Path) -> Any:
    """The converted weights under the config of the source, which is wrong."""
    shutil.copytree(folder / "b", folder / "d")
    shutil.copy(folder / "a" / "config.json", folder / "d" / "config.json")
    return cls.from_pretrained(folder / "d").float().eval()


def best(unit: tiny_models.Unit) -> tuple[families.Family | None, Tried | str]:
    """(the packing if it is not known, what came out) in the known packing or any that works."""
    reasons: list[str] = []
    for family in (None, *CANDIDATES):
        if family is not None:
            families.KNOWN = _Any(family)
        folder = Path(tempfile.mkdtemp())
        try:
            tried = try_out(unit, folder)
        except Exception as failure:
            reason = f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:200]
            if "packs q and k is not known" not in reason:
                reasons.append(reason)
                if " rows " not in reason and "packed" not in reason:
                    break
            continue
        finally:
            families.KNOWN = KNOWN
            shutil.rmtree(folder, ignore_errors=True)
        if tried.fine or family is None:
            return family, tried
        reasons.append(str(tried))
    return None, reasons[0] if reasons else "nothing was tried"


KNOWN = families.KNOWN


class _Any(dict[str, Any]):
    """Every type, in one family."""

    def __init__(self, family: families.Family) -> None:
        super().__init__()
        self.family = family

    def get(self, _name: Any, _default: Any = None) -> Any:
        """This family."""
        return self.family


ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "Model")


def chosen(file: str) -> list[tiny_models.Unit]:
    """One class for each config of a file: the one with a head, if there is one."""
    with quiet():
        units = [u for u in tiny_models.units(file) if u.name.endswith(ENDINGS)]
    units = [u for u in units if not re.search("Vision|Audio|Video|Image", u.name)]
    found: dict[type, tiny_models.Unit] = {}
    for ending in reversed(ENDINGS):
        found |= {u.config: u for u in units if u.name.endswith(ending)}
    return list(found.values())


HEAD = """# Converted architectures

Written by `scripts/convert_sweep.py --write`; do not edit.

transformers {transformers}, torch {torch}. Each row is a tiny random model in float32, saved,
converted to the other layout, loaded from what was written and run with its own rotation replaced
by the same one for that layout. *Error* is the largest difference of an output over its largest
value; the bound is {bound:g}. *Without* is the same with the class's own rotation: how much a wrong
conversion would show. *Alone* is what `ropewalk convert` itself measured by running attention of
the class with the weights before and after; a dash where that could not be run. Each comes back
from a second conversion byte for byte.

| model_type | tried with | layout | error | without | alone |
|---|---|---|---|---|---|
"""


def page(rows: list[tuple[tiny_models.Unit, Tried]]) -> str:
    """The page of all that were proved, one row a type."""
    import transformers

    head = HEAD.format(
        transformers=transformers.__version__, torch=torch.__version__.split("+")[0], bound=BOUND
    )
    lines = {}
    for unit, tried in rows:
        alone = [value for value in tried.alone.values() if isinstance(value, float)]
        shown = f"{max(alone):.1e}" if alone else "–"
        lines.setdefault(
            tried.model_type,
            f"| {tried.model_type} | {unit.name} | {tried.was} | {tried.error:.1e} "
            f"| {tried.effect:.1e} | {shown} |",
        )
    return head + "\n".join(lines[name] for name in sorted(lines)) + "\n"


def main() -> int:
    """Run the sweep; 1 if a known type computes something else."""
    names = [a for a in sys.argv[1:] if a != "--write"]
    files = [tiny_models.file_of(n) for n in names] or tiny_models.modeling_files()
    rows, wrong = [], 0
    for file in files:
        for unit in chosen(file):
            family, tried = best(unit)
            verdict = "left"
            if isinstance(tried, Tried):
                verdict = "WRONG" if not tried.fine else f"TRY {family}" if family else "known"
                if verdict == "known":
                    rows.append((unit, tried))
            wrong += verdict == "WRONG"
            print(f"{unit.config.model_type}\t{unit.name}\t{verdict}\t{tried}", flush=True)
    if "--write" in sys.argv:
        PAGE.write_text(page(rows), encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
