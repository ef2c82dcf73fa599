"""The ways to compute attention exactly, and which one is the fastest for a call."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ropewalk.attention import factored, flex, tiles
from ropewalk.attention.call import Call, checked, learns
from ropewalk.core import Bias, Contextual, Encoding
from ropewalk.kernels.fused import eager

PATHS = ("auto", "fused", "factored", "flex", "blockwise")
SHORT = 256 * 256
"""Logits a head up to which a block of bias or mask on a CPU costs less than tiles."""


class Path(NamedTuple):
    """A way to compute one call.

    Args:
        name: ``"fused"``, ``"factored"``, ``"flex"`` or ``"blockwise"``.
        why: in words.
    """

    name: str
    why: str


def path(
    q: Tensor,
    k: Tensor,
    encoding: Encoding | None = None,
    *,
    v: Tensor | None = None,
    q_positions: Tensor | None = None,
    kv_positions: Tensor | None = None,
    causal: bool = True,
    scale: float | None = None,
    segments: Tensor | None = None,
    window: int | None = None,
    k_encoded: bool = False,
) -> Path:
    """Which path ``attend`` takes for these arguments, and why; nothing is computed.

    Arguments are those of ``attend``; v is taken to be like k if not given.

    Raises:
        TypeError, ValueError: as ``attend`` does.
    """
    call = checked(
        q,
        k,
        k if v is None else v,
        encoding,
        q_positions,
        kv_positions,
        causal,
        scale,
        segments,
        window,
        k_encoded,
    )
    return chosen(call, "auto")


def chosen(call: Call, wanted: str) -> Path:
    """The path that was asked for, or the fastest one.

    Raises:
        ValueError: ``wanted`` is no path, or cannot do this call; the message says why not.
    """
    if wanted not in PATHS:
        raise ValueError(f"path={wanted!r}; use one of {', '.join(map(repr, PATHS))}")
    if wanted == "auto":
        return _fastest(call)
    obstacle = _OBSTACLES[wanted](call)
    if obstacle is not None:
        raise ValueError(
            f"path={wanted!r} cannot do this call: {obstacle}; "
            f"path='auto' takes {_fastest(call).name!r}"
        )
    return Path(wanted, "asked for")


def _fastest(call: Call) -> Path:
    encoding, gpu = call.encoding, call.q.device.type == "cuda"
    name = "no encoding" if encoding is None else type(encoding).__name__
    if isinstance(encoding, Contextual):
        return Path("blockwise", f"{name} reads q and k: its logits exist a block at a time")
    if isinstance(encoding, Bias):
        if not gpu and not eager():
            return Path("blockwise", "a traced graph holds the bias a block at a time")
        if not gpu and _short(call):
            return Path("blockwise", "so short that one block of bias costs less than channels")
        obstacle = factored.obstacle(call) or factored.imprecise(call)
        if obstacle is None:
            return Path("factored", f"{name} factors into channels of q and k, without a mask")
        if gpu and flex.obstacle(call) is None:
            return Path("flex", f"{obstacle}; FlexAttention computes it in the kernel")
        return Path("blockwise", f"{obstacle}; the bias exists a block at a time")
    if call.mask.one_call:
        how = "no position" if encoding is None else f"{name} turns q and k"
        return Path("fused", f"{how}; one fused kernel without a mask does the rest")
    obstacle = _fused_obstacle(call)
    if gpu and flex.obstacle(call) is None:
        return Path("flex", f"{obstacle}; FlexAttention skips what the rules hide")
    return Path("blockwise", f"{obstacle}; blocks read only the keys in reach")


def _short(call: Call) -> bool:
    return call.mask.q_tokens * call.mask.kv_tokens <= SHORT


def _fused_obstacle(call: Call) -> str | None:
    if isinstance(call.encoding, Bias):
        return f"{type(call.encoding).__name__} adds to the logits"
    if isinstance(call.encoding, Contextual):
        return f"{type(call.encoding).__name__} reads q and k"
    if call.mask.one_call:
        return None
    if call.mask.window is not None:
        return "the fused kernel knows no window"
    if call.mask.segments is not None:
        return "the fused kernel knows no segments"
    return (
        f"the fused kernel's causal rule wants as many q as k, not {call.mask.q_tokens} and "
        f"{call.mask.kv_tokens}"
    )


_OBSTACLES = {
    "fused": _fused_obstacle,
    "factored": factored.obstacle,
    "flex": flex.obstacle,
    "blockwise": lambda call: None,
}


def tiled(call: Call) -> bool:
    """Whether a blockwise call is worth tiles, and can have them."""
    if isinstance(call.encoding, Contextual) or not tiles.usable(call.q, call.k, call.v):
        return False
    return not learns(call) and not _short(call)


__all__ = ["PATHS", "Path", "chosen", "path", "tiled"]
