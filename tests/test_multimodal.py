"""Positions of text, images, videos and sound, against each family's own code in transformers."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Ernie4_5_VLMoeConfig, Qwen2_5_VLConfig
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe
from transformers.models.glm4v import modeling_glm4v
from transformers.models.glm4v.processing_glm4v import Glm4vProcessor
from transformers.models.glm4v_moe import modeling_glm4v_moe
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_vl import modeling_qwen2_vl
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe
from transformers.models.qwen3_vl import modeling_qwen3_vl
from transformers.processing_utils import ProcessorMixin

from ropewalk import positions
from ropewalk.positions import Audio, AudioVideo, Image, Text, Video

THEIRS: dict[str, Any] = {
    "qwen2_vl": modeling_qwen2_vl.Qwen2VLModel,
    "qwen2_5_vl": modeling_qwen2_5_vl.Qwen2_5_VLModel,
    "qwen3_vl": modeling_qwen3_vl.Qwen3VLModel,
    "qwen3_5": modeling_qwen3_5.Qwen3_5Model,
    "glm4v": modeling_glm4v.Glm4vModel,
    "glm4v_moe": modeling_glm4v_moe.Glm4vMoeModel,
    "ernie4_5_vl_moe": modeling_ernie4_5_vl_moe.Ernie4_5_VLMoeModel,
}
SECONDS = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 1 / 3, 0.04, 2 / 24, 0.7, 2 / 30]), st.floats(0, 4)
)


def theirs(name: str, **config: Any) -> Any:
    """An object with a model's methods and config, and no weights."""
    kind = THEIRS[name]
    stub = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(**config)))
    for method in ("get_rope_index", "get_vision_position_ids"):
        setattr(stub, method, MethodType(getattr(kind, method), stub))
    return stub


class Batch:
    """Rows of spans as a processor hands them to a model: kinds, grids, mask."""

    def __init__(self, rows: Sequence[Sequence[Any]], family: Any, left: Sequence[bool]) -> None:
        lines = [[k for span in row for k in kinds(span, family)] for row in rows]
        width = max(len(line) for line in lines)
        self.kinds, self.mask = (torch.zeros(len(rows), width).long() for _ in range(2))
        for index, (line, pad) in enumerate(zip(lines, left, strict=True)):
            place = slice(width - len(line), None) if pad else slice(0, len(line))
            self.kinds[index, place] = torch.tensor(line)
            self.mask[index, place] = 1
        flat = [span for row in rows for span in row]
        images = [[1, s.height, s.width] for s in flat if isinstance(s, Image)]
        videos = [s for s in flat if isinstance(s, Video)]
        self.images = torch.tensor(images) if images else None
        grids = [[s.frames, s.height, s.width] for s in videos]
        self.videos = torch.tensor(grids) if grids else None
        self.seconds: Any = [s.seconds_per_frame for s in videos]

    def spans(self, family: Any) -> Any:
        return positions.spans_of(
            self.kinds,
            family,
            image_grid_thw=self.images,
            video_grid_thw=self.videos,
            second_per_grid_ts=self.seconds,
            attention_mask=self.mask,
        )


