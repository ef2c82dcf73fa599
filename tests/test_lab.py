"""The lab: the transformer at every door, the character task, trials and the stored race."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ropewalk
from ropewalk import positions as builders
from ropewalk.core import Additive, Bias, Block, Contextual, Encoding, Rotary
from ropewalk.encodings.draws import Randomized
from ropewalk.lab import naming, outcome, text, trial
from ropewalk.lab.record import CONFIG
from ropewalk.lab.record import check as check_record
from ropewalk.lab.task import Batch
from ropewalk.lab.tasks.characters import STRIDE, Characters
from ropewalk.lab.transformer import Transformer
from ropewalk.plan import Layer, Plan, chunks

RECORD = Path(ropewalk.__file__).parent / "data" / "records" / "race_walk.json"
DIM, LAYERS, HEADS, VOCABULARY = 16, 2, 2, 11
SIZES: dict[str, Any] = {"dim": DIM, "layers": LAYERS, "heads": HEADS}
SMALL: dict[str, Any] = {
    **SIZES,
    "train_length": 12,
    "lengths": (12, 24),
    "task_options": (("run", 6),),
    "steps": 4,
    "batch": 3,
}
SPOKEN = "ROMEO.\nIt is the east, and Juliet is the sun.\n" * 30


class Gate(Contextual):
    """A contextual encoding: each key fades by the summed gates of the keys up to the query."""

    def bias(self, block: Block) -> Tensor:
        q, k, allowed = block.q, block.k, block.allowed
        gate = -k[..., 0].abs()[..., None, :].expand(*q.shape[:-1], k.shape[-2])
        gate = gate if allowed is None else gate.masked_fill(~allowed, 0.0)
        return gate.flip(-1).cumsum(-1).flip(-1)

    @staticmethod
    def reference(keys: Sequence[Sequence[float]], i: int, j: int) -> float:
        return -sum(abs(keys[m][0]) for m in range(j, i + 1))


NARROW = {"commuting": "commuting:block_size=4"}
"""Labels of encodings whose usual blocks do not fit a head so narrow."""


def encoding_of(name: str, length: int = 64) -> Encoding | None:
    config = trial.Trial(
        NARROW.get(name, name),
        lengths=(length,),
        task_options=(("run", length),),
        dim=DIM,
        heads=HEADS,
    )
    made = trial.make_encoding(config)
    assert not isinstance(made, Plan)
    return made


def where(encoding: Encoding | None, tokens: int) -> Tensor | None:
    """Positions that this encoding accepts for ``tokens`` tokens."""
    axes = 1 if encoding is None else encoding.axes
    return None if axes == 1 else builders.grid(*(tokens, *(1 for _ in range(axes - 1))))


def model_of(encoding: Encoding | Plan | None, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(VOCABULARY, encoding, **SIZES).double()


# --- the transformer -----------------------------------------------------------------------------


def norm_of(x: list[float], weight: list[float]) -> list[float]:
    mean = sum(v * v for v in x) / len(x)
    return [v / math.sqrt(mean + torch.finfo(torch.float64).eps) * w
            for v, w in zip(x, weight, strict=True)]  # fmt: skip


def times(matrix: list[list[float]], x: list[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]


def gelu(v: float) -> float:
    return v * 0.5 * (1 + math.erf(v / math.sqrt(2)))


def plain_logits(model: Transformer, ids: list[int], at: list[int]) -> list[list[float]]:
    """The model's logits by loops over tokens, heads and keys, in float64."""
    encoding = model.encoding
    w = {name: p.detach().tolist() for name, p in model.named_parameters()}
    x = [list(w["embedding.weight"][i]) for i in ids]
    if isinstance(encoding, Additive):
        x = [[a + b for a, b in zip(row, encoding.reference(p, max(at) + 1), strict=True)]
             for row, p in zip(x, at, strict=True)]  # fmt: skip
    width = DIM // HEADS
    for layer in range(LAYERS):
        prefix = f"blocks.{layer}."
        own = {k[len(prefix) :]: v for k, v in w.items() if k.startswith(prefix)}
        qkv = [times(own["qkv.weight"], norm_of(row, own["norm.weight"])) for row in x]
        mixed = [[0.0] * DIM for _ in ids]
        for h in range(HEADS):
            q, k, v = (
                [row[part * DIM + h * width : part * DIM + (h + 1) * width] for row in qkv]
                for part in range(3)
            )
            if isinstance(encoding, Rotary):
                q = [encoding.reference(row, p) for row, p in zip(q, at, strict=True)]
                k = [encoding.reference(row, p) for row, p in zip(k, at, strict=True)]
            for i in range(len(ids)):
                scores = []
                for j in range(i + 1):
                    score = sum(a * b for a, b in zip(q[i], k[j], strict=True)) / math.sqrt(width)
                    if isinstance(encoding, Bias):
                        score += encoding.reference(h, at[i], at[j])
                    elif isinstance(encoding, Gate):
                        score += Gate.reference(k, i, j)
                    scores.append(score)
                weights = [math.exp(s - max(scores)) for s in scores]
                for c in range(width):
                    mixed[i][h * width + c] = sum(weights[j] * v[j][c] for j in range(i + 1)) / sum(
                        weights
                    )
        for i in range(len(ids)):
            x[i] = [a + b for a, b in zip(x[i], times(own["out.weight"], mixed[i]), strict=True)]
            wide = times(own["widen.weight"], norm_of(x[i], own["mlp_norm.weight"]))
            narrow = times(own["narrow.weight"], [gelu(u) for u in wide])
            x[i] = [a + b for a, b in zip(x[i], narrow, strict=True)]
    return [times(w["head.weight"], norm_of(row, w["norm.weight"])) for row in x]


