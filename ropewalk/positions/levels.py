"""Positions on two levels: which segment a token is in, and its place inside it."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.spectra.arguments import FARTHEST, check_int


def bilevel(boundaries: Tensor, *, cap: int | None = 1023) -> tuple[Tensor, Tensor]:
    """Segment ids and places inside segments, from the tokens that end a segment.

    A boundary token, such as a full stop or a newline, is the last of its own segment; the next
    token starts another at place 0. With token ids, ``boundaries = torch.isin(ids, ends)``.

    While decoding, take the last of the ids of all tokens so far. Documents packed into one row
    keep apart if each ends with a boundary.

    Args:
        boundaries: boolean, or integers 0 and 1, ``[tokens]`` or ``[batch, tokens]``.
        cap: places beyond it are this one, so that a table of cap + 1 rows serves every text; no
            cap if None.

    Returns:
        segments, places: int64 of the shape of boundaries, for :mod:`ropewalk.encodings.additive.\
bipe`.

    Raises:
        TypeError, ValueError: boundaries are not boolean or 0 and 1, or cap is below 0.

    Source: Two Stones Hit One Bird: Bilevel Positional Encoding for Better Length Extrapolation
    (He et al., 2024), §3, and the authors' code.
    """
    if (
        not isinstance(boundaries, Tensor)
        or boundaries.dtype.is_floating_point
        or boundaries.dtype.is_complex
        or boundaries.dim() < 1
    ):
        raise TypeError(
            "boundaries must be a boolean or integer tensor [batch, tokens], True at the last token"
            f" of each segment; got {_described(boundaries)}"
        )
    if boundaries.dtype != torch.bool and bool(((boundaries != 0) & (boundaries != 1)).any()):
        raise ValueError(
            "boundaries hold values other than 0 and 1; of token ids make them with "
            "torch.isin(ids, ends)"
        )
    ends = boundaries.to(torch.int64)
    after = ends.cumsum(-1)
    line = torch.arange(boundaries.shape[-1], device=boundaries.device).expand(boundaries.shape)
    # where each token's segment starts: one after the last boundary before it
    starts = torch.where(ends.roll(1, -1).bool(), line, 0)
    if line.numel():
        starts = starts.cummax(-1).values
    places = line - starts
    return after - ends, places if cap is None else places.clamp_max(
        check_int("cap", cap, at_least=0, at_most=FARTHEST)
    )


def _described(boundaries: object) -> str:
    if isinstance(boundaries, Tensor):
        return f"{boundaries.dtype} {tuple(boundaries.shape)}"
    return type(boundaries).__name__
