r"""Positions (t, h, w) of sequences with images, videos and sound.

Source: Qwen2-VL (Wang et al., 2024), §2.1, "Multimodal Rotary Position Embedding (M-RoPE)"; the
rules of each family are in :mod:`ropewalk.positions.families`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.positions.builders import grid
from ropewalk.positions.contract import integer_positions, mask_of, require_listed
from ropewalk.positions.families import Family, family
from ropewalk.positions.mingled import turns
from ropewalk.positions.spans import SPANS, Audio, AudioVideo, Image, Span, Text, Video
from ropewalk.spectra.arguments import FARTHEST, check_int


class Placed(NamedTuple):
    """Where the tokens of one sequence stand, and where text decoded after them goes on."""

    positions: Tensor
    """int64 ``[tokens, 3]``: time, height, width."""
    next: int
    """The position, on all three axes, of the next text token."""


class Rows(NamedTuple):
    """Where the tokens of a batch stand, and where text decoded after them goes on."""

    positions: Tensor
    """int64 ``[batch, tokens, 3]``: time, height, width."""
    next: Tensor
    """int64 ``[batch]``: the position, on all three axes, of the next text token."""
    delta: Tensor
    """int64 ``[batch]``: next minus the number of real tokens; transformers' ``rope_deltas``."""


def multimodal(spans: Sequence[Span], rules: Family | str) -> Placed:
    """The positions of one sequence under the rules of a family.

    Args:
        spans: :class:`Text`, :class:`Image`, :class:`Video`, :class:`Audio`, :class:`AudioVideo`.
        rules: a family, its name, or a ``model_type``; see :func:`ropewalk.positions.family`.

    Returns:
        positions int64 ``[tokens, 3]`` in units of the family, and the next text position.

    Raises:
        TypeError: something else than spans.
        ValueError: unknown family; a grid that its merge sizes do not divide; a span that the
            family does not have; frames of a video without the text it writes between them.

    Example:
        >>> multimodal([Text(3), Image(4, 6), Text(2)], "qwen2_vl").next
        8
    """
    rules = family(rules)
    require_listed("spans", spans, "such as [Text(3), Image(4, 6)]")
    start, pieces = 0, [torch.zeros(0, 3, dtype=torch.int64)]
    for index, span in enumerate(spans):
        if not isinstance(span, SPANS):
            raise TypeError(
                f"spans[{index}]={span!r} must be one of {', '.join(s.__name__ for s in SPANS)}"
            )
        piece, start = _placed(span, start, rules)
        pieces.append(piece)
    positions = torch.cat(pieces)
    return Placed(positions, _beyond(positions, rules) if len(positions) else 0)


def multimodal_rows(
    rows: Sequence[Sequence[Span]], rules: Family | str, attention_mask: Tensor | None = None
) -> Rows:
    """The positions of a batch, padded left, right or anywhere.

    Args:
        rows: the spans of each row, padding left out.
        rules: a family, its name, or a ``model_type``.
        attention_mask: ``[batch, tokens]``, 1 at real tokens; None if no row is padded.

    Returns:
        positions int64 ``[batch, tokens, 3]`` with the family's ``padding`` at padding, the next
        text position and the delta of each row.

    Raises:
        ValueError: rows of unequal lengths without a mask, or whose tokens the mask contradicts.
        TypeError, ValueError: as :func:`multimodal`.
    """
    rules = family(rules)
    require_listed("rows", rows, "one list of spans a row")
    placed = [multimodal(spans, rules) for spans in rows]
    lengths = [len(positions) for positions, _ in placed]
    if attention_mask is None:
        if len(set(lengths)) > 1:
            raise ValueError(
                f"rows have {lengths} tokens; pass attention_mask, which says where padding stands"
            )
        attention_mask = torch.ones(len(rows), lengths[0] if lengths else 0, dtype=torch.bool)
    real = mask_of("attention_mask", attention_mask, floating=True).to("cpu")
    if real.dim() != 2 or real.sum(-1).tolist() != lengths:
        raise ValueError(
            f"attention_mask {tuple(attention_mask.shape)} has "
            f"{real.sum(-1).tolist()} real tokens; the spans of the rows have {lengths}"
        )
    positions = torch.full((*real.shape, 3), rules.padding * rules.one, dtype=torch.int64)
    for row, (own, _) in enumerate(placed):
        positions[row, real[row]] = own
    following = torch.tensor([n for _, n in placed], dtype=torch.int64)
    delta = following - torch.tensor(lengths, dtype=torch.int64) * rules.one
    return Rows(*(t.to(attention_mask.device) for t in (positions, following, delta)))


