"""Attention of our own, in the shapes that models write it, for the tests of patching.

Module level, so that classes and functions can be found again by pickle and by their source.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn


def rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate_pairs(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def spin(a, b, cosine, sine, unsqueeze_dim=1):
    """A form with other names."""
    cosine, sine = cosine.unsqueeze(unsqueeze_dim), sine.unsqueeze(unsqueeze_dim)
    return a * cosine + rotate_half(a) * sine, b * cosine + rotate_half(b) * sine


def spin_front(q, k, cos, sin, unsqueeze_dim=1):
    """The first lanes only, where tables are narrower than heads."""
    width = cos.shape[-1]
    turned = spin(q[..., :width], k[..., :width], cos, sin, unsqueeze_dim)
    return tuple(torch.cat((t, x[..., width:]), -1) for t, x in zip(turned, (q, k), strict=True))


def spin_neighbours(q, k, cos, sin, unsqueeze_dim=1):
    """Pairs side by side, and so the copies of their angles; the dtype of what is turned."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    q, k = ((x.float() * cos + rotate_pairs(x.float()) * sin).to(x.dtype) for x in (q, k))
    return q, k


def spin_back(q, k, cos, sin):
    """Pairs side by side, one angle each, the opposite turn, tokens before heads."""
    cos, sin = (t.repeat_interleave(2, -1).unsqueeze(2) for t in (cos, sin))
    return q * cos - rotate_pairs(q) * sin, k * cos - rotate_pairs(k) * sin


def spin_last(x, cos, sin, unsqueeze_dim=1):
    """The last lanes only, in float32."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    width = cos.shape[-1]
    head, tail = x[..., :-width], x[..., -width:]
    tail = (tail.float() * cos + rotate_half(tail.float()) * sin).to(x.dtype)
    return torch.cat((head, tail), -1)


def spin_complex(q, k, freqs_cis):
    freqs_cis = freqs_cis.unsqueeze(1)

    def one(x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs_cis).flatten(-2).type_as(x)

    return one(q), one(k)


def spin_sorted(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    """Pairs side by side, brought into halves and then turned."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    q, k = (x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2) for x in (q, k))
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def spin_sections(q, k, cos, sin, sections, unsqueeze_dim=1):
    """Tables of three axes, a section of lanes each."""
    sections = [*sections, *sections]
    cos, sin = (
        torch.cat([m[i % 3] for i, m in enumerate(t.split(sections, -1))], -1) for t in (cos, sin)
    )
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


# ---- near misses: each must be left alone --------------------------------------------------------


def scaled(q, k, cos, sin, unsqueeze_dim=1):
    q, k = spin(q, k, cos, sin, unsqueeze_dim)
    return q * 0.5, k


def apply_rotary_wobble(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return tuple(0.5 * (x * cos + rotate_half(x).mul(sin)) for x in (q, k))


def q_only(q, k, cos, sin, unsqueeze_dim=1):
    return spin(q, k, cos, sin, unsqueeze_dim)[0], k


def swapped(q, k, cos, sin, unsqueeze_dim=1):
    return spin(q, k, sin, cos, unsqueeze_dim)


def last_tokens_of_q(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    n = q.shape[-2]
    q = q * cos[..., -n:, :] + rotate_half(q) * sin[..., -n:, :]
    return q, k * cos + rotate_half(k) * sin


def ignores_sign(q, k, cos, sin, unsqueeze_dim=1):
    return spin(q, k, cos, sin.abs(), unsqueeze_dim)


def integers_out(q, k, cos, sin, unsqueeze_dim=1):
    q, k = spin(q, k, cos, sin, unsqueeze_dim)
    return q.to(torch.float64), k.to(torch.float32)


def spin_unless_wide(q, k, cos, sin, unsqueeze_dim=1):
    q, k = spin(q, k, cos, sin, unsqueeze_dim)
    return (q, k) if q.shape[-1] < 64 else (-q, k)


# ---- modules ------------------------------------------------------------------------------------


def renamed(function):
    """A decorator that keeps the function in its closure, as deprecations do."""

    @wraps(function)
    def wrapper(*args, **given):
        given.pop("old_name", None)
        return function(*args, **given)

    return wrapper


def twice(x, cos, sin, scale):
    """A helper that calls a rotary function; no form of its own."""
    y, _ = spin(x, x, cos, sin)
    return y * scale


class Attention(nn.Module):
    """q and k rotated and multiplied, through a decorated forward."""

    def __init__(self, width: int = 32, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)

    @renamed
    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        q, k = spin(q, k, cos, sin)
        return q @ k.transpose(-1, -2)


class Helped(Attention):
    """Through a helper, and with super() in its forward."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = twice(self.split(self.q_proj(x)), cos, sin, 2.0)
        return super().extra_repr().__len__() + q


class Excluding(Attention):
    """Its function rotates all tokens of q but the last of k: a sum of no known signature."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        q, k = apart(q, k, cos=cos[:, None], sin=sin[:, None], leave=1)
        return q @ k.transpose(-1, -2)


def apart(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, leave: int = 0) -> Any:
    n = k.shape[-2] - leave
    first, rest = k[..., :n, :], k[..., n:, :]
    turned = first * cos[..., :n, :] + rotate_half(first) * sin[..., :n, :]
    return q.float() * cos + rotate_half(q.float()) * sin, torch.cat((turned, rest), -2)


class Inline(Attention):
    """The sum in the forward itself."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        cos, sin = cos[:, None], sin[:, None]
        k = sin * rotate_half(k) + cos * k
        return (q * cos + rotate_half(q) * sin) @ k.transpose(-1, -2)


class Sections(Attention):
    """M-RoPE, by three tables."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        cos, sin = (torch.stack([t, t.flip(1), t]) for t in (cos, sin))
        q, k = spin_sections(q, k, cos, sin, [4, 2, 2])
        return q @ k.transpose(-1, -2)


class Scripted:
    """Stands for a function that is no Python function."""

    def __call__(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        return spin(q, k, cos, sin)


apply_rotary_scripted = Scripted()


class Again(Attention):
    """Rotates twice, by tables of its own each time."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, *others: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        q, k = spin(q, k, cos, sin)
        q, k = spin(q, k, others[0], others[1])
        return q @ k.transpose(-1, -2)


class Opaque(Attention):
    """Through something that cannot be looked into."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        q, k = apply_rotary_scripted(q, k, cos, sin)
        return q @ k.transpose(-1, -2)


class OwnWay(Attention):
    """A rotation that no form describes."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(x))
        q, k = apply_rotary_wobble(q, k, cos, sin)
        return q @ k.transpose(-1, -2)


class Plain(nn.Module):
    """Nothing rotates here."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x)


def tables(tokens: int, lanes: int, *, twins: bool = True, start: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin ``[1, tokens, lanes]``, the copies of each angle alike or not."""
    positions = torch.arange(start, start + tokens)[None, :, None].float()
    frequencies = 10.0 ** -torch.arange(0, 2, 4 / lanes)
    second = frequencies if twins else frequencies * 1.01
    angles = torch.cat((positions * frequencies, positions * second), -1)
    return angles.cos(), angles.sin()
