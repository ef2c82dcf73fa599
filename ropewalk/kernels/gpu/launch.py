"""The operators of the GPU kernel: what the C++ operators do, launched on x's device and stream.

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

from ropewalk.kernels.gpu.job import Launch
from ropewalk.kernels.gpu.meta import Lanes, Meta, Operand
from ropewalk.kernels.gpu.plan import THREADS, power_of_two
from ropewalk.kernels.gpu.prepare import check, check_integers, phases_launch, tables_launch

KEPT = 4096
"""Launches that differ in shapes, strides or lanes; the least used one makes room."""
_OPTIONS = {"enable_fp_fusion": True}
"""Said aloud: Triton is about to change its default."""


def rotate_out(
    x: Tensor,
    out: Tensor,
    positions: Tensor,
    steps: Tensor,
    scale: float,
    negate: bool,
    first: int,
    second: int,
    lane_step: int,
) -> None:
    """``out`` = x turned by Σ position · step.

    Args:
        x, out: ``[..., heads, tokens, head_dim]``, alike in shape and dtype; out is x itself, or
            memory apart from it.
        positions: int64 ``[..., tokens]``, or ``[..., tokens, axes]`` if there are several axes.
        steps: int64 ``[axes, pairs]`` or ``[spectrum heads, axes, pairs]``.
        scale: multiplies cos and sin.
        negate: turn by the negative angle.
        first, second, lane_step: pair c is lanes ``first + c·lane_step``, ``second + c·lane_step``.

    Raises:
        ValueError: sizes, dtypes or devices do not fit.
        ImportError: Triton is not installed.
    """
    _by_phases(((x, out),), positions, steps, scale, negate, Lanes(first, second, lane_step))


def rotate_qk_out(
    q: Tensor,
    k: Tensor,
    q_out: Tensor,
    k_out: Tensor,
    positions: Tensor,
    steps: Tensor,
    scale: float,
    negate: bool,
    first: int,
    second: int,
    lane_step: int,
) -> None:
    """:func:`rotate_out` of q and k in one launch; they may differ in heads and strides."""
    both = ((q, q_out), (k, k_out))
    _by_phases(both, positions, steps, scale, negate, Lanes(first, second, lane_step))


def _by_phases(
    tensors: tuple[tuple[Tensor, Tensor], ...],
    positions: Tensor,
    steps: Tensor,
    scale: float,
    negate: bool,
    lanes: Lanes,
) -> None:
    steps = steps.contiguous()
    kept = _kept_phases(
        tuple(Operand.of(*pair) for pair in tensors), Meta.of(positions), Meta.of(steps), lanes
    )
    (q, q_out), (k, k_out) = tensors if len(tensors) == 2 else (*tensors, (None, None))
    kept(q, q_out, k, k_out, positions, steps, float(scale), float(-scale if negate else scale))


def rotate_by_out(
    x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, first: int, second: int, lane_step: int
) -> None:
    """``out`` = x turned by tables ``[..., tokens, pairs]`` that all heads share.

    Tables may have any real floating dtype and any strides.

    Raises:
        ValueError, ImportError: as :func:`rotate_out`.
    """
    lanes = Lanes(first, second, lane_step)
    _kept_tables(Operand.of(x, out), Meta.of(cos), Meta.of(sin), lanes)(x, out, cos, sin)


def phase_tables_out(
    positions: Tensor, steps: Tensor, scale: float, cos: Tensor, sin: Tensor
) -> None:
    """cos and sin ``[..., spectrum heads?, tokens, pairs]`` of the phases, by the same arithmetic.

    Raises:
        ValueError: not contiguous, or sizes, dtypes or devices that do not fit.
        ImportError: Triton is not installed.
    """
    check_integers(Meta.of(positions), Meta.of(steps), cos.device)
    axes, pairs = steps.shape[-2:]
    spectrum_heads = steps.shape[0] if steps.dim() == 3 else 1
    places = positions.numel() // max(axes, 1)
    fits = cos.shape == sin.shape and cos.numel() == places * spectrum_heads * pairs
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
    numbers = places, positions.shape[-1 if axes == 1 else -2], spectrum_heads
    block_pairs = power_of_two(pairs)
    block_rows = min(power_of_two(places), max(1, 4 * THREADS // block_pairs))
    programs = -(-places // block_rows) * spectrum_heads
    make = kernels().make_tables[(programs,)]
    with _on(positions.device):
        tensors = positions, steps, cos, sin
        make(*tensors, float(scale), *numbers, axes, pairs, block_rows, block_pairs, **_OPTIONS)


def advise(out: Tensor) -> None:
    """Nothing to advise a GPU's memory."""


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
        with _on(self.device):
            if self.compiled is not None:
                self.compiled[(job.programs, 1, 1)](*arguments, *numbers)
                return
            run = getattr(kernels(), name)[(job.programs,)]
            self.compiled = run(*arguments, *numbers, num_warps=job.cut.warps, **_OPTIONS)


@lru_cache(KEPT)
def _kept_phases(
    operands: tuple[Operand, ...], positions: Meta, steps: Meta, lanes: Lanes
) -> Prepared:
    return Prepared(phases_launch(operands, positions, steps, lanes), operands[0].x.device)


@lru_cache(KEPT)
def _kept_tables(operand: Operand, cos: Meta, sin: Meta, lanes: Lanes) -> Prepared:
    return Prepared(tables_launch(operand, cos, sin, lanes), operand.x.device)


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
        from ropewalk.kernels.gpu import angles, turn
    except ImportError as error:
        raise ImportError(
            f"the GPU kernel needs Triton ({error}); install it with pip install 'ropewalk[gpu]'"
        ) from error
    return SimpleNamespace(
        turn_by_phases=turn.turn_by_phases,
        turn_by_tables=turn.turn_by_tables,
        make_tables=angles.make_tables,
    )
