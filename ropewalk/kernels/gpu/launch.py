"""The operators of the GPU kernel: tensors checked, cut into programs and launched.

They take the arguments of the C++ operators (:mod:`ropewalk.kernels.native`) and run on the device
and stream of x. Under ``TRITON_INTERPRET=1`` they take CPU tensors too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ropewalk.kernels.gpu.arguments import (
    Launch,
    check,
    check_integers,
    phases_launch,
    tables_launch,
)
from ropewalk.kernels.gpu.job import Lanes
from ropewalk.kernels.gpu.plan import THREADS, power_of_two

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
    lanes = Lanes(first, second, lane_step)
    _run("turn_by_phases", phases_launch([(x, out)], positions, steps, scale, negate, lanes))


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
    both = [(q, q_out), (k, k_out)]
    lanes = Lanes(first, second, lane_step)
    _run("turn_by_phases", phases_launch(both, positions, steps, scale, negate, lanes))


def rotate_by_out(
    x: Tensor, out: Tensor, cos: Tensor, sin: Tensor, first: int, second: int, lane_step: int
) -> None:
    """``out`` = x turned by tables ``[..., tokens, pairs]`` that all heads share.

    Tables may have any real floating dtype and any strides.

    Raises:
        ValueError, ImportError: as :func:`rotate_out`.
    """
    lanes = Lanes(first, second, lane_step)
    if cos.shape[-1] == 0:
        out.copy_(x)
        return
    _run("turn_by_tables", tables_launch(x, out, cos, sin, lanes))


def phase_tables_out(
    positions: Tensor, steps: Tensor, scale: float, cos: Tensor, sin: Tensor
) -> None:
    """cos and sin ``[..., spectrum heads?, tokens, pairs]`` of the phases, by the same arithmetic.

    Raises:
        ValueError: not contiguous, or sizes, dtypes or devices that do not fit.
        ImportError: Triton is not installed.
    """
    axes, pairs = steps.shape[-2:]
    spectrum_heads = steps.shape[0] if steps.dim() == 3 else 1
    check_integers(positions, steps, cos)
    check(
        all(t.is_contiguous() for t in (positions, steps, cos, sin)),
        "positions, steps, cos and sin must be contiguous; use .contiguous()",
    )
    check(
        cos.dtype == sin.dtype and cos.dtype in (torch.float32, torch.float64),
        f"cos is {cos.dtype} and sin {sin.dtype}; both are float32 or both float64",
    )
    places = positions.numel() // max(axes, 1)
    check(
        cos.numel() == sin.numel() == places * spectrum_heads * pairs,
        f"cos {tuple(cos.shape)} and sin {tuple(sin.shape)} do not fit positions "
        f"{tuple(positions.shape)} and steps {tuple(steps.shape)}",
    )
    if cos.numel() == 0:
        return
    tokens = positions.shape[-1 if axes == 1 else -2]
    block_pairs = power_of_two(pairs)
    block_rows = min(power_of_two(places), max(1, 4 * THREADS // block_pairs))
    programs = -(-places // block_rows) * spectrum_heads
    with _on(positions.device):
        kernels().make_tables[(programs,)](
            positions,
            steps,
            cos,
            sin,
            float(scale),
            places,
            tokens,
            spectrum_heads,
            axes,
            pairs,
            block_rows,
            block_pairs,
            num_warps=4,
            **_OPTIONS,
        )


def advise(out: Tensor) -> None:
    """Nothing to advise a GPU's memory."""


def _run(kernel: str, launch: Launch | None) -> None:
    if launch is None:
        return
    run = getattr(kernels(), kernel)[(launch.job.programs,)]
    with _on(launch.arguments[0].device):
        run(*launch.arguments, num_warps=launch.job.cut.warps, **_OPTIONS)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device: make it that of the tensors."""
    if device.type == "cpu" or device.index == torch.accelerator.current_device_index():
        return nullcontext()
    return torch.accelerator.device_index(device.index)


@cache
def kernels() -> ModuleType:
    """The module with the kernels, which loads Triton.

    Raises:
        ImportError: Triton is not installed.
    """
    try:
        from ropewalk.kernels.gpu import turn
    except ImportError as error:
        raise ImportError(
            f"the GPU kernel needs Triton ({error}); install it with pip install 'ropewalk[gpu]'"
        ) from error
    return turn
