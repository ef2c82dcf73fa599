"""The loss by place in a long text, for every way to lengthen a model and for none.

Losses are means over buckets of tokens. Texts are not equally hard from end to end, so each bucket
is also read alone, as a short text of its own, by the untouched model: loss less that is what the
place in the text does. A model whose frequencies depend on the length of the text (dynamic NTK,
LongRoPE) reads the buckets within its native length in a text that ends there, and the others in
the whole.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from ropewalk.configs.extend import Plan, extend
from ropewalk.configs.resolved import Resolved
from ropewalk.lab.trained.losses import Told, counting, token_losses
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.probing import require_causal
from ropewalk.lab.trained.spread import Spread, apart, beyond, spread
from ropewalk.lab.trained.variants import variant
from ropewalk.models.auditing.state import undisturbed

BUCKET = 2048
LEAST = 4
"""Tokens of a bucket: what is left at the end of a text then has two at least."""
DEFAULT = ("yarn", "ntk", "linear")
UNTOUCHED = "untouched"


@dataclass(frozen=True)
class Curve:
    """A method's losses: ``buckets[b][t]`` is the mean in bucket b of text t, in nats a token."""

    name: str
    plan: Plan | None
    buckets: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Bucket:
    """Places ``start`` … ``stop`` − 1, the method with the lowest loss there, and those that are
    not apart from it by more than the spread over texts."""

    start: int
    stop: int
    best: str
    tied: tuple[str, ...]


@dataclass(frozen=True)
class Lengthened:
    """What was measured; the first curve is that of the untouched model.

    ``alone[b][t]`` is the untouched model's mean loss where bucket b of text t is all it reads.
    """

    native: int
    to: int
    texts: tuple[str, ...]
    curves: tuple[Curve, ...]
    edges: tuple[tuple[int, int], ...]
    alone: tuple[tuple[float, ...], ...]

    def buckets(self) -> list[Bucket]:
        """Who wins where."""
        return [
            Bucket(start, stop, *_best({c.name: c.buckets[b] for c in self.curves}))
            for b, (start, stop) in enumerate(self.edges)
        ]

    def change(self, curve: Curve, bucket: int) -> Spread:
        """Loss less that of the untouched model, by text."""
        return apart(curve.buckets[bucket], self.curves[0].buckets[bucket])

    def excess(self, curve: Curve, bucket: int) -> Spread:
        """Loss less that of the same tokens read alone, by text."""
        return apart(curve.buckets[bucket], self.alone[bucket])

    def rise(self, curve: Curve) -> Spread:
        """The excess in the last bucket less that in the first of the same method, by text."""
        return apart(self.excess(curve, -1).values, self.excess(curve, 0).values)

    def chosen(self) -> Curve:
        """The method to write: of those that are best beyond the native length or not apart from
        it, the one that costs the first bucket least; the lower loss beyond decides between equals.
        """
        far = {c.name: self._beyond(c) for c in self.curves}
        best, tied = _best(far)
        able = [c for c in self.curves if c.name == best or c.name in tied]
        return min(able, key=lambda c: (_mean(c.buckets[0]), _mean(far[c.name])))

    def _beyond(self, curve: Curve) -> tuple[float, ...]:
        """Loss by text over the buckets that lie beyond the native length, or the last one."""
        count = len(self.edges)
        far = [b for b, (start, _) in enumerate(self.edges) if start >= self.native] or [count - 1]
        return tuple(
            statistics.fmean(curve.buckets[b][t] for b in far) for t in range(len(self.texts))
        )

    def as_dict(self) -> dict[str, Any]:
        """As ``extend --measure --json`` prints it."""
        chosen = self.chosen()
        return {
            "native": self.native,
            "to": self.to,
            "unit": "nats per token",
            "texts": list(self.texts),
            "methods": [self._method(curve) for curve in self.curves],
            "buckets": [
                {
                    "from": b.start,
                    "to": b.stop,
                    "alone": spread(alone).as_dict(),
                    "best": b.best,
                    "not_apart": list(b.tied),
                }
                for b, alone in zip(self.buckets(), self.alone, strict=True)
            ],
            "chosen": chosen.name,
            "config": None if chosen.plan is None else chosen.plan.config,
        }

    def _method(self, curve: Curve) -> dict[str, Any]:
        plan, rise = curve.plan, self.rise(curve)
        return {
            "name": curve.name,
            "method": None if plan is None else plan.method,
            "factor": None if plan is None else plan.factor,
            "buckets": [
                {
                    "from": start,
                    "to": stop,
                    "loss": spread(losses).as_dict(),
                    "excess": self.excess(curve, b).as_dict(),
                    **({} if plan is None else {"change": self._told(curve, b)}),
                }
                for b, ((start, stop), losses) in enumerate(
                    zip(self.edges, curve.buckets, strict=True)
                )
            ],
            "rise": {**rise.as_dict(), "beyond_spread": beyond(rise.values)},
        }

    def _told(self, curve: Curve, bucket: int) -> dict[str, Any]:
        change = self.change(curve, bucket)
        return {**change.as_dict(), "beyond_spread": beyond(change.values)}


