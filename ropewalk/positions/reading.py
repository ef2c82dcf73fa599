"""From what a processor hands to a model, token ids and grids, to spans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.positions.contract import mask_of, require_listed
from ropewalk.positions.families import Family, family
from ropewalk.positions.multimodal import tokens_of
from ropewalk.positions.spans import Audio, AudioVideo, Image, Span, Text, Video
from ropewalk.spectra.arguments import FARTHEST, check_int, shown

TEXT, IMAGE, VIDEO, AUDIO = range(4)
"""Kinds of tokens, as in transformers' ``mm_token_type_ids``."""

Grid = Tensor | Sequence[Sequence[int]] | None
MARKS = 2
"""Opening tokens of a video with its sound, and closing ones."""


def kinds_of(
    input_ids: Tensor,
    *,
    image: int | None = None,
    video: int | None = None,
    audio: int | None = None,
    video_start: int | None = None,
    video_end: int | None = None,
) -> Tensor:
    """The kind of each token: 0 text, 1 image, 2 video, 3 audio, as ``mm_token_type_ids``.

    Args:
        input_ids: integers of any shape ``[..., tokens]``.
        image, video, audio: the placeholder ids of a config: ``image_token_id`` and so on.
        video_start, video_end: ids between which image placeholders are frames of a video, as
            GLM-4V writes it; both or neither.

    Returns:
        int64 of the shape of input_ids.

    Raises:
        TypeError: input_ids are no integers.
        ValueError: one of video_start and video_end alone.
    """
    if not isinstance(input_ids, Tensor) or input_ids.dtype.is_floating_point:
        raise TypeError("input_ids must be an integer tensor [batch, tokens]")
    if (video_start is None) != (video_end is None):
        raise ValueError("video_start and video_end belong together; give both or neither")
    given = {"image": image, "video": video, "audio": audio}
    for name, token in {**given, "video_start": video_start, "video_end": video_end}.items():
        if token is not None:
            check_int(name, token, at_least=-FARTHEST, at_most=FARTHEST)
    kinds = torch.zeros_like(input_ids, dtype=torch.int64)
    for kind, token in ((IMAGE, image), (VIDEO, video), (AUDIO, audio)):
        if token is not None:
            kinds[input_ids == token] = kind
    if video_start is not None and video_end is not None:
        depth = ((input_ids == video_start).long() - (input_ids == video_end).long()).cumsum(-1)
        kinds[(kinds == IMAGE) & (depth > 0)] = VIDEO
    return kinds


def spans_of(
    kinds: Tensor,
    rules: Family | str,
    *,
    image_grid_thw: Grid = None,
    video_grid_thw: Grid = None,
    second_per_grid_ts: Tensor | Sequence[float] | None = None,
    attention_mask: Tensor | None = None,
) -> list[list[Span]]:
    """The spans of every row of a batch.

    Runs of image and video tokens take their grids in order. In families that mingle a video with
    its sound, a run that holds both is a video with sound, two marks before and after it included.

    Args:
        kinds: ``[batch, tokens]``, :func:`kinds_of` or ``mm_token_type_ids``.
        rules: a family, its name, or a ``model_type``.
        image_grid_thw, video_grid_thw: ``[images, 3]``, ``[videos, 3]`` in patches, of the whole
            batch in order.
        second_per_grid_ts: ``[videos]`` seconds from one row of a video's grid to the next; 1 each
            if None, as in transformers.
        attention_mask: ``[batch, tokens]``, 1 at real tokens; all are real if None.

    Raises:
        TypeError: kinds are no integers.
        ValueError: tokens and grids do not match, or are of another shape than said.
    """
    rules = family(rules)
    if not isinstance(kinds, Tensor) or kinds.dtype.is_floating_point or kinds.dim() != 2:
        raise TypeError("kinds must be an integer tensor [batch, tokens]; see kinds_of(input_ids)")
    if attention_mask is not None:
        attention_mask = mask_of("attention_mask", attention_mask, floating=True)
    if attention_mask is not None and attention_mask.shape != kinds.shape:
        raise ValueError(
            f"attention_mask {tuple(attention_mask.shape)} and kinds {tuple(kinds.shape)} differ; "
            "both are [batch, tokens]"
        )
    grids = {
        IMAGE: _Queue("image_grid_thw", _images(image_grid_thw), rules),
        VIDEO: _Queue("video_grid_thw", _videos(video_grid_thw, second_per_grid_ts, rules), rules),
    }
    rows: list[list[Span]] = []
    for row, line in enumerate(kinds):
        real = line if attention_mask is None else line[attention_mask[row]]
        spans = list(_read(row, real, grids, rules))
        rows.append(_without_marks(row, spans))
    for queue in grids.values():
        queue.finish()
    return rows


