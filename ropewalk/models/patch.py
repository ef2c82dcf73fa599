"""Put the fused rotation into a live transformers model, and take it out again."""

from __future__ import annotations

from types import MethodType

from torch import nn

from ropewalk.models.fused import ORIGINAL, fuse, fused_class, original_class, place_of, restore
from ropewalk.models.places import Place
from ropewalk.models.plan import plan
from ropewalk.models.report import Entry, Report


def patch(model: nn.Module) -> Report:
    """Replace every rotation of q and k in ``model`` by ropewalk's, with the model's own tables.

    What changes is rounding: the rotation is computed in float32 or wider and rounded once. Each
    module that rotates becomes an instance of a subclass of its class, so other models stay as they
    are; copies, pickles and saved files work as before. Patching twice changes nothing more.

    Args:
        model: a loaded model, or any of its modules; on any device, in any dtype.

    Returns:
        A :class:`Report`: which functions were fused in which modules, and what was left and why.

    Raises:
        TypeError: ``model`` is not a module.
    """
    _require_module(model)
    report = Report(type(model).__name__)
    entries: dict[tuple[type, str], Entry] = {}
    for name, module in model.named_modules():
        cls = original_class(module) or type(module)
        place = _fused(module)
        for finding in plan(cls).findings:
            key = (cls, finding.function)
            if key not in entries:
                entries[key] = Entry(
                    finding.function, cls.__name__, finding.form, finding.reason
                )
            entries[key].modules.append(name)
            entries[key].places.append(place or Place(left=_replaced(module)))
    report.entries = list(entries.values())
    return report


def _fused(module: nn.Module) -> Place | None:
    """The place of ``module``, fused if it can be and is not yet."""
    if original_class(module) is None and fused_class(type(module)) is not None:
        return None if _replaced(module) else fuse(module)
    return place_of(module)


def _replaced(module: nn.Module) -> str | None:
    """Why the rewritten forward of ``module`` would not run, if it would not.

    Hooks that wrap a forward keep the method they wrap beside it, and are given the fused one.
    """
    own = module.__dict__
    methods = plan(type(module)).methods
    if "forward" not in own or "forward" not in methods:
        return None
    kept = [v for v in own.values() if isinstance(v, MethodType) and v.__self__ is module]
    if any(method.__func__ is methods["forward"][0] for method in kept):
        return None
    return "its forward was replaced by another on this instance"


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
