"""A place: one module of a model whose rotations are fused, and what is known of its tables.

Most models hold every angle twice, once for each lane of a pair; the fused rotation reads the first
copy alone. That the two copies agree is data, so it is looked at once, the first time a function
rotates by angles other than 0, and never in a traced graph. Until then, and while a graph is
traced, the rotation uses both copies, which is right whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._subclasses.fake_tensor import FakeTensor


@dataclass
class Place:
    """What a patched module knows: which functions' tables were compared, and why it was left.

    ``layout``: the pairs of its weights, where they were converted to others than the model's own.
    ``instead``: what is given each :class:`~ropewalk.models.applied.Applied` and answers for it.
    ``found``: the functions whose tables agreed in the call that is running; they are trusted from
    the next one on, so that each call of a function, and each of one name, is looked at once.
    ``settled``: that :meth:`settle` found nothing more to look at; any other change ends it.
    """

    agreed: set[str] = field(default_factory=set)
    left: str | None = None
    layout: str | None = None
    instead: Callable[[Any], Any] | None = None
    found: frozenset[str] = frozenset()
    settled: bool = False

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name != "settled":
            super().__setattr__("settled", False)

    def forgoes(self, function: str) -> bool:
        """Whether the place was left and ``function`` is the model's own there."""
        return self.left is not None and function not in self.agreed

    def settle(self, functions: frozenset[str]) -> None:
        """A call has ended: trust what it found, and note whether all ``functions`` are trusted."""
        if self.found:
            self.agreed |= self.found
            self.found = frozenset()
        self.settled = self.agreed >= functions and (
            self.left is self.layout is self.instead is None
        )

    def compares(self, function: str, copies: tuple[tuple[Tensor, Tensor], ...]) -> bool:
        """Whether the two copies in each of these tables of ``function`` are the same."""
        if self.left is not None or not all(readable(t) for pair in copies for t in pair):
            return False
        for first, second in copies:
            if not torch.equal(first, second):
                worst = (first.double() - second.double()).abs().max().item()
                self.left = (
                    f"the two copies of an angle that {function} gets differ: cos or sin by up to "
                    f"{worst:.3g}"
                )
                return False
        _, sine = copies[-1]
        if sine.any():
            self.found |= {function}
        return True

    def leave(self, function: str, reason: str | None) -> None:
        """Let the model answer for itself, because of ``function``; None keeps an older reason."""
        self.agreed.discard(function)
        self.found -= {function}
        if reason is not None:
            self.left = reason


def readable(table: Tensor) -> bool:
    """Whether a tensor's numbers can be read now: it is not fake, on meta, or transformed."""
    return (
        not isinstance(table, FakeTensor)
        and table.device.type != "meta"
        and _functorch.peek_interpreter_stack() is None
        and not (table.is_cuda and torch.cuda.is_current_stream_capturing())
    )


_HERE: ContextVar[Place | None] = ContextVar("ropewalk_place", default=None)
enter, leave = _HERE.set, _HERE.reset
"""Let a method run at a place, and end that; :func:`at` does both."""


def here() -> Place | None:
    """The place whose method is running; None in a traced graph or outside any."""
    return None if torch.compiler.is_compiling() else _HERE.get()


@contextmanager
def at(place: Place | None) -> Iterator[None]:
    """Run a block at ``place``, or at none."""
    token = enter(place)
    try:
        yield
    finally:
        leave(token)
