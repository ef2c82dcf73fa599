"""The loss by place in a long text, for every way to lengthen a model and for none.

Losses are means over buckets of tokens. Texts are not equally hard from end to end, so each bucket
is also read alone, as a short text of its own, by the untouched model: loss less that is what the
place in the text does. A model whose frequencies depend on the length of the text (dynamic NTK,
LongRoPE) reads the buckets within its native length in a text that ends there, and the others in
the whole. A method that the model cannot be run with is refused with its reason, and the others are
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from ropewalk.configs.extend import Plan, Unsuited, extend
from ropewalk.configs.parameter import LARGEST_FACTOR
from ropewalk.configs.resolved import Resolved
from ropewalk.lab.trained.curves import Curve, Lengthened, Refused
from ropewalk.lab.trained.losses import Told, counting, token_losses
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.probing import require_causal
from ropewalk.lab.trained.variants import variant
from ropewalk.models.auditing.state import undisturbed
from ropewalk.models.said import said

BUCKET = 2048
LEAST = 4
"""Tokens of a bucket: what is left at the end of a text then has two at least."""
DEFAULT = ("yarn", "ntk", "linear")
UNTOUCHED = "untouched"


def plans(
    resolved: Resolved, to: int, methods: Sequence[str], native: int | None
) -> list[Plan | Refused]:
    """The plans that methods name: ``yarn``, or ``yarn:4`` for a factor that is given.

    A method that is not for this config, such as longrope without its lists, is refused; not all
    may be.

    Raises:
        ValueError: a method is unknown, named twice or has no usable factor, there is nothing to
            lengthen, or every method is refused.
    """
    found: dict[str, Plan | Refused] = {}
    for name in methods:
        method, factor = _parsed(name)
        each = _plan(resolved, to, method, native, factor)
        if isinstance(each, Plan) and to <= each.native:
            raise ValueError(
                f"to={to} is within the native {each.native} tokens, so there is nothing to "
                "lengthen; give a longer one"
            )
        if label(each) in found:
            raise ValueError(f"methods names {label(each)} twice; name each once")
        found[label(each)] = each
    if not found:
        raise ValueError(f"methods is empty; name some of {', '.join(DEFAULT)}")
    refused = [each for each in found.values() if isinstance(each, Refused)]
    _require_some(len(found) - len(refused), refused)
    return list(found.values())


def label(each: Plan | Refused) -> str:
    """What a method is called in a table."""
    return each.name if isinstance(each, Refused) else _label(each.method, each.factor)


def _label(method: str, factor: float | None) -> str:
    return method if factor is None else f"{method} ×{factor:.4g}"


def _parsed(name: str) -> tuple[str, float | None]:
    method, colon, words = name.partition(":")
    if not method:
        raise ValueError(f"methods has an empty name; name some of {', '.join(DEFAULT)}")
    if not colon:
        return method, None
    try:
        factor = float(words)
    except ValueError:
        raise ValueError(f"method {name!r}: write a name, or a name and a factor: yarn:4") from None
    if not 1 < factor <= LARGEST_FACTOR:
        raise ValueError(
            f"method {name!r}: factor={factor!r} must be from 1 to {LARGEST_FACTOR}, without 1 "
            "itself, which is the untouched model"
        )
    return method, factor


def _plan(
    resolved: Resolved, to: int, method: str, native: int | None, factor: float | None
) -> Plan | Refused:
    try:
        return extend(resolved, to, method, native=native, factor=factor)
    except Unsuited as error:
        return Refused(_label(method, factor), method, factor, str(error))


def _refused(plan: Plan, error: Exception) -> Refused:
    """Why a plan cannot be run: our own words whole, those of another in a line."""
    words = str(error) if isinstance(error, ValueError) else said(error)
    return Refused(label(plan), plan.method, plan.factor, " ".join(words.split()))


def _require_some(count: int, refused: Sequence[Refused]) -> None:
    if refused and not count:
        why = "; ".join(f"{each.name}: {each.reason}" for each in refused)
        raise ValueError(f"no method can be measured: {why}")


def lengthened(
    model: nn.Module,
    wanted: Sequence[Plan | Refused],
    texts: Sequence[Passage],
    *,
    bucket: int | None = None,
    told: Told = lambda done, of: None,
) -> Lengthened:
    """Measure the model as it is and under each plan; it is not changed.

    Args:
        model: a causal language model of transformers.
        wanted: for one length, from :func:`plans`; what is refused there stays so.
        texts: passages of that length.
        bucket: tokens whose losses are averaged; if None ``BUCKET``, or a quarter of a native
            length that is shorter than four of them; at least ``LEAST``.
        told: called with how many layers have run, and how many will.

    Raises:
        TypeError: the model is no causal language model.
        ValueError: it can be run under none of the plans, the loss of the untouched model is not
            finite, or bucket is too small.
    """
    if bucket is not None and bucket < LEAST:
        raise ValueError(f"bucket={bucket} must be {LEAST} tokens or more")
    with undisturbed(model):
        require_causal(model)
        return _measured(model, wanted, texts, bucket, told)


def _measured(
    model: nn.Module,
    wanted: Sequence[Plan | Refused],
    texts: Sequence[Passage],
    bucket: int | None,
    told: Told,
) -> Lengthened:
    refused = [each for each in wanted if isinstance(each, Refused)]
    ready: list[tuple[Plan, nn.Module]] = []
    for plan in (each for each in wanted if isinstance(each, Plan)):
        try:
            ready.append((plan, variant(model, plan)))
        except ValueError as error:
            refused.append(_refused(plan, error))
    _require_some(len(ready), refused)
    first = ready[0][0]
    native, to = first.native, first.to
    edges = _edges(to, bucket or max(LEAST, min(BUCKET, native // 4)))
    groups = [[group for group, _ in first.groups()]]
    groups += [[group for _, group in plan.groups()] for plan, _ in ready]
    cuts = [
        (native, to) if any(group.variants for group in each) and native < to else (to,)
        for each in groups
    ]
    passes = [len(ends) * len(texts) for ends in cuts]
    passes[0] += len(edges) * len(texts)
    shares = [
        partial(_share, told, sum(passes[:place]) / own, sum(passes) / own)
        for place, own in enumerate(passes)
    ]
    with counting(model, passes[0], shares[0]):
        alone = [_alone(model, text, edges) for text in texts]
        untouched = _by_bucket(model, texts, cuts[0], edges)
    curves = [Curve(UNTOUCHED, None, _turned(untouched))]
    for place, (plan, each) in enumerate(ready, 1):
        try:
            with counting(each, passes[place], shares[place]):
                rows = _by_bucket(each, texts, cuts[place], edges)
        except MemoryError:
            raise
        except Exception as error:  # whatever runs only where the config says so
            refused.append(_refused(plan, error))
        else:
            curves.append(Curve(label(plan), plan, _turned(rows)))
    _require_some(len(curves) - 1, refused)
    asked = [label(each) for each in wanted]
    return Lengthened(
        native,
        to,
        tuple(text.name for text in texts),
        tuple(curves),
        edges,
        _turned(alone),
        tuple(sorted(refused, key=lambda each: asked.index(each.name))),
        type(model).__name__,
    )


def _turned(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """By bucket, then by text."""
    return tuple(zip(*rows, strict=True))


def _edges(to: int, bucket: int) -> tuple[tuple[int, int], ...]:
    """Buckets up to ``to``; what is left at the end joins the last if it is less than half one."""
    starts = list(range(0, to, bucket))
    if len(starts) > 1 and 2 * (to - starts[-1]) < bucket:
        starts.pop()
    return tuple(zip(starts, [*starts[1:], to], strict=True))


def _share(told: Told, before: float, whole: float, done: int, of: int) -> None:
    """One model's layers among those of all: ``before`` and ``whole`` in units of its own."""
    told(round(before * of) + done, round(whole * of))


def _alone(model: nn.Module, text: Passage, edges: Sequence[tuple[int, int]]) -> list[float]:
    """The mean loss of each bucket with nothing before it but what stands before any text."""
    before = text.ids[: text.before]
    found = []
    for start, stop in edges:
        window = text.ids[start:stop]
        if start:
            found.append(token_losses(model, torch.cat((before, window)))[len(before) :])
        else:
            found.append(token_losses(model, window))
    return [float(losses.mean()) for losses in found]


def _by_bucket(
    model: nn.Module,
    texts: Sequence[Passage],
    ends: Sequence[int],
    edges: Sequence[tuple[int, int]],
) -> list[list[float]]:
    """The mean loss in each bucket of each text; the one at place p is that of token p.

    What lies before an end of ``ends`` is read in a text that ends there. All short texts are read
    before the long ones: a module that follows the length may keep what a longer text made of it.
    """
    found = torch.full((len(texts), max(ends)), torch.nan, dtype=torch.float64)
    start = 1
    for end in sorted(ends):
        for row, text in zip(found, texts, strict=True):
            row[start:end] = token_losses(model, text.ids[:end])[start - 1 :]
        start = end
    return [[float(row[max(a, 1) : b].mean()) for a, b in edges] for row in found]
