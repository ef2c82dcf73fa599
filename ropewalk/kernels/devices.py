"""Which kernel serves which device: C++ on the CPU, Triton on a GPU, else PyTorch's operations."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_torch_function_mode_enabled
from torch.autograd import profiler

from ropewalk.kernels import eager, gpu, native
from ropewalk.kernels.gpu.launch import kernels
from ropewalk.kernels.native import Kernel

_GPUS = ("cuda", "xpu")
_REMEDY = "pip install 'ropewalk[gpu]' brings Triton"


def operators(x: Tensor) -> Any:
    """The operators for tensors where x is, as :class:`ropewalk.kernels.native.Operators`."""
    return native.kernel().ops if x.is_cpu else kernel_on(x.device.type).ops


def direct(x: Tensor) -> Any:
    """:func:`operators` without PyTorch's dispatcher where there are such and nobody looks."""
    if not x.is_cpu:
        return kernel_on(x.device.type).ops
    kernel = native.kernel()
    looked_at = profiler._is_profiler_enabled or _is_torch_function_mode_enabled()
    return kernel.ops if kernel.direct is None or looked_at else kernel.direct


def kernel_for(x: Tensor) -> Kernel:
    """The kernel for tensors where x is."""
    return native.kernel() if x.is_cpu else kernel_on(x.device.type)


def kernel_on(device_type: str) -> Kernel:
    """The kernel for a type of device, such as "cuda"."""
    if device_type == "cpu":
        return native.kernel()
    return _gpu_kernel(device_type) if device_type in _GPUS else _elsewhere()


@cache
def _elsewhere() -> Kernel:
    return Kernel(eager, "PyTorch")


@cache
def _gpu_kernel(device_type: str) -> Kernel:
    """Looked for at the first rotation there."""
    wanted = native.wanted()
    if wanted in ("reference", "pytorch"):
        ops = None if wanted == "reference" else eager
        return Kernel(ops, f"gpu: {wanted}, as ROPEWALK_KERNEL asks")
    if device_type == "xpu" and not torch.xpu.get_device_capability().get("has_fp64", False):
        return Kernel(eager, "gpu: PyTorch; the kernel needs a device with float64")
    try:
        kernels()
    except (ImportError, OSError) as error:
        return Kernel(eager, f"gpu: PyTorch; {_REMEDY} ({error})")
    name = f"gpu (Triton {_triton_version()})"
    return Kernel(gpu, name, compiled=True, into_pages=gpu.into_pages, normed=gpu.normed)


def _triton_version() -> str:
    for name in ("triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def active() -> str:
    """The kernels that rotations run on: on the CPU, and on the GPU where there is one."""
    names = [native.kernel().name]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type in _GPUS:
            names.append(kernel_on(accelerator.type).name)
    return "; ".join(names)
