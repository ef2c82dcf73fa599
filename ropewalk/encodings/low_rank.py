r"""Any bias of distance as a few channels of q and k, to an error that the user states.

.. math:: \tilde b_h(i, j) = c_h + s_h (i - j) + \sum_{n=1}^{r} w_{hn}\, e^{-λ_n (i - c)}\,
   e^{-λ_n (c - j)}, \quad d_0 \le i - j < \text{length}, \quad |\tilde b_h - b_h| \le \text{error}

with c between the two, so that no factor exceeds 1. All other offsets keep the bias itself: nearer
than :math:`d_0` tokens, ``length`` or more apart, and keys after the query if ``causal``. Nothing
is off by more than the error, at any position, on any path.

How the terms are found: :mod:`ropewalk.encodings.decays`.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.core import Bias, Factors, integer_positions
from ropewalk.encodings.decays import Decays, shortest
from ropewalk.encodings.distances import holds_to, lines, place
from ropewalk.encodings.offsets import offsets
from ropewalk.encodings.width import check_floating
from ropewalk.kernels.fused import eager
from ropewalk.spectra.arguments import check_flag, check_int, check_number, shown

CHANNELS = 16
"""More cost more than the numbers of a bias on a CPU."""
VANISHED = 32.0
"""A term that has decayed by e to this is below what float64 holds of the others."""


class _Fit(NamedTuple):
    exact: Tensor
    """The bias by distance, ``[2, heads, length]``: keys before the query, then after."""
    until: int | None
    """Positions up to which it is that; None for all."""
    sums: Decays
    """Of the heads, for keys before the query; then of the heads for keys after, unless causal."""
    table: Tensor
    """The numbers of offsets −length + 1 … length − 1, ``[heads, 2·length − 1]``."""


class LowRank(Bias):
    """A bias with some of its distances as sums of few decays; an encoding of its own.

    It is made from a copy of the encoding, whose parameters no gradient reaches: called with
    gradients wanted of them it raises. Loading or casting the copy makes the sums anew, at the
    next call; let that be an eager one, as compiled code cannot measure.

    Args:
        encoding: a bias that is a function of distance, trained: :class:`T5`, :class:`Kerple` …
        length: distances up to ``length − 1`` become channels.
        error: the largest departure of a logit that is allowed, at any distance and head.
        most: channels that are allowed; ``attend`` takes no more than 16 by itself on a CPU.
        causal: keys after the query, which causal attention hides, need no channels.

    Raises:
        TypeError: the encoding is no bias, or an argument has another type.
        ValueError: it has several axes, factors exactly already, is no function of distance, or
            needs more channels (the message says how many).

    Example:
        >>> bias = LowRank(make("kerple", heads=8), length=4096, error=1e-3)
        >>> bias.rank, bias.error.max() <= 1e-3
        (9, tensor(True))
    """

    def __init__(
        self,
        encoding: Bias,
        *,
        length: int,
        error: float,
        most: int = CHANNELS,
        causal: bool = True,
    ) -> None:
        super().__init__()
        _check_encoding(encoding)
        self.length = check_int("length", length, at_least=2, at_most=1 << 24)
        self.allowed = check_number("error", error, above=0)
        self.most = check_int("most", most, at_least=0, at_most=256)
        check_flag("causal", causal)
        self.causal = causal
        self.heads = encoding.heads
        self.exact = copy.deepcopy(encoding)
        self._fit: _Fit | None = None
        self._stale = True
        self._tables: dict[torch.device, Tensor] = {}
        self._current()

    @property
    def rank(self) -> int:
        """Channels."""
        return self._current().sums.channels

    @property
    def near(self) -> int:
        """The least distance that becomes channels; nearer keys have the exact numbers."""
        return self._current().sums.near

    @property
    def error(self) -> Tensor:
        """By how much a logit can be off, per head, float64 ``[heads]``.

        The largest departure over every distance, with what the 24 bits of channels round.
        """
        return self._current().sums.error.reshape(-1, self.heads).amax(0)

    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``[..., heads, q_tokens, kv_tokens]``: what the channels give, or the exact numbers.

        Raises:
            ValueError: a gradient of the encoding is wanted.
        """
        check_floating(dtype)
        self._refuse_gradients()
        q, k = integer_positions(q_positions), integer_positions(kv_positions)
        until, table = self._current().until, self._table(q.device)
        read = eager() and q.device.type == "cpu"
        if read and _counts(q) and _counts(k):
            low, high = int(q[0]) - int(k[-1]), int(q[-1]) - int(k[0])
            if max(-low, high) < self.length and _within(q[[0, -1]], k[[0, -1]], until):
                line = table[:, low + self.length - 1 : high + self.length]
                return _unrolled(line.to(dtype), len(k))
        offset = offsets(q, k).squeeze(-3)
        inside = (offset > -self.length) & (offset < self.length)
        if until is not None:
            inside = inside & _inside(q, until)[..., :, None] & _inside(k, until)[..., None, :]
        rows = (offset + self.length - 1).clamp(0, 2 * self.length - 2)
        found = table[:, rows].movedim(0, -3).to(dtype)
        if read and bool(inside.all()):
            return found
        return torch.where(inside.unsqueeze(-3), found, self.exact.bias(q, k, dtype))

    def factors(
        self, q_positions: Tensor, kv_positions: Tensor, *, after: bool = False
    ) -> Factors | None:
        """Decays of the query times decays of the key, each from where the nearest key stands.

        None where some pair keeps the exact numbers, or positions cannot be read.

        Raises:
            ValueError: a gradient of the encoding is wanted.
        """
        self._refuse_gradients()
        if (after and self.causal) or not (eager() and q_positions.numel() * kv_positions.numel()):
            return None
        if q_positions.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        fit, sums = self._current(), self._current().sums
        q, k = (-q_positions, -kv_positions) if after else (q_positions, kv_positions)
        (q_low, q_high), (k_low, k_high) = ((int(x) for x in p.aminmax()) for p in (q, k))
        least, most = q_low - k_high, q_high - k_low
        if least < sums.near or most >= self.length:
            return None
        if not _within(q_positions, kv_positions, fit.until):
            return None
        side = slice(self.heads, None) if after else slice(0, self.heads)
        kept = sums.rates * least < VANISHED
        rates = sums.rates[kept].to(q.device)
        weights, slope, constant = (
            x[side].to(q.device) for x in (sums.weights[:, kept], sums.slope, sums.constant)
        )
        before = (q - k_high).to(torch.float64)  # of the queries, from the nearest key
        behind = (k_high - k).to(torch.float64)
        left = weights[:, None] * torch.exp(-rates * before[..., None]).unsqueeze(-3)
        right = torch.exp(-rates * behind[..., None]).unsqueeze(-3)
        row = constant[:, None] + slope[:, None] * before.unsqueeze(-2)
        if sums.linear:
            lines = slope[:, None, None].expand(*left.shape[:-1], 1)
            left = torch.cat((left, lines), -1)
            right = torch.cat((right, behind[..., None].unsqueeze(-3)), -1)
        return Factors(left, right, row)

    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One number, its sum by a literal loop; the encoding's own reference where it is exact."""
        fit, offset = self._current(), q_position - k_position
        near, far = fit.sums.near, self.length
        placed = fit.until is None or min(q_position, k_position) >= 0
        placed = placed and (fit.until is None or max(q_position, k_position) < fit.until)
        channels = near <= offset < far or (not self.causal and near <= -offset < far)
        if not (placed and channels):
            return self.exact.reference(head, q_position, k_position)
        row, distance = head + (self.heads if offset < 0 else 0), abs(offset)
        total = fit.sums.constant[row].item() + fit.sums.slope[row].item() * distance
        for weight, rate in zip(
            fit.sums.weights[row].tolist(), fit.sums.rates.tolist(), strict=True
        ):
            total += weight * math.exp(-rate * distance)
        return total

    def rebuild(self, instead_of_meta: torch.device | None = None) -> None:
        """The sums belong to the parameters, which may have changed: find them anew when used."""
        super().rebuild(instead_of_meta)
        self._stale = True

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        fit = "" if self._fit is None else f", rank={self._fit.sums.channels}"
        return f"length={self.length}, error={self.allowed:g}{fit}"

    def _current(self) -> _Fit:
        """The sums of the encoding as it is now."""
        if self._stale or self._fit is None:
            exact = lines(self.exact, self.length)
            if self._fit is None or not torch.equal(exact, self._fit.exact):
                self._fit, self._tables = self._made(exact), {}
            self._stale = False
        return self._fit

    def _made(self, exact: Tensor) -> _Fit:
        name = type(self.exact).__name__
        wanted = exact[:1] if self.causal else exact
        if not bool(wanted.isfinite().all()):
            raise ValueError(f"{name} gives numbers that are not finite within {self.length}")
        until = holds_to(self.exact, exact)
        sums = shortest(wanted.flatten(0, 1), self.allowed, self.most)
        sides = exact.clone()
        far = sums.at(torch.arange(sums.near, self.length)).unflatten(0, (-1, self.heads))
        sides[: len(far), :, sums.near :] = far
        table = torch.cat((sides[1].flip(-1)[:, :-1], sides[0]), -1)
        return _Fit(exact, until, sums, table)

    def _table(self, device: torch.device) -> Tensor:
        if device not in self._tables:
            fit = self._fit
            assert fit is not None
            self._tables[device] = fit.table.to(device)
        return self._tables[device]

    def _refuse_gradients(self) -> None:
        if torch.is_grad_enabled() and any(x.requires_grad for x in self.exact.parameters()):
            raise ValueError(
                f"LowRank holds {type(self.exact).__name__} as it was, and no gradient reaches its "
                "parameters: train with the encoding itself, or state that it is done by "
                "encoding.requires_grad_(False) or torch.no_grad()"
            )


