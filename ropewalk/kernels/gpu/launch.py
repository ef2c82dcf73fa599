"""The operators of the GPU kernel: those of :class:`ropewalk.kernels.native.Operators`, launched on
the device and stream of x.

Under ``TRITON_INTERPRET=1`` they take CPU tensors too. What follows from shapes and strides is
kept, the compiled kernel too, so that a decoded token does not wait for Python.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels.copies import first_copies
from ropewalk.kernels.gpu.job import Launch
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.misfit import check
from ropewalk.kernels.gpu.plan import THREADS, power_of_two
from ropewalk.kernels.gpu.prepare import check_integers, phases_launch, tables_launch

KEPT = 4096
"""Launches that differ in shapes, strides or lanes; the least used one makes room."""
_OPTIONS = {"enable_fp_fusion": True}
"""Said aloud: Triton is about to change its default."""


def rotate(
    x: Tensor,
    out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """``out`` = x turned by Σ position · step.

    Args:
        x, out: ``[..., heads, tokens, head_dim]``, alike in shape and dtype; out is x itself, or
            memory apart from it.
        positions: int64 ``[..., tokens]``, or ``[..., tokens, axes]`` if there are several axes;
            None means ``offset`` … offset + tokens − 1.
        offset: see positions.
        steps: int64 ``[axes, pairs]`` or ``[heads, axes, pairs]``.
        scale: multiplies cos and sin.
        lanes: the number of :class:`ropewalk.spectra.lanes.Turn`.

    Raises:
        Misfit: sizes, dtypes, devices or memory do not fit; nothing is written.
        ImportError: Triton is not installed.
    """
    operands = (Operand.of(x, out),)
    _by_phases(operands, (x, out, None, None), positions, offset, steps, scale, lanes)


def rotate_qk(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """:func:`rotate` of q and k in one launch; they may differ in heads and strides."""
    operands = Operand.of(q, q_out), Operand.of(k, k_out)
    _by_phases(operands, (q, q_out, k, k_out), positions, offset, steps, scale, lanes)


def rotate_qk_(
    q: Tensor,
    k: Tensor,
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    """:func:`rotate_qk` in place."""
    rotate_qk(q, k, q, k, positions, offset, steps, scale, lanes)


def _by_phases(
    operands: tuple[Operand, ...],
    pointers: tuple[Tensor | None, ...],
    positions: Tensor | None,
    offset: int,
    steps: Tensor,
    scale: float,
    lanes: int,
) -> None:
    steps = steps.contiguous()
    _kept_phases(operands, known(positions), Meta.of(steps), lanes)(
        *pointers, positions, offset, steps, float(scale), signed(scale, lanes)
    )


def signed(scale: float, lanes: int) -> float:
    """The factor of sin: that of cos, or its negative where lanes say to turn back."""
    return float(-scale if lanes & 1 else scale)


def known(x: Tensor | None) -> Meta | None:
    """What a launch depends on, of a tensor that may be left out."""
    return None if x is None else Meta.of(x)


def rotate_by(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, lanes: int) -> None:
    """``out`` = x turned by tables ``[..., tokens or 1, pairs]`` that all heads share.

    With as many dimensions as x they have a head dimension: 1, or one that divides x's. They may
    hold each angle twice, if ``lanes`` says so, and have any real floating dtype and any strides.

    Raises:
        Misfit, ImportError: as :func:`rotate`.
    """
    operands, (cos, sin) = (Operand.of(x, out),), first_copies(cos, sin, lanes)
    kept = _kept_tables(operands, Meta.of(cos), Meta.of(sin), lanes)
    kept(x, out, None, None, cos, sin)


def rotate_qk_by(
    q: Tensor, k: Tensor, q_out: Tensor, k_out: Tensor, cos: Tensor, sin: Tensor, lanes: int
) -> None:
    """:func:`rotate_by` of q and k in one launch."""
    operands = Operand.of(q, q_out), Operand.of(k, k_out)
    cos, sin = first_copies(cos, sin, lanes)
    kept = _kept_tables(operands, Meta.of(cos), Meta.of(sin), lanes)
    kept(q, q_out, k, k_out, cos, sin)


def phase_tables(positions: Tensor, steps: Tensor, scale: float, cos: Tensor, sin: Tensor) -> None:
    """cos and sin ``[..., heads?, tokens, pairs]`` of the phases, by the same arithmetic.

    Raises:
        Misfit: not contiguous, or sizes, dtypes or devices that do not fit.
        ImportError: Triton is not installed.
    """
    check_integers("positions", Meta.of(positions), cos.device)
    check_integers("steps", Meta.of(steps), cos.device)
    axes, pairs = steps.shape[-2:]
    own = steps.shape[0] if steps.dim() == 3 else 1
    places = positions.numel() // max(axes, 1)
    fits = cos.shape == sin.shape and cos.numel() == places * own * pairs
    check(
        fits and cos.dtype == sin.dtype and cos.dtype in (torch.float32, torch.float64),
        f"cos {Meta.of(cos)} and sin {Meta.of(sin)} do not fit positions "
        f"{tuple(positions.shape)} and steps {tuple(steps.shape)} in float32 or float64",
    )
    check(
        all(t.is_contiguous() for t in (positions, steps, cos, sin)),
        "positions, steps, cos and sin must be contiguous; use .contiguous()",
    )
    if cos.numel() == 0:
        return
    numbers = places, positions.shape[-1 if axes == 1 else -2], own
    block_pairs = power_of_two(pairs)
    block_rows = min(power_of_two(places), max(1, 4 * THREADS // block_pairs))
    make = kernels().make_tables[(-(-places // block_rows) * own,)]
    with _on(positions.device):
        tensors = positions, steps, cos, sin
        make(*tensors, float(scale), *numbers, axes, pairs, block_rows, block_pairs, **_OPTIONS)


def advise(out: Tensor) -> None:
    """Nothing to advise a GPU's memory."""


