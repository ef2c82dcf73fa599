"""The property checks: the expected table, golden figures, encodings of one's own, planted bugs."""

from __future__ import annotations

import doctest
import json
import math
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn

import ropewalk
from ropewalk import catalog, checks, make, records
from ropewalk.catalog import PROPERTIES, Spec, encodings, register, unregister
from ropewalk.checks import content, fingerprint, nearest, precision, process, races, reach
from ropewalk.checks import report as reporting
from ropewalk.checks.linear import linear_error
from ropewalk.encodings.additive import Binary, Integer, Sinusoidal
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import RoPE
from ropewalk.spectra import Spectrum, exact_angle

LETTERS = {True: "Y", False: "N", None: "–"}
EXPECTED = {
    "integer": "YNNNN–YY–N",
    "normalised": "YNNNY–NY–N",
    "binary": "YNNNY–YY–Y",
    "sinusoidal": "YYNNY–YY–Y",
    "learned": "YNNN––NN–Y",
    "rope": "YYYYYNYY–Y",
    "p_rope": "YYYYYNYY–Y",
    "axial": "YYYYYNYYYY",
    "alibi": "Y–Y–NYYY–N",
    "fire": "Y–N–YNYN–Y",
    "kerple": "Y–Y–NYYN–N",
    "sandwich": "N–Y–YNYY–Y",
    "t5": "N–Y–YNYN–Y",
    "shaw": "N–Y–YNYN–Y",
    "transformer_xl": "Y–Y–YNYN–Y",
    "wavelet": "N–Y–YNYY–Y",
}
"""Catalogue of property truths: the ten measured properties in the order of PROPERTIES."""


def letters(report: checks.Report) -> str:
    return "".join(LETTERS[report.properties[name].holds] for name in PROPERTIES[:10])


# An encoding of one's own, in ten lines each.


class Turns(ropewalk.Additive):
    def __init__(self, *frequencies: float):
        super().__init__()
        self.frequencies, self.dim = frequencies, 2 * len(frequencies)

    def encode(self, positions, *, length=None, dtype=torch.float32):
        angles = positions[..., None] * torch.tensor(self.frequencies, dtype=torch.float64)
        return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)

    def reference(self, position, length=None):
        angles = [position * f for f in self.frequencies]
        return [f(a) for f in (math.sin, math.cos) for a in angles]


class Window(ropewalk.Bias):
    """Root of the distance, two heads."""

    heads = 2

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        distance = (q_positions[..., :, None] - kv_positions[..., None, :]).abs().double()
        return -torch.stack((distance.sqrt(), distance.sqrt() / 4), dim=-3).to(dtype)

    def reference(self, head, q_position, k_position):
        return -math.sqrt(abs(q_position - k_position)) / (1, 4)[head]


