"""Put the fused rotation into a live transformers model, and take it out again."""

from __future__ import annotations

from torch import nn

from ropewalk.models.exact import make_exact, restore_tables, standing
from ropewalk.models.fused import (
    ORIGINAL,
    fuse,
    fused_class,
    original_class,
    place_of,
    replaced,
    restore,
)
from ropewalk.models.places import Place
from ropewalk.models.plan import plan
from ropewalk.models.report import Entry, Report


def patch(model: nn.Module, *, exact: bool = False) -> Report:
    """Replace every rotation of q and k in ``model`` by ropewalk's, with the model's own tables.

    What changes is rounding: the rotation is computed in float32 or wider and rounded once. Each
    module that rotates becomes an instance of a subclass of its class, so other models stay as they
    are; copies, pickles and saved files work as before. Patching twice changes nothing more.

    Args:
        model: a loaded model, or any of its modules; on any device, in any dtype.
        exact: also take the tables from exact phases (see :mod:`ropewalk.models.exact`). For models
            that are trained anew: it changes the angles, by as much as the report says. False
            leaves exact tables of an earlier call in place, and the report lists them.

    Returns:
        A :class:`Report`: which functions were fused in which modules, and what was left and why.

    Raises:
        TypeError: ``model`` is not a module, or ``exact`` is not a bool.
    """
    _require_module(model)
    if not isinstance(exact, bool):
        raise TypeError(f"exact={exact!r} must be True or False")
    report = Report(type(model).__name__)
    entries: dict[tuple[type, str], Entry] = {}
    for name, module in model.named_modules():
        cls = getattr(type(module), ORIGINAL, type(module))
        place = _fused(module)
        for finding in plan(cls).findings:
            key = (cls, finding.function)
            if key not in entries:
                entries[key] = Entry(finding.function, cls.__name__, finding.form, finding.reason)
            entries[key].modules.append(name)
            entries[key].places.append(place or Place())
    report.entries = list(entries.values())
    report.tables = make_exact(model) if exact else standing(model)
    return report


def _fused(module: nn.Module) -> Place | None:
    """The place of ``module``, fused if it can be and is not yet."""
    cls = type(module)
    if getattr(cls, ORIGINAL, None) is not None:
        return place_of(module)
    if fused_class(cls) is None:
        return None
    reason = replaced(module, plan(cls).methods["forward"].original)
    return fuse(module) if reason is None else Place(left=reason)


def unpatch(model: nn.Module) -> int:
    """Undo :func:`patch`: every module gets its class, its methods and its state back.

    Returns:
        How many modules were restored.

    Raises:
        TypeError: ``model`` is not a module.
        ValueError: a patched module was wrapped into a further class since.
    """
    _require_module(model)
    restored = 0
    for name, module in model.named_modules():
        if restore_tables(module):
            restored += 1
        if original_class(module) is not None:
            restore(module)
            restored += 1
        elif getattr(type(module), ORIGINAL, None) is not None:
            raise ValueError(
                f"{name}: {type(module).__mro__[0]} was derived from the patched class; undo that "
                "first, or unpatch before it (as with fully_shard)"
            )
    return restored


def _require_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