def kinds(span: Any, family: Any) -> list[int]:
    if isinstance(span, Text):
        return [0] * span.tokens
    area = span.height * span.width // family.spatial_merge**2
    if isinstance(span, Image):
        return [1] * area
    if family.frames_apart:
        return [*([2] * area + [0] * 3) * (span.frames - 1), *[2] * area]
    return [2] * (area * span.frames // family.temporal_merge)


def batches(merge: int, frames: int) -> st.SearchStrategy[list[list[Any]]]:
    """Rows of text, images and videos, with text between any two that are seen."""
    side = st.integers(1, 5).map(lambda n: n * merge)
    seen = st.one_of(
        st.builds(Image, side, side),
        st.builds(Video, st.integers(1, 9).map(lambda n: n * frames), side, side, SECONDS),
    )
    pieces = st.lists(st.tuples(seen, st.integers(1, 6).map(Text)), max_size=4)
    row = st.builds(
        lambda first, rest: [first, *itertools.chain(*rest)], st.integers(1, 5).map(Text), pieces
    )
    return st.lists(row, min_size=1, max_size=3)


def compared(batch: Batch, family: Any, model: Any, **extra: Any) -> positions.Rows:
    """Our positions after both agree."""
    expected, delta = model.get_rope_index(
        torch.zeros_like(batch.kinds),
        mm_token_type_ids=batch.kinds,
        image_grid_thw=batch.images,
        video_grid_thw=batch.videos,
        attention_mask=batch.mask,
        **extra,
    )
    found = positions.multimodal_rows(batch.spans(family), family, batch.mask)
    assert torch.equal(found.positions, expected.permute(1, 2, 0))
    assert found.delta.tolist() == delta[:, 0].tolist()
    assert torch.equal(found.next, found.delta + batch.mask.sum(-1))
    return found


@pytest.mark.parametrize("name", THEIRS)
@settings(max_examples=40)
@given(data=st.data())
def test_random_mixes_stand_where_transformers_puts_them(name, data):
    merge = data.draw(st.integers(1, 3), label="spatial merge")
    family = positions.family(name, spatial_merge=merge)
    rows = data.draw(batches(merge, family.temporal_merge), label="rows")
    left = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)), label="left")
    batch = Batch(rows, family, left)
    config, extra = {"spatial_merge_size": merge}, {}
    if name == "ernie4_5_vl_moe":
        config["temporal_merge_size"] = family.temporal_merge
    if name == "qwen2_5_vl":
        rate = data.draw(st.sampled_from([1, 2, 4, 25, 41]), label="rate")
        family, config["tokens_per_second"] = family.replace(rate=float(rate)), rate
        form = data.draw(st.sampled_from([list, torch.tensor]), label="form of seconds")
        extra["second_per_grid_ts"] = form(batch.seconds)
        batch.seconds = extra["second_per_grid_ts"]
    compared(batch, family, theirs(name, **config), **extra)


def test_times_that_fall_on_integers_are_rounded_as_in_training():
    """0.7 s · 10 is 6.9999999999999996 as such, 7 in float32; 1/3 s · 3 is 1."""
    family = positions.family("qwen2_5_vl", rate=1.0)
    for seconds, frames in itertools.product((0.7, 1 / 3, 0.1, 0.29, 0.57, 1.1), (11, 40, 101)):
        batch = Batch([[Text(1), Video(frames, 2, 2, seconds)]], family, [False])
        model = theirs("qwen2_5_vl", spatial_merge_size=2, tokens_per_second=1)
        compared(batch, family, model, second_per_grid_ts=batch.seconds)


def test_seconds_that_nobody_gives_are_one_each():
    family = positions.family("qwen2_5_vl")
    batch = Batch([[Text(2), Video(3, 4, 4), Text(1), Video(2, 2, 6)]], family, [False])
    batch.seconds = None
    compared(batch, family, theirs("qwen2_5_vl", spatial_merge_size=2, tokens_per_second=2))


def test_a_batch_without_a_mask_and_one_without_images():
    family = positions.family("qwen2_vl")
    spans = [[Text(2), Image(4, 6), Text(3)], [Text(3), Image(2, 8), Text(4)]]
    batch = Batch(spans, family, [False, False])
    assert bool(batch.mask.all())
    expected, delta = theirs("qwen2_vl", spatial_merge_size=2).get_rope_index(
        batch.kinds, batch.kinds, image_grid_thw=batch.images
    )
    found = positions.multimodal_rows(spans, family)
    assert torch.equal(found.positions, expected.permute(1, 2, 0))
    assert found.delta.tolist() == delta[:, 0].tolist()
    words = positions.multimodal([Text(4)], family)
    assert words.positions.tolist() == [[p] * 3 for p in range(4)]
    assert words.next == 4


# The rules, by hand.


