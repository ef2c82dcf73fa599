"""What position does to a logit, one logit at a time: for attention of one's own.

The signatures are those of ``torch.nn.attention.flex_attention``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ropewalk.attention.arguments import no_door
from ropewalk.core import Additive, Bias, Encoding, Rotary, integer_positions
from ropewalk.spectra.arguments import check_flag, check_int

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def score_mod(
    encoding: Encoding | None,
    *,
    q_positions: Tensor | None = None,
    kv_positions: Tensor | None = None,
    offset: int = 0,
) -> ScoreMod:
    """A function ``(score, batch, head, q_index, kv_index) -> score`` that adds a bias.

    .. math:: s\\,\\langle q_i, k_j\\rangle \\mapsto s\\,\\langle q_i, k_j\\rangle + b_h(p_i, p_j)

    Args:
        encoding: a bias. Rotary encodings change q and k and not the score: encode those, and this
            gives the score as it is; so does None.
        q_positions, kv_positions: integers ``[tokens]`` or ``[batch, tokens]``; None for the index
            (of queries, plus ``offset``).
        offset: the key index of the first query: kv_tokens − q_tokens with a cache.

    Raises:
        TypeError: additive and contextual encodings have no such function.
        ValueError: positions for several axes that are None.
    """
    _check_offset(offset)
    if encoding is None or isinstance(encoding, Rotary):
        return _unchanged
    if isinstance(encoding, Additive):
        raise TypeError(
            f"{type(encoding).__name__} is additive: it acts on embeddings and not on scores; "
            "write x = encoding(x) there"
        )
    if not isinstance(encoding, Encoding):
        raise TypeError(no_door(encoding))
    if not isinstance(encoding, Bias):
        raise TypeError(
            f"{type(encoding).__name__} reads whole rows of content, and a score_mod sees one "
            "score; use ropewalk.attend(q, k, v, encoding)"
        )
    if encoding.axes > 1 and (q_positions is None or kv_positions is None):
        raise ValueError(
            f"q_positions and kv_positions are needed: {type(encoding).__name__} has "
            f"axes={encoding.axes}"
        )
    q_at = _looked_up(q_positions, "q_positions", encoding.axes, offset)
    k_at = _looked_up(kv_positions, "kv_positions", encoding.axes, 0)

    def add_bias(
        score: Tensor, batch: Tensor, head: Tensor, q_index: Tensor, kv_index: Tensor
    ) -> Tensor:
        bias = encoding.score(head, q_at(batch, q_index), k_at(batch, kv_index))
        return score + bias.to(score.dtype)

    return add_bias


def mask(
    *,
    causal: bool = True,
    window: int | None = None,
    segments: Tensor | None = None,
    offset: int = 0,
) -> MaskMod:
    """A function ``(batch, head, q_index, kv_index) -> bool``: which keys a query may see.

    It serves ``create_mask`` and ``create_block_mask``, and has the rules of ``attend``.

    Args:
        causal, window, segments: as in ``attend``.
        offset: the key index of the first query: kv_tokens − q_tokens with a cache.

    Raises:
        TypeError, ValueError: as ``attend`` does.
    """
    check_flag("causal", causal)
    _check_offset(offset)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int)):
        raise TypeError(f"window={window!r} must be an int or None")
    if window is not None and window < 1:
        raise ValueError(f"window={window} must be at least 1: a token sees itself")
    own = None if segments is None else _looked_up(segments, "segments", 1, 0)

    def may_see(batch: Tensor, head: Tensor, q_index: Tensor, kv_index: Tensor) -> Tensor:
        index = q_index + offset
        seen = kv_index <= index if causal else kv_index == kv_index
        if window is not None:
            seen = seen & ((index - kv_index).abs() < window)
        if own is not None:
            mine = own(batch, index)
            seen = seen & (mine == own(batch, kv_index)) & (mine >= 0)
        return seen

    return may_see


def _check_offset(offset: int) -> None:
    if not isinstance(offset, torch.SymInt):
        check_int("offset", offset)


def _unchanged(
    score: Tensor, batch: Tensor, head: Tensor, q_index: Tensor, kv_index: Tensor
) -> Tensor:
    return score


def _looked_up(
    numbers: Tensor | None, name: str, axes: int, offset: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """``(batch, index) -> number``; the index itself where no numbers are given."""
    if numbers is None:
        return lambda batch, index: index + offset
    table = integer_positions(numbers, axes, name)
    rows = table.dim() - (1 if axes == 1 else 2)
    if rows > 1:
        raise ValueError(f"{name} have shape {tuple(table.shape)}; use [tokens] or [batch, tokens]")
    if rows and table.shape[0] > 1:
        return lambda batch, index: table[batch, index]
    single = table[0] if rows else table
    return lambda batch, index: single[index]


__all__ = ["MaskMod", "ScoreMod", "mask", "score_mod"]
