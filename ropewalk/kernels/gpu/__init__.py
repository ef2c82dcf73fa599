"""The GPU kernel, in Triton: the semantics of the C++ one, for CUDA, ROCm and XPU tensors.

Importing this does not load Triton; the first rotation on a GPU does.
"""

from ropewalk.kernels.gpu.launch import (
    advise,
    phase_tables_out,
    rotate_by_out,
    rotate_out,
    rotate_qk_out,
)

__all__ = ["advise", "phase_tables_out", "rotate_by_out", "rotate_out", "rotate_qk_out"]
