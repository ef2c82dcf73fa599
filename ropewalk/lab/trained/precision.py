"""What a trained model loses on text when its keys are held in few bits, or its tables are narrow.

Keys are quantised as a cache would hold them: before the rotation, k' = Q(k), turned in full; or
after it, k' = Q(R k). Attention reads R Q(k) or Q(R k), and everything else is as it was. The scale
of a channel is over all tokens of the passage, those to come too, which a cache that grows does not
know. Tables are made otherwise at the passage's own positions, and at the last ones of the model's
native context, where low precision shows. Every loss is compared, passage by passage, with that of
the untouched model at the same positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.configs import resolve
from ropewalk.lab.trained.losses import Told, body_of, counting, token_losses
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.precision_rows import Keys, Precision, Row, Tables, Variant
from ropewalk.lab.trained.probing import require_causal
from ropewalk.lab.trained.quantised import SHARES, formats_of, quantised, squared_error
from ropewalk.lab.trained.rotary_tables import TABLES, Maker, made_otherwise, makers
from ropewalk.lab.trained.rotations import Change, Rotations, intercepting, rotations_of
from ropewalk.lab.trained.spread import apart, spread
from ropewalk.lab.trained.turning import Turning
from ropewalk.models.auditing.state import undisturbed

FORMS = ("int8", "int4", "e4m3")
WHEN = ("before", "after")
OWN = next(iter(TABLES))


def measure(
    model: nn.Module,
    texts: Sequence[Passage],
    *,
    forms: Sequence[str] = FORMS,
    told: Told = lambda done, of: None,
) -> Precision:
    """Losses with quantised keys and with tables made otherwise; the model is left as it was.

    Args:
        model: a causal language model of transformers that rotates q and k.
        texts: passages of one length.
        forms: of keys, keys of :data:`ropewalk.lab.trained.quantised.FORMATS`.
        told: called with how many layers have run, and how many there are.

    Raises:
        TypeError: the model is no causal language model.
        ValueError: nothing rotates in it or its rotation is not found, its own loss is not finite,
            or an argument does not fit.
    """
    lengths = {len(text.ids) for text in texts}
    if len(lengths) != 1:
        raise ValueError(f"texts have lengths {sorted(lengths)}; give passages of one length")
    (length,) = lengths
    body, context = getattr(model, body_of(model)), _native(model)
    keys = [Keys(form, when, per) for form in formats_of(forms) for when in WHEN for per in SHARES]
    with undisturbed(model):
        require_causal(model)
        rotations = rotations_of(model)
        notes: list[str] = []
        made, firsts = _makers(model, notes), _firsts(body, length, context, notes)
        tables = [Tables(how, first) for first in firsts for how in TABLES] if made else []
        found: dict[Variant, _Found] = {
            variant: _Found() for variant in (*keys, *(tables or [Tables(OWN, 0)]))
        }
        with counting(model, len(found) * len(texts), told):
            for text in texts:
                for variant, so_far in found.items():
                    with _treated(rotations, body, made, variant, so_far):
                        so_far.add(token_losses(model, text.ids).mean().item())
    return _result(model, texts, context, found, [*_standing(model, found), *notes])


class _Found:
    """Losses of one variant, a passage each, and errors of the keys of the passage that runs."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.errors: list[float] = []
        self.layers: list[float] = []
        self.lanes: set[int] = set()

    def add(self, loss: float) -> None:
        """A passage has run."""
        self.losses.append(loss)
        if self.layers:
            self.errors.append(fmean(self.layers))
        self.layers = []


class _Held(Change):
    """Keys through a format, and the error of each."""

    def __init__(self, variant: Keys, found: _Found) -> None:
        self.variant, self.found = variant, found

    def before(self, seen: Turning) -> Turning:
        return seen.changed(x=self._held(seen.x)) if self._applies(seen, "before") else seen

    def after(self, seen: Turning, rotated: Tensor) -> Tensor:
        return self._held(rotated) if self._applies(seen, "after") else rotated

    def _applies(self, seen: Turning, when: str) -> bool:
        return seen.role == "k" and self.variant.when == when

    def _held(self, k: Tensor) -> Tensor:
        kept = quantised(k, self.variant.form, self.variant.per)
        self.found.lanes.add(k.shape[-1])
        self.found.layers.append(squared_error(kept, k))
        return kept


def _native(model: nn.Module) -> int | None:
    context = resolve(model.config).text().context
    return context.native or context.declared


def _standing(model: nn.Module, found: Mapping[Variant, _Found]) -> Iterator[str]:
    """A note where the model rotates only a part of its keys, and passes the rest by."""
    widths = {group.head_dim for group in resolve(model.config).text().layers}
    lanes = {n for each in found.values() for n in each.lanes}
    if lanes and max(lanes) < max(widths):
        yield (
            f"only the {max(lanes)} lanes of a key that go through the rotation are quantised, of "
            f"{max(widths)}; the others are held as they are"
        )


def _makers(model: nn.Module, notes: list[str]) -> list[Maker]:
    try:
        return makers(model)
    except ValueError as error:
        notes.append(str(error))
        return []


def _firsts(body: nn.Module, length: int, context: int | None, notes: list[str]) -> tuple[int, ...]:
    """Where the first token of a passage stands: at 0, and so that the last ends the context."""
    if context is None:
        notes.append("tables only at a passage's own positions: the config says no context")
    elif "position_ids" not in inspect.signature(body.forward).parameters:
        notes.append("tables only at a passage's own positions: the model takes no position_ids")
    elif context > length:
        return 0, context - length
    else:
        notes.append(f"passages of {length:,} tokens leave no room in a context of {context:,}")
    return (0,)


@contextmanager
def _treated(
    rotations: Rotations, body: nn.Module, made: list[Maker], variant: Variant, found: _Found
) -> Iterator[None]:
    """The model under one variant."""
    if isinstance(variant, Keys):
        with intercepting(rotations, _Held(variant, found)):
            yield
    else:
        with made_otherwise(made, variant.how), placed(body, variant.first):
            yield


@contextmanager
def placed(body: nn.Module, first: int) -> Iterator[None]:
    """Within it the tokens of ``body`` stand at positions from ``first``; left alone if it is 0."""

    def hook(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        tokens = given["input_ids"].shape[-1]
        where = torch.arange(first, first + tokens, device=given["input_ids"].device)
        return args, {**given, "position_ids": where[None]}

    handle = body.register_forward_pre_hook(hook, with_kwargs=True) if first else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def _result(
    model: nn.Module,
    texts: Sequence[Passage],
    context: int | None,
    found: dict[Variant, _Found],
    notes: list[str],
) -> Precision:
    own = {v.first: f.losses for v, f in found.items() if isinstance(v, Tables) and v.how == OWN}
    return Precision(
        model=type(model).__name__,
        arithmetic=str(next(model.parameters()).dtype).removeprefix("torch."),
        length=len(texts[0].ids),
        passages=tuple(text.name for text in texts),
        context=context,
        own={first: spread(losses) for first, losses in own.items()},
        rows=tuple(_row(v, f, own) for v, f in found.items() if v != Tables(OWN, 0)),
        notes=tuple(notes),
    )


def _row(variant: Variant, found: _Found, own: Mapping[int, list[float]]) -> Row:
    """A row; the model's own tables far off are compared with those at 0."""
    first = variant.first if isinstance(variant, Tables) and variant.how != OWN else 0
    reference = own[first]
    error = spread(found.errors) if found.errors else None
    return Row(variant, spread(found.losses), apart(found.losses, reference), error)
