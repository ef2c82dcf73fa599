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
from pathlib import Path
from typing import Any

import tiny_models
import torch
from patch_sweep import difference
from patch_sweep import run as run_whole

from ropewalk.configs import resolve
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


def try_out(unit: tiny_models.Unit, folder: Path) -> tuple[str, float, float, str]:
    """(model type, error, effect, words) of one model.

    Raises:
        Exception: it cannot be built, converted or loaded.
    """
    with quiet():
        model, given = tiny_models.working(unit, run)
        wanted = run(model, given)
        model.save_pretrained(folder / "a")
        resolved = resolve(folder / "a")
        (was,) = layouts(resolved)
        to = "half" if was == "interleaved" else "interleaved"
        done = convert(folder / "a", folder / "b", to=to)
        convert(folder / "b", folder / "c", to=str(was))
        for path in (folder / "a").glob("*.safetensors"):
            if path.read_bytes() != (folder / "c" / path.name).read_bytes():
                raise ValueError("it does not come back")
        again = unit.model.from_pretrained(folder / "b").float().eval()  # pyright: ignore[reportAttributeAccessIssue]
        plain = difference(wanted, run(again, given))
        if done.recorded not in (None, "ropewalk_layout"):
            old = unit.model.from_pretrained(folder / "b", **{done.recorded: was == "interleaved"})  # pyright: ignore[reportAttributeAccessIssue]
            effect = difference(wanted, run(old.float().eval(), given))
            return str(done.model_type), plain, effect, str(done.modules)
        patch(again)
        run(again, given)
        if not relaid(again, to):
            raise ValueError("no rotation of its attention can be replaced")
        error = difference(wanted, run(again, given))
        return str(done.model_type), error, plain, str(done.modules)


def best(unit: tiny_models.Unit) -> tuple[str, str]:
    """(model type, verdict) of one model, in the packing that is known or any that works."""
    reasons: list[str] = []
    for family in (None, *CANDIDATES):
        if family is not None:
            families.KNOWN = _Any(family)
        folder = Path(tempfile.mkdtemp())
        try:
            name, error, effect, words = try_out(unit, folder)
        except Exception as failure:
            reason = f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:230]
            if "packs q and k is not known" not in reason:
                reasons.append(reason)
                if " rows " not in reason and "packed" not in reason:
                    break
            continue
        finally:
            families.KNOWN = KNOWN
            shutil.rmtree(folder, ignore_errors=True)
        if error <= BOUND and effect >= SEEN:
            how = "known" if family is None else f"TRY {family}"
            return name, f"{how}: error {error:.1e}, effect {effect:.1e}; {words}"
        reasons.append(f"error {error:.1e}, effect {effect:.1e}; {words}")
        if family is None:
            return name, "WRONG " + reasons[0]
    return "?", reasons[0] if reasons else "nothing was tried"


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


def main() -> int:
    """Run the sweep; 1 if a known type computes something else."""
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    files = [tiny_models.file_of(n) for n in names] or tiny_models.modeling_files()
    wrong = 0
    for file in files:
        for unit in chosen(file):
            name, verdict = best(unit)
            wrong += verdict.startswith("WRONG")
            print(f"{unit.config.model_type}\t{unit.name}\t{name}\t{verdict}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
