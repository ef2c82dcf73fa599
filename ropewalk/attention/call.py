"""One call of attend, checked: what the ways to compute it are chosen by and given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.attention import arguments
from ropewalk.attention.masks import Mask
from ropewalk.core import Bias, Contextual, Encoding, Rotary


@dataclass(frozen=True)
class Call:
    """Tensors, encoding and rules that fit together; positions are None for no encoding.

    A rotary encoding is still to be applied until :meth:`encoded` has done so.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    encoding: Rotary | Bias | Contextual | None
    q_positions: Tensor | None
    kv_positions: Tensor | None
    scale: float | None
    mask: Mask
    counted: bool
    """Positions were not given: keys count from 0, and queries are the last of them."""
    k_encoded: bool = False

    @property
    def logit_scale(self) -> float:
        """``scale``, or the usual 1/√head_dim."""
        return arguments.logit_scale(self.scale, self.q)

    def encoded(self) -> Call:
        """With q and k turned by a rotary encoding, and no encoding left to apply."""
        if not isinstance(self.encoding, Rotary):
            return self
        q = self.encoding.encode_q(self.q, self.q_positions)
        k = self.k if self.k_encoded else self.encoding.encode_k(self.k, self.kv_positions)
        arguments.check_encoded(self.encoding, (("q", self.q, q), ("k", self.k, k)))
        widened = self.encoding.encoded_dim != self.q.shape[-1]
        scale = self.logit_scale if widened else self.scale
        return replace(
            self, q=q, k=k, encoding=None, q_positions=None, kv_positions=None, scale=scale
        )

    def upright(self) -> Call:
        """With a scale that kernels take: they hide a key by −inf, which a scale ≤ 0 turns over.

        The sign of a scale, and the power of two of a tiny one, go to q, which is exact. Channels
        of a bias are divided by the scale: one below 2⁻¹² would make them pass float16.
        """
        scale = self.scale
        if scale is None or scale > 2.0**-12 or isinstance(self.encoding, Contextual):
            return self
        mantissa, exponent = math.frexp(float(scale))  # a traced scale is a constant from here
        if not mantissa:
            return replace(self, q=self.q * 0.0, scale=1.0)
        by = math.ldexp(math.copysign(1.0, mantissa), exponent)
        return replace(self, q=self.q * by, scale=abs(mantissa))

    def without_padding(self) -> Call:
        """With zeros at padding: an unset cache slot may hold nan, and 0 · nan is nan."""
        segments = self.mask.segments
        if segments is None:
            return self
        q, k, v = arguments.without_padding(self.q, self.k, self.v, segments)
        return replace(self, q=q, k=k, v=v)

    def in_rows(self) -> Call:
        """With one leading dimension: tensors ``[rows, heads, tokens, head_dim]``."""
        lead = self.q.shape[:-3]
        if len(lead) == 1:
            return self

        def rows(x: Tensor | None, own: int) -> Tensor | None:
            if x is None or x.dim() == own:
                return x
            return x.expand(*lead, *x.shape[-own:]).reshape(-1, *x.shape[-own:])

        own = 1 if self.encoding is None or self.encoding.axes == 1 else 2
        q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (self.q, self.k, self.v))
        return replace(
            self,
            q=q,
            k=k,
            v=v,
            q_positions=rows(self.q_positions, own),
            kv_positions=rows(self.kv_positions, own),
            mask=replace(self.mask, segments=rows(self.mask.segments, 1)),
        )


def checked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding | None,
    q_positions: Tensor | None,
    kv_positions: Tensor | None,
    causal: bool,
    scale: float | None,
    segments: Tensor | None,
    window: int | None,
    k_encoded: bool,
) -> Call:
    """The call, or an error that names the argument and the remedy."""
    key_dim = _widened(encoding) if k_encoded else None
    arguments.check_tensors(q, k, v, window, causal, scale, key_dim)
    if encoding is not None and not isinstance(encoding, (Rotary, Bias, Contextual)):
        raise TypeError(arguments.no_door(encoding))
    if isinstance(encoding, Contextual) and encoding.content_dim is not None:
        raise ValueError(
            f"{type(encoding).__name__} reads hidden states: attend(q, k, v, encoding.read(x)) "
            f"with x [..., kv_tokens, {encoding.content_dim}]"
        )
    if isinstance(encoding, Bias) and encoding.heads != q.shape[-3]:
        raise ValueError(f"encoding has heads={encoding.heads}; q has {q.shape[-3]} heads")
    segments = arguments.checked_segments(segments, q, k)
    counted = q_positions is None and kv_positions is None
    if encoding is None:
        q_positions = kv_positions = None
    else:
        q_positions, kv_positions = arguments.both_positions(
            q, k, q_positions, kv_positions, encoding.axes
        )
    if not isinstance(k_encoded, bool):
        raise TypeError(f"k_encoded={k_encoded!r} must be True or False")
    if k_encoded and not isinstance(encoding, Rotary):
        raise ValueError(
            "k_encoded=True needs a rotary encoding; no other encoding changes the keys of a cache"
        )
    mask = Mask(q.shape[-2], k.shape[-2], causal, window, segments)
    return Call(q, k, v, encoding, q_positions, kv_positions, scale, mask, counted, k_encoded)


def _widened(encoding: Encoding | None) -> int | None:
    """The width of encoded keys, where it is not that of q."""
    if isinstance(encoding, Rotary) and encoding.encoded_dim != encoding.head_dim:
        return encoding.encoded_dim
    return None


def learns(call: Call) -> bool:
    """Whether a gradient is wanted of the bias itself."""
    if not isinstance(call.encoding, Bias) or not torch.is_grad_enabled():
        return False
    return any(x.requires_grad for x in call.encoding.parameters())
