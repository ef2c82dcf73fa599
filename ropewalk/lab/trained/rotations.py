"""Every rotation of q and k in a running model: looked at, and changed on the way.

The model's own functions go on rotating; :func:`ropewalk.models.patch` finds them and proves how
each pairs its lanes. Which of its tensors is q and which is k is told by what they do: another
query at a token changes what comes out at that token alone, another key what comes out later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.lab.trained.probing import TOKENS, short_ids, states
from ropewalk.lab.trained.turning import Turning, canonical, restored, spoken_tables
from ropewalk.models.applied import Applied
from ropewalk.models.fused import original_class, place_of, restore
from ropewalk.models.patching import patch
from ropewalk.models.report import Report

Results = tuple[Tensor, ...]
MIDDLE = TOKENS // 2
"""The token whose query or key is changed to see which it is."""
STRONG = 1e3
"""By how much, so that a softmax shows it."""


class Change:
    """What is done on the way; by itself nothing, and then a model's results keep their bits."""

    def before(self, seen: Turning) -> Turning:
        """What to rotate, and by which tables, instead: ``seen.changed(x=…, cos=…, sin=…)``."""
        return seen

    def after(self, seen: Turning, rotated: Tensor) -> Tensor:
        """What the model goes on with instead of ``rotated`` ``[batch, heads, tokens, lanes]``."""
        return rotated


@dataclass(frozen=True)
class Rotations:
    """Where a model rotates.

    model   whose rotations they are
    layers  its layers in order
    roles   for each layer what its rotary calls turn, in the order of the calls: ``"q"``, ``"k"``
            or None for anything else; no calls where a layer does not rotate
    """

    model: nn.Module
    layers: tuple[nn.Module, ...]
    roles: tuple[tuple[tuple[str | None, ...], ...], ...]

    @property
    def rotating(self) -> tuple[int, ...]:
        """The layers that rotate."""
        return tuple(i for i, calls in enumerate(self.roles) if calls)


def rotations_of(model: nn.Module) -> Rotations:
    """Find the rotations of a causal language model, in a few passes of eleven tokens.

    Raises:
        TypeError: it is no causal language model.
        ValueError: it rotates nowhere, or in a way that was not recognised, or does not run on
            tokens alone.
    """
    name = type(model).__name__
    ids = short_ids(model)
    with _patched(model) as report:
        ran = _modules_that_run(model, lambda: states(model, ids))
        left = [(m, why) for m, why in report.left.items() if m.split(": ")[0] in ran]
        if left:
            raise ValueError(
                f"{name}: a rotation could not be followed, {left[0][0]}: {left[0][1]}; models "
                "whose rotary functions ropewalk.models.patch fuses can be measured"
            )
        inside = {n: m for n, m in model.named_modules() if n in ran and place_of(m) is not None}
        layers = _layers(model, list(inside.values()))
        seen: list[list[Applied]] = [[] for _ in layers]
        with _answered(model, layers, lambda i, call: _note(seen, i, call)):
            states(model, ids)
        if not any(seen):
            raise ValueError(f"{name}: {_nothing(model)}")
        return Rotations(model, tuple(layers), tuple(_roles(model, layers, seen, ids)))


@contextmanager
def intercepting(rotations: Rotations, change: Change) -> Iterator[None]:
    """Let every rotation of q and k go through ``change``; afterwards the model is as before."""
    layers = list(rotations.layers)
    calls = _Calls(rotations, change)
    with _patched(rotations.model), _answered(rotations.model, layers, calls):
        yield


class _Calls:
    """Answers rotary calls, whose number in their layer says what they turn."""

    def __init__(self, rotations: Rotations, change: Change) -> None:
        self.roles, self.change = rotations.roles, change
        self.next: list[int] = [0] * len(rotations.layers)

    def __call__(self, layer: int, call: Applied) -> Results:
        number = self.next[layer] % len(self.roles[layer])
        self.next[layer] = number + 1
        return changed(call, layer, self.roles[layer][number], self.change)


def changed(call: Applied, layer: int, roles: tuple[str | None, ...], change: Change) -> Results:
    """The results of a rotary call that goes through ``change``."""
    given = [
        canonical(call, x, layer, role) if role is not None else None
        for x, role in zip(call.tensors, roles, strict=True)
    ]
    wanted = [None if seen is None else change.before(seen) for seen in given]
    tensors = tuple(
        x if new is None or old is None or new.x is old.x else restored(call, x, new.x)
        for x, old, new in zip(call.tensors, given, wanted, strict=True)
    )
    made: dict[tuple[int, int], Results] = {}
    results = []
    for i, (old, new) in enumerate(zip(given, wanted, strict=True)):
        cos, sin = (
            (call.cos, call.sin) if old is None or new is None else spoken_tables(call, old, new)
        )
        key = id(cos), id(sin)
        if key not in made:
            made[key] = call.own(tensors, cos, sin)
        y = made[key][i]
        if new is not None:
            shown = canonical(replace(call, tensors=(y,)), y, layer, new.role).x
            after = change.after(new, shown)
            y = y if after is shown else restored(call, y, after)
        results.append(y)
    return tuple(results)


@contextmanager
def _patched(model: nn.Module) -> Iterator[Report]:
    """The model patched; afterwards only what was patched before is."""
    before = {id(m) for m in model.modules() if original_class(m) is not None}
    try:
        yield patch(model)
    finally:
        for module in model.modules():
            if id(module) not in before and original_class(module) is not None:
                restore(module)


