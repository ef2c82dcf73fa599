"""Whether the result of a rotation may be written, and while its input is read."""

from __future__ import annotations

from torch import Tensor


def writable(x: Tensor, out: Tensor) -> bool:
    """Whether out, of the shape of x, is x's own memory place by place, or memory apart from it."""
    if out is x or x.untyped_storage().data_ptr() != out.untyped_storage().data_ptr():
        return True
    sides = zip(x.stride(), out.stride(), x.shape, strict=True)
    if x.data_ptr() == out.data_ptr() and all(a == b for a, b, n in sides if n > 1):
        return True
    return not x.numel() or apart(x, out)


def expanded(x: Tensor) -> bool:
    """Whether several places of x share one memory, so that it cannot be written."""
    return any(stride == 0 and n > 1 for stride, n in zip(x.stride(), x.shape, strict=True))


def apart(x: Tensor, y: Tensor) -> bool:
    """Whether the bytes that x and y, neither empty, reach over are apart."""
    return _end(x) <= y.data_ptr() or _end(y) <= x.data_ptr()


def _end(x: Tensor) -> int:
    """The address behind the last element."""
    last = sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr() + (last + 1) * x.element_size()
