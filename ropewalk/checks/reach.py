"""How far the positions of an encoding go, found by asking."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ropewalk.checks import probes
from ropewalk.checks.content import gaussian
from ropewalk.core import Additive, Bias, Encoding, Rotary

FAR = 2**31
"""Positions below this are asked for."""

_PLACES = (8191, 2**17 + 4096, 2**20 + 8192, FAR + 128)


@dataclass(frozen=True)
class Reach:
    """Positions 0 … count − 1 may be asked for.

    Args:
        count: how many.
        ends: True if a larger position raises: a finite table.
        grows: True if the encoding makes a tensor as long as the largest position, such as a
            cache that grows; it is not driven further, or memory would run out.
    """

    count: int
    ends: bool = False
    grows: bool = False

    @property
    def reason(self) -> str | None:
        """What was not asked, in one line."""
        if self.ends:
            return f"positions end at {self.count - 1}"
        if self.grows:
            return f"it makes a table as long as the position: asked below {self.count} only"
        return None


def pristine(encoding: Encoding) -> Encoding:
    """A copy without the history that measuring gives; the encoding itself if it cannot copy."""
    try:
        return copy.deepcopy(encoding)
    except Exception:
        return encoding


def reach(encoding: Encoding) -> Reach:
    """The positions that ``encoding`` serves, at most somewhat beyond 2³¹.

    A table is found by the exception that a position beyond it raises, whatever its type, and its
    end by bisection. An encoding may state a nearer end in an int ``positions``: one whose values
    leave the range of float32 serves more in float64, in which it is asked. A contextual encoding
    is asked by sequences, not positions, and has no reach.

    Raises:
        Exception: what position 0 raises, if that raises already.
    """
    if not isinstance(encoding, (Additive, Rotary, Bias)):
        return Reach(_PLACES[-1] + 1)
    found, stated = _found(encoding), getattr(encoding, "positions", None)
    if isinstance(stated, int) and stated < found.count:
        return Reach(stated, ends=True)
    return found


def _found(encoding: Encoding) -> Reach:
    """The positions that are served, by asking."""
    encoding = pristine(encoding)
    usual = _work(encoding, 0)
    served = 0
    for place in _PLACES:
        try:
            made = _work(encoding, place)
        except Exception:
            return Reach(_last_served(encoding, served, place) + 1, ends=True)
        if made - usual >= place // 2:
            return Reach(place + 1, grows=True)
        served = place
    return Reach(served + 1)


def ask(encoding: Encoding, place: int) -> None:
    """Ask for one position (along every axis); the answer is not judged."""
    where = probes.asked(encoding, probes.on_axes(torch.tensor([place]), encoding.axes))
    if isinstance(encoding, Additive):
        encoding.encode(where, dtype=torch.float64)
    elif isinstance(encoding, Rotary):
        x = gaussian(1, probes.heads_of(encoding), 1, encoding.head_dim, seed=0).to(where.device)
        encoding.encode_q(x, where)
        encoding.encode_k(x, where)
    elif isinstance(encoding, Bias):
        encoding.bias(where, torch.zeros_like(where), torch.float64)


def _last_served(encoding: Encoding, good: int, bad: int) -> int:
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            ask(encoding, middle)
            good = middle
        except Exception:
            bad = middle
    return good


class _Largest(TorchDispatchMode):
    """Watches every operation for the largest tensor it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        answer = func(*args, **(kwargs or {}))
        made = answer if isinstance(answer, (tuple, list)) else (answer,)
        sizes = [item.numel() for item in made if isinstance(item, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return answer


def _work(encoding: Encoding, place: int) -> int:
    """Numbers in the largest tensor that asking for ``place`` makes."""
    with _Largest() as largest:
        ask(encoding, place)
    return largest.numbers