DOORS = ["none", "sinusoidal", "normalised", "rope", "alibi", "gate"]


@pytest.mark.parametrize("name", DOORS)
def test_logits_equal_a_plain_restatement(name: str) -> None:
    model = model_of(Gate() if name == "gate" else encoding_of(name), seed=3)
    for parameter in model.parameters():  # norms start at 1 and would hide a missing weight
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter.data, 0.5, 1.5)
    ids = torch.randint(VOCABULARY, (2, 7))
    at = torch.tensor([3, 4, 5, 9, 11, 12, 40])
    found = model(ids, at)
    for row in range(2):
        expected = plain_logits(model, ids[row].tolist(), at.tolist())
        torch.testing.assert_close(
            found[row], torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize("name", ["none", *sorted(ropewalk.encodings()), "gate"])
def test_no_encoding_lets_the_future_change_the_past(name: str) -> None:
    encoding = Gate() if name == "gate" else encoding_of(name)
    model = model_of(encoding, seed=5)
    ids = torch.randint(VOCABULARY, (1, 33))
    changed = ids.clone()
    changed[:, 20:] = (ids[:, 20:] + 1 + torch.randint(VOCABULARY - 1, (1, 13))) % VOCABULARY
    first, second = (model(each, where(encoding, 33)) for each in (ids, changed))
    torch.testing.assert_close(first[:, :20], second[:, :20], rtol=0, atol=1e-12)
    assert (first[:, 20:] - second[:, 20:]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi"])
def test_an_encoding_tells_equal_tokens_apart_and_none_does_not(name: str) -> None:
    ids = torch.tensor([[4, 4, 7, 4, 7, 4]])
    with_none, with_it = (model_of(encoding_of(each), seed=1)(ids)[0] for each in ("none", name))
    same = torch.tensor([[4, 4, 4, 4]])
    torch.testing.assert_close(
        model_of(None, seed=1)(same)[0, 0], model_of(None, seed=1)(same)[0, 3], rtol=0, atol=1e-12
    )
    assert (with_none - with_it).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["rope", "alibi"])
def test_relative_encodings_do_not_see_a_shift_of_all_positions(name: str) -> None:
    model = model_of(encoding_of(name), seed=2)
    ids, at = torch.randint(VOCABULARY, (2, 9)), torch.arange(9)
    torch.testing.assert_close(model(ids), model(ids, at + 100_000), rtol=0, atol=1e-9)
    stretched = (model(ids) - model(ids, 2 * at)).abs().max()
    assert stretched > 1e-4


@pytest.mark.parametrize("name", ["learned", "rope"])
def test_one_encoding_is_shared_by_all_layers_and_trains(name: str) -> None:
    encoding = encoding_of(name)
    model = model_of(encoding)
    assert sum(isinstance(module, Encoding) for module in model.modules()) == 1
    model(torch.randint(VOCABULARY, (2, 5))).mul(torch.randn(2, 5, VOCABULARY)).sum().backward()
    for label, parameter in model.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.abs().max() > 0, label


def test_the_transformer_refuses_what_is_no_encoding_and_sizes_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match=r"Encoding, a Plan or None, got str; ropewalk\.make"):
        Transformer(5, "rope")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="dim=10 must be a multiple of heads=4"):
        Transformer(5, dim=10, heads=4)
    with pytest.raises(ValueError, match="heads=4; q has 2 heads"):
        Transformer(5, ropewalk.make("alibi", heads=4), **SIZES)(torch.tensor([[1, 2]]))


