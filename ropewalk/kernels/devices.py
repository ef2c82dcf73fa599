"""Which kernel serves which device: C++ on the CPU, Triton on a GPU, else plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from ropewalk.kernels import gpu
from ropewalk.kernels.gpu.launch import kernels
from ropewalk.kernels.native import Kernel, kernel, wanted

_REMEDY = "pip install 'ropewalk[gpu]' brings Triton"


@dataclass(frozen=True)
class Overload:
    """A Triton launch under the name that an operator of the dispatcher has: ``op.default``."""

    default: Callable[..., None]


@dataclass(frozen=True)
class GpuOperators:
    """What the autograd functions call, as ``torch.ops.ropewalk_cpu`` offers it for the CPU."""

    rotate_out: Overload = Overload(gpu.rotate_out)
    rotate_qk_out: Overload = Overload(gpu.rotate_qk_out)
    rotate_by_out: Overload = Overload(gpu.rotate_by_out)
    phase_tables_out: Overload = Overload(gpu.phase_tables_out)
    advise: Overload = Overload(gpu.advise)


def operators(device_type: str) -> Any:
    """The operators for tensors on such a device, or None where the plain form runs."""
    if device_type == "cpu":
        return kernel().ops
    return gpu_kernel(device_type).ops if device_type in ("cuda", "xpu") else None


@cache
def gpu_kernel(device_type: str) -> Kernel:
    """The kernel on GPUs of this process; looked for at the first rotation there."""
    if wanted() == "reference":
        return Kernel(None, "gpu: reference (PyTorch), as ROPEWALK_KERNEL asks")
    if device_type == "xpu" and not torch.xpu.get_device_capability().get("has_fp64", False):
        return Kernel(None, "gpu: reference (PyTorch); the kernel needs a device with float64")
    try:
        kernels()
    except (ImportError, OSError) as error:
        return Kernel(None, f"gpu: reference (PyTorch); {_REMEDY} ({error})")
    return Kernel(GpuOperators(), f"gpu (Triton {_triton_version()})")


def _triton_version() -> str:
    for name in ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def active() -> str:
    """The kernels that rotations run on: on the CPU, and on the GPU where there is one."""
    names = [kernel().name]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type in ("cuda", "xpu"):
            names.append(gpu_kernel(accelerator.type).name)
    return "; ".join(names)