class Mine(ropewalk.Rotary):
    """A half-layout rotation by angles of one's own, in float64."""

    def __init__(self, head_dim: int = 16):
        super().__init__()
        self.head_dim = head_dim
        self.frequencies = [100.0 ** (-2 * c / head_dim) for c in range(head_dim // 2)]

    def turn(self, x, positions, sign=1.0):
        place = torch.arange(x.shape[-2]) if positions is None else positions
        angle = place[..., None] * torch.tensor(self.frequencies, dtype=torch.float64)
        a, b = x.double().chunk(2, dim=-1)
        cos, sin = angle.cos(), sign * angle.sin()
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)

    def encode_q(self, q, positions=None, *, offset=None):
        return self.turn(q, positions)

    def encode_k(self, k, positions=None, *, offset=None):
        return self.turn(k, positions)

    def reference(self, x, position):
        assert isinstance(position, int)
        half, result = self.head_dim // 2, list(x)
        for c, frequency in enumerate(self.frequencies):
            angle = exact_angle(position, frequency)
            a, b = x[c], x[c + half]
            result[c] = a * math.cos(angle) - b * math.sin(angle)
            result[c + half] = a * math.sin(angle) + b * math.cos(angle)
        return result


class Forgetting(ropewalk.Contextual):
    """A content gate per key: the bias is the log-gates summed from the key to the query."""

    heads, head_dim = 2, 8

    def bias(self, block):
        total = nn.functional.logsigmoid(block.k.sum(-1)).cumsum(-1)
        return total[..., -block.q.shape[-2] :, None] - total[..., None, :]


CHANGES = [
    (name, dict(variant.config))
    for name, spec in encodings().items()
    for variant in spec.variants.values()
]
OTHERS = [
    ("axial", {"coordinates": "normalised"}),
    ("learned", {"length": 200}),
    ("learned", {"length": 150}),
]


@pytest.fixture(scope="module", autouse=True)
def one_child() -> None:
    """Ask a fresh process all at once, so that each check finds its answer."""
    process.fingerprints(
        [
            reporting._request(encodings()[name], {**encodings()[name].config, **changes})
            for name, changes in [*((name, {}) for name in encodings()), *CHANGES, *OTHERS]
        ]
    )


@pytest.fixture
def no_child(monkeypatch):
    """No other process can be asked."""
    monkeypatch.setattr(process, "_ask", lambda keys: [None] * len(keys))
    monkeypatch.setattr(process, "_answers", {})


@pytest.fixture(scope="module")
def reports() -> dict[str, checks.Report]:
    return checks.check_all()


# The catalogue.


@pytest.mark.parametrize("name", EXPECTED)
def test_expected_table(reports, name):
    assert letters(reports[name]) == EXPECTED[name]


def test_every_report_agrees_with_its_claims(reports):
    assert list(reports) == list(encodings())
    assert {name: report.disagreements for name, report in reports.items()} == {
        name: [] for name in encodings()
    }
    for name, report in reports.items():
        assert report.agrees
        assert report.encoding == name
        for key, result in report.properties.items():
            assert result.claimed == encodings()[name].claims.get(key)
            if result.holds is None or result.claimed is False:
                assert result.reason


@pytest.mark.parametrize(("name", "changes"), CHANGES)
def test_every_variant_agrees_with_its_claims(name, changes):
    report = checks.check(name, changes)
    assert report.disagreements == []
    assert report.config == {**encodings()[name].config, **changes}


@pytest.mark.parametrize("name", ["axial", "lie"])
def test_of_one_axis_nothing_is_claimed_about_axes(name):
    """An encoding of several axes that is made with one is judged by everything else."""
    report = checks.check(name, {"axes": 1, "head_dim": 16})
    assert report.agrees, report.disagreements
    found = report.properties["axes"]
    assert (found.holds, found.claimed, found.reason) == (None, None, "one axis")


def test_fixed_point_coordinates_are_measured_as_coordinates():
    report = checks.check("axial", {"coordinates": "normalised"})
    assert letters(report) == EXPECTED["axial"]


def test_json_is_strict_and_has_the_stated_shape(reports):
    for report in reports.values():
        document = report.as_dict()
        assert json.loads(json.dumps(document, allow_nan=False)) == document
        assert set(document) == {"encoding", "config", "properties"}
        assert tuple(document["properties"]) == PROPERTIES
        for entry in document["properties"].values():
            keys = {"error", "tolerance", "holds", "claimed", "reason"}
            assert keys <= set(entry) <= keys | {"figures"}
    overflow = reports["integer"].as_dict()["properties"]["precision"]["figures"]
    assert overflow["float16_at_131072"] is None


def test_a_learned_table_is_drawn_alike_each_time_and_tells_its_end():
    first, second = (checks.check("learned", {"length": 200}) for _ in range(2))
    assert first.as_dict() == second.as_dict()
    extends = first.properties["extends"]
    assert (extends.holds, extends.reason) == (False, "positions end at 199")
    assert first.properties["deterministic"].holds is False


def test_progress_names_each_encoding_in_turn(monkeypatch):
    monkeypatch.setattr(reporting, "_check_entry", lambda spec, changes: spec.name)
    monkeypatch.setattr(reporting, "fingerprints", lambda requests: list(requests))
    calls: list[tuple[str, int, int]] = []
    checks.check_all(lambda *told: calls.append(told))
    assert calls == [(name, i, len(encodings())) for i, name in enumerate(encodings())]


def test_several_processes_measure_the_same(monkeypatch):
    spec = encodings()["alibi"]
    mine = type(spec)(**{**vars(spec), "name": "mine", "claims": {**spec.claims, "decay": False}})
    monkeypatch.setitem(catalog._registry, "mine", mine)
    monkeypatch.setitem(catalog._registry, "integer", encodings()["integer"])
    names = ["rope", "mine", "integer"]
    told: list[tuple[str, int, int]] = []
    found = checks.check_all(lambda *words: told.append(words), names=names, processes=2)
    alone = checks.check_all(names=names)
    assert list(found) == names
    assert {n: r.as_dict() for n, r in found.items()} == {n: r.as_dict() for n, r in alone.items()}
    assert found["mine"].disagreements == ["decay"]
    assert found["rope"].properties["deterministic"].figures["processes"] == 0.0
    assert sorted(name for name, _, _ in told) == sorted(names)
    assert [done for _, done, _ in told] == [1, 2, 3]


@pytest.mark.parametrize(("names", "says"), [(["rop"], "did you mean 'rope'"), ([3], "unknown")])
def test_entries_that_are_not_there_are_refused(names, says):
    with pytest.raises(ValueError, match=says):
        checks.check_all(names=names)


def test_a_spec_outside_the_catalogue_is_measured_against_its_claims():
    spec = encodings()["alibi"]
    loose = type(spec)(**{**vars(spec), "claims": {**spec.claims, "decay": False}})
    report = checks.check(loose, {"heads": 4})
    assert report.disagreements == ["decay"]
    assert report.config == {"heads": 4}
    assert "processes" not in report.properties["deterministic"].figures


# Golden figures.


@pytest.mark.parametrize(("dim", "distance"), [(4, 0.044), (64, 1.47)])
def test_nearest_distance_of_sinusoids(dim, distance):
    figures = checks.unique_error(make("sinusoidal", dim=dim)).figures
    assert figures["nearest_distance"] == pytest.approx(distance, rel=0.02)


def test_linear_tells_affine_from_linear(reports):
    def error(name):
        return reports[name].properties["linear"].error

    assert error("integer") == pytest.approx(0.5, abs=0.03)
    assert error("binary") == pytest.approx(0.6, abs=0.05)
    assert error("learned") == pytest.approx(0.76, abs=0.03)
    assert reports["integer"].properties["linear"].figures["affine"] < 1e-8
    assert reports["binary"].properties["linear"].figures["affine"] > 0.1


def test_a_fit_finds_that_sinusoids_are_linear():
    class Unsaid(Sinusoidal):
        def shift_matrix(self, k):
            return None

    found = linear_error(Unsaid(64))
    assert found.holds
    assert found.error is not None
    assert 0 < found.error < 1e-9


def test_collisions_of_integers_after_rounding():
    codes = Integer(8).encode(torch.arange(4096), dtype=torch.float64)
    assert 4096 - nearest.collisions(codes, torch.bfloat16) == 769
    assert 4096 - nearest.collisions(codes, torch.float16) == 3073


def test_logit_error_of_casting_is_flat(reports):
    figures = reports["rope"].properties["precision"].figures
    for base in precision.BASES:
        assert figures[f"bfloat16_at_{base}"] == pytest.approx(2.9e-4, rel=0.06)
        assert figures[f"float16_at_{base}"] == pytest.approx(3.6e-5, rel=0.06)


def test_small_distances_are_exact():
    codes = content.gaussian(3000, 16, seed=5)
    codes[2500] = codes[17] + 1e-9 * content.gaussian(16, seed=6)
    expected = (codes[2500] - codes[17]).norm().item()
    assert nearest.closest(codes) == pytest.approx(expected, rel=1e-12)
    assert nearest.closest(codes[:1025]) > 0.1
    assert nearest.merged(codes[2400:2600], 1e-8) == 0
    assert nearest.merged(codes[[17, 2500, 3]], 1e-8) == 1


# Encodings of one's own.


def test_an_additive_of_ones_own():
    encoding = Turns(1.0, 0.1, 0.01, 0.001)
    report = checks.check(encoding)
    assert letters(report) == "YYNNY–YY–Y"
    assert (report.encoding, report.config) == ("Turns", {})
    assert {result.claimed for result in report.properties.values()} == {None}
    assert report.agrees
    assert "one process" in (report.properties["deterministic"].reason or "")
    json.dumps(report.as_dict(), allow_nan=False)


def test_the_example_of_the_docs_runs():
    names = {"ropewalk": ropewalk, "torch": torch, "math": math}
    example = doctest.DocTestParser().get_doctest(checks.__doc__ or "", names, "checks", None, 0)
    assert len(example.examples) == 3
    assert doctest.DocTestRunner().run(example).failed == 0


def test_a_bias_of_ones_own():
    assert letters(checks.check(Window())) == "Y–Y–NYYY–N"


def test_a_rotary_of_ones_own():
    report = checks.check(Mine())
    assert letters(report) == "YYYYYNYY–Y"
    assert (report.properties["relative"].error or 1) < 1e-9


def test_a_contextual_of_ones_own():
    report = checks.check(Forgetting())
    verdicts = {name: report.properties[name].holds for name in PROPERTIES}
    assert verdicts["relative"] is True
    assert verdicts["linear"] is verdicts["norm"] is verdicts["axes"] is None
    assert verdicts["bounded"] is False
    assert verdicts["deterministic"] is True


def test_a_contextual_that_counts_from_the_start_is_not_relative():
    class Counting(Forgetting):
        def bias(self, block):
            return super().bias(block) * (1 + block.kv_positions)

    assert checks.relative_error(Counting()).holds is False


def test_checking_leaves_the_encoding_and_global_state_alone():
    class Remembering(Turns):
        calls = 0

        def encode(self, positions, *, length=None, dtype=torch.float32):
            self.calls += 1
            self.drawn = (torch.rand(1), np.random.rand(), random.random())  # noqa: NPY002
            return super().encode(positions, length=length, dtype=dtype)

    encoding = Remembering(1.0, 0.1)
    state = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )
    checks.check(encoding)
    assert encoding.calls == 0
    assert state == (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )


def random_states() -> list[bytes]:
    numpy = np.random.get_state()  # noqa: NPY002
    return [pickle.dumps(s) for s in (torch.get_rng_state().tolist(), random.getstate(), numpy)]


@pytest.mark.parametrize("name", ["learned", "rope"])
def test_measuring_draws_no_global_random_number(name):
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002
    random.seed(11)
    before = random_states()
    checks.check(name, {"length": 150} if name == "learned" else None)
    assert random_states() == before


# Tables.


class Embedded(ropewalk.Additive):
    """nn.Embedding as people write it: a position beyond it is an IndexError."""

    def __init__(self, rows: int, dim: int = 8):
        super().__init__()
        self.dim, self.table = dim, nn.Embedding(rows, dim)

    def encode(self, positions, *, length=None, dtype=torch.float32):
        return self.table(positions).to(dtype)

    def reference(self, position, length=None):
        return self.table.weight[position].tolist()


class Growing(ropewalk.Additive):
    """Sines from a table that grows to the largest position and keeps the dtype of that call."""

    dim = 8

    def __init__(self, poisoned: bool = False):
        super().__init__()
        self.table, self.poisoned = torch.zeros(0, 8), poisoned

    def encode(self, positions, *, length=None, dtype=torch.float32):
        rows = int(positions.max()) + 1
        if rows > len(self.table):
            line = torch.arange(rows)[:, None].double()
            table = (line * 0.3 ** torch.arange(8).double()).sin()
            self.table = table.to(dtype) if self.poisoned else table
        return self.table[positions].to(dtype)

    def reference(self, position, length=None):
        return [math.sin(position * 0.3**j) for j in range(8)]