# --- the task ------------------------------------------------------------------------------------


def task_of(training: str = SPOKEN, validation: str = SPOKEN, run: int = 6) -> Characters:
    return Characters(run, training=text.encode(training), validation=text.encode(validation))


def test_ids_are_the_alphabets_and_other_characters_are_refused() -> None:
    assert text.encode("\n !~").tolist() == [0, 1, 2, 95]
    assert task_of().form.classes == 96
    with pytest.raises(ValueError, match=r"'é' at character 3.*replace it"):
        text.encode("cafés é")
    with pytest.raises(ValueError, match=r"unknown play 'hamlet'; known: macbeth"):
        text.play("hamlet")


def test_the_packaged_plays_are_whole_works_and_validation_is_not_among_them() -> None:
    assert not set(text.TRAINING) & set(text.VALIDATION)
    training, validation = text.plays()
    assert len(training) == sum(len(text.play(name)) for name in text.TRAINING)
    assert len(training) > 250_000
    assert len(validation) > 80_000
    for name in text.TRAINING + text.VALIDATION:
        assert text.play(name).startswith("ACT "), name
    held = text.play(text.VALIDATION[0])
    lines = {line for line in held.splitlines() if len(line) > 30}
    assert len(lines) > 1000
    assert not lines & set("".join(map(text.play, text.TRAINING)).splitlines())


def test_batches_are_windows_of_the_training_text_in_an_order_that_the_seed_decides() -> None:
    task = task_of(training="".join(map(chr, range(32, 127))), validation="x" * 9)
    batch = task.batch(torch.Generator().manual_seed(4), 200, 20)
    assert batch.inputs.shape == batch.targets.shape == (200, 20)
    assert torch.equal(batch.inputs + 1, batch.targets)  # the next character of a text that counts
    assert batch.inputs.min() == 1  # the first and the last window both occur
    assert batch.targets.max() == 95
    again = task.batch(torch.Generator().manual_seed(4), 200, 20)
    assert torch.equal(batch.inputs, again.inputs)
    other = task.batch(torch.Generator().manual_seed(5), 200, 20)
    assert not torch.equal(batch.inputs, other.inputs)


def test_lengths_that_the_text_does_not_have_are_refused() -> None:
    task = task_of(training="x" * 95, validation="x" * 61)
    task.check(94, (6, 60))
    with pytest.raises(ValueError, match=r"train_length: 95 needs 96 characters.*are 95"):
        task.check(95, (6,))
    with pytest.raises(ValueError, match=r"lengths: 66 needs 67 characters of text; there are 61"):
        task.check(94, (6, 66))
    with pytest.raises(ValueError, match=r"lengths=\(6, 15\) must be multiples of run=6"):
        task.check(12, (6, 15))


