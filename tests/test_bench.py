"""The benchmark: its gate, its clockwork on made-up clocks, its document, its command line."""

from __future__ import annotations

import cmath
import itertools
import json
import re

import mpmath
import pytest
import torch
from test_cli import fails_in_one_line, run

from ropewalk.bench import peers, rotate
from ropewalk.bench.cases import FAR, LAYOUTS, MODES, Case, cases, shape_of
from ropewalk.bench.peers import PEERS
from ropewalk.bench.peers.own import Ours
from ropewalk.bench.problem import error, problem, tolerance, turned
from ropewalk.bench.processes import merged
from ropewalk.bench.rotate import Plan, measure
from ropewalk.bench.rotor import TorchRotor
from ropewalk.bench.timing import Effort, interleaved, is_noisy, ratio, rounds_of, settled
from ropewalk.cli.bench import _draw

SMALL = (1, 4, 6, 16)
BRIEF = Effort(rounds=5, seconds=0.01, sample=1e-6)
ROW = {
    "shape", "dtype", "layout", "mode", "form", "verdict", "ratio_to_copy", "ratio_to_ropewalk",
    "error", "error_at_131071", "noisy", "rounds", "copies",
}  # fmt: skip


# --- the truth -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_truth_is_the_textbook_rotation(layout):
    case = Case((1, 1, 4, 8), "float64", layout, "fresh")
    spectrum, where = case.spectrum(), case.positions()
    x = torch.arange(32, dtype=torch.float64).reshape(1, 1, 4, 8)
    y = turned(x, spectrum, where)
    pairs = {
        "half": [(0, 4), (1, 5), (2, 6), (3, 7)],
        "interleaved": [(0, 1), (2, 3), (4, 5), (6, 7)],
        "partial": [(0, 2), (1, 3)],
        "axes": [(0, 4), (1, 5), (2, 6), (3, 7)],
    }[layout]
    for token in range(4):
        right = x[0, 0, token].tolist()
        for c, (a, b) in enumerate(pairs):
            if layout == "axes":  # a 2 × 2 grid; two pairs an axis, frequencies 1 and 1/100
                angle = divmod(token, 2)[c // 2] * 10_000 ** -((c % 2) / 2)
            else:
                angle = token * 10_000 ** -(c / len(pairs))
            z = complex(x[0, 0, token, a], x[0, 0, token, b])
            z *= cmath.rect(1, angle)
            right[a], right[b] = z.real, z.imag
        assert torch.allclose(y[0, 0, token], torch.tensor(right, dtype=torch.float64), atol=1e-12)


def test_far_positions_are_exact():
    spectrum = Case(SMALL, "float64", "half", "fresh").spectrum()
    x = torch.zeros(1, 1, 1, 16, dtype=torch.float64)
    x[..., 0] = 1
    y = turned(x, spectrum, torch.tensor([FAR]))
    assert y[0, 0, 0, 0].item() == pytest.approx(float(mpmath.cos(FAR)), abs=1e-15)
    assert y[0, 0, 0, 8].item() == pytest.approx(float(mpmath.sin(FAR)), abs=1e-15)


def test_backwards_is_the_transpose():
    case = Case(SMALL, "float64", "half", "forward+backward")
    x, g = problem(case).inputs
    y, gradient = problem(case).expected
    assert (y * g).sum().item() == pytest.approx((x.double() * gradient).sum().item(), rel=1e-12)


def test_an_error_is_the_largest_and_nan_stays():
    right = torch.tensor([[[1.0, -4.0]], [[2.0, 0.0]]]).double()
    wrong = right.clone()
    wrong[1, 0, 1] = 0.5
    assert error((wrong,), (right,)) == 0.125
    wrong[0, 0, 0] = float("nan")
    assert error((wrong,), (right,)) != error((wrong,), (right,))


# --- the gate ------------------------------------------------------------------------------------


class OneLaneOff(Ours):
    """Turns as it should, but for one lane of one head."""

    def turn(self, x):
        y = super().turn(x).clone()
        y[:, -1, :, 1] = -y[:, -1, :, 1]
        return y

    def into(self, x, out):
        return out.copy_(self.turn(x))

    def in_place(self, x):
        return x.copy_(self.turn(x))

    def pair(self, q, k):
        return q.clone(), self.turn(k)

    def pair_in_place(self, q, k):
        return q, self.in_place(k)


class WritesNothing(Ours):
    """Leaves ``out`` as it was."""

    def into(self, x, out):
        return out


class ForgetsGradient(Ours):
    """A gradient that is not turned back."""

    def trained(self, x, g):
        return self.turn(x), g


class InFloat32(TorchRotor):
    """Gives float32 whatever it gets."""

    def turn(self, x):
        return x.float()


def rows_of(case: Case, **kinds) -> dict[str, dict]:
    return {row["form"]: row for row in measure(case, {"ropewalk": Ours, **kinds}, BRIEF)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_wrong_form_gets_no_figure_in_any_mode(mode, dtype):
    (case,) = cases([SMALL], [dtype], ["half"], [mode])
    rows = rows_of(case, planted=OneLaneOff)
    assert rows["planted"]["verdict"] == "wrong"
    assert rows["planted"]["error"] > 0.1
    assert rows["planted"]["ratio_to_copy"] is None
    assert rows["planted"]["ratio_to_ropewalk"] is None
    assert rows["ropewalk"]["verdict"] == "right"
    assert rows["ropewalk"]["ratio_to_ropewalk"] == 1.0
    assert rows["copy"]["ratio_to_copy"] == 1.0


def test_what_was_not_written_and_not_turned_back_is_wrong():
    assert (
        rows_of(Case(SMALL, "float32", "half", "out"), planted=WritesNothing)["planted"]["verdict"]
        == "wrong"
    )
    case = Case(SMALL, "float32", "half", "forward+backward")
    assert rows_of(case, planted=ForgetsGradient)["planted"]["verdict"] == "wrong"


def test_another_dtype_is_no_result():
    rows = rows_of(Case(SMALL, "bfloat16", "half", "fresh"), planted=InFloat32)
    assert rows["planted"]["verdict"].startswith("cannot: gives torch.float32")


def test_only_own_angles_are_forgiven_their_float32():
    where = torch.arange(4096)
    strict, lenient = (tolerance(torch.float32, where, own) for own in (False, True))
    assert strict < 5e-7
    assert 4095 * 2**-23 < lenient < 2e-3


# --- clockwork -----------------------------------------------------------------------------------


class Clock:
    """Time that passes only in forms; ``costs`` gives each call's seconds in turn."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def form(self, costs):
        costs = itertools.cycle(costs)

        def call():
            self.now += next(costs)

        return call


def test_ratios_are_medians_of_rounds_not_ratios_of_medians():
    times: dict[str, list[float | None]] = {"copy": [1.0, 2.0, 4.0], "form": [2.0, 6.0, 4.0]}
    assert ratio(times, "form", "copy") == 2.0
    times["form"][1] = None
    assert ratio(times, "form", "copy") == 1.5
    assert rounds_of(times, "form") == 2


def test_every_form_takes_its_turn_and_the_order_turns():
    clock, order = Clock(), []

    def form(name):
        def call():
            order.append(name)
            clock.now += 1.0

        return call

    seconds = interleaved({name: form(name) for name in "abc"}, Effort(5, None, 0.5), clock=clock)
    assert {name: len(times) for name, times in seconds.items()} == {"a": 5, "b": 5, "c": 5}
    assert "".join(order[3:]) == "abcbcacababcbca"


def test_slow_forms_sit_rounds_out_evenly_and_the_chosen_never():
    clock = Clock()
    forms = {"copy": clock.form([0.01]), "ours": clock.form([9.0]), "slow": clock.form([0.5])}
    seconds = interleaved(forms, Effort(31, 5.0, 0.005), ("copy", "ours"), clock)
    assert rounds_of(seconds, "ours") == 31
    there = [i for i, value in enumerate(seconds["slow"]) if value is not None]
    assert there == list(range(0, 31, 4))
    assert ratio(seconds, "slow", "copy") == pytest.approx(50)
    seconds = interleaved(forms, Effort(31, 1e-9, 0.005), ("copy",), clock)
    assert rounds_of(seconds, "slow") == 4, "at least three rounds"


def test_short_forms_are_called_often_enough():
    clock = Clock()
    calls = []
    quick = clock.form([1e-6])
    forms = {"copy": lambda: (calls.append(1), quick())}
    interleaved(forms, Effort(5, None, 32e-6), clock=clock)
    assert len(calls) == 2 + 5 * 32


def test_noise_is_measured_anew_a_bounded_number_of_times():
    noisy, calm = {"copy": [1.0, 3.0, 3.0]}, {"copy": [1.0, 1.0, 1.9]}
    assert is_noisy(noisy, "copy")
    assert not is_noisy(calm, "copy")
    runs = iter([noisy, calm, noisy])
    assert settled(lambda: next(runs), "copy") == (calm, False)
    assert next(runs) is noisy
    count = itertools.count()
    assert settled(lambda: (next(count), noisy)[1], "copy", reruns=2)[1]
    assert next(count) == 3


def test_processes_are_merged_by_medians_and_a_wrong_one_decides():
    def document(value, verdict="right"):
        row = dict.fromkeys(ROW) | {
            "shape": [1], "form": "f", "verdict": verdict, "ratio_to_copy": value,
            "ratio_to_ropewalk": value, "error": value, "noisy": value == 3, "rounds": 31,
        }  # fmt: skip
        return {"rows": [row]}

    (row,) = merged([document(v) for v in (3.0, 1.0, 2.0)])["rows"]
    assert (row["ratio_to_copy"], row["spread"]) == (2.0, [1.0, 3.0])
    assert (row["error"], row["rounds"], row["noisy"]) == (3.0, 93, True)
    (row,) = merged([document(1.0), document(None, "wrong")])["rows"]
    assert row["verdict"] == "wrong"


# --- peers and the document ----------------------------------------------------------------------


def test_absent_and_broken_peers_are_told(monkeypatch, tmp_path):
    (tmp_path / "broken_rotation.py").write_text("raise RuntimeError('torn')")
    monkeypatch.syspath_prepend(str(tmp_path))
    absent = peers.Peer("absent", "own:Ours", ("no_such_package",))
    broken = peers.Peer("broken", "own:Missing")
    monkeypatch.setitem(peers.PEERS, "absent", absent)
    monkeypatch.setitem(peers.PEERS, "broken", broken)
    document = rotate.run(
        Plan((SMALL,), ("float32",), ("half",), ("out",), ("absent", "broken"), effort=BRIEF)
    )
    assert document["peers"]["absent"]["status"] == "not installed (no_such_package)"
    assert document["peers"]["broken"]["status"].startswith("does not load (AttributeError")
    assert [row["form"] for row in document["rows"]] == ["copy", "ropewalk"]


PLAIN = ("transformers", "complex", "addcmul", "rotary-embedding-torch", "torchtune", "jax", "mlx")


@pytest.mark.parametrize("name", [*PLAIN, "onnxruntime"])
@pytest.mark.filterwarnings("ignore")
def test_every_installed_peer_rotates_right_wherever_it_can(name):
    if peers.present([name])[1]:
        pytest.skip("not installed")
    found = cases([(1, 8, 6, 32)], ["float32"], list(LAYOUTS), list(MODES))
    rows = [rows_of(case, **{name: peers.PEERS[name].rotor()})[name] for case in found]
    verdicts = {row["verdict"] for row in rows}
    assert "right" in verdicts
    assert "wrong" not in verdicts, [row for row in rows if row["verdict"] == "wrong"]
    far = max(row["error_at_131071"] for row in rows if row["error_at_131071"] is not None)
    own = peers.PEERS[name].own_angles
    assert far < (0.02 if own else 1e-6)
    assert not own or far > 1e-5, "float32 angles are off at 131,071"


def test_plans_survive_the_way_to_another_process():
    plan = Plan(layouts=("half",), threads=1, effort=Effort(7, None))
    assert Plan.of(json.loads(json.dumps(plan.as_dict()))) == plan


def test_cases_do_not_repeat_and_decode_one_token():
    found = cases([(1, 8, 64, 16), (1, 8, 32, 16)], ["float32"], ["half"], ["decode", "out"])
    assert [case.shape[2] for case in found] == [1, 64, 32]
    assert len(cases()) == 2 * (2 * 4 + 2) + 3


# --- the command line ----------------------------------------------------------------------------


def test_quick_json_is_one_document(capsys):
    status, out, err = run(
        capsys, "bench", "rotate", "--quick", "--json", "--threads", "1", "--peer", "addcmul",
        "--mode", "out", "--mode", "decode",
    )  # fmt: skip
    document = json.loads(out)
    assert (status, err) == (0, "")
    assert document["threads"] == 1
    assert set(document) == {
        "benchmark", "ropewalk", "torch", "kernel", "threads", "rounds", "processes", "peers",
        "rows",
    }  # fmt: skip
    assert document["peers"]["addcmul"]["status"] == "installed"
    assert len(document["rows"]) == 2 * 4 * 2 * 3
    for row in document["rows"]:
        assert set(row) == ROW | {"spread"}
        if row["form"] == "ropewalk":
            assert row["verdict"] == "right"
            assert row["ratio_to_copy"] > 0
            assert row["error_at_131071"] < (1e-6 if row["dtype"] == "float32" else 1e-2)


def test_the_table_says_wrong_and_the_status_is_no(capsys, monkeypatch):
    plan = Plan((SMALL,), ("float32",), ("half",), ("out",), (), effort=BRIEF)
    monkeypatch.setattr(rotate, "Ours", OneLaneOff)
    document = merged([rotate.run(plan)])
    monkeypatch.setattr("ropewalk.bench.processes.in_processes", lambda *_: document)
    status, out, _ = run(capsys, "bench", "rotate")
    assert status == 1
    assert "wrong" in out
    assert "1×4×6×16" in out


@pytest.mark.parametrize("width", [80, 100, 300])
def test_tables_break_between_words_alone(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    forms = ("ropewalk", *PEERS)
    kinds = {"shape": [1, 32, 4096, 128], "dtype": "bfloat16", "layout": "interleaved"}
    figures = {"ratio_to_copy": 1.25, "ratio_to_ropewalk": 9.75, "copies": True, "noisy": True}
    errors = {"error": 1e-3, "error_at_131071": 1e-3, "verdict": "right"}
    row = {**kinds, "mode": "forward+backward", **figures, **errors}
    peer = {"status": "installed", "version": "2.13.0+cpu", "angles": "exact tables given"}
    rows = [{**row, "form": form, "dtype": d} for form in forms for d in ("float32", "bfloat16")]
    versions = {"kernel": "cpu", "torch": "2.13.0", "threads": 1, "rounds": 5, "processes": 1}
    _draw({**versions, "rows": rows, "peers": dict.fromkeys(PEERS, peer)})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    told = re.findall(r"[^\s-]+-?", out)
    for form in forms:
        for word in re.findall(r"[^-]+-?", form):
            assert word in told
    assert told.count("9.75*~") == 2 * len(PEERS)
    assert told.count("1.25*~") == 2
    assert {"float32:", "bfloat16:", "131,071", "version", "2.13.0+cpu"} <= set(told)
    assert "…" not in out


def test_bench_alone_prints_its_help(capsys):
    status, out, err = run(capsys, "bench")
    assert (status, err) == (0, "")
    assert "rotate" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rotat",), "'rotate'"),
        (("rotate", "--dtype", "flot32"), "did you mean 'float32'"),
        (("rotate", "--layout", "interleave"), "did you mean 'interleaved'"),
        (("rotate", "--mode", "inplace"), "did you mean 'in-place'"),
        (("rotate", "--peer", "trnsformers"), "did you mean 'transformers'"),
        (("rotate", "--peer", "jax", "--peer", "none"), "none stands alone"),
        (("rotate", "--shape", "1,2,3"), "1,32,4096,128"),
        (("rotate", "--shape", "1,2,3,7"), "head_dim=7"),
        (("rotate", "--shape", "1,2,3,6", "--layout", "axes"), "multiple of 4"),
        (("rotate", "--shape", "0,2,3,8"), "1,32,4096,128"),
        (("rotate", "--shape", "1,2,3.5,8"), "four integers"),
        (("rotate", "--shape", "1,1,100000000,64"), "6,400,000,000 values, and 4,294,967,296 are"),
        (("rotate", "--shape", "99999,99999,99999,8"), "the most that are rotated at once"),
        (("rotate", "--rounds", "1"), "at least 3"),
        (("rotate", "--threads", "0"), "--threads 0"),
        (("rotate", "--threads", "100000"), "100000"),
        (("rotate", "--processes", "0"), "processes=0"),
        (("rotate", "--rnds", "9"), "--rounds"),
    ],
)
def test_wrong_arguments_give_one_line(capsys, arguments, says):
    assert says in fails_in_one_line(capsys, "bench", *arguments)


def test_shapes_are_read():
    assert shape_of("1,32,4096,128") == (1, 32, 4096, 128)
