"""What encodings that read hidden states share: projections, short convolutions, heads.

Everything is computed in at least float32 and with autocast off, because sums over a sequence keep
every rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ropewalk.core import Block, fits, wide_dtype
from ropewalk.encodings.width import check_dim, empty_parameter


def hidden_states(content: object, content_dim: int | None) -> Tensor:
    """``content`` in at least float32 if it is ``[..., tokens, content_dim]``.

    Raises:
        TypeError: no real floating tensor.
        ValueError: another shape.
    """
    if not isinstance(content, Tensor):
        raise TypeError(f"content must be hidden states, a tensor; got {type(content).__name__}")
    if not content.dtype.is_floating_point:
        raise TypeError(f"content has dtype {content.dtype}; hidden states are real floating")
    if content.dim() < 2 or content.shape[-1] != content_dim:
        raise ValueError(
            f"content has shape {tuple(content.shape)}; this encoding reads hidden states "
            f"[..., tokens, {content_dim}]"
        )
    return content.to(wide_dtype(content.dtype))


def project(x: Tensor, layers: Sequence[nn.Linear]) -> Tensor:
    """x through linear layers, in the dtype of x."""
    for layer in layers:
        bias = None if layer.bias is None else layer.bias.to(x.dtype)
        x = nn.functional.linear(x, layer.weight.to(x.dtype), bias)
    return x


def causal_convolution(x: Tensor, taps: Tensor, segments: Tensor | None = None) -> Tensor:
    """Each channel of x ``[..., tokens, channels]`` summed with its own past.

    Args:
        x: the channels.
        taps: ``[channels, width]``, the last for the token itself.
        segments: integers ``[..., tokens]``; a token reads its own segment only.
    """
    width, tokens = taps.shape[-1], x.shape[-2]
    taps = taps.to(x.dtype)
    total = x * taps[:, -1]
    for lag in range(1, width):
        before = nn.functional.pad(x, (0, 0, lag, 0)).narrow(-2, 0, tokens)
        if segments is not None:
            earlier = nn.functional.pad(segments, (lag, 0)).narrow(-1, 0, tokens)
            before = before * (earlier == segments)[..., None].to(x.dtype)
        total = total + before * taps[:, width - 1 - lag]
    return total


def in_heads(x: Tensor, heads: int) -> Tensor:
    """``[..., tokens, heads · n]`` as ``[..., heads, tokens, n]``."""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def to_heads(x: Tensor, heads: int, dim: int = -3) -> Tensor:
    """Dimension ``dim`` repeated so that there are ``heads`` of it."""
    own = x.shape[dim]
    return x if own == heads else x.repeat_interleave(heads // own, dim=dim)


def check_groups(heads: int, kv_heads: int | None) -> int:
    """kv_heads, or heads if None.

    Raises:
        ValueError: heads are no multiple of kv_heads.
    """
    check_dim(heads, "heads")
    own = heads if kv_heads is None else check_dim(kv_heads, "kv_heads")
    if heads % own:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={own}")
    return own


def check_block(block: Block, tokens: int, heads: int, name: str, lead: Sequence[int] = ()) -> None:
    """Refuse q and k that are not of the hidden states an encoding was bound to.

    Raises:
        ValueError: tokens or heads differ, or leading dimensions ``lead`` do not fit.
    """
    if not fits(lead, block.q.shape[:-3]):
        raise ValueError(
            f"{name} has read content with leading dimensions {tuple(lead)}; q has "
            f"{tuple(block.q.shape[:-3])}: read hidden states of the same batch"
        )
    if block.k.shape[-2] != tokens:
        raise ValueError(
            f"{name} has read {tokens} tokens and k has {block.k.shape[-2]}: read the hidden "
            "states of all the keys, cached ones included"
        )
    if block.q.shape[-3] != heads:
        raise ValueError(f"{name} has heads={heads}; q has {block.q.shape[-3]} heads")


def head_width(content_dim: int, heads: int, head_dim: int | None) -> int:
    """head_dim, or content_dim / heads if None.

    Raises:
        ValueError: content_dim is no multiple of heads.
    """
    if head_dim is not None:
        return check_dim(head_dim, "head_dim")
    if content_dim % heads:
        raise ValueError(
            f"content_dim={content_dim} is not a multiple of heads={heads}; state head_dim"
        )
    return content_dim // heads


def short_taps(channels: int, kernel: int) -> nn.Parameter:
    """Uninitialised taps ``[channels, kernel]`` of a causal convolution."""
    return empty_parameter((channels, check_dim(kernel, "kernel", at_most=64)))