def test_windows_of_all_lengths_end_at_the_same_characters() -> None:
    task = task_of(validation=(SPOKEN * 4)[:5000])
    longest = task.windows(300, 300)
    assert len(longest) == len(range(300, 5000, STRIDE))
    for length in (1, 7, 200):
        assert torch.equal(task.windows(length, 300), longest[:, -length - 1 :])
    for row, end in zip(longest, range(300, 5000, STRIDE), strict=True):
        assert torch.equal(row, task.validation[end - 300 : end + 1])


def test_bits_are_those_of_a_model_whose_probabilities_are_known() -> None:
    generator = torch.Generator().manual_seed(0)
    shuffled = "".join(random.Random(1).choices("abcdefgh", k=3000))
    task = task_of(validation=shuffled)
    table = torch.randn(96, 96, generator=generator, dtype=torch.float64)
    found = task.score(lambda ids, _: table[ids], 24, 60)
    assert len(found.curve) == 4
    assert found.value == found.curve[-1]
    log_p = table.log_softmax(-1)
    for run in range(4):
        expected, count = 0.0, 0
        for end in range(60, 3000, STRIDE):
            for i in range(end - 24 + 6 * run, end - 24 + 6 * run + 6):
                expected -= log_p[task.validation[i], task.validation[i + 1]].item() / math.log(2)
                count += 1
        assert found.curve[run] == pytest.approx(expected / count, rel=1e-12)
    uniform = task.score(lambda ids, _: torch.zeros(*ids.shape, 96), 60, 60)
    assert uniform.value == pytest.approx(math.log2(96), rel=1e-12)
    longer = task.score(lambda ids, _: table[ids], 60, 60)
    assert longer.value == pytest.approx(found.value, rel=1e-12)


# --- names of racers -----------------------------------------------------------------------------


def test_a_label_is_an_encoding_with_its_options() -> None:
    assert naming.split("rope, none,mrope:sections=[2,3,3]") == [
        "rope",
        "none",
        "mrope:sections=[2,3,3]",
    ]
    sizes = {"head_dim": 16, "heads": 2, "dim": 32}
    encoding = naming.make("rope:base=100.0:layout=interleaved", sizes)
    assert isinstance(encoding, ropewalk.RoPE)
    assert encoding.spectrum.inv_freq[1] == pytest.approx(100.0 ** (-2 / 16))
    assert encoding.spectrum.layout == "interleaved"
    assert naming.make("none", sizes) is None
    assert naming.parse("wavelet:scales=[1,2]")[0].options == (("scales", (1, 2)),)


def test_a_label_with_several_layers_or_a_window_is_a_plan() -> None:
    plan = naming.make("rope@8+rope:base=500.0+none", {"head_dim": 8})
    assert isinstance(plan, Plan)
    assert [(layer.window, layer.encoding is None) for layer in plan.period] == [
        (8, False),
        (None, False),
        (None, True),
    ]
    shared = naming.make("rope+none+rope@4", {"head_dim": 8})
    assert isinstance(shared, Plan)
    assert shared.period[0].encoding is shared.period[2].encoding
    alone = naming.make("alibi@16", {"heads": 2})
    assert isinstance(alone, Plan)
    assert alone.period[0].window == 16


def test_random_positions_are_drawn_for_every_batch_and_never_from_the_examples() -> None:
    config = trial.Trial("rope~40", **SMALL)
    encoding = trial.make_encoding(config)
    assert isinstance(encoding, Randomized)
    assert encoding.limit == 40
    model = trial.build(config)
    seen: list[list[int]] = []
    model.register_forward_pre_hook(
        lambda module, _: seen.append(module.encoding.drawn[0].tolist())  # pyright: ignore
    )
    task = task_of()
    trial.train(model, config, task)
    assert len(seen) == 4
    assert len({tuple(each) for each in seen}) == 4
    assert all(len(each) == 12 and each == sorted(set(each)) for each in seen)
    first, second = (trial.measured(config, task) for _ in range(2))
    assert first == second
    with pytest.raises(ValueError, match="tokens=24"):
        trial.build(trial.Trial("rope~10", **SMALL))


