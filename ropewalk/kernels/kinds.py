"""Which kinds of tensor a rotation takes, beyond PyTorch's plain ones."""

from __future__ import annotations

import torch
from torch import Tensor

_PLAIN = (Tensor, torch.nn.Parameter, type(None))


def ordinary(*tensors: Tensor | None) -> bool:
    """Whether all are PyTorch's own class, whose memory a kernel may read; None counts."""
    return all(type(t) in _PLAIN for t in tensors)


def require_dense(name: str, x: Tensor) -> None:
    """Refuse tensors whose numbers do not lie in one strided block.

    Raises:
        TypeError: x is nested, sparse, masked or in another layout; the message names the remedy.
    """
    if x.layout is torch.strided and not x.is_nested and type(x).__name__ != "MaskedTensor":
        return
    if x.is_nested:
        raise TypeError(
            f"{name} is a nested tensor; turn its values [total, heads, head_dim], heads first: "
            "rotate(x.values().transpose(0, 1), ropewalk.positions.packed(x.offsets()), spectrum)"
        )
    if x.layout is torch.strided:
        raise TypeError(
            f"{name} is a MaskedTensor, and a rotation mixes lanes that may be masked unlike each "
            f"other; rotate {name}.get_data() and mask the result"
        )
    raise TypeError(f"{name} has layout {x.layout}; a rotation needs strided memory: .to_dense()")