class LaunchError(Exception):
    """The device refused a launch. No RuntimeError, which would send a caller the careful way."""


class Prepared:
    """A launch on a device, with its kernel once that is compiled."""

    def __init__(self, launch: Launch | None, device: torch.device) -> None:
        self.launch = launch
        self.device = device
        self.compiled: Any = None

    def __call__(self, *arguments: Any) -> None:
        """Launch with these pointers and factors; where there is nothing to turn, nothing is."""
        if self.launch is None:
            return
        name, job, numbers = self.launch
        try:
            with _on(self.device):
                if self.compiled is not None:
                    self.compiled[(job.programs, 1, 1)](*arguments, *numbers)
                    return
                run = getattr(kernels(), name)[(job.programs,)]
                self.compiled = run(*arguments, *numbers, num_warps=job.cut.warps, **_OPTIONS)
        except RuntimeError as error:
            raise LaunchError(f"{name} on {self.device}: {error}") from error


@lru_cache(KEPT)
def _kept_phases(
    operands: tuple[Operand, ...], positions: Meta | None, steps: Meta, lanes: int
) -> Prepared:
    launch = phases_launch(operands, positions, steps, Lanes.of(lanes))
    return Prepared(launch, operands[0].x.device)


@lru_cache(KEPT)
def _kept_tables(operands: tuple[Operand, ...], cos: Meta, sin: Meta, lanes: int) -> Prepared:
    return Prepared(tables_launch(operands, cos, sin, Lanes.of(lanes)), operands[0].x.device)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device: make it that of the tensors."""
    if device.type == "cpu" or device.index == torch.accelerator.current_device_index():
        return nullcontext()
    return torch.accelerator.device_index(device.index)


@cache
def kernels() -> SimpleNamespace:
    """The kernels by name; the first call loads Triton.

    Raises:
        ImportError: Triton is not installed.
    """
    try:
        from ropewalk.kernels.gpu import angles, turn, turn_normed, turn_pages
    except ImportError as error:
        raise ImportError(
            f"the GPU kernel needs Triton ({error}); install it with pip install 'ropewalk[gpu]'"
        ) from error
    return SimpleNamespace(
        turn_by_phases=turn.turn_by_phases,
        turn_by_tables=turn.turn_by_tables,
        turn_normed=turn_normed.turn_normed,
        turn_into_pages=turn_pages.turn_into_pages,
        make_tables=angles.make_tables,
    )