@contextmanager
def _answered(
    model: nn.Module, layers: list[nn.Module], answer: Callable[[int, Applied], Results]
) -> Iterator[None]:
    """Let ``answer`` answer for each rotary call, told the layer that runs."""
    running: list[int] = []

    def instead(call: Applied) -> Results:
        if not running:
            return call.own(call.tensors, call.cos, call.sin)
        return answer(running[-1], call)

    def begin(index: int) -> Any:
        return lambda *_: running.append(index)

    def end(*_: Any) -> None:
        running.pop()

    places = [place for m in model.modules() if (place := place_of(m)) is not None]
    with ExitStack() as stack:
        for i, layer in enumerate(layers):
            stack.callback(layer.register_forward_pre_hook(begin(i)).remove)
            stack.callback(layer.register_forward_hook(end, always_call=True).remove)
        for place in places:
            stack.callback(setattr, place, "instead", place.instead)
            place.instead = instead
        yield


def _modules_that_run(model: nn.Module, run: Callable[[], object]) -> set[str]:
    """The names of the modules whose forward is called."""
    ran: set[str] = set()
    with ExitStack() as stack:
        for name, module in model.named_modules(remove_duplicate=False):
            hook = module.register_forward_pre_hook(lambda *_, name=name: ran.add(name))
            stack.callback(hook.remove)
        run()
    return ran


def _layers(model: nn.Module, rotating: list[nn.Module]) -> list[nn.Module]:
    """The longest list of modules that has all that rotate in it."""
    wanted = {id(m) for m in rotating}
    if not wanted:
        raise ValueError(f"{type(model).__name__}: {_nothing(model)}")
    found = [
        each
        for each in model.modules()
        if isinstance(each, nn.ModuleList)
        and wanted <= {id(m) for layer in each for m in layer.modules()}
    ]
    if not found:
        raise ValueError(
            f"{type(model).__name__} rotates outside its layers, so no layer can be told; give a "
            "model whose attention modules rotate"
        )
    return list(max(found, key=len))


def _nothing(model: nn.Module) -> str:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    return (
        f"no rotation of q and k runs in it (model_type {kind!r}), so there are no pairs to "
        "measure; it has another encoding, such as ALiBi or absolute positions, or none: see "
        "'ropewalk explain'"
    )


def _note(seen: list[list[Applied]], layer: int, call: Applied) -> Results:
    seen[layer].append(call)
    return call.own(call.tensors, call.cos, call.sin)


def _roles(
    model: nn.Module, layers: list[nn.Module], seen: list[list[Applied]], ids: Tensor
) -> Iterator[tuple[tuple[str | None, ...], ...]]:
    """What the calls of each layer turn; layers with the same calls are tried once."""
    known: dict[Any, tuple[tuple[str | None, ...], ...]] = {}
    for i, calls in enumerate(seen):
        key = (type(layers[i]), tuple((c.function, *(x.shape for x in c.tensors)) for c in calls))
        if key not in known:
            known[key] = tuple(
                tuple(_role(model, layers, (i, n, t), ids) for t in range(len(call.tensors)))
                if len(call.tensors) < 3
                else ("q", "k", *[None] * (len(call.tensors) - 2))
                for n, call in enumerate(calls)
            )
        yield known[key]


def _role(
    model: nn.Module, layers: list[nn.Module], which: tuple[int, int, int], ids: Tensor
) -> str:
    """Whether tensor t of call n of layer i is q or k, by what it does to the layer's output."""
    layer, number, tensor = which
    outputs = [_output(model, layers, which, ids, factor) for factor in (1.0, STRONG)]
    apart = (outputs[0] - outputs[1]).abs().amax(-1) > 1e-4 * outputs[0].abs().max()
    others = torch.arange(len(apart)) != MIDDLE
    if bool(apart[others].any()):
        return "k"
    if bool(apart[MIDDLE]):
        return "q"
    raise ValueError(
        f"{type(model).__name__}: tensor {tensor} of rotation {number} in layer {layer} does "
        "nothing that tells a query from a key, so its rotations cannot be told apart"
    )


def _output(
    model: nn.Module,
    layers: list[nn.Module],
    which: tuple[int, int, int],
    ids: Tensor,
    factor: float,
) -> Tensor:
    """The output ``[tokens, …]`` of a layer with one token of one rotated tensor changed."""
    layer, number, tensor = which
    count, found = [0], []

    def answer(i: int, call: Applied) -> Results:
        results = list(call.own(call.tensors, call.cos, call.sin))
        if i == layer:
            if count[0] == number and factor != 1.0:
                y = results[tensor]
                shown = canonical(replace(call, tensors=(y,)), y, layer, "q").x.clone()
                signs = torch.ones(shown.shape[-1], dtype=shown.dtype, device=shown.device)
                signs[::3] = -1
                scale = shown.abs().max() or 1.0
                shown[..., MIDDLE, :] = signs * scale * factor
                results[tensor] = restored(call, y, shown)
            count[0] += 1
        return tuple(results)

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output
        axis = list(first.shape).index(TOKENS)
        found.append(first.detach().movedim(axis, 0).flatten(1).double().cpu())

    hook = layers[layer].register_forward_hook(keep)
    try:
        with _answered(model, layers, answer):
            states(model, ids)
    finally:
        hook.remove()
    return found[0]