@pytest.mark.parametrize("rows", [1, 2, 777, 8192, 8193])
def test_the_end_of_a_table_is_found(rows):
    far = reach.reach(Embedded(rows))
    assert (far.count, far.ends) == (rows, True)


def test_a_table_of_ones_own_is_measured_to_its_end():
    report = checks.check(Embedded(700))
    assert letters(report) == "YNNN––NN–Y"
    assert report.properties["unique"].figures["positions"] == 700


@pytest.mark.parametrize("rows", [1, 3, 30, 100])
def test_short_tables_give_reasons(rows):
    report = checks.check(Embedded(rows))
    assert all(r.reason for r in report.properties.values() if r.holds is None)
    assert "Error" not in "".join(r.reason or "" for r in report.properties.values())


def test_a_growing_table_is_not_driven_to_the_end():
    encoding = Growing()
    far = reach.reach(encoding)
    assert (far.count, far.grows, far.ends) == (8192, True, False)
    assert len(encoding.table) == 0
    report = checks.check(encoding)
    assert report.properties["deterministic"].holds
    assert report.properties["extends"].holds
    assert "8192" in (report.properties["bounded"].reason or "")


# Planted bugs: each property goes red for what it is there to find.


def test_planted_periodic_code_is_not_unique():
    found = checks.unique_error(Binary(64, bits=12))
    assert (found.holds, found.error) == (False, 0.0)
    assert found.figures["collisions_bfloat16"] == 4096


def test_planted_wrong_sign_of_shift_is_not_linear():
    class Backwards(Sinusoidal):
        def shift_matrix(self, k):
            return super().shift_matrix(-k)

    assert checks.linear_error(Sinusoidal(16)).holds
    assert checks.linear_error(Backwards(16)).holds is False


