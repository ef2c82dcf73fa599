"""Positions: which integer each token gets."""

from ropewalk.positions.builders import (
    fixed,
    grid,
    left_padded,
    mask_segments,
    packed,
    segments,
    text,
)
from ropewalk.positions.context_parallel import Shard, context_parallel, restored
from ropewalk.positions.families import FAMILIES, MODEL_TYPES, Family, family, family_of
from ropewalk.positions.hierarchy import two_levels, two_levels_of
from ropewalk.positions.levels import bilevel
from ropewalk.positions.multimodal import Placed, Rows, continued, multimodal, multimodal_rows
from ropewalk.positions.reading import kinds_of, spans_of
from ropewalk.positions.sampled import randomized
from ropewalk.positions.sequences import boundaries, document_segments, restart_segments
from ropewalk.positions.spans import Audio, AudioVideo, Image, Span, Text, Video, timestamped

__all__ = [
    "FAMILIES",
    "MODEL_TYPES",
    "Audio",
    "AudioVideo",
    "Family",
    "Image",
    "Placed",
    "Rows",
    "Shard",
    "Span",
    "Text",
    "Video",
    "bilevel",
    "boundaries",
    "context_parallel",
    "continued",
    "document_segments",
    "family",
    "family_of",
    "fixed",
    "grid",
    "kinds_of",
    "left_padded",
    "mask_segments",
    "multimodal",
    "multimodal_rows",
    "packed",
    "randomized",
    "restart_segments",
    "restored",
    "segments",
    "spans_of",
    "text",
    "timestamped",
    "two_levels",
    "two_levels_of",
]
