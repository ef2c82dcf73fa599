r"""attend: one attention for every encoding.

.. math:: y_i = \sum_j \operatorname{softmax}_j\bigl(s\,\langle q_i, k_j\rangle + b_{ij}\bigr)\,v_j

A rotary encoding turns q and k and leaves the fused kernel of ``scaled_dot_product_attention``
unchanged. A bias is computed for a block of queries at a time, and recomputed in backward, so
memory grows with T and not with T².
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ropewalk.core import (
    Additive,
    Bias,
    Block,
    Contextual,
    Encoding,
    Rotary,
    token_positions,
    wide_dtype,
)
from ropewalk.kernels.fused import transformed
from ropewalk.kernels.kinds import require_dense
from ropewalk.kernels.sharded import is_distributed

_AUTOCAST = frozenset({"cpu", "cuda", "xpu"})
"""Devices that have autocast; Dynamo of torch 2.10 cannot trace the question."""
QUERY_BLOCK = 256
"""Queries whose bias and mask are held at once."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None = None,
    *,
    q_positions: Tensor | None = None,
    kv_positions: Tensor | None = None,
    causal: bool = True,
    scale: float | None = None,
    segments: Tensor | None = None,
    window: int | None = None,
    k_encoded: bool = False,
) -> Tensor:
    """Attention of q over k and v with any rotary, bias or contextual encoding.

    Args:
        q: ``[..., H, q_tokens, head_dim]``.
        k: ``[..., kv_heads, kv_tokens, head_dim]``; H is a multiple of kv_heads.
        v: ``[..., kv_heads, kv_tokens, value_dim]``.
        encoding: None for no position. Additive encodings act on embeddings, before q, k and v
            exist: ``x = encoding(x)``.
        q_positions, kv_positions: integers ``[tokens]`` or ``[batch, tokens]`` (``, axes``). Keys
            count from 0 if None; queries are the last of the keys if None.
        causal: query t sees the keys up to itself *by token index, aligned to the end*: with a KV
            cache, one query sees all keys. Position values play no part.
        scale: of the logits, 1/√head_dim if None.
        segments: integers ``[kv_tokens]`` or ``[batch, kv_tokens]``; tokens see their own segment
            only, and a negative segment is padding that neither sees nor is seen. Queries take
            the last ones.
        window: a query sees the keys fewer than ``window`` tokens away.
        k_encoded: k comes from a cache that holds encoded keys; do not encode it again.

    Returns:
        ``[..., H, q_tokens, value_dim]`` in the dtype of q. A query that may see nothing gives 0.
        nan or inf at a token that a query may not see can still reach it, as in PyTorch's own
        attention; only padding (a negative segment) is kept away.

    Raises:
        TypeError, ValueError: shapes, dtypes or arguments do not fit together.
    """
    _check(q, k, v, window, causal, scale, _widened(encoding) if k_encoded else None)
    if encoding is not None and not isinstance(encoding, (Rotary, Bias, Contextual)):
        raise TypeError(_no_door(encoding))
    if isinstance(encoding, Contextual) and encoding.content_dim is not None:
        raise ValueError(
            f"{type(encoding).__name__} reads hidden states: attend(q, k, v, encoding.read(x)) "
            f"with x [..., kv_tokens, {encoding.content_dim}]"
        )
    if isinstance(encoding, Bias) and encoding.heads != q.shape[-3]:
        raise ValueError(f"encoding has heads={encoding.heads}; q has {q.shape[-3]} heads")
    segments = _segments(segments, q, k)
    if segments is not None:
        q, k, v = _without_padding(q, k, v, segments)
    mask = _Mask(q.shape[-2], k.shape[-2], causal, window, segments)
    if encoding is None:
        _refuse_encoded(k_encoded)
        return _fused(q, k, v, scale, mask)
    q_positions, kv_positions = _positions(q, k, q_positions, kv_positions, encoding.axes)
    if isinstance(encoding, Rotary):
        turned = encoding.encode_q(q, q_positions)
        keys = k if k_encoded else encoding.encode_k(k, kv_positions)
        _check_encoded(encoding, (("q", q, turned), ("k", k, keys)))
        if encoding.encoded_dim != q.shape[-1]:
            scale = _scale(scale, q)
        return _fused(turned, keys, v, scale, mask)
    _refuse_encoded(k_encoded)
    if isinstance(encoding, Bias):
        return _biased(q, k, v, encoding, q_positions, kv_positions, scale, mask)
    return _read(q, k, v, encoding, q_positions, kv_positions, scale, mask)


