"""The walk: what each step measures, on the embedded slice of real embeddings."""

from __future__ import annotations

import json
import math

import pytest
import torch

from ropewalk.cli import main
from ropewalk.walk import axes, binary, future, integer, normalised, problem, relative, rotary
from ropewalk.walk import sinusoidal as waves
from ropewalk.walk.embeddings import Embedded, embed_text
from ropewalk.walk.journey import STEPS, walk
from ropewalk.walk.layer import attended, attention_layer, rms_normed
from ropewalk.walk.step import NAMES

DOGS = "The dog chased another dog"


@pytest.fixture(scope="module")
def dogs() -> Embedded:
    return embed_text(DOGS)


@pytest.fixture(scope="module")
def whole():
    return walk(DOGS)


def values(step) -> dict[str, float]:
    return {name: figure.value for name, figure in step.figures.items()}


def test_the_nine_steps_in_order(dogs):
    assert tuple(run(dogs).name for run in STEPS) == NAMES


def test_equal_tokens_have_equal_outputs_without_position(dogs):
    found = values(problem.run(dogs))
    assert found["equal_tokens_distance"] <= 1e-12
    assert found["permutation_error"] <= 1e-12
    assert found["causal_mask_distance"] > 0.3


def test_a_planted_position_would_be_seen(dogs):
    """With any position added, the equality that step 1 rests on breaks."""
    x = rms_normed(dogs.vectors) + torch.arange(5, dtype=torch.float64)[:, None] * 1e-6
    output, _ = attended(attention_layer(x.shape[-1]), x)
    assert (output[1] - output[4]).norm() / output.norm() > 1e-9


def test_texts_that_cannot_show_it_say_so():
    none = problem.run(embed_text("The dog chased another cat"))
    assert "No token appears twice" in none.verdict
    assert "equal_tokens_distance" not in none.figures
    flat = problem.run(embed_text(" dog dog dog"))
    assert "All tokens of this text are equal" in flat.verdict
    assert values(flat)["causal_mask_distance"] <= 1e-12
    single = problem.run(embed_text("cat"))
    assert values(single)["tokens"] == 1
    mixed = problem.run(embed_text("dog dog dog"))
    assert "different tokens" in mixed.verdict


def test_steps_that_read_the_text_run_on_awkward_ones():
    for text in ("cat", " dog dog dog", "dog dog", "The the the The"):
        embedded = embed_text(text)
        for module in (problem, integer, relative, rotary):
            step = module.run(embedded)
            assert step.verdict
            assert all(math.isfinite(figure.value) for figure in step.figures.values())
            json.dumps(step.as_page(), allow_nan=False)


def test_signal_to_noise_of_the_dog(dogs):
    """Catalogue §13: ‖e(“ dog”)‖ = 2.03; −21.5 dB at integer 1, −18.5 sinusoidal, +12 learned."""
    step = integer.run(dogs)
    found = values(step)
    assert found["word_norm"] == pytest.approx(2.03, abs=0.005)
    assert found["integer_p1_db"] == pytest.approx(-21.5, abs=0.05)
    assert found["sinusoidal_p1_db"] == pytest.approx(-18.5, abs=0.05)
    assert found["learned_p1_db"] == pytest.approx(12.5, abs=0.6)
    assert found["constant_after_layernorm"] < 1e-9
    norms = {bar["code"]: bar["layernorm"] for bar in step.drawing["bars"]}
    assert norms["sinusoidal p=1"] > 1e-3


def test_layernorm_removes_constant_codes_and_rmsnorm_does_not(dogs):
    bars = {bar["code"]: bar for bar in integer.run(dogs).drawing["bars"]}
    assert bars["integer p=1"]["layernorm"] < 1e-9
    assert bars["integer p=1"]["rmsnorm"] > 1e-3
    assert bars["integer p=1"]["scaled"] - bars["integer p=1"]["raw"] == pytest.approx(
        20 * math.log10(math.sqrt(576)), abs=1e-3
    )


def test_normalised_position_five(dogs):
    found = values(normalised.run(dogs))
    assert found["position_5_of_10"] == 5 / 9
    assert found["position_5_of_10000"] == 5 / 9999


def test_binary_252_and_its_jumps(dogs):
    found = values(binary.run(dogs))
    assert found["code_of_252"] == 11111100
    assert found["flips_max"] == 8
    # 2^8 positions flip 2·(2^8 − 1) − 8 bits in 255 steps.
    assert found["flips_mean"] == pytest.approx((2 * 255 - 8) / 255, rel=1e-12)
    assert found["jump_max"] == pytest.approx(math.sqrt(8))
    assert found["sinusoid_slope_jump_max"] < found["slope_jump_max"]


def test_sinusoid_shift_sign_and_neighbours(dogs):
    """Catalogue §11, §13: .044 at D = 4, 1.47 at D = 64; longest wavelength 47,117."""
    found = values(waves.run(dogs))
    assert found["shift_error"] <= 1e-12
    assert found["wrong_sign_error"] > 1
    assert found["nearest_d4"] == pytest.approx(0.044, abs=5e-4)
    assert found["nearest_d64"] == pytest.approx(1.47, abs=5e-3)
    assert found["nearest_d64_far"] == pytest.approx(1.47, abs=5e-3)
    assert found["longest_wavelength"] == pytest.approx(47117, abs=1)


