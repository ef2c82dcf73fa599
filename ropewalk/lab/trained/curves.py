"""What was measured of a lengthened model: losses by bucket, who wins where, what was refused."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ropewalk.configs.extend import Plan
from ropewalk.lab.trained.spread import Spread, apart, beyond, spread


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
class Refused:
    """A method that this model cannot be measured with, and why; ``factor`` if one is known."""

    name: str
    method: str
    factor: float | None
    reason: str


@dataclass(frozen=True)
class Lengthened:
    """What was measured; the first curve is that of the untouched model.

    ``alone[b][t]`` is the untouched model's mean loss where bucket b of text t is all it reads;
    ``model`` its class.
    """

    native: int
    to: int
    texts: tuple[str, ...]
    curves: tuple[Curve, ...]
    edges: tuple[tuple[int, int], ...]
    alone: tuple[tuple[float, ...], ...]
    refused: tuple[Refused, ...] = ()
    model: str = ""

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
            "model": self.model,
            "native": self.native,
            "to": self.to,
            "unit": "nats per token",
            "texts": list(self.texts),
            "methods": [self._method(curve) for curve in self.curves],
            "refused": [asdict(each) for each in self.refused],
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
