"""What attend accepts: shapes, dtypes, positions and segments that fit together."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.core import Additive, Bias, Contextual, Rotary, fits, token_positions
from ropewalk.kernels.kinds import require_dense
from ropewalk.kernels.sharded import is_distributed

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check_tensors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int | None,
    causal: bool,
    scale: float | None,
    key_dim: int | None = None,
) -> None:
    """Refuse tensors and numbers that do not fit together; ``key_dim`` is that of q if None."""
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
        if tensor.dtype not in DTYPES:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise TypeError(
                f"{name} has dtype {tensor.dtype}; attention needs a floating dtype, one of {known}"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v have dtypes {q.dtype}, {k.dtype}, {v.dtype}; use one")
    if q.shape[-1] == 0:
        raise ValueError(f"q has shape {tuple(q.shape)}; its head_dim must be at least 1")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v are on {q.device}, {k.device} and {v.device}; use one device")
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
    if scale is not None and not -math.inf < scale < math.inf:
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


def both_positions(
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
    """Positions are on the device of x ``[..., heads, tokens, head_dim]``, and fit its batch."""
    if positions.device != x.device:
        raise ValueError(
            f"{name} are on {positions.device}, {name[0]} is on {x.device}; use {name}.to("
            f"{name[0]}.device)"
        )
    rows, own = positions.shape[: -1 if axes == 1 else -2], x.shape[:-3]
    if not fits(rows, own):
        raise ValueError(
            f"{name} have shape {tuple(positions.shape)}, whose batch dimensions do not fit "
            f"{name[0]} {tuple(x.shape)}; use [tokens] or [batch, tokens]"
        )


def checked_segments(segments: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """``segments``, refused where they are not one integer a key."""
    if segments is None:
        return None
    real = isinstance(segments, Tensor) and not segments.dtype.is_complex
    if not real or segments.dtype.is_floating_point:
        raise TypeError("segments must be an integer tensor [kv_tokens] or [batch, kv_tokens]")
    if segments.dtype == torch.bool:
        raise TypeError(
            "segments are boolean; for a padding mask use ropewalk.positions.mask_segments(mask)"
        )
    if segments.device != k.device:
        raise ValueError(
            f"segments are on {segments.device}, k is on {k.device}; use segments.to(k.device)"
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


def without_padding(
    q: Tensor, k: Tensor, v: Tensor, segments: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v with zeros at padding: an unset cache slot may hold nan, and 0 · nan is nan."""
    padding = segments[..., None] < 0
    padding = padding.unsqueeze(-3) if padding.dim() == 3 else padding
    asking = padding.narrow(-2, k.shape[-2] - q.shape[-2], q.shape[-2])
    return q.masked_fill(asking, 0), k.masked_fill(padding, 0), v.masked_fill(padding, 0)


def logit_scale(scale: float | None, q: Tensor) -> float:
    """``scale``, or the usual 1/√head_dim."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def check_encoded(encoding: Rotary, sides: tuple[tuple[str, Tensor, Tensor], ...]) -> None:
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


def check_logits(encoding: Bias | Contextual, what: str, found: Tensor, q: Tensor, k: Tensor):
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
    if not fits(found.shape[:-3], q.shape[:-3]):
        raise ValueError(
            f"{type(encoding).__name__}.{what} gave {tuple(found.shape)} for q {tuple(q.shape)}: "
            "its batch dimensions do not fit; content and positions need those of q"
        )


def check_moved(encoding: Contextual, moved: Tensor, result: Tensor) -> None:
    """Refuse what position would add to the output where it is of another width than v."""
    if moved.shape[-3:] != result.shape[-3:]:
        raise ValueError(
            f"{type(encoding).__name__} adds {tuple(moved.shape)} to an output of "
            f"{tuple(result.shape)}; make the encoding with value_dim={result.shape[-1]}, the "
            "width of v"
        )


def no_door(encoding: object) -> str:
    """Why an encoding does not act in attention."""
    if isinstance(encoding, Additive):
        return (
            f"encoding {type(encoding).__name__} is additive: it acts on embeddings, before q, k "
            "and v exist; write x = encoding(x) there and attend(q, k, v) here"
        )
    return (
        f"encoding must be an Encoding or None, got {type(encoding).__name__}; "
        "ropewalk.make(name, …) builds one"
    )


def narrowed(positions: Tensor, start: int, stop: int, axes: int) -> Tensor:
    """The positions of tokens ``start`` … ``stop − 1``."""
    dim = positions.dim() - (1 if axes == 1 else 2)
    return positions.narrow(dim, start, stop - start)