def _scale(scale: float | None, q: Tensor) -> float:
    """``scale``, or the usual 1/√head_dim."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _check_encoded(encoding: Rotary, sides: tuple[tuple[str, Tensor, Tensor], ...]) -> None:
    """Refuse what an encoding must not do to q or k: lose tokens, heads or batch, change dtype."""
    name = type(encoding).__name__
    for side, before, after in sides:
        if not isinstance(after, Tensor) or after.shape[:-1] != before.shape[:-1]:
            found = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
            raise ValueError(
                f"{name}.encode_{side} gave {found} for {side} {tuple(before.shape)}; only the "
                "last dimension may change"
            )
        if after.dtype != before.dtype:
            raise TypeError(f"{name}.encode_{side} gave {after.dtype} for {before.dtype}")
    if sides[0][2].shape[-1] != sides[1][2].shape[-1]:
        raise ValueError(f"{name} gives q and k of different head_dim")


def _check_logits(encoding: Bias | Contextual, what: str, found: Tensor, q: Tensor, k: Tensor):
    """Refuse what does not say a number for each logit."""
    wanted = (q.shape[-3], q.shape[-2], k.shape[-2])
    if (
        not isinstance(found, Tensor)
        or not found.dtype.is_floating_point
        or found.dim() < 3
        or found.shape[-3:] != wanted
    ):
        given = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise ValueError(
            f"{type(encoding).__name__}.{what} gave {given}; it must be floating [..., "
            f"{', '.join(map(str, wanted))}]: heads, queries, keys"
        )


def _refuse_encoded(k_encoded: bool) -> None:
    if k_encoded:
        raise ValueError(
            "k_encoded=True needs a rotary encoding; no other encoding changes the keys of a cache"
        )


def _no_door(encoding: object) -> str:
    if isinstance(encoding, Additive):
        return (
            f"encoding {type(encoding).__name__} is additive: it acts on embeddings, before q, k "
            "and v exist; write x = encoding(x) there and attend(q, k, v) here"
        )
    return (
        f"encoding must be an Encoding or None, got {type(encoding).__name__}; "
        "ropewalk.make(name, …) builds one"
    )


def _widened(encoding: Encoding | None) -> int | None:
    """The width of encoded keys, where it is not that of q."""
    if isinstance(encoding, Rotary) and encoding.encoded_dim != encoding.head_dim:
        return encoding.encoded_dim
    return None


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int | None,
    causal: bool,
    scale: float | None,
    key_dim: int | None,
) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, Tensor) or tensor.dim() < 3:
            raise ValueError(f"{name} must be a tensor [..., heads, tokens, head_dim]")
        require_dense(name, tensor)
        if is_distributed(tensor):
            raise TypeError(
                f"{name} is a DTensor; encode q and k as they are (encoding.encode_q(q), .encode_k("
                "k)), then attend(q.to_local(), k.to_local(), v.to_local()) to this rank's heads "
                "and batch rows, with all tokens of k and v"
            )
        if not tensor.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {tensor.dtype}; attention needs a floating dtype")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v have dtypes {q.dtype}, {k.dtype}, {v.dtype}; use one")
    if k.shape[-1] != (q.shape[-1] if key_dim is None else key_dim):
        wanted = "" if key_dim is None else f"; encoded keys of this encoding have {key_dim}"
        raise ValueError(f"q has head_dim {q.shape[-1]}, k has {k.shape[-1]}{wanted}")
    if k.shape[:-1] != v.shape[:-1] or q.shape[:-3] != k.shape[:-3]:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: k and v need the same "
            "heads and tokens, and all three the same leading dimensions"
        )
    if k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]:
        raise ValueError(f"q has {q.shape[-3]} heads, not a multiple of the {k.shape[-3]} of k")
    if not isinstance(causal, bool):
        raise TypeError(f"causal={causal!r} must be True or False")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float))):
        raise TypeError(f"scale={scale!r} must be a number or None")
    if scale is not None and not math.isfinite(scale):
        raise ValueError(f"scale={scale!r} must be finite; None is 1/√head_dim")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
        raise TypeError(f"window={window!r} must be an int or None")
    if window is not None and window < 1:
        raise ValueError(f"window={window} must be at least 1: a token sees itself")
    if causal and q.shape[-2] > k.shape[-2]:
        raise ValueError(
            f"causal attention aligns queries to the end of the keys: {q.shape[-2]} queries do not "
            f"fit {k.shape[-2]} keys; pass causal=False, or all keys"
        )


def _positions(
    q: Tensor, k: Tensor, q_positions: Tensor | None, kv_positions: Tensor | None, axes: int
) -> tuple[Tensor, Tensor]:
    """Both positions; queries take the last of the keys' when theirs are not given."""
    keys = token_positions(kv_positions, None, k, axes, name="kv_positions", of="k")
    _check_rows("kv_positions", keys, k, axes)
    if q_positions is not None:
        queries = token_positions(q_positions, None, q, axes, name="q_positions", of="q")
        _check_rows("q_positions", queries, q, axes)
        return queries, keys
    if q.shape[-2] > k.shape[-2]:
        raise ValueError(
            f"q has {q.shape[-2]} tokens and k {k.shape[-2]}: pass q_positions, since queries are "
            "taken to be the last of the keys"
        )
    dim = keys.dim() - (1 if axes == 1 else 2)
    return keys.narrow(dim, k.shape[-2] - q.shape[-2], q.shape[-2]), keys