class OneSine(Mine):
    """The sine of one lane of pair 3 has the wrong sign, so that pair is no rotation."""

    def turn(self, x, positions, sign=1.0):
        right = super().turn(x, positions)
        lane = 3 + self.head_dim // 2
        right[..., lane] = super().turn(x, positions, sign=-1.0)[..., lane]
        return right


def test_planted_sine_sign_in_one_lane_of_a_pair():
    assert checks.norm_error(OneSine()).holds is False
    assert checks.relative_error(OneSine()).holds is False
    assert checks.linear_error(OneSine()).holds is False


def test_planted_opposite_rotation_of_k():
    class Opposite(Mine):
        def encode_k(self, k, positions=None, *, offset=None):
            return self.turn(k, positions, sign=-1.0)

    assert checks.norm_error(Opposite()).holds
    assert checks.relative_error(Opposite()).holds is False


def test_planted_float32_phases():
    class Single(Mine):
        def turn(self, x, positions, sign=1.0):
            place = torch.arange(x.shape[-2]) if positions is None else positions
            angle = (place[..., None].float() * torch.tensor(self.frequencies)).double()
            a, b = x.double().chunk(2, dim=-1)
            cos, sin = angle.cos(), angle.sin()
            return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)

    assert checks.precision_error(Single()).holds is False
    assert checks.relative_error(Single()).holds is False
    assert checks.norm_error(Single()).holds


def test_planted_bfloat16_positions():
    class Rounded(Mine):
        def turn(self, x, positions, sign=1.0):
            place = torch.arange(x.shape[-2]) if positions is None else positions
            return super().turn(x, place.to(torch.bfloat16), sign)

    found = checks.precision_error(Rounded())
    assert found.holds is False
    assert found.figures["bfloat16_at_4096"] > 10 * found.figures["bfloat16_at_0"]


def test_planted_attention_factor():
    class Louder(Mine):
        def turn(self, x, positions, sign=1.0):
            return 1.25 * super().turn(x, positions, sign)

    class Stated(Louder):
        attention_factor = 1.25

    assert checks.norm_error(Louder()).error == pytest.approx(0.25)
    stated = checks.norm_error(Stated())
    assert stated.holds
    assert stated.figures["attention_factor"] == 1.25


def test_planted_growth_with_position():
    class Swelling(Mine):
        def turn(self, x, positions, sign=1.0):
            place = torch.arange(x.shape[-2]) if positions is None else positions
            return super().turn(x, place, sign) * (1 + place[..., None] / 1e6)

    assert checks.bounded_error(Mine()).holds
    assert checks.bounded_error(Swelling()).holds is False


@pytest.mark.parametrize("slopes", [[0.5, -0.01], [0.5, 0.0], [0.0, 0.0]])
def test_planted_slopes_that_rise_or_stand(slopes):
    class Steeper(ALiBi):
        def derive(self, device):
            return {"slopes": torch.tensor(slopes, dtype=torch.float64, device=device)}

    assert checks.decay_error(ALiBi(2)).holds
    found = checks.decay_error(Steeper(2))
    assert found.holds is False
    assert (found.error or 0) >= 1


def test_planted_ripple_breaks_decay():
    class Rippling(ALiBi):
        def bias(self, q_positions, kv_positions, dtype=torch.float32):
            bias = super().bias(q_positions, kv_positions, dtype)
            return torch.where(bias == bias[..., 100:101, :], bias, bias) + 3 * (bias * 2).sin()

    found = checks.decay_error(Rippling(2))
    assert found.holds is False
    assert 1e-9 < (found.error or 0) < 1


class Stretched(Sinusoidal):
    """The code is slowed by something taken from the call: three usual ways to get it wrong."""

    def __init__(self, dim: int, by: str):
        super().__init__(dim)
        self.by = by

    def encode(self, positions, *, length=None, dtype=torch.float32):
        size = {
            "count": positions.shape[-1],
            "largest": int(positions.max()) + 1,
            "length": length if isinstance(length, int) else 1,
        }[self.by]
        code = super().encode(positions, length=length, dtype=dtype)
        return code if size <= 4096 else code / 2


@pytest.mark.parametrize("by", ["count", "largest", "length"])
def test_planted_dependence_on_length(by):
    assert checks.extends_error(Sinusoidal(16)).holds
    found = checks.extends_error(Stretched(16, by))
    assert found.holds is False
    assert found.error == pytest.approx(0.5, rel=1e-3)


