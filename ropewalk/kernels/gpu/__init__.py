"""The GPU kernel, in Triton: the operators of the C++ one, for CUDA, ROCm and XPU tensors.

Importing this does not load Triton; the first rotation on a GPU does.
"""

from ropewalk.kernels.gpu.fusions import into_pages, normed
from ropewalk.kernels.gpu.launch import (
    LaunchError,
    advise,
    phase_tables,
    rotate,
    rotate_by,
    rotate_qk,
    rotate_qk_,
    rotate_qk_by,
)
from ropewalk.kernels.gpu.misfit import Misfit

__all__ = [
    "LaunchError",
    "Misfit",
    "advise",
    "into_pages",
    "normed",
    "phase_tables",
    "rotate",
    "rotate_by",
    "rotate_qk",
    "rotate_qk_",
    "rotate_qk_by",
]