@dataclass
class _Queue:
    """Grids that wait for their tokens, in order."""

    name: str
    waiting: list[tuple[int, Image | Video]]
    rules: Family
    taken: int = 0

    def take(self, row: int, tokens: int) -> list[Image | Video]:
        """As many images or videos as a run of tokens holds."""
        found, left = [], tokens
        while left > 0:
            if self.taken == len(self.waiting):
                rows = self.waiting[-1][0] + 1 if self.waiting else 0
                raise ValueError(
                    f"{self.name} has {rows} rows; row {row} has tokens of one more: pass the "
                    "grids of the whole batch"
                )
            index, span = self.waiting[self.taken]
            frames, height, width = tokens_of(span, self.rules)
            if frames * height * width > left:
                raise ValueError(
                    f"{self.name}[{index}] makes {frames} × {height} × {width} tokens "
                    f"({self.rules.name}, spatial_merge={self.rules.spatial_merge}); row {row} has "
                    f"a run of {tokens} with {left} left: check the grid, spatial_merge and the "
                    "placeholder ids"
                )
            found.append(span)
            left -= frames * height * width
            self.taken += 1
        return found

    def finish(self) -> None:
        """Refuse grids without tokens."""
        if self.taken < len(self.waiting):
            raise ValueError(
                f"{self.name}[{self.waiting[self.taken][0]}] has no tokens; pass the grids of this "
                "batch only, and its whole sequences"
            )


def _images(grid: Grid) -> list[tuple[int, Image | Video]]:
    found: list[tuple[int, Image | Video]] = []
    for index, (frames, height, width) in enumerate(_grid("image_grid_thw", grid)):
        if frames != 1:
            raise ValueError(
                f"image_grid_thw[{index}]={[frames, height, width]} has {frames} frames; an image "
                "has 1: pass videos as video_grid_thw"
            )
        found.append((index, Image(height, width)))
    return found


def _videos(
    grid: Grid, seconds: Tensor | Sequence[float] | None, rules: Family
) -> list[tuple[int, Image | Video]]:
    sizes = _grid("video_grid_thw", grid)
    if seconds is None:
        seconds = [1.0] * len(sizes)
    if not isinstance(seconds, Tensor):
        require_listed("second_per_grid_ts", seconds, "a number for each video")
    try:
        apart = [float(s) for s in (seconds.tolist() if isinstance(seconds, Tensor) else seconds)]
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"second_per_grid_ts={shown(seconds)} must be numbers: {error}") from error
    if len(apart) != len(sizes):
        raise ValueError(
            f"second_per_grid_ts has {len(apart)} entries; video_grid_thw has {len(sizes)} rows: "
            "one each"
        )
    found: list[tuple[int, Image | Video]] = []
    for index, (frames, height, width) in enumerate(sizes):
        one = Video(frames, height, width, apart[index])
        pieces = [Video(1, height, width)] * frames if rules.frames_apart else [one]
        found += [(index, piece) for piece in pieces]
    return found


def _grid(name: str, grid: Grid) -> list[list[int]]:
    if grid is None:
        return []
    try:
        sizes = torch.as_tensor(grid)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{name}={shown(grid)} must be integers [count, 3]: frames, height, width in patches"
        ) from error
    if sizes.numel() == 0:
        return []
    if sizes.dtype.is_floating_point or sizes.dim() != 2 or sizes.shape[-1] != 3:
        raise ValueError(
            f"{name} has dtype {sizes.dtype} and shape {tuple(sizes.shape)}; it must be integers "
            "[count, 3]: frames, height, width in patches"
        )
    return sizes.tolist()


def _read(row: int, kinds: Tensor, grids: dict[int, _Queue], rules: Family) -> Iterator[Span]:
    """The spans of one row, marks still with the text."""
    values, counts = torch.unique_consecutive(kinds, return_counts=True)
    runs = list(zip(values.tolist(), counts.tolist(), strict=True))
    mixes = rules.mingle is not None
    for together, group in itertools.groupby(runs, lambda run: mixes and run[0] in (VIDEO, AUDIO)):
        found = list(group)
        if together and {kind for kind, _ in found} == {VIDEO, AUDIO}:
            yield _with_sound(row, found, grids[VIDEO])
            continue
        for kind, tokens in found:
            if kind == TEXT:
                yield Text(tokens)
            elif kind == AUDIO:
                yield Audio(tokens)
            elif kind in grids:
                yield from grids[kind].take(row, tokens)
            else:
                raise ValueError(
                    f"row {row} has tokens of kind {kind}; kinds are 0 text, 1 image, 2 video, "
                    "3 audio"
                )


def _with_sound(row: int, runs: list[tuple[int, int]], videos: _Queue) -> AudioVideo:
    count = {kind: sum(n for own, n in runs if own == kind) for kind in (VIDEO, AUDIO)}
    taken = videos.take(row, count[VIDEO])
    if len(taken) != 1 or not isinstance(taken[0], Video):
        raise ValueError(
            f"row {row} has {count[VIDEO]} video tokens mingled with sound, which are "
            f"{len(taken)} rows of video_grid_thw; each video with sound stands between marks of "
            "its own"
        )
    return AudioVideo(taken[0], Audio(count[AUDIO]))


def _without_marks(row: int, spans: list[Span]) -> list[Span]:
    """The spans with the marks around a video with sound taken out of the text beside it."""
    for index, span in enumerate(spans):
        if not isinstance(span, AudioVideo):
            continue
        for place in (index - 1, index + 1):
            beside = spans[place] if 0 <= place < len(spans) else None
            if not isinstance(beside, Text) or beside.tokens < MARKS:
                raise ValueError(
                    f"row {row} has a video with sound without its {MARKS} opening and {MARKS} "
                    "closing tokens; write <vision><audio>…</audio></vision>"
                )
            spans[place] = Text(beside.tokens - MARKS)
    return [span for span in spans if span != Text(0)]