def test_planted_dependence_of_a_rotary_on_length():
    class Dynamic(Mine):
        def turn(self, x, positions, sign=1.0):
            place = torch.arange(x.shape[-2]) if positions is None else positions
            return super().turn(x, place if int(place.max()) < 4096 else place / 2, sign)

    assert checks.extends_error(Mine()).holds
    assert checks.extends_error(Dynamic()).holds is False


def test_planted_dependence_of_a_bias_on_length():
    class Scaled(Window):
        def bias(self, q_positions, kv_positions, dtype=torch.float32):
            bias = super().bias(q_positions, kv_positions, dtype)
            return bias / kv_positions.shape[-1]

    assert checks.extends_error(Window()).holds
    assert checks.extends_error(Scaled()).holds is False


def test_planted_state_from_earlier_calls():
    found = checks.deterministic_error(Growing(poisoned=True))
    assert found.holds is False
    assert found.figures["earlier_calls"] > 1e-4
    assert found.figures["seeds"] == 0


def test_planted_state_shared_by_all_instances():
    shared: dict[int, torch.Tensor] = {}

    class Sharing(Turns):
        def encode(self, positions, *, length=None, dtype=torch.float32):
            rows = int(positions.max()) + 1
            if not shared or rows > max(shared):
                shared.clear()
                shared[rows] = super().encode(torch.arange(rows), dtype=dtype)
            return next(iter(shared.values()))[positions].to(dtype)

    found = checks.deterministic_error(Sharing(1.0, 0.1))
    shared.clear()
    assert found.holds is False


def test_planted_noise_and_default_dtype():
    class Noisy(Turns):
        def encode(self, positions, *, length=None, dtype=torch.float32):
            return super().encode(positions, dtype=dtype) + 1e-3 * torch.randn(self.dim)

    class Following(Turns):
        def encode(self, positions, *, length=None, dtype=torch.float32):
            angles = positions[..., None] * torch.tensor(self.frequencies)
            return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)

    noisy, following = (checks.deterministic_error(c(1.0, 0.1)) for c in (Noisy, Following))
    assert noisy.holds is False
    assert noisy.figures["seeds"] > 0
    assert following.holds is False
    assert following.figures["default_dtypes"] > 0
    assert following.figures["seeds"] == 0


def test_parameters_drawn_in_a_submodule_are_seen():
    found = checks.deterministic_error(Embedded(100))
    assert found.holds is False
    assert found.figures["earlier_calls"] == 0


def test_planted_shared_frequency_collides_on_a_grid():
    row = tuple(10.0**-c for c in range(8))
    found = checks.axes_error(RoPE(Spectrum((row, row), 16)))
    assert found.holds is False
    assert found.error is not None
    assert found.error < 1e-9
    assert found.figures["collisions"] == 1024 - 63
    assert checks.unique_error(RoPE(Spectrum((row, row), 16))).holds is False


def test_planted_axis_that_is_not_relative():
    class Bent(RoPE):
        def encode_q(self, q, positions=None, *, offset=None):
            assert positions is not None
            bent = positions.clone()
            bent[..., 1] = bent[..., 1] ** 2
            return super().encode_q(q, bent)

    found = checks.axes_error(Bent(16, axes=2))
    assert found.holds is False
    assert found.figures["axis_0"] < 1e-9 < found.figures["axis_1"]
    assert checks.axes_error(RoPE(16, axes=2)).holds


# Encodings that fail.


