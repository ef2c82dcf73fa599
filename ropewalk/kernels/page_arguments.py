"""Checks of what is to be written into pages: each refuses by name, with the remedy."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.kernels import fused
from ropewalk.kernels.arguments import require_own_memory, require_tensor
from ropewalk.kernels.kinds import ordinary
from ropewalk.kernels.memory import apart

SKIP = -1
"""The slot of a token that is not written."""


def require_plain(*, optional: bool = False, **tensors: Tensor | None) -> None:
    """Refuse what is not PyTorch's own tensor, or wants a gradient; None, unless ``optional``."""
    for name, tensor in tensors.items():
        if tensor is None and optional:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        require_tensor(tensor, name)
        if not ordinary(tensor) and type(tensor).__name__ == "DTensor":
            raise TypeError(f"{name} is a DTensor; write each rank's own heads: {name}.to_local()")
        if fused.needs_derivative(tensor):
            raise ValueError(
                f"{name} wants a gradient, and writing into pages has none; call under "
                "torch.no_grad()"
            )


def require_places(
    x: Tensor, pages: Tensor, kv_layout: str, name: str = "k", into: str = "pages"
) -> None:
    """Refuse pages that cannot take rows of x."""
    nhd = kv_layout == "NHD"
    order = "[blocks, block_size, heads, width]" if nhd else "[blocks, heads, block_size, width]"
    if x.dim() != 3 or pages.dim() != 4:
        raise ValueError(
            f"{name} {tuple(x.shape)} must be [tokens, heads, width], and {into} "
            f"{tuple(pages.shape)} {order}; flatten a batch: {name}.flatten(0, 1)"
        )
    heads = pages.shape[2 if nhd else 1]
    if (heads, pages.shape[3]) != (x.shape[1], x.shape[2]):
        raise ValueError(
            f"{name} {tuple(x.shape)} and {into} {tuple(pages.shape)} differ in heads or width; "
            f"kv_layout={kv_layout!r} means {order}"
        )
    if pages.dtype != x.dtype or pages.device != x.device:
        raise ValueError(
            f"{name} is {x.dtype} on {x.device}, {into} are {pages.dtype} on {pages.device}; rows "
            "are written as they are"
        )
    require_own_memory(into, pages)
    _require_apart(name, x, into, pages)


def require_alike(k: Tensor, v: Tensor, pages: Tensor, v_pages: Tensor, kv_layout: str) -> None:
    """Refuse values that do not go beside their keys."""
    size = 1 if kv_layout == "NHD" else 2
    if v.shape[0] != k.shape[0] or v.device != k.device:
        raise ValueError(
            f"v {tuple(v.shape)} on {v.device} must have the tokens of k {tuple(k.shape)} on "
            f"{k.device}"
        )
    if (pages.shape[0], pages.shape[size]) != (v_pages.shape[0], v_pages.shape[size]):
        raise ValueError(
            f"pages {tuple(pages.shape)} and v_pages {tuple(v_pages.shape)} differ in blocks or "
            "block_size, so a slot would be two places"
        )
    if _shares(pages, v_pages) and pages.data_ptr() == v_pages.data_ptr() and pages.numel():
        raise ValueError("pages and v_pages begin at one place; values would be written over keys")
    _require_apart("k", k, "v_pages", v_pages)
    _require_apart("v", v, "pages", pages)


def _require_apart(name: str, x: Tensor, into: str, pages: Tensor) -> None:
    """Refuse to read what is being written. Traced tensors have no memory yet."""
    if x.numel() and pages.numel() and _shares(x, pages) and not apart(x, pages):
        raise ValueError(f"{into} overlap {name}, which is read meanwhile; use {name}.clone()")


def _shares(x: Tensor, y: Tensor) -> bool:
    return fused.eager() and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def require_integers(slots: Tensor, k: Tensor) -> None:
    """Refuse slots that are not integers, one for each token of k."""
    if slots.dtype not in (torch.int64, torch.int32, torch.int16):
        raise TypeError(f"slots have dtype {slots.dtype}; they must be int64, or int32")
    if slots.shape != k.shape[:1] or slots.device != k.device:
        raise ValueError(
            f"slots {tuple(slots.shape)} on {slots.device} must be one for each token of "
            f"k {tuple(k.shape)} on {k.device}"
        )


def require_no_capture(x: Tensor, when: str, remedy: str) -> None:
    """Refuse to wait for a device whose stream is being captured."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise ValueError(
            f"a CUDA graph is being captured, and {when} slots are read on the host; use {remedy}"
        )


def require_slots(slots: Tensor, pages: Tensor) -> None:
    """Refuse slots outside pages ``[blocks, block_size, …]``, or given twice; a GPU waits once."""
    require_no_capture(slots, "with check_slots=True", "check_slots=False")
    size = pages.shape[0] * pages.shape[1]
    outside = (slots < SKIP) | (slots >= size)
    taken = slots.sort().values
    again = (taken[1:] == taken[:-1]) & (taken[1:] != SKIP)
    if not (outside.any() | again.any()):
        return
    if outside.any():
        token = int(outside.nonzero()[0])
        raise ValueError(
            f"slots[{token}]={int(slots[token])} is not a place in {pages.shape[0]} pages of "
            f"{pages.shape[1]}; use 0 … {size - 1}, or {SKIP} to skip the token"
        )
    slot = int(taken[1:][again][0])
    tokens = (slots == slot).nonzero().flatten().tolist()
    raise ValueError(
        f"slots[{tokens[1]}]={slot} is slots[{tokens[0]}] too; give each token its own, or "
        f"{SKIP} to skip one"
    )
