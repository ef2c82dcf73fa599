r"""How model families lay out positions (t, h, w): one core and a few stated rules.

All families count text alike on the three axes. A frame of an image or video starts where the text
before it ended and spreads its rows along h and its columns along w. They differ in

- ``clock``: the temporal id of a frame, from its index or from seconds;
- ``after``: where the next span starts;
- ``origin``: whether h and w run from the corner of a frame or from its middle;
- ``frames_apart``: whether text with the time stands between the frames of a video;
- ``mingle``: how the tokens of a video and of its sound take turns;
- the merge sizes, the ids a second has, and what is written at padding.

Each is as in transformers 5 (``get_rope_index``), which the tests compare with; VideoRoPE is as in
its authors' code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ropewalk.spectra.arguments import check_flag, check_int, check_number

Clock = Literal["index", "interval", "seconds"]
After = Literal["space", "last", "time"]
Origin = Literal["corner", "middle"]
Mingle = Literal["chunks", "ids"]


@dataclass(frozen=True)
class Family:
    """The rules of one family.

    Args:
        name: of the family, for messages.
        spatial_merge: patches merged along height and along width; ``spatial_merge_size``.
        temporal_merge: frames of a video merged; ``temporal_merge_size``.
        clock: temporal id of frame i after the start of a video, rounded down to ``unit``:
            ``"index"``, rate · i; ``"interval"``, (rate · seconds per frame) · i;
            ``"seconds"``, (i · seconds per frame) · rate. The products are float32, as the models
            were trained, so the last two differ where one of them falls on an integer.
        rate: temporal ids a second: ``tokens_per_second``, ``position_id_per_seconds``; with
            ``clock="index"``, ids a frame.
        after: the next span starts ``"space"``: at the start of this one + the larger of its
            height and width in tokens, whatever its duration; ``"last"``: one past the largest
            coordinate of its last token; ``"time"``: one past the temporal id of its last token.
        origin: h and w of a frame count from its ``"corner"``, beginning at the start of its span,
            or from its ``"middle"``, moving on with t (diagonal layout).
        frames_apart: frames of a video stand apart, with text between them.
        mingle: how a video and its sound take turns: ``"chunks"`` of ``seconds_per_chunk``, video
            first, or token by token by temporal ``"ids"``, video first; None: never.
        seconds_per_chunk: for ``mingle="chunks"``.
        marks_together: both opening tokens of a video with sound share one position, and so do
            both closing ones.
        padding: the coordinate written at padding.
        unit: size of one integer position, 1/unit an int; below 1 where ids may be fractional.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    name: str
    spatial_merge: int = 2
    temporal_merge: int = 1
    clock: Clock = "index"
    rate: float = 1.0
    after: After = "space"
    origin: Origin = "corner"
    frames_apart: bool = False
    mingle: Mingle | None = None
    seconds_per_chunk: float = 2.0
    marks_together: bool = False
    padding: int = 0
    unit: float = 1.0

    def __post_init__(self) -> None:
        check_int("spatial_merge", self.spatial_merge, at_least=1)
        check_int("temporal_merge", self.temporal_merge, at_least=1)
        check_int("padding", self.padding)
        check_number("rate", self.rate, above=0)
        check_number("seconds_per_chunk", self.seconds_per_chunk, above=0)
        check_flag("frames_apart", self.frames_apart)
        check_flag("marks_together", self.marks_together)
        if not isinstance(self.name, str):
            raise TypeError(f"name={self.name!r} of a family must be a str")
        if not 1 / check_number("unit", self.unit, above=0, at_least=1e-18) == self.one:
            raise ValueError(f"unit={self.unit!r} must be 1/n for an int n, such as 2**-20")
        for field, known in (("clock", Clock), ("after", After), ("origin", Origin)):
            _one_of(field, getattr(self, field), get_args(known))
        _one_of("mingle", self.mingle, (*get_args(Mingle), None))

    @property
    def one(self) -> int:
        """Integer positions to a whole coordinate."""
        return round(1 / self.unit)

    def replace(self, **changes: Any) -> Family:
        """A copy with the named rules changed.

        Raises:
            TypeError: no such rule; the message lists them.
        """
        known = [f.name for f in dataclasses.fields(self)]
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise TypeError(f"a family has no rule {unknown[0]!r}; it has {', '.join(known)}")
        return dataclasses.replace(self, **changes)


