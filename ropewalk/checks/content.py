"""Seeded content and positions, from private generators: global random state is never touched."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def _generator(seed: int) -> torch.Generator:
    return torch.Generator(device="cpu").manual_seed(seed)


def gaussian(*shape: int, seed: int) -> Tensor:
    """Standard normal float64 numbers on the CPU."""
    return torch.randn(shape, generator=_generator(seed), dtype=torch.float64, device="cpu")


def integers(stop: int, *shape: int, seed: int) -> Tensor:
    """int64 numbers in [0, stop), with repeats."""
    return torch.randint(stop, shape, generator=_generator(seed), device="cpu")


def distinct(stop: int, count: int, seed: int) -> Tensor:
    """``count`` different int64 numbers in [0, stop) in random order; fewer if stop is less."""
    if stop <= 4 * count:
        return torch.randperm(stop, generator=_generator(seed), device="cpu")[:count]
    drawn = integers(stop, 2 * count, seed=seed).unique()
    order = torch.randperm(len(drawn), generator=_generator(~seed), device="cpu")
    return drawn[order[:count]]


def scattered(stop: int, count: int, axes: int, seed: int) -> Tensor:
    """Random positions below ``stop``, ``[n]`` or ``[n, axes]``, none twice on any axis."""
    columns = [distinct(stop, count, seed + axis) for axis in range(axes)]
    return columns[0] if axes == 1 else torch.stack(columns, dim=-1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global seeds of torch, NumPy and Python set inside, and as they were afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of arithmetic inside: sums do not depend on the machine's number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The default dtype set inside, and as it was afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