class Raising(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        raise RuntimeError("no\ncode today")


class Nan(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        return super().encode(positions, dtype=dtype) * float("nan")


class Narrow(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        return super().encode(positions, dtype=dtype)[..., :-1]


class NotTensor(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):  # pyright: ignore[reportIncompatibleMethodOverride]
        return "code"


class RaisingRotary(Mine):
    def encode_k(self, k, positions=None, *, offset=None):
        raise KeyError("cos")


class NanBias(Window):
    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        return super().bias(q_positions, kv_positions, dtype).log()


class FlatBias(Window):
    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        return super().bias(q_positions, kv_positions, dtype)[..., 0, :, :]


class NanReading(Forgetting):
    def bias(self, block):
        return super().bias(block) / 0.0 * 0.0


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        (Raising(1.0), "RuntimeError: no code today"),
        (Nan(1.0), "encode(positions) holds nan or inf"),
        (Narrow(1.0), "the contract says"),
        (NotTensor(1.0), "is a str, not a tensor"),
        (RaisingRotary(), "KeyError: 'cos'"),
        (NanBias(), "holds nan or inf"),
        (FlatBias(), "the contract says"),
        (NanReading(), "holds nan or inf"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ropewalk.core.Encoding) else "",
)
def test_a_failing_encoding_is_a_verdict(encoding, words):
    report = checks.check(encoding)
    measured = [r for r in report.properties.values() if r.holds is not None]
    assert len(measured) >= 5
    for result in measured:
        assert result.holds is False
        assert result.error is None
        assert result.reason is not None
        assert words in result.reason
        assert "\n" not in result.reason
    json.dumps(report.as_dict(), allow_nan=False)


@pytest.mark.usefixtures("no_child")
def test_a_broken_catalogue_entry_says_why_and_disagrees():
    spec = Spec(
        name="broken",
        family="additive",
        factory=Raising,
        title="",
        equation="",
        source="",
        config={},
        claims={"unique": True, "linear": False},
        reasons={"linear": "as expected"},
    )
    register(spec)
    try:
        report = checks.check("broken")
    finally:
        unregister("broken")
    assert report.disagreements == ["unique"]
    for name in ("unique", "linear"):
        assert "no code today" in (report.properties[name].reason or "")


# Judging.


@pytest.mark.parametrize("name", PROPERTIES)
def test_asserts_return_or_raise(name):
    judged = getattr(checks, f"assert_{name}")
    good = {"axes": RoPE(16, axes=2), "decay": ALiBi(2)}.get(name, RoPE(16))
    if name in ("generalises", "learnable"):
        with pytest.raises(AssertionError, match=rf"'{name}' does not apply: no recorded"):
            judged(good)
    else:
        assert judged(good).holds


def test_a_judgement_names_encoding_property_error_and_tolerance():
    with pytest.raises(AssertionError) as raised:
        checks.assert_linear(Integer(8))
    words = str(raised.value)
    assert "Integer" in words
    assert "'linear'" in words
    assert "error 0.5" in words
    assert "tolerance at most 1e-06" in words
    with pytest.raises(AssertionError, match="tolerance at least 1e-06"):
        checks.assert_unique(Binary(16, bits=5))
    with pytest.raises(AssertionError, match="'decay' does not apply: additive codes"):
        checks.assert_decay(Integer(8))
    with pytest.raises(AssertionError, match=r"ALiBi\(heads=2\) is not 'bounded'"):
        checks.assert_bounded(ALiBi(2))


def test_what_cannot_be_checked_is_an_error():
    with pytest.raises(ValueError, match=r"did you mean 'rope'"):
        checks.check("ropes")
    with pytest.raises(TypeError, match="config changes a catalogue entry"):
        checks.check(Turns(1.0), {"dim": 4})
    with pytest.raises(TypeError, match="a name, Spec or Encoding, got int"):
        checks.check(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="got Linear"):
        checks.unique_error(nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="rope has no argument 'heads'"):
        checks.check("rope", {"heads": 3})
    with pytest.raises(ValueError, match="head_dim=63"):
        checks.check("rope", {"head_dim": 63})


# Another process.


def test_a_fresh_process_gives_the_same_bits_and_is_asked_once(monkeypatch):
    config = {"head_dim": 8, "base": 123.0}
    asked: list[list[str]] = []
    ask = process._ask
    monkeypatch.setattr(process, "_ask", lambda keys: asked.append(keys) or ask(keys))
    questions = [("rope", config, 9000), ("nothing", {}, 9000), ("rope", {"x": {1}}, 1)]
    there = process.fingerprints(questions)
    here = fingerprint.fingerprint(make("rope", **config), 9000).tolist()
    assert there == [here, None, None]
    assert process.fingerprints(questions[:2]) == [here, None]
    assert len(asked) == 1


def test_another_process_that_disagrees_is_seen():
    encoding = RoPE(8)
    elsewhere = fingerprint.fingerprint(encoding, 2**31).tolist()
    assert checks.deterministic_error(encoding, elsewhere=elsewhere).reason is None
    elsewhere[3] += 1e-16 + abs(elsewhere[3]) * 1e-15
    found = checks.deterministic_error(encoding, elsewhere=elsewhere)
    assert found.holds is False
    assert 0 < found.figures["processes"] < 1e-12
    shorter = checks.deterministic_error(encoding, elsewhere=elsewhere[:-1])
    assert (shorter.holds, shorter.error) == (False, None)


def test_no_child_is_no_failure(monkeypatch):
    monkeypatch.setattr(process, "_answers", {})
    monkeypatch.setattr(process.sys, "executable", "/nowhere/python")
    assert process.fingerprints([("rope", {"head_dim": 6}, 100)]) == [None]


# Recorded races.

RACE = {
    "kind": "race",
    "task": "characters",
    "train_length": 128,
    "lengths": [128, 256, 512, 1024],
    "unit": "bits per character",
    "seeds": 3,
    "curves": [
        {
            "encoding": "rope",
            "median": [2.9, 3.0, 3.4, 3.9],
            "low": [2.8, 2.9, 3.3, 3.8],
            "high": [3.0, 3.1, 3.5, 4.0],
        },
        {
            "encoding": "alibi",
            "median": [3.04, 3.02, 3.02, 3.02],
            "low": [3.0, 3.0, 3.0, 3.0],
            "high": [3.1, 3.1, 3.1, 3.1],
        },
    ],
}


def test_generalises_reads_the_recorded_race(monkeypatch):
    monkeypatch.setattr(records, "load", lambda name: RACE if name == "race_walk" else None)
    rises = checks.generalises_error(RoPE(8), name="rope")
    assert rises.holds is False
    assert rises.error == pytest.approx(0.5)
    assert rises.figures["high_at_512"] == 3.5
    assert "bits per character" in (rises.reason or "")
    flat = checks.assert_generalises(ALiBi(2), name="alibi")
    assert flat.error == pytest.approx(-0.02)
    assert checks.generalises_error(RoPE(8)).holds is None
    assert checks.generalises_error(RoPE(8), name="learned").holds is None


@pytest.mark.parametrize(
    "record",
    [None, {}, {"curves": 3}, {**RACE, "lengths": [128]}, {**RACE, "lengths": [1, 2, 3, 4]}],
)
def test_without_a_usable_record_generalises_is_null(monkeypatch, record):
    monkeypatch.setattr(records, "load", lambda name: record)
    found = checks.generalises_error(RoPE(8), name="rope")
    assert found.holds is None
    assert found.reason


@pytest.mark.usefixtures("no_child")
def test_a_record_is_of_the_configuration_that_ran(monkeypatch):
    spy = checks.Measurement(None, None, None, "not asked")
    monkeypatch.setattr(reporting, "MEASURES", dict.fromkeys(PROPERTIES, lambda *a, **k: spy))
    names = []
    monkeypatch.setitem(
        reporting.MEASURES, "generalises", lambda encoding, name: names.append(name) or spy
    )
    checks.check("rope")
    checks.check("rope", {"base": 77.0})
    assert names == ["rope", None]


LEARNED = {
    "question": "the token before",
    "every": 10,
    "most": 100,
    "encodings": {"rope": {"steps": [20, 40, None]}, "integer": {"steps": [None, None, 90]}},
}


def test_learnable_reads_the_recorded_training(monkeypatch):
    monkeypatch.setattr(records, "load", lambda name: LEARNED if name == "learnable" else None)
    soon = checks.assert_learnable(RoPE(8), name="rope")
    assert (soon.error, soon.tolerance) == (40, 100)
    assert soon.figures == {"least": 20, "never": 1}
    never = checks.learnable_error(RoPE(8), name="integer")
    assert never.holds is False
    assert "2 of 3 runs did not get there in 100 steps" in (never.reason or "")
    with pytest.raises(AssertionError, match="learnable"):
        checks.assert_learnable(RoPE(8), name="integer")
    assert checks.learnable_error(RoPE(8)).holds is None
    assert checks.learnable_error(RoPE(8), name="alibi").holds is None


@pytest.mark.parametrize("record", [None, {}, {"encodings": 3}, {"encodings": {"rope": {}}}])
def test_without_a_usable_record_learnable_is_null(monkeypatch, record):
    monkeypatch.setattr(records, "load", lambda name: record)
    found = checks.learnable_error(RoPE(8), name="rope")
    assert found.holds is None
    assert found.reason


def test_race_records_of_another_shape_are_refused():
    assert races.curve(RACE, "none") is None
    with pytest.raises(ValueError, match="no race record"):
        races.curve({"curves": [{"encoding": "rope"}]}, "rope")
