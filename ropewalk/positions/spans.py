"""A multimodal sequence as a list of spans: so many words, an image, a video, words again.

Grids are counted in patches, as ``image_grid_thw`` and ``video_grid_thw`` count them; how many
patches become one token is a matter of the model family (:mod:`ropewalk.positions.families`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.spectra.arguments import check_int, check_number


@dataclass(frozen=True)
class Text:
    """Consecutive tokens of text, the marks around images and videos included.

    Args:
        tokens: how many, ≥ 0.
    """

    tokens: int

    def __post_init__(self) -> None:
        check_int("tokens", self.tokens, at_least=0)


@dataclass(frozen=True)
class Image:
    """One image.

    Args:
        height, width: patches, ≥ 1.
    """

    height: int
    width: int

    def __post_init__(self) -> None:
        check_int("height", self.height, at_least=1)
        check_int("width", self.width, at_least=1)


@dataclass(frozen=True)
class Video:
    """One video, or a part of it whose frames follow each other without text between them.

    Args:
        frames: rows of its grid in time (one holds several pictures where patches span some), ≥ 1.
        height, width: patches of a frame, ≥ 1.
        seconds_per_frame: time from one row of the grid to the next, ≥ 0; ``second_per_grid_ts``.
            Only families that tell time in seconds read it.
    """

    frames: int
    height: int
    width: int
    seconds_per_frame: float = 1.0

    def __post_init__(self) -> None:
        for name in ("frames", "height", "width"):
            check_int(name, getattr(self, name), at_least=1)
        check_number("seconds_per_frame", self.seconds_per_frame, at_least=0)


@dataclass(frozen=True)
class Audio:
    """Consecutive tokens of sound, 40 ms each in Qwen2.5-Omni.

    Args:
        tokens: how many, ≥ 1.
    """

    tokens: int

    def __post_init__(self) -> None:
        check_int("tokens", self.tokens, at_least=1)


@dataclass(frozen=True)
class AudioVideo:
    """A video and its sound, mingled in the order of time.

    Two opening and two closing tokens belong to it (vision and audio, begin and end), as the Omni
    families write them.

    Args:
        video: without its sound.
        audio: without its video.
    """

    video: Video
    audio: Audio

    def __post_init__(self) -> None:
        for name, kind in (("video", Video), ("audio", Audio)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(
                    f"{name}={getattr(self, name)!r} must be of class {kind.__name__}, such as "
                    "AudioVideo(Video(4, 8, 8), Audio(100))"
                )


Span = Text | Image | Video | Audio | AudioVideo
SPANS = (Text, Image, Video, Audio, AudioVideo)


def timestamped(video: Video, texts: Sequence[int]) -> list[Span]:
    """A video whose frames stand apart, as Qwen3-VL and GLM-4V write it: time, frame, time, frame.

    Args:
        video: its frames.
        texts: tokens of text before each frame and after the last, ``[frames + 1]``: the time and
            the marks around a frame.

    Returns:
        text, frame, text, …, frame, text; texts of no tokens are left out.

    Raises:
        TypeError, ValueError: texts are not frames + 1 ints ≥ 0.

    Example:
        >>> timestamped(Video(2, 8, 8), [7, 9, 1])
        [Text(7), Video(1, 8, 8), Text(9), Video(1, 8, 8), Text(1)]
    """
    if not isinstance(video, Video):
        raise TypeError(f"video must be a Video, got {type(video).__name__}")
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise TypeError(f"texts={texts!r} must be a sequence of ints")
    if len(texts) != video.frames + 1:
        raise ValueError(
            f"texts has {len(texts)} entries; {video.frames} frames need {video.frames + 1}: the "
            "tokens before each frame, and those after the last"
        )
    counts = [check_int(f"texts[{i}]", count, at_least=0) for i, count in enumerate(texts)]
    frame = Video(1, video.height, video.width, video.seconds_per_frame)
    spans: list[Span] = [Text(counts[0])]
    for count in counts[1:]:
        spans += [frame, Text(count)]
    return [span for span in spans if span != Text(0)]
