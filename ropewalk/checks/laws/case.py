"""The case that laws are written in: what a user overrides, and what laws share."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ropewalk.checks.laws.poison import poisoned_memory
from ropewalk.checks.laws.views import Outputs, View, view
from ropewalk.core import Encoding

LAWS: list[str] = []
"""The names of the laws; what ``waivers`` may name."""

SAMPLES: tuple[int, ...] = (0, 1, 2, 77, 4095, 131071, 2**31 + 5, -1, -4096, -131071)
"""Positions at which an encoding without a table is compared with its reference."""

HALVES = (torch.bfloat16, torch.float16)
"""Dtypes in which results are rounded float32 ones."""


def require(holds: object, message: str) -> None:
    """Fail with ``message`` unless ``holds``.

    Raises:
        AssertionError: also under ``python -O``, which drops plain asserts.
    """
    if not holds:
        raise AssertionError(message)


def law(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Register ``check`` as a law: where it is waived it must fail, so no waiver goes stale."""
    name = check.__name__.removeprefix("test_")
    LAWS.append(name)

    @functools.wraps(check)
    def judged(self: Case) -> None:
        reason = self.waivers.get(name)
        if reason is None:
            check(self)
            return
        try:
            check(self)
        except Exception:
            return
        raise AssertionError(f"law {name!r} is waived ({reason}) but holds; drop the waiver")

    return judged


class Case:
    """Base of the laws; :class:`ropewalk.checks.EncodingContract` documents what to override."""

    waivers: ClassVar[Mapping[str, str]] = {}
    positions: ClassVar[Sequence[int] | None] = None
    drift: ClassVar[float] = 4e-19
    slack: ClassVar[float] = 0.0
    step: ClassVar[float] = 1e-4
    device: ClassVar[str] = "cpu"

    def create(self) -> Encoding:
        """A new encoding; every call the same configuration."""
        raise NotImplementedError("say in create() how the encoding is made")

    def siblings(self) -> Sequence[Encoding]:
        """Encodings of the same class in other configurations."""
        return ()

    def _made(self) -> Encoding:
        return self._placed(self.create())

    def _placed(self, encoding: Encoding) -> Encoding:
        view(encoding)
        return encoding.to(self.device)

    def _view(self, encoding: Encoding) -> View:
        return view(encoding, self.device)

    def _twin(self, encoding: Encoding) -> Encoding:
        twin = self._made()
        twin.load_state_dict(encoding.state_dict())
        return twin

    def _from_meta(self) -> Encoding:
        """The encoding built on the meta device, then given memory that holds garbage."""
        with torch.device("meta"):
            blank = self.create()
        with poisoned_memory():
            return blank.to_empty(device=self.device)

    def _samples(self, encoding: Encoding) -> list[int]:
        if self.positions is not None:
            return list(self.positions)
        table = table_size(encoding)
        if table is None:
            return list(SAMPLES)
        return sorted({p for p in (0, 1, 2, 77, table // 2, table - 1) if 0 <= p < table})

    def _long(self, encoding: Encoding) -> int:
        """A length past the blocks of vectorised loops, inside the table."""
        return min(table_size(encoding) or 300, 300)

    def _values(self, encoding: Encoding) -> Outputs:
        """Results on fixed inputs, at ordinary and at far positions."""
        seen = self._view(encoding)
        samples = self._samples(encoding)
        far = seen.apply(seen.inputs(2, len(samples)), seen.scatter(samples))
        near = seen.apply(seen.inputs(2, 7, seed=1))
        return {
            **{f"{name} at far positions": y.detach() for name, y in far.items()},
            **{name: y.detach() for name, y in near.items()},
        }

    def _matches_reference(
        self, encoding: Encoding, dtype: torch.dtype, tolerance: float, few: bool = False
    ) -> None:
        seen = self._view(encoding)
        samples = self._samples(encoding)
        positions = seen.scatter(samples[-3:] if few else samples)
        inputs = seen.inputs(2, len(samples[-3:] if few else samples), dtype)
        found = seen.apply(inputs, positions)
        oracle = self._view(copy.deepcopy(encoding).double())
        for name, expected in oracle.expected(inputs, positions).items():
            y = found[name]
            require(y.dtype == dtype, f"{name} of {dtype} has dtype {y.dtype}")
            require(y.shape == expected.shape, f"{name} has shape {tuple(y.shape)}")
            error = (y.detach().to(torch.float64) - expected).abs()
            reach = positions.abs().max().item() * encoding.axes
            allowed = (tolerance + self.drift * reach) * seen.scale(expected)
            require(
                bool((error <= allowed).all()),
                f"{name} in {dtype} departs from its reference by up to {error.max().item():.3g}, "
                f"more than {tolerance} of the values",
            )

    def _unread(self, seen: View) -> bool:
        """Whether other inputs give the same values, so that a missing gradient is right."""
        positions = seen.place(1, 4)
        results = [seen.apply(seen.inputs(2, 4, seed=s), positions) for s in (0, 50)]
        return all(torch.equal(results[0][name], results[1][name]) for name in results[0])

    def _same(self, found: Outputs, expected: Outputs, what: str, exact: bool = False) -> None:
        for name, y in expected.items():
            equal(found[name].detach(), y.detach(), f"{name}: {what}", 0.0 if exact else self.slack)


def table_size(encoding: Encoding) -> int | None:
    """How many positions an encoding with a finite table serves; None without a table."""
    count = getattr(encoding, "positions", None)
    return count if isinstance(count, int) else None


def like(x: Tensor, seed: int) -> Tensor:
    """Random numbers of the shape and dtype of x: a cotangent, or a direction."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device, x.dtype)


def equal(found: Tensor, expected: Tensor, what: str, slack: float = 0.0) -> None:
    """Fail unless shape, dtype and bits are equal, or values within ``slack`` of the largest."""
    require(
        found.shape == expected.shape and found.dtype == expected.dtype,
        f"{what}: {found.dtype} {tuple(found.shape)} against {expected.dtype} "
        f"{tuple(expected.shape)}",
    )
    if torch.equal(found, expected):
        return
    difference = (found.to(torch.float64) - expected.to(torch.float64)).abs()
    worst = difference.nan_to_num(nan=float("inf")).max().item()
    size = expected.to(torch.float64).abs().max().item()
    require(worst <= slack * size, f"{what}: they differ by up to {worst:.3g} of {size:.3g}")


def cut(seen: View, outputs: Outputs, start: int, tokens: int) -> Outputs:
    """The results of a run of tokens."""

    def narrow(y: Tensor) -> Tensor:
        for dim in seen.token_dims:
            y = y.narrow(dim, start, tokens)
        return y

    return {name: narrow(y) for name, y in outputs.items()}


def cut_inputs(seen: View, inputs: Sequence[Tensor], start: int, tokens: int) -> list[Tensor]:
    """The inputs of a run of tokens."""
    return [x.narrow(seen.input_token_dim, start, tokens) for x in inputs]


def rows_of(outputs: Outputs, row: int) -> Outputs:
    """The results of one batch row."""
    return {name: y[row : row + 1] for name, y in outputs.items()}
