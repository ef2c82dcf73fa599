"""How others rotate on a GPU, written plainly: each form turns one x by given tables.

``flash-like``: a program takes a block of tokens of two heads and reads the tables for it, as
flash-attn's rotary kernel is organised. ``liger-like``: a program takes one token with all its
heads and reads the tables once, in place, as Liger's is. Both take the half layout, a whole head
and tables ``[tokens, pairs]``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def eager(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin with tables as wide as a head, in the dtype of x."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def addcmul(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    """The strongest eager form with a given result: one product, then two fused ones."""
    half = x.shape[-1] // 2
    torch.mul(x, cos, out=out)
    out[..., :half].addcmul_(x[..., half:], sin[..., half:], value=-1)
    out[..., half:].addcmul_(x[..., :half], sin[..., :half])
    return out


def complex_product(x: Tensor, turns: Tensor) -> Tensor:
    """Neighbouring lanes as complex numbers times exp(iθ); float32 alone."""
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


@triton.jit
def _pairs_of_heads(
    x, out, cos, sin, tokens, heads, batch_stride, head_stride, token_stride,
    PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0) * 2 + tl.arange(0, 2)[:, None, None]
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :, None]
    pair = tl.arange(0, PAIRS)[None, None, :]
    shared = token * PAIRS + pair
    inside = (token < tokens) & (head < heads)
    c = tl.load(cos + shared, mask=token < tokens, other=0.0).to(tl.float32)
    s = tl.load(sin + shared, mask=token < tokens, other=0.0).to(tl.float32)
    at = tl.program_id(2).to(tl.int64) * batch_stride + head * head_stride + token * token_stride
    a = tl.load(x + at + pair, mask=inside).to(tl.float32)
    b = tl.load(x + at + pair + PAIRS, mask=inside).to(tl.float32)
    tl.store(out + at + pair, a * c - b * s, mask=inside)
    tl.store(out + at + pair + PAIRS, a * s + b * c, mask=inside)


def flash_like(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> Tensor:
    """x ``[batch, heads, tokens, head_dim]``, out alike in strides."""
    batch, heads, tokens, head_dim = x.shape
    grid = (-(-heads // 2), -(-tokens // 8), batch)
    _pairs_of_heads[grid](
        x, out, cos, sin, tokens, heads, *x.stride()[:3], head_dim // 2, 8, num_warps=4
    )
    return out


@triton.jit
def _all_heads(
    x, cos, sin, tokens, heads, batch_stride, head_stride, token_stride,
    PAIRS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) % tokens
    batch = (tl.program_id(0) // tokens).to(tl.int64)
    pair = tl.arange(0, PAIRS)[None, :]
    head = tl.arange(0, HEADS)[:, None]
    c = tl.load(cos + token * PAIRS + pair)
    s = tl.load(sin + token * PAIRS + pair)
    at = x + batch * batch_stride + token * token_stride + head * head_stride + pair
    a, b = tl.load(at, mask=head < heads), tl.load(at + PAIRS, mask=head < heads)
    tl.store(at, a * c - b * s, mask=head < heads)
    tl.store(at + PAIRS, b * c + a * s, mask=head < heads)


def liger_like(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x in place, in the dtype of the tables."""
    batch, heads, tokens, head_dim = x.shape
    _all_heads[(batch * tokens,)](
        x, cos, sin, tokens, heads, *x.stride()[:3],
        head_dim // 2, triton.next_power_of_2(heads), num_warps=4,
    )  # fmt: skip
    return x


def installed() -> dict[str, str]:
    """Why flash-attn's and Liger's own kernels can or cannot take part."""
    found = {}
    for name, module in (
        ("flash-attn", "flash_attn.ops.triton.rotary"),
        ("liger-kernel", "liger_kernel.ops.rope"),
    ):
        try:
            __import__(module)
            found[name] = "installed"
        except (ImportError, OSError, RuntimeError) as error:
            found[name] = f"left out: {error}"
    return found