def test_the_example_of_transformers():
    """2.5-VL at 1 frame a second, 25 ids a second, two pictures to a frame: 50 ids apart."""
    family = positions.family("qwen2_5_vl", rate=25.0, after="last")
    placed = positions.multimodal([Video(3, 4, 4, 2.0), Text(5)], family)
    assert placed.positions[:12, 0].tolist() == [0] * 4 + [50] * 4 + [100] * 4
    assert placed.positions[:12, 1].tolist() == [0, 0, 1, 1] * 3
    assert placed.positions[:12, 2].tolist() == [0, 1, 0, 1] * 3
    assert placed.positions[12:].tolist() == [[p] * 3 for p in range(101, 106)]
    assert placed.next == 106


def test_text_after_a_long_video_starts_by_the_rule_of_the_family():
    """transformers 5 skips height and width only; the paper, the latest frame too."""
    spans = [Text(1), Video(9, 4, 4), Text(1)]
    assert positions.multimodal(spans, "qwen2_vl").positions[-1].tolist() == [3, 3, 3]
    assert positions.multimodal(spans, "qwen2_vl").next == 10
    paper = positions.family("qwen2_vl", after="last")
    assert positions.multimodal(spans, paper).positions[-1].tolist() == [10, 10, 10]
    assert positions.multimodal(spans, paper).next == 11


def test_frames_apart_have_their_time_in_the_text():
    video = Video(2, 4, 4)
    spans = positions.timestamped(video, [7, 9, 1])
    frame = Video(1, 4, 4)
    assert spans == [Text(7), frame, Text(9), frame, Text(1)]
    assert positions.timestamped(video, [0, 9, 0]) == [frame, Text(9), frame]
    placed = positions.multimodal(spans, "qwen3_vl").positions.tolist()
    assert placed[7:11] == [[7, 7, 7], [7, 7, 8], [7, 8, 7], [7, 8, 8]]
    assert placed[11] == [9, 9, 9]
    assert placed[20] == [18, 18, 18]


def test_several_images_in_one_run_take_their_grids_in_order():
    kinds = torch.tensor([[0, 1, 1, 1, 1, 1, 1, 0]])
    spans = positions.spans_of(kinds, "qwen2_vl", image_grid_thw=[[1, 4, 4], [1, 2, 4]])
    assert spans == [[Text(1), Image(4, 4), Image(2, 4), Text(1)]]
    assert positions.multimodal(spans[0], "qwen2_vl").positions[5].tolist() == [3, 3, 3]


def test_kinds_come_from_placeholder_ids():
    ids = torch.tensor([[5, 8, 8, 9, 7, 5]])
    assert positions.kinds_of(ids, image=8, video=9, audio=7).tolist() == [[0, 1, 1, 2, 3, 0]]
    glm = torch.tensor([[8, 1, 8, 5, 8, 2, 8]])
    found = positions.kinds_of(glm, image=8, video_start=1, video_end=2)
    assert found.tolist() == [[1, 0, 2, 0, 2, 0, 1]]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20))
def test_kinds_are_those_of_the_processors(line):
    """Ids 1 image, 2 video, 3 audio; for GLM-4V 4 and 5 open and close a video."""
    ids = torch.tensor([line])
    stub: Any = SimpleNamespace(image_token_ids=[1], video_token_ids=[2], audio_token_ids=[3])
    expected = ProcessorMixin.create_mm_token_type_ids(stub, [line])
    assert positions.kinds_of(ids, image=1, video=2, audio=3).tolist() == expected
    stub = SimpleNamespace(image_token_id=1, video_start_id=4, video_end_id=5)
    expected = Glm4vProcessor.create_mm_token_type_ids(stub, [line])
    found = positions.kinds_of(ids, image=1, video_start=4, video_end=5)
    assert found.tolist() == [list(row) for row in expected]


def test_decoding_goes_on_at_next():
    spans = [Text(2), Image(8, 4), Text(3)]
    whole = positions.multimodal([*spans, Text(4)], "qwen3_vl").positions
    placed = positions.multimodal(spans, "qwen3_vl")
    assert torch.equal(positions.continued(placed.next, 4), whole[-4:])
    rows = positions.multimodal_rows([spans, spans], "qwen3_vl")
    assert torch.equal(positions.continued(rows.next, 4), whole[-4:].expand(2, -1, -1))
    fractional = positions.family("qwen3_omni")
    placed = positions.multimodal([Text(2)], fractional)
    found = positions.continued(placed.next, 2, unit=fractional.unit)
    assert found.tolist() == [[p * 2**20] * 3 for p in (2, 3)]