def test_an_own_file_is_a_racer(tmp_path: Path) -> None:
    own = tmp_path / "own_far.py"
    own.write_text(
        "from ropewalk.core import Bias\n"
        "class Far(Bias):\n"
        "    def __init__(self, heads: int, slope: float = 1.0):\n"
        "        super().__init__()\n"
        "        self.heads, self.slope = heads, slope\n"
        "    def bias(self, q_positions, kv_positions, *, dtype=None):\n"
        "        raise NotImplementedError\n"
        "    def reference(self, head, i, j):\n"
        "        return 0.0\n"
    )
    encoding = naming.make(f"{own}:Far:slope=2.5", {"heads": 3})
    assert isinstance(encoding, Bias)
    assert (encoding.heads, encoding.slope) == (3, 2.5)


def test_an_edited_file_is_another_trial(tmp_path: Path) -> None:
    own = tmp_path / "own_near.py"
    words = (
        "from ropewalk.encodings.bias import ALiBi\n"
        "class Near(ALiBi):\n"
        "    def __init__(self, heads: int):\n"
        "        super().__init__(heads, slopes='{}')\n"
    )
    found = []
    for slopes in ("authors", "geometric"):
        own.write_text(words.format(slopes))
        found.append(trial.config_of(trial.Trial(f"{own}:Near", **SMALL)))
    first, second = found
    assert first["files"].keys() == {f"{own}:Near"}
    assert first["files"] != second["files"]
    assert trial.key_of(first) != trial.key_of(second)
    assert "files" not in trial.config_of(trial.Trial("rope", **SMALL))
    record = trial.measured(trial.of_config(second), task_of())
    check_record(record)
    edited = {**record, "config": first}
    assert [len(group) for group in outcome.comparable([record, edited, record])] == [2, 1]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("rop", r"unknown encoding 'rop'.*did you mean 'rope'"),
        ("", "has an empty layer"),
        ("rope+", "has an empty layer"),
        ("rope:base=1:base=2", "gives 'base' twice"),
        ("none:base=2", "none takes no options"),
        ("sinusoidal+rope", "an additive code is added once"),
        ("rope@0", "window=0 must be at least 1"),
        ("rope:bass=1.0", "rope has no argument 'bass'"),
        ("rope:base=-1.0", "base=-1"),
    ],
)
def test_a_label_that_names_nothing_is_refused(label: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        naming.make(label, {"head_dim": 16, "dim": 32, "heads": 2})


def test_a_plan_acts_layer_by_layer() -> None:
    """A window, chunks, and layers without position, each compared with what it leaves out."""
    rope = encoding_of("rope")
    ids = torch.randint(VOCABULARY, (1, 12))
    near = model_of(Plan([Layer(rope, 3)]), seed=4)
    changed = ids.clone()
    changed[:, 2] = (ids[:, 2] + 1) % VOCABULARY
    moved = (near(ids) - near(changed)).abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [2 <= i < 2 + 2 * (3 - 1) + 1 for i in range(12)]
    chunked = model_of(Plan([Layer(rope, chunk=4)]), seed=4)
    moved = (chunked(ids) - chunked(changed)).abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [i in (2, 3) for i in range(12)]
    assert chunks(12, 4).tolist() == [i // 4 for i in range(12)]
    one = model_of(Plan([Layer(rope), Layer(None)]), seed=4)
    swapped = model_of(Plan([Layer(None), Layer(rope)]), seed=4)
    both, neither = model_of(rope, seed=4), model_of(None, seed=4)
    outputs = [model(ids) for model in (one, swapped, both, neither)]
    assert all((a - b).abs().max() > 1e-4 for i, a in enumerate(outputs) for b in outputs[:i])
    with pytest.raises(ValueError, match="the plan has 3 layers, the model 2"):
        model_of(Plan([Layer(rope)], layers=3))


def test_the_encoder_form_reads_vectors_both_ways_and_answers_once() -> None:
    torch.manual_seed(0)
    encoding = ropewalk.make("axial", head_dim=8, axes=2)
    model = Transformer(
        None, encoding, **SIZES, channels=3, classes=5, causal=False, pooled=True, axes=2
    )
    x, at = torch.randn(2, 6, 3), builders.grid(2, 3)
    first = model(x, at)
    assert first.shape == (2, 1, 5)
    order = torch.tensor([5, 0, 3, 1, 4, 2])
    torch.testing.assert_close(model(x[:, order], at[order]), first, rtol=1e-4, atol=1e-5)
    assert (model(x[:, order], at) - first).abs().max() > 1e-3  # places matter
    flat = Transformer(
        None, ropewalk.make("rope", head_dim=8), **SIZES, channels=3, classes=5, causal=False,
        axes=2,
    )  # fmt: skip
    torch.testing.assert_close(flat(x, at), flat(x))  # one axis: row by row
    with pytest.raises(ValueError, match="has 3 axes, the positions have 2"):
        Transformer(None, ropewalk.make("mrope", head_dim=8, sections=(2, 1, 1)), **SIZES,
                    channels=3, classes=5, axes=2)  # fmt: skip
    with pytest.raises(TypeError, match="give vocabulary for ids, or channels and classes"):
        Transformer(None, encoding, channels=3)


# --- trials --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rope", "alibi", "none", "rope@4+none"])
def test_a_trial_is_the_same_bit_for_bit_whatever_came_before(name: str) -> None:
    config, task = trial.Trial(name, seed=7, **SMALL), task_of()
    torch.manual_seed(1)
    first = trial.measured(config, task)
    torch.manual_seed(2)
    torch.rand(5)
    state = torch.get_rng_state()
    second = trial.measured(config, task)
    assert json.dumps(first) == json.dumps(second)
    assert torch.equal(state, torch.get_rng_state())  # no random number of ours was drawn
    other = trial.measured(dataclasses.replace(config, seed=8), task)
    assert other["loss"] != first["loss"]
    assert other["key"] != first["key"]
    assert json.loads(json.dumps(first)) == first


def test_a_trial_is_its_configuration_as_json_and_its_address() -> None:
    config = trial.Trial("rope:base=500.0", seed=7, **SMALL)
    document = json.loads(json.dumps(trial.config_of(config)))
    assert trial.of_config(document) == config
    words = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert trial.key(config) == hashlib.sha256(words.encode()).hexdigest()
    for broken in ({}, {**document, "more": 1}, {**document, "lengths": 5}, {**document, "dim": 0}):
        with pytest.raises((TypeError, ValueError)):
            trial.of_config(broken)


def test_a_trial_that_diverges_says_so() -> None:
    config = trial.Trial("rope", **{**SMALL, "steps": 12})

    class Broken(Characters):
        drawn = 0

        def batch(self, generator: torch.Generator, rows: int, length: int) -> Batch:
            Broken.drawn += 1
            return super().batch(generator, rows, length)

    task = Broken(6, training=text.encode(SPOKEN), validation=text.encode(SPOKEN))
    model = trial.build(config, task)
    losses, ended = trial.train(model, config, task)
    assert ended is None
    assert len(losses) == Broken.drawn == 12
    with torch.no_grad():
        model.head.weight[0, 0] = torch.nan
    assert trial.train(model, config, task) == ([], "the loss was not finite at step 0")


def test_a_trial_runs_on_one_thread_and_leaves_their_number_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    batch = Characters.batch

    def spy(self: Characters, *args: Any) -> Any:
        seen.append(torch.get_num_threads())
        return batch(self, *args)

    monkeypatch.setattr(Characters, "batch", spy)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trial.measured(trial.Trial("rope", **SMALL), task_of())
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert after == 2


def test_models_start_from_the_same_weights_whatever_their_encoding() -> None:
    models = [
        trial.build(trial.Trial(name, seed=3, **SMALL))
        for name in ("none", "sinusoidal", "learned", "rope", "alibi", "integer", "t5+none")
    ]
    own = dict(models[0].named_parameters())
    for model in models[1:]:
        theirs = dict(model.named_parameters())
        assert {name for name in theirs if not name.startswith("encoding.")} == set(own)
        for name, value in own.items():
            assert torch.equal(value, theirs[name]), name
    again = trial.build(trial.Trial("none", seed=4, **SMALL))
    for name, value in again.named_parameters():
        assert value.dim() == 1 or not torch.equal(value, own[name]), name


def test_trials_of_one_seed_see_the_same_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    batch = Characters.batch

    def spy(self: Characters, *args: Any) -> Any:
        found = batch(self, *args)
        seen.append(found.inputs)
        return found

    monkeypatch.setattr(Characters, "batch", spy)
    for name, seed in (("rope", 0), ("learned", 0), ("rope", 1)):
        trial.measured(trial.Trial(name, seed=seed, **SMALL), task_of())
    first, second, third = (torch.cat(seen[4 * i : 4 * i + 4]) for i in range(3))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("name", ["sinusoidal", "rope", "alibi", "none", "alibi@6+rope"])
def test_the_loss_falls_on_a_trivial_text(name: str) -> None:
    config = trial.Trial(name, **{**SMALL, "steps": 80, "rate": 1e-2})
    record = trial.measured(config, task_of("ab" * 300, "ab" * 300))
    assert len(record["loss"]) == 10
    assert record["loss"][0] > 2
    assert record["loss"][-1] < 0.15
    assert max(record["curves"]["12"]) < 0.2  # the first letter is given, the rest follows
    assert record["scores"]["12"] == record["curves"]["12"][-1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"encoding": "rop"}, r"unknown encoding 'rop'.*did you mean 'rope'"),
        ({"task": "character"}, r"unknown task 'character'.*did you mean 'characters'"),
        ({"lengths": (128, 200)}, r"lengths=\(128, 200\) must be multiples of run=64"),
        ({"lengths": (256, 128)}, r"lengths=\(256, 128\) must rise"),
        ({"lengths": ()}, "at least one length"),
        ({"lengths": (64 * 10**6,)}, r"lengths: 64000000 needs .* characters of text"),
        ({"steps": 0}, "steps=0 must be 1"),
        ({"steps": 2.5}, r"steps=2\.5 must be a whole number"),
        ({"heads": 5}, "dim=64 must be a multiple of heads=5"),
        ({"rate": 0.0}, r"rate=0\.0 must be above 0"),
        ({"rate": math.nan}, "rate=nan must be above 0 and finite"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"seed": 1 << 31}, "seed=2147483648 must be at least 0 and below 2³¹"),
        ({"task_options": (("run", [6]),)}, r"task option run=\[6\] must be a number"),
        ({"task_options": (("walk", 6),)}, "task characters has no option 'walk'"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(changed: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        trial.Trial(**{"encoding": "rope", **changed})


def test_a_grid_is_every_encoding_with_every_seed_in_the_sizes_of_its_task() -> None:
    trials = trial.grid(["rope", "none"], seeds=(3, 5), steps=7)
    assert [(t.encoding, t.seed) for t in trials] == [
        ("rope", 3),
        ("none", 3),
        ("rope", 5),
        ("none", 5),
    ]
    assert {(t.steps, t.train_length) for t in trials} == {(7, 128)}
    for labels, seeds in (([], 1), (["rope", "rope"], 1), (["rope"], 0)):
        with pytest.raises(ValueError, match=r"must hold"):
            trial.grid(labels, seeds=seeds)


# --- the stored race -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_stored_race_has_its_shape(stored: dict[str, Any]) -> None:
    assert stored["kind"] == "race"
    assert stored["task"] == "characters"
    assert stored["unit"] == "bits per character"
    assert stored["train_length"] == 128
    assert stored["lengths"] == [128, 256, 512, 1024]
    assert stored["seeds"] == 3
    assert [c["encoding"] for c in stored["curves"]] == ["sinusoidal", "rope", "alibi", "none"]
    assert (RECORD.parents[3] / stored["script"]).name == "walk_race.py"
    for key in ("text", "scored", "interval", "versions", "config"):
        assert stored[key], key
    for curve in stored["curves"]:
        for i in range(4):
            assert len(curve["values"][i]) == 3
            assert all(0 < value < math.log2(96) for value in curve["values"][i])


def test_the_stored_race_agrees_with_itself(stored: dict[str, Any]) -> None:
    trials, lengths = stored["trials"], stored["lengths"]
    assert len(trials) == 12
    assert len({(t["config"]["encoding"], t["config"]["seed"]) for t in trials}) == 12
    shared = [
        {k: v for k, v in t["config"].items() if k not in ("encoding", "seed")} for t in trials
    ]
    assert all(each == shared[0] for each in shared)
    assert all(stored["config"][k] == v for k, v in shared[0].items())
    for each in trials:
        assert each["key"] == trial.key_of(each["config"])
        assert [len(each["curves"][str(n)]) for n in lengths] == [n // 64 for n in lengths]
    for curve in stored["curves"]:
        for i, n in enumerate(lengths):
            by_seed = {
                t["config"]["seed"]: t["scores"][str(n)]
                for t in trials
                if t["config"]["encoding"] == curve["encoding"]
            }
            assert curve["values"][i] == [by_seed[0], by_seed[1], by_seed[2]]
            low, median, high = sorted(curve["values"][i])
            assert (curve["low"][i], curve["median"][i], curve["high"][i]) == (low, median, high)
    again = json.loads(json.dumps(outcome.document(trials)))
    for key in ("curves", "comparisons", "ranks", "by_chance", "origins", "versions"):
        assert stored[key] == again[key], key


def test_the_stored_race_was_run_on_the_packaged_text(stored: dict[str, Any]) -> None:
    names = set(text.TRAINING + text.VALIDATION)
    assert set(stored["text_sha256"]) == names
    for name in names:
        digest = hashlib.sha256(text.play(name).encode("ascii")).hexdigest()
        assert stored["text_sha256"][name] == digest, name
    rows = Characters().windows(128, 1024)
    assert stored["scored_characters"] == len(rows) * 64


def test_the_stored_race_separates_alibi_at_four_times_the_length(stored: dict[str, Any]) -> None:
    curves = {curve["encoding"]: curve for curve in stored["curves"]}
    for other in ("rope", "sinusoidal"):
        assert curves["alibi"]["high"][2] < curves[other]["low"][2]


def test_a_stored_configuration_still_runs(stored: dict[str, Any]) -> None:
    old = stored["trials"][1]
    kept = trial.of_config(old["config"])
    assert trial.key(kept) == old["key"]
    assert kept == trial.grid(["rope"], seeds=[kept.seed])[0]
    short = dataclasses.replace(kept, steps=2, lengths=(128, 256))
    record = json.loads(json.dumps(trial.run(short)))
    assert record.keys() == old.keys()
    assert record["config"].keys() == old["config"].keys()


@pytest.mark.parametrize("label", ["randomized", "rope~300", "axial~300"])
def test_random_positions_serve_every_token_of_a_grid(label: str) -> None:
    pytest.importorskip("sklearn")
    sizes = {"steps": 1, "batch": 2, "dim": 16, "heads": 2, "layers": 1, "lengths": (6, 10)}
    (only,) = trial.grid([label], task="digits", seeds=1, train_length=5, **sizes)
    assert trial.run(only)["diverged"] is None


def test_a_record_is_asked_for_all_that_a_trial_holds() -> None:
    assert set(CONFIG) == {field.name for field in dataclasses.fields(trial.Trial)}
