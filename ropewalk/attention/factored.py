"""Biases that factor: channels of q and k, in tiles on a CPU, in one fused call elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.attention import terms, tiles
from ropewalk.attention.call import Call, learns
from ropewalk.attention.channels import padded, widened, width_of
from ropewalk.attention.kernel import one_call
from ropewalk.core import Bias, Factors
from ropewalk.encodings.autocast import without_autocast
from ropewalk.kernels.fused import eager

WIDEST = 4
"""Channels pay up to this multiple of head_dim."""
MANY = 16
"""In tiles on a CPU more channels cost more than the numbers of a bias, which all heads share.

Sandwich's 128: 0.95 of the time forward, 1.2 to 1.3 with the backward pass, and less exact.
"""
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-9}
"""What a logit may be off by in one call: less than the kernel rounds weights by."""


def obstacle(call: Call) -> str | None:
    """Why the bias of a call cannot become channels; None if it can."""
    encoding = call.encoding
    if not isinstance(encoding, Bias):
        return "only a bias becomes channels"
    if type(encoding).factors is Bias.factors:
        return f"{type(encoding).__name__} gives no factors"
    if call.logit_scale == 0:
        return "scale=0 would multiply the channels too"
    if tiles.usable(call.q, call.k, call.v):
        return "a gradient of the bias itself is wanted" if learns(call) else None
    if not call.mask.one_call:
        return "in one fused call, channels go with no window, no segments, and as many q as k"
    if not call.mask.causal:
        return "in one fused call, channels need causal=True, so that keys stand before queries"
    if not (call.counted or _in_order(call)):
        return "positions are not known to put each key before the queries that see it"
    if _factors(call) is None:
        return f"{type(encoding).__name__} gives no factors for these positions"
    return None


def imprecise(call: Call) -> str | None:
    """Why channels would not be the best here: too many, or too large for one call; else None."""
    factors = _factors(call, few=True)
    if factors is None:
        return f"{type(call.encoding).__name__} gives no factors for these positions"
    channels, in_tiles = factors.q.shape[-1], tiles.usable(call.q, call.k, call.v)
    if in_tiles and channels > MANY:
        return f"{channels} channels cost more than its numbers"
    width = width_of(call.q.shape[-1], channels, call.q.dtype, call.v.shape[-1])
    if width > WIDEST * call.q.shape[-1]:
        return f"its channels would make head_dim {width}"
    if in_tiles:
        return None
    if not eager():
        return "a traced graph serves lengths whose channels would be too large"
    factors = _factors(call)
    assert factors is not None
    if not factors.q.numel() or not factors.k.numel():
        return None
    size = (factors.q.abs().amax() * factors.k.abs().amax()).item() * 2.0**-24
    if size > ROUNDING.get(call.q.dtype, 1e-5):
        return f"in one call its channels would be off by {size:.1g}"
    return None


def compute(call: Call) -> Tensor:
    """Attention with the bias as channels."""
    encoding = call.encoding
    assert isinstance(encoding, Bias)
    assert call.q_positions is not None
    assert call.kv_positions is not None
    if tiles.usable(call.q, call.k, call.v):
        flat = call.in_rows()
        assert flat.q_positions is not None
        assert flat.kv_positions is not None
        places = flat.q_positions, flat.kv_positions
        channels = terms.channels(encoding, *places)
        added = terms.bias_terms(encoding, *places, flat.q.dtype, channels)
        whole = flat.mask.plain and flat.mask.causal and (flat.counted or _in_order(flat))
        size = tiles.TILE if whole else tiles.BIAS_TILE
        result = tiles.tiled(
            flat.q,
            flat.k,
            flat.v,
            flat.logit_scale,
            flat.mask,
            added,
            size=size,
            square=tiles.SQUARE.get(flat.q.dtype),
            whole=lambda tile: channels(tile) is not None,
        )
        return result.reshape(*call.q.shape[:-1], call.v.shape[-1])
    factors = _factors(call)
    assert factors is not None
    with without_autocast(call.q):
        q, k = widened(call.q, call.k, factors, call.logit_scale, call.v.shape[-1])
        out = one_call(q, k, padded(call.v, q.shape[-1]), call.logit_scale, call.mask)
    return out[..., : call.v.shape[-1]]


def _factors(call: Call, few: bool = False) -> Factors | None:
    """Those of all the tokens, or of the last query and the first key that it sees."""
    assert isinstance(call.encoding, Bias)
    assert call.q_positions is not None
    assert call.kv_positions is not None
    if few:
        first, _ = call.mask.reach(call.mask.q_tokens - 1, call.mask.q_tokens)
        key = call.kv_positions[..., first : first + 1]
        return call.encoding.factors(call.q_positions[..., -1:], key)
    return call.encoding.factors(call.q_positions, call.kv_positions)


def _in_order(call: Call) -> bool:
    """Whether positions can be read and no key stands after a query that sees it."""
    q, k = call.q_positions, call.kv_positions
    assert q is not None
    assert k is not None
    if not eager() or (q.is_cuda and torch.cuda.is_current_stream_capturing()):
        return False
    if not q.numel() or not k.numel():
        return True
    return bool((k.cummax(-1).values[..., call.mask.shift :] <= q).all())