def _one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}={value!r} is unknown; use one of {known}")


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("qwen2_vl"),
        Family("qwen2_5_vl", clock="interval", rate=2.0),
        Family("qwen3_vl", frames_apart=True),
        Family("glm4v", frames_apart=True),
        Family("ernie4_5_vl", temporal_merge=2),
        Family(
            "qwen2_5_omni",
            clock="seconds",
            rate=25.0,
            after="last",
            mingle="chunks",
            marks_together=True,
            padding=1,
        ),
        Family("qwen3_omni", clock="seconds", rate=13.0, after="last", mingle="ids", unit=2.0**-20),
        Family("video_rope", rate=2.0, after="time", origin="middle", padding=1),
    )
}
"""The families by name."""

MODEL_TYPES: Mapping[str, str] = {
    "cosmos3_omni": "qwen3_vl",
    "ernie4_5_vl_moe": "ernie4_5_vl",
    "glm46v": "glm4v",
    "glm4v_moe": "glm4v",
    "glm_ocr": "glm4v",
    "paddleocr_vl": "qwen2_vl",
    "qwen2_5_omni_thinker": "qwen2_5_omni",
    "qwen3_5": "qwen3_vl",
    "qwen3_5_moe": "qwen3_vl",
    "qwen3_omni_moe": "qwen3_omni",
    "qwen3_omni_moe_thinker": "qwen3_omni",
    "qwen3_vl_moe": "qwen3_vl",
}
"""Other values of a config's ``model_type``, and the family whose rules they follow."""


def family(name: str | Family, **changes: Any) -> Family:
    """The family of a name or ``model_type``, with rules changed.

    Args:
        name: a key of FAMILIES or MODEL_TYPES, or a Family.
        changes: rules that a config states otherwise, such as ``spatial_merge=1`` or ``rate=4``.
            ``after="last"`` gives Qwen2-VL and its kin the rule of their papers and of
            transformers 4, which starts text after the last frame of a video, however long it is.

    Raises:
        TypeError: name is neither, or a rule does not exist.
        ValueError: unknown name, or a value out of range.

    Example:
        >>> family("qwen2_5_vl", rate=4)
    """
    if isinstance(name, Family):
        return name.replace(**changes)
    if not isinstance(name, str):
        raise TypeError(f"family={name!r} must be a Family or one of {', '.join(FAMILIES)}")
    known = FAMILIES.get(MODEL_TYPES.get(name, name))
    if known is None:
        raise ValueError(
            f"family={name[:80]!r} is unknown; use one of {', '.join([*FAMILIES, *MODEL_TYPES])}, "
            "or a Family with rules of your own"
        )
    return known.replace(**changes)


def family_of(config: Mapping[str, Any] | Any) -> Family:
    """The family that a model's config names, with the merge sizes and rates that it states.

    Args:
        config: a dictionary (``config.json``) or a config object of transformers; with a
            ``thinker_config`` in it, that one counts.

    Raises:
        ValueError: no ``model_type``, or one without a family.

    Example:
        >>> family_of({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 4}}).rate
        4
    """
    config = _read(config, "thinker_config") or config
    name = _read(config, "model_type")
    if name is None:
        raise ValueError("config has no model_type; use family(name, …) and state the rules")
    vision = _read(config, "vision_config") or {}
    stated = {
        "spatial_merge": _read(vision, "spatial_merge_size"),
        "temporal_merge": _read(vision, "temporal_merge_size"),
        "seconds_per_chunk": _read(config, "seconds_per_chunk"),
    }
    named = family(name)
    if named.clock != "index":
        stated["rate"] = _read(vision, "tokens_per_second") or _read(
            config, "position_id_per_seconds"
        )
    return named.replace(**{rule: value for rule, value in stated.items() if value is not None})


def _read(config: Any, key: str) -> Any:
    return config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)