def _check_encoding(encoding: Bias) -> None:
    """Refuse what cannot become channels, or does already."""
    name = type(encoding).__name__
    if not isinstance(encoding, Bias):
        raise TypeError(
            f"encoding={shown(encoding)} is no bias: LowRank takes numbers that depend on "
            "distance alone, such as T5 or Kerple"
        )
    if encoding.axes != 1:
        raise ValueError(f"{name} has axes={encoding.axes}; LowRank takes one distance")
    if place(encoding).type == "meta":
        raise ValueError(f"{name} is on the meta device, without numbers; load it first")
    near = torch.tensor([8, 9], device=place(encoding)), torch.arange(2, device=place(encoding))
    if isinstance(encoding, LowRank) or encoding.factors(*near) is not None:
        raise ValueError(f"{name} is made of channels already; give it to attend as it is")


def _counts(positions: Tensor) -> bool:
    """Whether positions are n, n + 1, n + 2, …"""
    if positions.dim() != 1 or not positions.numel():
        return False
    return bool((positions[1:] - positions[:-1] == 1).all())


def _unrolled(line: Tensor, keys: int) -> Tensor:
    """``[heads, queries, keys]`` of the numbers of every offset, the least first."""
    return line.flip(-1).unfold(-1, keys, 1).flip(-2)


def _inside(positions: Tensor, until: int) -> Tensor:
    return (positions >= 0) & (positions < until)


def _within(q_positions: Tensor, kv_positions: Tensor, until: int | None) -> bool:
    return until is None or all(bool(_inside(x, until).all()) for x in (q_positions, kv_positions))


__all__ = ["LowRank"]