def test_every_model_type_has_a_family():
    for name, own in positions.MODEL_TYPES.items():
        assert positions.family(name).name == own
    mine = positions.Family("mine", spatial_merge=1)
    assert positions.family(mine) == mine
    assert positions.family("qwen2_vl") != positions.family("qwen2_vl", spatial_merge=1)


def test_a_config_states_merge_sizes_and_rates():
    config = Qwen2_5_VLConfig(vision_config={"spatial_merge_size": 3, "tokens_per_second": 7})
    family = positions.family_of(config)
    assert family == positions.family("qwen2_5_vl", spatial_merge=3, rate=7)
    assert positions.family_of(config.to_dict()) == family
    ernie = Ernie4_5_VLMoeConfig()
    assert positions.family_of(ernie) == positions.family("ernie4_5_vl")
    thinker = {"model_type": "qwen3_omni_moe_thinker", "position_id_per_seconds": 25}
    whole = {"model_type": "qwen3_omni_moe", "thinker_config": thinker}
    assert positions.family_of(whole) == positions.family("qwen3_omni", rate=25)
    assert positions.family_of({"model_type": "qwen2_vl"}) == positions.family("qwen2_vl")


def rule(model_type: str) -> str:
    """The code of a model's get_rope_index without its docstring."""
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    for kind in vars(module).values():
        if isinstance(kind, type) and "get_rope_index" in vars(kind):
            tree = ast.parse(textwrap.dedent(inspect.getsource(kind.get_rope_index)))
            tree.body[0].body.pop(0)  # pyright: ignore[reportAttributeAccessIssue]
            return ast.dump(tree)
    raise AssertionError(f"{model_type} has no get_rope_index")


SIBLINGS = [
    (name, {"ernie4_5_vl": "ernie4_5_vl_moe"}.get(own, own))
    for name, own in positions.MODEL_TYPES.items()
    if not name.endswith("thinker") and own != "qwen3_omni"
]


@pytest.mark.parametrize(("name", "own"), SIBLINGS)
def test_model_types_of_a_family_have_the_same_code(name, own):
    assert rule(name) == rule(own)


# VideoRoPE. Expected values: equation 8 of the paper and the authors' code, worked by hand for
# δ = 2, a grid of 2 frames of 3 × 2 tokens, and text before and after.


def test_video_rope_lies_on_the_diagonal():
    placed = positions.multimodal(
        [Text(2), Video(2, 3, 2), Text(2)], positions.family("video_rope", spatial_merge=1)
    )
    first = [[2, 2 + h, 2 + w] for h in (-1, 0, 1) for w in (0, 1)]
    second = [[4, 4 + h, 4 + w] for h in (-1, 0, 1) for w in (0, 1)]
    text = [[p] * 3 for p in (0, 1)], [[p] * 3 for p in (5, 6)]
    assert placed.positions.tolist() == [*text[0], *first, *second, *text[1]]
    assert placed.next == 7


def test_video_rope_may_have_fractions():
    family = positions.family("video_rope", spatial_merge=1, rate=0.5, unit=0.5)
    placed = positions.multimodal([Text(1), Video(3, 1, 1), Text(1)], family)
    assert placed.positions[:, 0].tolist() == [0, 2, 3, 4, 6]


# Omni: sound, and videos with their sound.

VISION, IMAGE, VIDEO, SOUND, HEAR, CLOSE = 90, 91, 92, 93, 94, 95


def omni(version: str, rate: float) -> Any:
    kind = {
        "qwen2_5_omni": modeling_qwen2_5_omni.Qwen2_5OmniPreTrainedModelForConditionalGeneration,
        "qwen3_omni": modeling_qwen3_omni_moe.Qwen3OmniMoePreTrainedModelForConditionalGeneration,
    }[version]
    config = SimpleNamespace(
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        audio_token_id=SOUND,
        vision_start_token_id=VISION,
        audio_start_token_id=HEAR,
        position_id_per_seconds=rate,
        seconds_per_chunk=2,
        audio_config=SimpleNamespace(n_window=50),
    )
    stub = SimpleNamespace(config=config, spatial_merge_size=2)
    for method in ("get_rope_index", "get_llm_pos_ids_for_vision", "get_chunked_index"):
        if hasattr(kind, method):
            setattr(stub, method, MethodType(getattr(kind, method), stub))
    return stub


