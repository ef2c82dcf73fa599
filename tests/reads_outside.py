"""A rotation of memory that is not there: what ``test_sanitize.py`` expects to be found."""

from __future__ import annotations

import numpy as np
import torch

import ropewalk


def test_a_tensor_larger_than_its_memory():
    memory = np.ones(1000, np.float32)
    strides = (4 * 64 * 20, 4 * 64 * 20, 4 * 64, 4)
    view = np.lib.stride_tricks.as_strided(memory, (1, 1, 20, 64), strides)
    ropewalk.rotate(torch.from_numpy(view), None, ropewalk.spectra.geometric(64))