def plans(resolved: Resolved, to: int, methods: Sequence[str], native: int | None) -> list[Plan]:
    """The plans that methods name: ``yarn``, or ``yarn:4`` for a factor that is given.

    Raises:
        ValueError: a method is unknown, named twice or cannot be, or there is nothing to lengthen.
    """
    found: dict[str, Plan] = {}
    for name in methods:
        method, _, factor = name.partition(":")
        plan = extend(resolved, to, method, native=native, factor=_number(name, factor))
        if to <= plan.native:
            raise ValueError(
                f"to={to} is within the native {plan.native} tokens, so there is nothing to "
                "lengthen; give a longer one"
            )
        if label(plan) in found:
            raise ValueError(f"methods names {label(plan)} twice; name each once")
        found[label(plan)] = plan
    if not found:
        raise ValueError(f"methods is empty; name some of {', '.join(DEFAULT)}")
    return list(found.values())


def label(plan: Plan) -> str:
    """What a method is called in a table."""
    return f"{plan.method} ×{plan.factor:.4g}"


def _number(name: str, factor: str) -> float | None:
    try:
        return float(factor) if factor else None
    except ValueError:
        raise ValueError(f"method {name!r}: write a name, or a name and a factor: yarn:4") from None


def lengthened(
    model: nn.Module,
    wanted: Sequence[Plan],
    texts: Sequence[Passage],
    *,
    bucket: int | None = None,
    told: Told = lambda done, of: None,
) -> Lengthened:
    """Measure the model as it is and under each plan; it is not changed.

    Args:
        model: a causal language model of transformers.
        wanted: plans for one length, from :func:`plans`.
        texts: passages of that length.
        bucket: tokens whose losses are averaged; if None ``BUCKET``, or a quarter of a native
            length that is shorter than four of them; at least ``LEAST``.
        told: called with how many layers have run, and how many will.

    Raises:
        TypeError: the model is no causal language model.
        ValueError: it cannot be built under a plan, its loss is not finite, or bucket is too small.
    """
    if bucket is not None and bucket < LEAST:
        raise ValueError(f"bucket={bucket} must be {LEAST} tokens or more")
    with undisturbed(model):
        require_causal(model)
        return _measured(model, wanted, texts, bucket, told)


def _measured(
    model: nn.Module,
    wanted: Sequence[Plan],
    texts: Sequence[Passage],
    bucket: int | None,
    told: Told,
) -> Lengthened:
    native, to = wanted[0].native, wanted[0].to
    bucket = bucket or max(LEAST, min(BUCKET, native // 4))
    edges = _edges(to, bucket)
    models = [model, *(variant(model, plan) for plan in wanted)]
    groups = [[group for group, _ in wanted[0].groups()]]
    groups += [[group for _, group in plan.groups()] for plan in wanted]
    cuts = [
        (native, to) if any(group.variants for group in each) and native < to else (to,)
        for each in groups
    ]
    passes = [len(ends) * len(texts) for ends in cuts]
    passes[0] += len(edges) * len(texts)
    curves: list[Curve] = []
    alone: list[list[float]] = []
    for place, (each, ends) in enumerate(zip(models, cuts, strict=True)):
        before, of = sum(passes[:place]), sum(passes)
        share = partial(_share, told, before / passes[place], of / passes[place])
        with counting(each, passes[place], share):
            if not place:
                alone += [_alone(each, text, edges) for text in texts]
            rows = _by_bucket(each, texts, ends, edges)
        plan = wanted[place - 1] if place else None
        name = UNTOUCHED if plan is None else label(plan)
        curves.append(Curve(name, plan, tuple(zip(*rows, strict=True))))
    names = tuple(text.name for text in texts)
    return Lengthened(native, to, names, tuple(curves), edges, tuple(zip(*alone, strict=True)))


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


def _best(losses: dict[str, tuple[float, ...]]) -> tuple[str, tuple[str, ...]]:
    """The name with the lowest mean, and those that are not apart from it."""
    best = min(losses, key=lambda name: _mean(losses[name]))
    tied = [
        name
        for name, values in losses.items()
        if name != best and not beyond(apart(values, losses[best]).values)
    ]
    return best, tuple(tied)


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values)