def sound_length(version: str, frames: int) -> int:
    """Tokens of so many frames of sound, as each family's own code counts them."""
    if version == "qwen2_5_omni":
        return ((frames - 1) // 2 + 1 - 2) // 2 + 1
    counted = modeling_qwen3_omni_moe._get_feat_extract_output_lengths(torch.tensor(frames), 50)
    return int(counted)


def omni_pieces(version: str, sound: bool) -> st.SearchStrategy[tuple[list[int], Any]]:
    """A piece of token ids between its marks, and what it shows or lets hear."""
    side = st.integers(1, 4).map(lambda n: 2 * n)

    def area(h: int, w: int) -> int:
        return h * w // 4

    image = st.tuples(side, side).map(
        lambda s: ([VISION, *[IMAGE] * area(*s), CLOSE], ("image", (1, *s), None, None))
    )
    heard = st.integers(8, 900).map(
        lambda n: ([HEAR, *[SOUND] * sound_length(version, n), CLOSE], ("audio", None, None, n))
    )
    frames = st.tuples(st.integers(1, 6), side, side)
    if not sound:
        video = st.tuples(frames, SECONDS).map(
            lambda v: (
                [VISION, *[VIDEO] * (v[0][0] * area(*v[0][1:])), CLOSE],
                ("video", v[0], v[1], None),
            )
        )
    else:
        video = st.tuples(frames, SECONDS, st.integers(8, 900)).map(
            lambda v: (
                [
                    *(VISION, HEAR),
                    *[VIDEO] * (v[0][0] * area(*v[0][1:])),
                    *[SOUND] * sound_length(version, v[2]),
                    *(CLOSE, CLOSE),
                ],
                ("video", v[0], v[1], v[2]),
            )
        )
    return st.one_of(image, heard, video)


@pytest.mark.parametrize("sound", [False, True], ids=["apart", "mingled"])
@pytest.mark.parametrize("version", ["qwen2_5_omni", "qwen3_omni"])
@settings(max_examples=40)
@given(data=st.data())
def test_omni_stands_where_transformers_puts_it(version, sound, data):
    pieces = st.lists(omni_pieces(version, sound), max_size=4)
    words = st.integers(0, 3).map(lambda n: [1] * n)
    first = ([VISION, IMAGE, CLOSE], ("image", (1, 2, 2), None, None))
    rows, shown = [], []
    for row in data.draw(st.lists(pieces, min_size=1, max_size=2), label="rows"):
        ids = data.draw(words)
        for tokens, what in [first, *row]:
            ids = [*ids, *tokens, *data.draw(words)]
            shown.append(what)
        rows.append(ids)
    rate = data.draw(st.sampled_from([13, 25]), label="rate")
    family = positions.family(version, rate=float(rate))
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = (ids > 0).long()
    images = torch.tensor([grid for kind, grid, *_ in shown if kind == "image"])
    videos = torch.tensor([grid for kind, grid, *_ in shown if kind == "video"]).long()
    seconds = torch.tensor([s for kind, _, s, _ in shown if kind == "video"])
    lengths = torch.tensor([n for *_, n in shown if n is not None]).long()
    expected, delta = omni(version, rate).get_rope_index(
        ids, images, videos, mask, sound, lengths, seconds
    )
    kinds = positions.kinds_of(ids, image=IMAGE, video=VIDEO, audio=SOUND)
    spans = positions.spans_of(
        kinds,
        family,
        image_grid_thw=images,
        video_grid_thw=videos,
        second_per_grid_ts=seconds,
        attention_mask=mask,
    )
    found = positions.multimodal_rows(spans, family, mask)
    expected = expected.permute(1, 2, 0).double()
    # Each video rounds its time down to the unit, and text after it goes on from there;
    # transformers adds in float32.
    count = 1 + sum(kind == "video" for kind, *_ in shown)
    allowed = 0.0 if family.unit == 1 else count * family.unit + float(expected.max()) * 2**-21
    apart = (found.positions * family.unit - expected).abs().max().item()
    assert apart <= allowed
    assert (found.delta * family.unit - delta[:, 0]).abs().max().item() <= allowed


@pytest.mark.parametrize("seconds", [0.04, 0.08, 0.28, 1 / 3, 0.7, 2 / 24])
def test_omni_multiplies_by_seconds_first(seconds):
    """25 · 0.04 s is one id a frame; frame 5 stands at 4 or 5 by the order of the products."""
    ids = torch.tensor([[VISION, *[VIDEO] * 64, CLOSE]])
    grid, ones = torch.tensor([[64, 2, 2]]), torch.ones(1, 66).long()
    model = omni("qwen2_5_omni", 25)
    expected, _ = model.get_rope_index(ids, None, grid, ones, False, None, torch.tensor([seconds]))
    found = positions.multimodal([Text(1), Video(64, 2, 2, seconds), Text(1)], "qwen2_5_omni")
    assert torch.equal(found.positions, expected[:, 0].T)


def test_a_second_of_video_is_twenty_five_ids_of_forty_milliseconds():
    spans = [AudioVideo(Video(2, 2, 2, 1.0), Audio(50)), Text(1)]
    found = positions.multimodal(spans, "qwen2_5_omni").positions[:, 0].tolist()
    assert found[:2] == [0, 0], "both opening marks share a position"
    assert found[2:4] == [1, 26], "the video's two frames come first: both within two seconds"
    assert found[4:54] == [1 + i for i in range(50)]
    assert found[54:56] == [51, 51]
    assert found[56] == 52


def test_sound_and_video_take_turns_by_time():
    spans = [AudioVideo(Video(3, 2, 2, 1.0), Audio(30))]
    family = positions.family("qwen3_omni", unit=1.0)
    found = positions.multimodal(spans, family).positions[:, 0].tolist()
    assert found[:2] == [0, 1]
    frames = [found[2:].index(t) for t in (2, 15, 28)]
    assert frames == [0, 14, 28]
    assert sorted(found[2:-2]) == sorted([2, 15, 28, *range(2, 32)])


@given(SECONDS, st.integers(1, 30), st.integers(1, 30))
def test_fractional_times_are_exact_to_their_unit(seconds, frames, tokens):
    family = positions.family("qwen3_omni")
    found = positions.multimodal([Text(tokens), Video(frames, 2, 2, seconds)], family).positions
    for index, place in enumerate(found[tokens:, 0].tolist()):
        exact = tokens + index * Fraction(seconds) * 13
        assert abs(place * Fraction(family.unit) - exact) <= family.unit + float(exact) * 2**-22


# What does not fit is named.

loose: Any = positions

ONE_IMAGE = torch.tensor([[0, 1, 1, 1, 1, 0]])
HEARD = torch.tensor([[0, 0, 2, 3, 0, 0]])

REFUSED = [
    (lambda: Text(-1), "tokens=-1 must be at least 0"),
    (lambda: Image(0, 4), "height=0 must be at least 1"),
    (lambda: Video(1, 2, 2, -1.0), "seconds_per_frame=-1.0 must be finite and at least 0"),
    (
        lambda: loose.AudioVideo(Video(1, 2, 2), 5),
        "audio=5 must be of class Audio, such as AudioVideo(Video(4, 8, 8), Audio(100))",
    ),
    (lambda: loose.timestamped(Video(2, 2, 2), [3, 3]), "texts has 2 entries; 2 frames need 3"),
    (lambda: loose.multimodal([7], "qwen2_vl"), "spans[0]=7 must be one of Text, Image"),
    (lambda: loose.multimodal([], "qwen9"), "family='qwen9' is unknown; use one of qwen2_vl"),
    (lambda: loose.multimodal([], 9), "family=9 must be a Family or one of"),
    (lambda: loose.family("qwen2_vl", merge=1), "a family has no rule 'merge'; it has name, spa"),
    (lambda: loose.family_of({}), "config has no model_type; use family(name, …)"),
    (lambda: loose.family_of({"model_type": "llama"}), "family='llama' is unknown; use one of"),
    (lambda: loose.family("qwen2_vl", unit=0.3), "unit=0.3 must be 1/n for an int n"),
    (lambda: loose.family("qwen2_vl", clock="tick"), "clock='tick' is unknown; use one of ('in"),
    (
        lambda: loose.multimodal([Image(5, 4)], "qwen2_vl"),
        "height=5 of Image(height=5, width=4) is not a multiple of spatial_merge=2 of qwen2_vl",
    ),
    (
        lambda: loose.multimodal([Video(3, 4, 4)], "ernie4_5_vl"),
        "frames=3 of Video(frames=3, height=4, width=4, seconds_per_frame=1.0) is not a multiple "
        "of temporal_merge=2",
    ),
    (
        lambda: loose.multimodal([Video(2, 4, 4)], "glm4v"),
        "has frames side by side; glm4v writes text between them: use timestamped(video, texts)",
    ),
    (
        lambda: loose.multimodal([AudioVideo(Video(1, 2, 2), Audio(1))], "qwen2_vl"),
        "qwen2_vl has no video with sound mingled in",
    ),
    (
        lambda: loose.multimodal_rows([[Text(2)], [Text(3)]], "qwen2_vl"),
        "rows have [2, 3] tokens; pass attention_mask",
    ),
    (
        lambda: loose.multimodal_rows([[Text(2)]], "qwen2_vl", torch.ones(1, 3)),
        "has [3] real tokens; the spans of the rows have [2]",
    ),
    (lambda: loose.spans_of([[0]], "qwen2_vl"), "kinds must be an integer tensor [batch, tokens]"),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl"),
        "image_grid_thw has 0 rows; row 0 has tokens of one more",
    ),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", image_grid_thw=[[1, 4, 6]]),
        "image_grid_thw[0] makes 1 × 2 × 3 tokens (qwen2_vl, spatial_merge=2); row 0 has a run of",
    ),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", image_grid_thw=[[1, 4, 2]]),
        "image_grid_thw has 1 rows; row 0 has tokens of one more",
    ),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", image_grid_thw=[[1, 4, 4], [1, 2, 2]]),
        "image_grid_thw[1] has no tokens; pass the grids of this batch only",
    ),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", image_grid_thw=[[2, 4, 4]]),
        "image_grid_thw[0]=[2, 4, 4] has 2 frames; an image has 1",
    ),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", image_grid_thw=[4, 4]),
        "image_grid_thw has dtype torch.int64 and shape (2,); it must be integers [count, 3]",
    ),
    (
        lambda: loose.spans_of(
            ONE_IMAGE * 2, "qwen2_vl", video_grid_thw=[[1, 4, 4]], second_per_grid_ts=[1, 1]
        ),
        "second_per_grid_ts has 2 entries; video_grid_thw has 1 rows: one each",
    ),
    (lambda: loose.spans_of(ONE_IMAGE * 7, "qwen2_vl"), "row 0 has tokens of kind 7; kinds are 0"),
    (
        lambda: loose.spans_of(ONE_IMAGE, "qwen2_vl", attention_mask=torch.ones(1, 2)),
        "attention_mask (1, 2) and kinds (1, 6) differ",
    ),
    (
        lambda: loose.spans_of(HEARD[:, 1:], "qwen2_5_omni", video_grid_thw=[[1, 2, 2]]),
        "row 0 has a video with sound without its 2 opening and 2 closing tokens",
    ),
    (
        lambda: loose.spans_of(
            HEARD[:, [0, 1, 2, 2, 3, 4, 5]], "qwen3_omni", video_grid_thw=[[1, 2, 2], [1, 2, 2]]
        ),
        "row 0 has 2 video tokens mingled with sound, which are 2 rows of video_grid_thw",
    ),
    (lambda: loose.kinds_of(torch.ones(1, 2)), "input_ids must be an integer tensor"),
    (
        lambda: loose.kinds_of(torch.ones(1, 2).long(), image=1, video_start=4),
        "video_start and video_end belong together",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()