def test_distance_by_offset_is_the_distance_of_codes():
    from ropewalk.encodings.additive import Sinusoidal

    codes = Sinusoidal(6).encode(torch.arange(100), dtype=torch.float64)
    literal = torch.stack([(codes[7] - codes[7 + k]).norm() for k in range(1, 90)])
    torch.testing.assert_close(waves.distance_by_offset(6, 90), literal, rtol=0, atol=1e-12)


def test_adding_wanders_and_rotating_does_not(dogs):
    found = values(relative.run(dogs))
    assert found["rotating_spread"] <= 1e-12
    assert found["adding_spread"] > 1e-3
    assert found["rotating_norm_error"] <= 1e-12
    assert found["adding_norm_ratio"] > 1.5


def test_rotary_forms_shifts_and_equal_tokens(dogs):
    found = values(rotary.run(dogs))
    assert found["forms_error"] <= 1e-12
    assert found["shift_error"] <= 1e-9
    assert found["shift_error_bf16_positions"] > 0.1
    assert found["norm_error"] <= 1e-12
    assert found["flat_sentence_distance"] <= 1e-12
    assert found["equal_tokens_distance"] > 0.05
    assert found["equal_tokens_distance_raw"] < found["equal_tokens_distance"] / 10


def test_forms_error_sees_a_wrong_sign(monkeypatch):
    right = rotary.elementwise
    monkeypatch.setattr(rotary, "elementwise", lambda x, p, f: right(x, -p, f))
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, 8, dtype=torch.float64, generator=draw)
    assert rotary.forms_error(x) > 0.1


def test_axes_collide_when_they_share_a_frequency(dogs):
    found = values(axes.run(dogs))
    assert found["shared_collisions"] == 32 * 32 - 2  # all but two corners
    assert found["axial_collisions"] == 0
    assert found["shared_distance"] <= 1e-12
    assert found["axial_distance"] > 1
    assert max(v for k, v in found.items() if k.startswith("shift_error")) <= 1e-9


def test_similarity_map_is_symmetric_about_its_centre():
    flat = axes.similarity(axes.AxialRoPE(64)).double()
    assert flat[16, 16].item() == pytest.approx(1)
    torch.testing.assert_close(flat, flat.flip(0, 1), rtol=0, atol=1e-12)


def test_future_counts_slow_pairs_and_precision(dogs):
    """Pairs never turning: wavelength 2π·θ^(2c/64) > 8192 for θ = 100,000."""
    found = values(future.run(dogs))
    slow = sum(2 * math.pi * 100_000 ** (2 * c / 64) > 8192 for c in range(32))
    assert found["pairs_never_turning"] == slow
    assert found["bf16_exact_at_131072"] == pytest.approx(found["bf16_exact_at_1024"], rel=0.2)
    assert found["bf16_angles_at_1024"] > 50 * found["bf16_exact_at_1024"]
    assert 0.5 < found["usage_slowest_half"] < 1


def test_json_has_the_fixed_shape(whole):
    document = json.loads(json.dumps(whole.as_dict(), allow_nan=False))
    assert document["text"] == DOGS
    assert document["tokens"] == ["The", " dog", " chased", " another", " dog"]
    assert [step["name"] for step in document["steps"]] == list(NAMES)
    for step in document["steps"]:
        assert step["evidence"] in ("proved", "measured", "literature")
        assert step["verdict"]
        assert step["figures"]
        assert all(isinstance(value, (int, float)) for value in step["figures"].values())
    for row in document["scorecard"].values():
        for cell in row.values():
            assert set(cell) == {"error", "holds", "claimed"}


def test_the_race_separates_alibi_from_rope_and_sinusoids(whole):
    curves = {curve["encoding"]: curve for curve in whole.race["curves"]}
    at = whole.race["lengths"].index(4 * whole.race["train_length"])
    assert curves["alibi"]["high"][at] < curves["rope"]["low"][at]
    assert curves["alibi"]["high"][at] < curves["sinusoidal"]["low"][at]


def test_walk_is_the_same_twice(whole, measured_already):
    assert walk(DOGS).as_page() == whole.as_page()


def test_walk_leaves_the_global_generator_alone(dogs):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for run in STEPS:
        run(dogs)
    assert torch.equal(torch.rand(3), expected)


@pytest.fixture
def measured_already(monkeypatch, whole):
    """The scorecard is the same for every text; the commands need not measure it again."""
    monkeypatch.setattr("ropewalk.walk.journey.scorecard", lambda: whole.scorecard)


def test_command_writes_json_only_on_stdout_and_a_page(capsys, tmp_path, measured_already):
    page = tmp_path / "walk.html"
    status = main(["walk", DOGS, "--json", "--out", str(page)])
    out, err = capsys.readouterr()
    assert status == 0
    assert err == ""
    assert json.loads(out)["tokens"][1] == " dog"
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["walk.html"]


def test_command_fits_80_columns_without_colour_when_piped(capsys, measured_already):
    status = main(["walk", "cat"])
    out, _ = capsys.readouterr()
    assert status == 0
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert all(str(place) in out for place in range(1, 10))