def _check_rows(name: str, positions: Tensor, x: Tensor, axes: int) -> None:
    """Batch dimensions of positions fit those of x ``[..., heads, tokens, head_dim]``."""
    rows, own = positions.shape[: -1 if axes == 1 else -2], x.shape[:-3]
    if len(rows) > len(own) or any(
        r != 1 and r != n for r, n in zip(rows[::-1], own[::-1], strict=False)
    ):
        raise ValueError(
            f"{name} have shape {tuple(positions.shape)}, whose batch dimensions do not fit "
            f"{name[0]} {tuple(x.shape)}; use [tokens] or [batch, tokens]"
        )


def _segments(segments: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    if segments is None:
        return None
    if not isinstance(segments, Tensor) or segments.dtype.is_floating_point:
        raise TypeError("segments must be an integer tensor [kv_tokens] or [batch, kv_tokens]")
    if segments.dtype == torch.bool:
        raise TypeError(
            "segments are boolean; for a padding mask use ropewalk.positions.mask_segments(mask)"
        )
    if segments.dim() not in (1, 2) or segments.shape[-1] != k.shape[-2]:
        raise ValueError(
            f"segments have shape {tuple(segments.shape)}; k has {k.shape[-2]} tokens: use "
            "[kv_tokens] or [batch, kv_tokens]"
        )
    if segments.dim() == 2 and (k.dim() < 4 or segments.shape[0] not in (1, k.shape[-4])):
        raise ValueError(f"segments {tuple(segments.shape)} do not fit k {tuple(k.shape)}")
    if q.shape[-2] > k.shape[-2]:
        raise ValueError("segments belong to keys; queries beyond them have none")
    return segments


def _without_padding(
    q: Tensor, k: Tensor, v: Tensor, segments: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v with zeros at padding: an unset cache slot may hold nan, and 0 · nan is nan."""
    padding = segments[..., None] < 0
    padding = padding.unsqueeze(-3) if padding.dim() == 3 else padding
    asking = padding.narrow(-2, k.shape[-2] - q.shape[-2], q.shape[-2])
    return q.masked_fill(asking, 0), k.masked_fill(padding, 0), v.masked_fill(padding, 0)


class _Mask:
    """Which keys each query may see, given for a block of queries at a time."""

    def __init__(
        self,
        q_tokens: int,
        kv_tokens: int,
        causal: bool,
        window: int | None,
        segments: Tensor | None,
    ) -> None:
        self.q_tokens, self.kv_tokens = q_tokens, kv_tokens
        self.causal, self.window, self.segments = causal, window, segments

    @property
    def plain(self) -> bool:
        """No rule but causality."""
        return self.window is None and self.segments is None

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        """Boolean, True where allowed: ``[stop − start, kv_tokens]`` or ``[batch, 1, …]``."""
        shift = self.kv_tokens - self.q_tokens
        query = torch.arange(start + shift, stop + shift, device=device)[:, None]
        key = torch.arange(self.kv_tokens, device=device)
        allowed: Tensor | None = None
        if self.causal:
            allowed = key <= query
        if self.window is not None:
            near = (query - key).abs() < min(self.window, self.kv_tokens + self.q_tokens)
            allowed = near if allowed is None else allowed & near
        if self.segments is not None:
            own = self.segments[..., start + shift : stop + shift, None]
            same = (own == self.segments[..., None, :]) & (own >= 0)
            same = same.unsqueeze(-3) if same.dim() == 3 else same
            allowed = same if allowed is None else allowed & same
        return allowed


def _fused(q: Tensor, k: Tensor, v: Tensor, scale: float | None, mask: _Mask) -> Tensor:
    """Without a bias: one fused call where causality is the only rule, else by blocks."""
    square = mask.q_tokens == mask.kv_tokens
    if mask.plain and (not mask.causal or square or mask.q_tokens == 1):
        return functional.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=_decided(mask.causal and square),
            scale=scale,
            enable_gqa=_grouped(q, k),
        ).to(q.dtype)

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        allowed = mask.rows(start, start + part.shape[-2], part.device)
        return _masked(part, keys, values, scale, None, allowed).to(q.dtype)

    return _by_blocks(block, q, k, v)


def _biased(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Bias,
    q_positions: Tensor,
    kv_positions: Tensor,
    scale: float | None,
    mask: _Mask,
) -> Tensor:
    """A bias added to the logits, one block of queries at a time, in at least float32."""
    wide = wide_dtype(q.dtype)
    token_dim = q_positions.dim() - (1 if encoding.axes == 1 else 2)

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        allowed = mask.rows(start, start + part.shape[-2], part.device)
        where = q_positions.narrow(token_dim, start, part.shape[-2])
        part, keys, values = part.to(wide), keys.to(wide), values.to(wide)
        with _no_autocast(part.device.type):
            bias = encoding.bias(where, kv_positions, wide)
            _check_logits(encoding, "bias", bias, part, keys)
            return _masked(part, keys, values, scale, bias, allowed).to(q.dtype)

    return _by_blocks(block, q, k, v)


def _read(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Contextual,
    q_positions: Tensor,
    kv_positions: Tensor,
    scale: float | None,
    mask: _Mask,
) -> Tensor:
    """Logits that read content, one block of queries at a time, in at least float32."""
    wide = wide_dtype(q.dtype)
    token_dim = q_positions.dim() - (1 if encoding.axes == 1 else 2)
    repeats = q.shape[-3] // k.shape[-3]
    scale = _scale(scale, q)
    first = mask.kv_tokens - mask.q_tokens

    def block(part: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        allowed = mask.rows(start, start + part.shape[-2], part.device)
        where = q_positions.narrow(token_dim, start, part.shape[-2])
        part, keys, values = part.to(wide), keys.to(wide), values.to(wide)
        with _no_autocast(part.device.type):
            keys, values = (x.repeat_interleave(repeats, dim=-3) for x in (keys, values))
            seen = Block(
                part, keys, where, kv_positions, allowed, scale, first + start, mask.causal
            )
            logits = encoding.logits(seen)
            _check_logits(encoding, "logits", logits, part, keys)
            weights = _weights(logits, allowed)
            result = weights @ values
            moved = encoding.values(weights, seen)
            return (result if moved is None else result + moved).to(q.dtype)

    return _by_blocks(block, q, k, v)


def _weights(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; rows that may see nothing give 0."""
    if allowed is None:
        return logits.softmax(-1)
    visible = allowed.any(-1, keepdim=True)
    hidden = ~(allowed | ~visible)
    return logits.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(~visible, 0.0)


def _no_autocast(device: str) -> AbstractContextManager[object]:
    """Autocast would round the bias to a half, a whole unit at distance 8192."""
    available = device in _AUTOCAST or torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


def _by_blocks(block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``block`` over runs of queries; in training each is recomputed rather than stored."""
    cuts = _cuts(q.shape[-2])
    if len(cuts) == 2:
        return block(q, k, v, 0)
    outputs = []
    for start, stop in pairwise(cuts):
        part = q.narrow(-2, start, stop - start)
        if torch.is_grad_enabled() and not transformed():
            outputs.append(checkpoint(block, part, k, v, start, use_reentrant=False))
        else:
            outputs.append(block(part, k, v, start))
    return torch.cat(outputs, dim=-2)


def _cuts(tokens: int) -> list[int]:
    """Where runs of at most QUERY_BLOCK queries begin and end.

    Their number is a power of two, so compiled code needs a graph per doubling of tokens and not
    one per length. An exported graph serves every length, and has one run.
    """
    runs = 1
    while not torch.compiler.is_exporting() and runs * QUERY_BLOCK < tokens:
        runs *= 2
    return [run * tokens // runs for run in range(runs)] + [tokens]


def _masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    bias: Tensor | None,
    allowed: Tensor | None,
) -> Tensor:
    """Attention with a bias and a mask; rows that may see nothing give 0."""
    grouped = _grouped(q, k)
    if allowed is None:
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=scale, enable_gqa=grouped
        )
    visible = allowed.any(-1, keepdim=True)
    safe = allowed | ~visible
    mask = safe if bias is None else bias.masked_fill(~safe, float("-inf"))
    result = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=grouped
    )
    return result.masked_fill(~visible, 0.0)


def _grouped(q: Tensor, k: Tensor) -> bool:
    return _decided(q.shape[-3] != k.shape[-3])


def _decided(condition: bool) -> bool:
    """``condition`` as a plain bool: with dynamic shapes a compiler holds a symbol until asked."""
    if condition:  # noqa: SIM103 (returned as it is, the symbol would stay)
        return True
    return False