def continued(start: int | Tensor, tokens: int, *, unit: float = 1.0) -> Tensor:
    """Positions of text that goes on at ``start``: the ``next`` of a sequence, or of each row.

    Args:
        start: the first position, an int or ``[batch]``.
        tokens: how many, ≥ 0.
        unit: that of the family.

    Returns:
        int64 ``[tokens, 3]``, or ``[batch, tokens, 3]``.

    Raises:
        TypeError, ValueError: start is no integer, tokens no int ≥ 0, or unit not 1/n.
    """
    one = Family("text", unit=unit).one
    if not isinstance(start, Tensor):
        start = torch.tensor(check_int("start", start, at_least=-FARTHEST, at_most=FARTHEST))
    first = integer_positions(start.reshape(-1), name="start").reshape(start.shape)
    count = check_int("tokens", tokens, at_least=0, at_most=FARTHEST)
    line = torch.arange(count, device=first.device) * one
    return (first.to(torch.int64)[..., None] + line)[..., None].repeat(*[1] * first.dim(), 1, 3)


def tokens_of(span: Image | Video, rules: Family) -> tuple[int, int, int]:
    """Frames, height and width of an image or video in tokens, after merging.

    Raises:
        ValueError: a merge size does not divide the grid.
    """
    frames, merge = (span.frames, rules.temporal_merge) if isinstance(span, Video) else (1, 1)
    sizes = (
        ("frames", frames, "temporal_merge", merge),
        ("height", span.height, "spatial_merge", rules.spatial_merge),
        ("width", span.width, "spatial_merge", rules.spatial_merge),
    )
    for name, size, rule, by in sizes:
        if size % by:
            raise ValueError(
                f"{name}={size} of {span} is not a multiple of {rule}={by} of {rules.name}; the "
                f"image processor pads it to {size + -size % by}, or state family(…, {rule}=…)"
            )
    frames, height, width = (size // by for _, size, _, by in sizes)
    return frames, height, width


def _placed(span: Span, start: int, rules: Family) -> tuple[Tensor, int]:
    """The positions of one span, and where the next one starts."""
    if isinstance(span, (Text, Audio)):
        return _line(span.tokens, start, rules), start + span.tokens * rules.one
    if isinstance(span, AudioVideo):
        return _with_sound(span, start, rules)
    if rules.frames_apart and isinstance(span, Video) and span.frames > 1:
        raise ValueError(
            f"{span} has frames side by side; {rules.name} writes text between them: use "
            "timestamped(video, texts)"
        )
    piece = _frames(span, start, rules)
    if rules.after == "space":
        return piece, start + max(tokens_of(span, rules)[1:]) * rules.one
    return piece, _beyond(piece[-1:], rules)


def _line(tokens: int, start: int, rules: Family) -> Tensor:
    """Consecutive tokens, alike on all axes."""
    return (start + torch.arange(tokens) * rules.one)[:, None].expand(-1, 3)


def _beyond(positions: Tensor, rules: Family) -> int:
    """One past the largest coordinate, or past the latest time where that alone counts."""
    counted = positions[:, :1] if rules.after == "time" else positions
    return int(counted.max()) + rules.one


def _frames(span: Image | Video, start: int, rules: Family) -> Tensor:
    """The frames of an image or video, row by row."""
    sizes = torch.tensor(tokens_of(span, rules))
    places = grid(*sizes.tolist())
    time = _clock(span, rules)[places[:, :1]]
    across = places[:, 1:]
    if rules.origin == "corner":
        return start + torch.cat((time, across * rules.one), dim=1)
    across = across - (sizes[1:] - 1) // 2
    return start + torch.cat((time, across * rules.one + time), dim=1)


def _clock(span: Image | Video, rules: Family) -> Tensor:
    """The temporal id of each frame after the start, int64 ``[frames]`` in units."""
    index = torch.arange(tokens_of(span, rules)[0]).to(torch.float32)
    if isinstance(span, Image) or rules.clock == "index":
        ids = index * torch.tensor(rules.rate, dtype=torch.float32)
    else:
        seconds = span.seconds_per_frame * rules.temporal_merge
        if rules.clock == "interval":
            ids = index * torch.tensor(rules.rate * seconds, dtype=torch.float32)
        else:
            ids = index * torch.tensor(seconds, dtype=torch.float32)
            ids = ids * torch.tensor(rules.rate, dtype=torch.float32)
    return (ids.to(torch.float64) * rules.one).floor().to(torch.int64)


def _with_sound(span: AudioVideo, start: int, rules: Family) -> tuple[Tensor, int]:
    """A video and its sound in turns, between two opening and two closing tokens."""
    if rules.mingle is None:
        raise ValueError(
            f"{rules.name} has no video with sound mingled in; use Video and Audio, or a family "
            "such as 'qwen2_5_omni'"
        )
    step = 0 if rules.marks_together else rules.one
    marks = torch.tensor([[0], [step]]).expand(-1, 3)
    inner = start + step + rules.one
    video, audio = _frames(span.video, inner, rules), _line(span.audio.tokens, inner, rules)
    times = video[:, 0] - inner, audio[:, 0] - inner
    within = torch.cat((video, audio))[turns(*times, rules)]
    close = _beyond(within[-1:], rules)
    return torch.cat((start + marks, within, close + marks)), close + step + rules.one
