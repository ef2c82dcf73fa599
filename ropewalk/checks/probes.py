"""Questions put to an encoding, each answer checked for shape and finiteness, in float64.

Positions are int64 ``[n]``, or ``[n, axes]`` with several axes, in whole coordinates: an encoding
with a fixed-point ``unit`` is asked for multiples of 1/unit, so that its properties are those of
its coordinates. Everything is asked on the device of the encoding and answered on the CPU.
"""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn

from ropewalk.checks.content import gaussian
from ropewalk.checks.measurement import Unusable
from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary

Side = Literal["q", "k"]
SIDES: tuple[Side, ...] = ("q", "k")


def device_of(encoding: Encoding) -> torch.device:
    """Where its parameters and buffers live; the CPU if it has none."""
    tensors = itertools.chain(encoding.parameters(), encoding.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def on_axes(line: Tensor, axes: int) -> Tensor:
    """Positions ``[n]`` taken along every axis at once: themselves, or ``[n, axes]``."""
    return line if axes == 1 else line[:, None].expand(-1, axes).contiguous()


def asked(encoding: Encoding, positions: Tensor) -> Tensor:
    """The integers to pass for these coordinates, on the device of the encoding."""
    unit = getattr(getattr(encoding, "spectrum", None), "unit", 1.0)
    return positions.to(device_of(encoding)) * max(round(1 / unit), 1)


def heads_of(encoding: Encoding) -> int:
    """Heads to ask about: those it has frequencies or slopes for, else 1."""
    own = getattr(encoding, "heads", None)
    if own is None:
        own = getattr(getattr(encoding, "spectrum", None), "heads", None)
    return own if isinstance(own, int) else 1


def _checked(answer: object, shape: tuple[int, ...], what: str, finite: bool) -> Tensor:
    if not isinstance(answer, Tensor):
        raise Unusable(f"{what} is a {type(answer).__name__}, not a tensor")
    if tuple(answer.shape) != shape:
        raise Unusable(f"{what} has shape {tuple(answer.shape)}; the contract says {shape}")
    wide = answer.detach().to("cpu", torch.float64)
    if bool((~torch.isfinite(wide) if finite else torch.isnan(wide)).any()):
        raise Unusable(f"{what} holds nan or inf")
    return wide


def codes(
    encoding: Additive,
    positions: Tensor,
    *,
    length: int | None = None,
    dtype: torch.dtype = torch.float64,
    finite: bool = True,
) -> Tensor:
    """The codes ``[n, dim]`` of an additive encoding, computed in ``dtype``."""
    answer = encoding.encode(asked(encoding, positions), length=length, dtype=dtype)
    return _checked(answer, (positions.shape[0], encoding.dim), "encode(positions)", finite)


def transformed(
    encoding: Rotary, x: Tensor, positions: Tensor, side: Side, finite: bool = True
) -> Tensor:
    """x ``[batch, heads, n, head_dim]`` through encode_q or encode_k, ``[…, encoded_dim]``."""
    where = asked(encoding, positions)
    door = encoding.encode_q if side == "q" else encoding.encode_k
    shape = (*x.shape[:-1], encoding.encoded_dim)
    return _checked(door(x.to(where.device), where), shape, f"encode_{side}(x)", finite)


def vectors(encoding: Rotary, x: Tensor, positions: Tensor, side: Side) -> Tensor:
    """x ``[n, head_dim]`` through encode_q or encode_k, each in every head: ``[heads, n, …]``."""
    many = x[None, None].expand(1, heads_of(encoding), -1, -1).contiguous()
    return transformed(encoding, many, positions, side)[0]


def operators(encoding: Rotary, positions: Tensor, side: Side) -> Tensor:
    """The matrices T(p) ``[n, heads, encoded_dim, head_dim]``: encode applied to the identity."""
    dim, count, heads = encoding.head_dim, positions.shape[0], heads_of(encoding)
    basis = torch.eye(dim, dtype=torch.float64, device="cpu")
    x = basis[:, None, None, :].expand(dim, heads, count, dim).contiguous()
    return transformed(encoding, x, positions, side).permute(2, 1, 3, 0)


def biases(
    encoding: Bias,
    q_positions: Tensor,
    kv_positions: Tensor,
    dtype: torch.dtype = torch.float64,
    finite: bool = True,
) -> Tensor:
    """The bias ``[heads, q_tokens, kv_tokens]``, computed in ``dtype``."""
    answer = encoding.bias(asked(encoding, q_positions), asked(encoding, kv_positions), dtype)
    shape = (encoding.heads, q_positions.shape[0], kv_positions.shape[0])
    return _checked(answer, shape, "bias(q_positions, kv_positions)", finite)


def read_biases(
    encoding: Contextual,
    q: Tensor,
    k: Tensor,
    q_positions: Tensor,
    kv_positions: Tensor,
    content: Tensor | None = None,
) -> Tensor:
    """What position adds to the logits ``[heads, q_tokens, kv_tokens]`` under a causal mask.

    q and k are ``[heads, tokens, head_dim]``; hidden states ``[kv_tokens, content_dim]`` are made
    from k unless given, so equal keys come of equal hidden states.
    """
    device, heads = device_of(encoding), q.shape[0]
    allowed = _line(kv_positions)[None, :] <= _line(q_positions)[:, None]
    block = Block(
        q[None].to(device),
        k[None].to(device),
        asked(encoding, q_positions),
        asked(encoding, kv_positions),
        allowed.to(device),
        first=k.shape[1] - q.shape[1],
        causal=True,
    )
    if encoding.content_dim is not None and content is None:
        content = hidden_states(encoding, k)
    answer = positional(encoding, block, None if content is None else content[None].to(device))
    shape = (1, heads, q_positions.shape[0], kv_positions.shape[0])
    wide = _checked(answer, shape, "bias(block)", finite=False)[0]
    wide = wide.masked_fill(~allowed, 0.0)
    if not bool(torch.isfinite(wide).all()):
        raise Unusable("bias(block) holds nan or inf at allowed keys")
    return wide


def positional(encoding: Contextual, block: Block, content: Tensor | None = None) -> Tensor:
    """What position adds to the logits of a block: the bias, or logits − scale · q·k."""
    seen = encoding if content is None else encoding.read(content)
    if isinstance(seen, Contextual) and type(seen).logits is Contextual.logits:
        return seen.bias(block)
    return logits(seen, block) - block.content


def logits(seen: Contextual | Rotary, block: Block) -> Tensor:
    """The logits of a block, by an encoding that is bound to its content if it reads any."""
    if isinstance(seen, Contextual):
        return seen.logits(block)
    tokens, queries = block.k.shape[-2], block.q.shape[-2]
    after = tokens - block.first - queries
    whole = nn.functional.pad(block.q, (0, 0, block.first, after))  # it is bound to all the tokens
    turned = seen.encode_q(whole, block.kv_positions).narrow(-2, block.first, queries)
    keys = seen.encode_k(block.k, block.kv_positions)
    return (turned * block.scale) @ keys.transpose(-1, -2)


def pair_operators(
    encoding: Contextual,
    q_positions: Tensor,
    kv_positions: Tensor,
    content: Tensor | None = None,
) -> Tensor:
    """T(i, j) ``[heads, q_tokens, kv_tokens, head_dim, head_dim]`` of a bilinear encoding.

    Logits are qᵀ T(i, j) k, so unit vectors for q and k give T entry by entry. Queries are the last
    of the tokens; ``content`` is ``[kv_tokens, content_dim]``.
    """
    heads, dim = contextual_size(encoding)
    queries, keys, device = q_positions.shape[0], kv_positions.shape[0], device_of(encoding)
    basis = torch.eye(dim, dtype=torch.float64, device=device)
    seen = encoding if content is None else encoding.read(content.to(device))
    k = basis[:, None, None].expand(dim, heads, keys, dim)
    where = asked(encoding, q_positions), asked(encoding, kv_positions)
    first = max(keys - queries, 0)
    rows = []
    for q in basis:
        block = Block(q.expand(1, heads, queries, dim), k, *where, None, first=first, causal=True)
        shape = (dim, heads, queries, keys)
        rows.append(_checked(logits(seen, block), shape, "logits(block)", finite=True))
    return torch.stack(rows).permute(2, 3, 4, 0, 1)


def hidden_tokens(encoding: Contextual, tokens: int, seed: int) -> Tensor | None:
    """Gaussian hidden states ``[tokens, content_dim]`` for an encoding that reads them."""
    width = encoding.content_dim
    return None if width is None else gaussian(tokens, width, seed=seed)


def hidden_states(encoding: Contextual, k: Tensor) -> Tensor:
    """``[..., tokens, content_dim]`` from keys ``[..., heads, tokens, head_dim]``."""
    width = encoding.content_dim or 0
    mixture = gaussian(k.shape[-1], width, seed=4) / k.shape[-1] ** 0.5
    return k.select(-3, 0) @ mixture.to(k.device, k.dtype)


def _line(positions: Tensor) -> Tensor:
    return positions if positions.dim() == 1 else positions[:, 0]


def contextual_size(encoding: Contextual) -> tuple[int, int]:
    """Heads and head_dim to make content for: its own if it says, else 4 and 64."""
    heads, dim = getattr(encoding, "heads", None), getattr(encoding, "head_dim", None)
    return (heads if isinstance(heads, int) else 4, dim if isinstance(dim, int) else 64)
