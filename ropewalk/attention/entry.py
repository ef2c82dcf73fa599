"""attend itself."""

from __future__ import annotations

from torch import Tensor

from ropewalk.attention import blockwise, factored, flex, paths, terms, tiles
from ropewalk.attention.call import Call, checked
from ropewalk.attention.kernel import one_call
from ropewalk.core import Bias, Contextual, Encoding


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
    path: str = "auto",
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
        path: how it is computed, the same numbers up to rounding: ``"auto"`` for the fastest (which
            one and why: ``ropewalk.attention.path``), ``"fused"``, ``"factored"``, ``"flex"`` or
            ``"blockwise"``.

    Returns:
        ``[..., H, q_tokens, value_dim]`` in the dtype of q. A query that may see nothing gives 0.
        nan or inf at a token that a query may not see can still reach it, as in PyTorch's own
        attention; only padding (a negative segment) is kept away.

    Raises:
        TypeError, ValueError: shapes, dtypes or arguments do not fit together, or ``path`` cannot
            do this call.
    """
    call = checked(
        q,
        k,
        v,
        encoding,
        q_positions,
        kv_positions,
        causal,
        scale,
        segments,
        window,
        k_encoded,
    )
    name = paths.chosen(call, path).name
    call = call.without_padding().encoded().upright()
    if name == "fused":
        return one_call(call.q, call.k, call.v, call.scale, call.mask)
    if name == "factored":
        return factored.compute(call)
    if name == "flex":
        return flex.compute(call)
    return _tiled(call) if paths.tiled(call) else _by_blocks(call)


def _tiled(call: Call) -> Tensor:
    flat = call.in_rows()
    added, size, q, k, v = terms.no_terms, tiles.TILE, flat.q, flat.k, flat.v
    if isinstance(flat.encoding, Bias):
        assert flat.q_positions is not None
        assert flat.kv_positions is not None
        size = tiles.BIAS_TILE
        added = terms.bias_terms(flat.encoding, flat.q_positions, flat.kv_positions, q.dtype)
    else:
        q, k, v = tiles.cast(q, k, v)
    result = tiles.tiled(q, k, v, flat.logit_scale, flat.mask, added, size=size).to(call.q.dtype)
    return result.reshape(*call.q.shape[:-1], call.v.shape[-1])


def _by_blocks(call: Call) -> Tensor:
    tensors = call.q, call.k, call.v
    if call.encoding is None:
        return blockwise.plain(*tensors, call.scale, call.mask)
    assert call.q_positions is not None
    assert call.kv_positions is not None
    places = call.q_positions, call.kv_positions, call.scale, call.mask
    if isinstance(call.encoding, Bias):
        return blockwise.biased(*tensors, call.encoding, *places)
    assert isinstance(call.encoding, Contextual)
    return blockwise.contextual(*tensors, call.encoding, *places)
