"""The kernel's functions as Python functions, for calls that nobody needs to see.

An operator's call passes PyTorch's dispatcher, which matches schemas and boxes arguments: for one
token that takes three times as long as to rotate it. A library that was built where Python's
headers are offers the same functions without, reading tensors through the exchange table of DLPack
1.2 that PyTorch has since 2.10. They see no tensor subclass, mode, transform or lazy sign, so only
:mod:`ropewalk.kernels.fused` calls them, which has asked.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch

_ENTRY = "ropewalk_direct"


def functions(path: Path) -> dict[str, Callable[..., None]]:
    """The functions of a library that PyTorch has loaded, by the names of their operators.

    Raises:
        OSError: the library has none, or this PyTorch or Python does not go with them.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise OSError("this Python has no global lock, and the library's limited API wants one")
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if table is None:
        raise OSError(f"torch {torch.__version__} has no DLPack exchange table")
    loaded = ctypes.PyDLL(str(path), os.RTLD_NOLOAD)  # a second library would end the process
    entry = getattr(loaded, _ENTRY, None)
    if entry is None:
        raise OSError("the library was built without Python's headers")
    entry.restype, entry.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.py_object)
    try:
        return entry(torch.Tensor, table)
    except (RuntimeError, ValueError) as error:
        raise OSError(str(error)) from error
