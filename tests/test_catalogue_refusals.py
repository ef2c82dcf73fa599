"""Wrong and extreme input: refused with the argument's name, or computed right; nothing between."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re

import pytest
import torch

import ropewalk
from ropewalk import catalog, plan, positions, spectra
from ropewalk.attention import mask, score_mod
from ropewalk.cli import entry
from ropewalk.core import Additive, Bias, Contextual

WRONG = (
    object(),
    b"x",
    "",
    {},
    {"a": 1},
    [],
    [[1]],
    [None],
    ["a"],
    {1},
    1 + 2j,
    torch.tensor([1.0, 2.0]),
    torch.tensor(3),
    torch.int64,
    math.nan,
    math.inf,
    -1,
    10**400,
    1e308,
    2**63,
)
FREE = {("randomized", "config")}
"""Not arguments but a door to those of another encoding."""
AS_ENCODING = {("randomized", "of")}
"""The name of an encoding, refused as any unknown name is."""


def _parameters() -> list[tuple[str, str]]:
    found = []
    for name, spec in sorted(catalog.builtin().items()):
        found += [(name, p) for p in inspect.signature(spec.factory).parameters]
    return [pair for pair in found if pair not in FREE]


@pytest.mark.parametrize(("name", "argument"), _parameters())
def test_every_argument_is_accepted_or_refused_by_its_name(name, argument):
    spec = catalog.get(name)
    for value in WRONG:
        try:
            spec.make(**{**spec.config, argument: value})
        except (TypeError, ValueError) as error:
            told = str(error)
        else:
            continue
        called = "unknown encoding" if (name, argument) in AS_ENCODING else argument
        assert called in told, f"{argument}={value!r}: {told}"
        assert len(told) < 700, told


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("alibi", {"past_bonus": 1e308}, "past_bonus=1e+308 must be finite and at least -1e+18"),
        ("alibi", {"slopes": b"x"}, "slopes=b'x' is unknown"),
        ("bipe", {"head_dim": False}, "head_dim=False must be an int"),
        ("commuting", {"std": 1e308}, "std=1e+308 must be finite and above 0 and at most"),
        ("commuting", {"dtype": torch.int32}, "dtype=torch.int32 must be a real floating dtype"),
        ("cope", {"std": "x"}, "std='x' must be a number"),
        ("cope", {"std": True}, "std=True must be a number"),
        ("dape", {"base_config": 3}, "base_config=3 must be a dictionary"),
        ("dual_chunk", {"layout": ""}, "layout='' is unknown"),
        ("fire", {"device": "quantum"}, "device='quantum' is no device"),
        ("fire", {"c": 1e308}, "c=1e+308 must be"),
        ("fourier", {"learned": "no"}, "learned='no' must be True or False"),
        ("fourier", {"unit": 1e308}, "unit=1e+308 must be"),
        ("fox", {"gate_bias": [1]}, "gate_bias=[1] must be a number"),
        ("golden", {"heads": 10**6}, "heads=1000000 must be at most 65536"),
        ("golden", {"axes": 3000}, "axes=3000"),
        ("golden", {"min_freq": 2.0}, "max_freq=1.0 must be finite and at least 2, the min_freq"),
        ("hope_dai", {"center": 2**63}, "center=9223372036854775808 must be at most"),
        ("learned", {"row_offset": False}, "row_offset=False must be an int"),
        ("learned", {"std": None}, "std=None must be a number"),
        ("mixed", {"axes": None}, "axes=None must be an int"),
        ("mrope", {"order": ["blocks"]}, "order=['blocks'] is unknown"),
        ("path", {"heads": "x", "kv_heads": 2}, "heads='x' must be an int"),
        ("randomized", {"seed": 1.5}, "seed=1.5 must be an int"),
        ("rerope", {"leak": True}, "leak=True must be a number"),
        ("rope", {"base": 1e-320}, "base=1e-320 is so small"),
        ("rope", {"layout": {}}, "layout={} is unknown"),
        ("sandwich", {"first": True}, "first=True must be an int"),
        ("selective_rope", {"base": True}, "base=True must be a number"),
        ("shaw", {"value_dim": False}, "value_dim=False must be an int"),
        ("sinusoidal", {"shift": True}, "shift=True must be an int"),
        ("sinusoidal", {"scale": 1e308}, "scale=1e+308 must be"),
        ("string", {"axes": None}, "axes=None must be an int"),
        ("t5", {"std": 1e308}, "std=1e+308 must be"),
        ("wavelet", {"kind": ["haar"]}, "kind=['haar'] is unknown"),
        ("xpos", {"center": -(2**63)}, "center=-9223372036854775808 must be at least"),
    ],
)
def test_what_was_once_accepted_or_broke(name, changes, told):
    spec = catalog.get(name)
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        spec.make(**{**spec.config, **changes})


def test_amplitudes_that_hardly_change_reach_every_position():
    for encoding in (
        ropewalk.make("xpos", head_dim=8, gamma=1e308),
        ropewalk.make("xpos", head_dim=8, scale_base=1e308),
        ropewalk.make("hope_dai", head_dim=8, scale=1e-320),
    ):
        q = torch.ones(1, 1, 2, 8)
        where = torch.tensor([0, 2**40])
        assert isinstance(encoding, ropewalk.Rotary)
        assert encoding.encode_q(q, where).isfinite().all()


GEOMETRIC = spectra.geometric(64)
SCALINGS = {
    "linear": {"factor": 2.0},
    "ntk": {"factor": 2.0},
    "ntk_by_parts": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "dynamic_ntk": {"factor": 2.0, "original_max_position_embeddings": 128},
    "longrope": {
        "short_factor": [1.0] * 32,
        "long_factor": [2.0] * 32,
        "original_max_position_embeddings": 4096,
        "factor": 4.0,
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "hunyuan_alpha": {"alpha": 10.0},
    "sectioned": {"sections": [8, 12, 12]},
    "along": {"axes": "T" * 32},
    "clipped": {},
    "resonance": {},
    "fastest": {},
    "full_turns": {"length": 64},
}


@pytest.mark.parametrize("name", SCALINGS)
def test_every_argument_of_a_scaling_is_accepted_or_refused_by_its_name(name):
    function, given = getattr(spectra, name), SCALINGS[name]
    function(GEOMETRIC, **given)
    for argument in inspect.signature(function).parameters:
        for value in (*WRONG, None, True, 0, 1e-320, -0.5):
            try:
                found = function(**{"spectrum": GEOMETRIC, **given, argument: value})
            except (TypeError, ValueError) as error:
                told = str(error)
                assert argument in told or "beta" in argument, f"{argument}={value!r}: {told}"
            else:
                assert all(math.isfinite(f) for row in found.matrices[0] for f in row)


@pytest.mark.parametrize("value", [None, 0, -1, "x", math.nan, 10**400, True])
@pytest.mark.parametrize("argument", ["rotary_dim", "base", "original", "beta_fast", "beta_slow"])
def test_a_ramp_needs_numbers(argument, value):
    given = {"rotary_dim": 64, "base": 1e4, "original": 4096.0, argument: value}
    with pytest.raises((TypeError, ValueError), match=argument):
        spectra.correction_range(**given)


SCALES = (-0.3, 0.0, -0.0, -1e-3, 1e-6, -1e-40, 5e-324)


def _dense(q, k, v, encoding, scale, causal):
    repeat = q.shape[-3] // k.shape[-3]
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(repeat, -3) for x in (k, v))
    where = torch.arange(k.shape[-2])
    if isinstance(encoding, ropewalk.Rotary):
        q, k = encoding.encode_q(q, where), encoding.encode_k(k, where)
    logits = scale * (q @ k.transpose(-1, -2))
    if isinstance(encoding, Bias):
        logits = logits + encoding.bias(where, where, torch.float64)
    if causal:
        logits = logits.masked_fill(where > where[:, None], -math.inf)
    return logits.softmax(-1) @ v


def test_a_compiled_scale_may_change():
    q = torch.randn(1, 2, 9, 8)
    compiled = torch.compile(
        lambda scale: ropewalk.attend(q, q, q, scale=scale), fullgraph=True, backend="aot_eager"
    )
    for scale in (0.3, 0.2, -0.1, 0.0):
        torch.testing.assert_close(compiled(scale), ropewalk.attend(q, q, q, scale=scale))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [None, "rope", "alibi", "t5"])
def test_a_scale_of_0_or_below_is_computed_right(name, scale):
    """PyTorch's fused kernel hides keys by −inf before it multiplies: nan, or the wrong keys."""
    torch.manual_seed(0)
    config = {"rope": {"head_dim": 16}, "alibi": {"heads": 4}, "t5": {"heads": 4}}
    encoding = None if name is None else ropewalk.make(name, **config[name])
    for dtype, tokens, causal in (
        (torch.float32, 5, True),
        (torch.float16, 40, True),
        (torch.bfloat16, 40, True),
        (torch.float64, 300, True),
        (torch.float32, 300, False),
    ):
        q = torch.randn(2, 4, tokens, 16).to(dtype).requires_grad_()
        k, v = (torch.randn(2, 2, tokens, 16).to(dtype) for _ in range(2))
        with torch.no_grad():
            wanted = _dense(q, k, v, encoding, scale, causal)
        for path in ("auto", "fused", "factored", "blockwise"):
            try:
                found = ropewalk.attend(q, k, v, encoding, scale=scale, causal=causal, path=path)
            except ValueError as refused:
                assert "cannot do this call" in str(refused)  # noqa: PT017
                continue
            close = {torch.float32: 1e-5, torch.float64: 1e-6}.get(dtype, 3e-2)
            assert (found.double() - wanted).abs().max() < close, (path, dtype, tokens)
            (slope,) = torch.autograd.grad(found.double().square().sum(), q)
            assert slope.isfinite().all(), (path, dtype, tokens)


def test_a_negative_scale_has_the_gradient_of_negated_queries():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 7, 8, dtype=torch.float64) for _ in range(3))
    rope = ropewalk.RoPE(8)

    def slopes(sign: float):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        y = ropewalk.attend(sign * leaves[0], leaves[1], leaves[2], rope, scale=0.3 * sign)
        return torch.autograd.grad(y.square().sum(), leaves)

    for one, other in zip(slopes(1.0), slopes(-1.0), strict=True):
        torch.testing.assert_close(one, other)


Q = torch.randn(2, 4, 6, 64)
META = torch.zeros(6, dtype=torch.int64, device="meta")


@pytest.mark.parametrize(
    ("encoding", "given", "told"),
    [
        (None, {"segments": META}, "segments are on meta"),
        (None, {"segments": torch.zeros(6, dtype=torch.complex64)}, "segments must be an integer"),
        ("alibi", {"kv_positions": META}, "kv_positions are on meta"),
        ("alibi", {"q_positions": META}, "q_positions are on meta"),
        (None, {"k": Q.to("meta")}, "one device"),
        ("rope", {"k_encoded": "yes"}, "k_encoded='yes' must be True or False"),
        (None, {"k_encoded": None}, "k_encoded=None must be True or False"),
        (
            None,
            dict.fromkeys("qkv", Q.to(torch.float8_e4m3fn)),
            "attention needs a floating dtype, one of float32",
        ),
        ("cope", dict.fromkeys("qkv", Q[..., :0]), "head_dim must be at least 1"),
        ("shaw", {"v": Q[..., :1]}, "value_dim=1"),
        ("shaw", {"v": Q[..., :63]}, "value_dim=63"),
    ],
)
def test_attend_names_what_does_not_fit(encoding, given, told):
    made = encoding and ropewalk.make(
        encoding, **({"heads": 4} if encoding == "alibi" else {"head_dim": 64})
    )
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        ropewalk.attend(**{"q": Q, "k": Q, "v": Q, "encoding": made, **given})


@pytest.mark.parametrize("name", ["fox", "path", "selective_rope"])
@pytest.mark.parametrize("lead", [(3,), (2, 1)])
def test_content_of_another_batch_is_refused(name, lead):
    encoding = (
        ropewalk.make(name, content_dim=32, heads=4, head_dim=64)
        if name != "fox"
        else (ropewalk.make(name, content_dim=32, heads=4))
    )
    assert isinstance(encoding, Contextual)
    read = encoding.read(torch.randn(*lead, 6, 32))
    for rows in (1, 2):
        with pytest.raises(ValueError, match=r"leading dimensions|batch|shape|broadcast"):
            ropewalk.attend(Q[:rows], Q[:rows], Q[:rows], read)


class Wide(Contextual):
    """A bias with more rows than q has."""

    def bias(self, block):
        return torch.zeros(3, *block.content.shape[-3:])


def test_a_bias_cannot_widen_the_batch():
    with pytest.raises(ValueError, match="batch dimensions do not fit"):
        ropewalk.attend(Q[:1], Q[:1], Q[:1], Wide())


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: mask(causal="yes"), "causal='yes' must be True or False"),  # pyright: ignore
        (lambda: mask(offset=1.5), "offset=1.5 must be an int"),  # pyright: ignore
        (lambda: score_mod(None, offset="x"), "offset='x' must be an int"),  # pyright: ignore
        (lambda: score_mod("alibi"), "encoding must be an Encoding"),  # pyright: ignore
        (lambda: plan.Plan(3), "period=3 must be a list of Layers"),  # pyright: ignore
        (lambda: positions.multimodal(3, "qwen2_vl"), "spans=3 must be a list"),  # pyright: ignore
        (lambda: positions.multimodal_rows("x", "qwen2_vl"), "rows='x' must"),  # pyright: ignore
        (
            lambda: positions.multimodal_rows([[positions.Text(2)]], "qwen2_vl", [[1, 1]]),  # pyright: ignore
            "attention_mask must be a boolean or integer tensor",
        ),
        (
            lambda: positions.multimodal_rows(
                [[positions.Text(2)]], "qwen2_vl", torch.tensor([[2, 1]])
            ),
            "attention_mask has values other than 0 and 1",
        ),
        (lambda: positions.continued("x", 2), "start='x' must be an int"),  # pyright: ignore
        (lambda: positions.continued(torch.rand(2), 2), "start have dtype torch.float32"),
        (lambda: positions.kinds_of(torch.ones(3).long(), image="x"), "image='x'"),  # pyright: ignore
        (
            lambda: positions.spans_of(torch.zeros(1, 2).long(), "glm4v", attention_mask=True),  # pyright: ignore
            "attention_mask must be a boolean or integer tensor",
        ),
        (
            lambda: positions.spans_of(torch.zeros(1, 2).long(), "glm4v", image_grid_thw="x"),  # pyright: ignore
            "image_grid_thw='x' must be integers",
        ),
        (
            lambda: positions.spans_of(torch.zeros(1, 2).long(), "glm4v", second_per_grid_ts=["a"]),  # pyright: ignore
            "second_per_grid_ts=['a'] must be numbers",
        ),
        (lambda: positions.timestamped(None, [1]), "video must be a Video"),  # pyright: ignore
        (lambda: positions.Family("own", frames_apart=1), "frames_apart=1 must be"),  # pyright: ignore
        (lambda: positions.Family("own", unit=1e-320), "unit=1e-320 must be"),
        (lambda: positions.bilevel(torch.ones(2).bool(), cap=10**30), "must be at most"),
        (lambda: plan.chunks(8, 0), "size=0 must be at least 1"),
        (lambda: plan.chunks(8, 2.0), "size=2.0 must be an int"),  # pyright: ignore
        (lambda: plan.chunks(10**30, 2), "must be at most"),
        (lambda: plan.interleave(None, None, every=2**31), "every=2147483648 must be at most"),
        (lambda: positions.text(2**63), "must be at most"),
        (lambda: positions.fixed(torch.ones(1), True), "unit=True must be"),
        (lambda: positions.fixed(torch.ones(1), 10**400), "must be a finite number"),
        (
            lambda: positions.randomized(2, 4, generator=3),  # pyright: ignore
            "generator=3 must be",
        ),
    ],
)
def test_other_doors_name_the_argument(call, told):
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        call()


@pytest.mark.parametrize("scale", [plan.Llama4Scale(), plan.LogScale(1.0)])
def test_the_last_positions_have_a_logit_scale(scale):
    last = torch.tensor([-(2**63), -1, 0, 2**63 - 2, 2**63 - 1])
    found = scale.at(last)
    assert found.isfinite().all()
    assert found.tolist() == pytest.approx([scale.reference(p) for p in last.tolist()])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"family": "sideways"}, "family='sideways'; use one of additive"),
        ({"name": 3}, "name=3 of a spec"),
        ({"factory": None}, "factory=None"),
        ({"config": None}, "config=None"),
    ],
)
def test_a_spec_that_says_nonsense_is_refused(changes, told):
    given = {
        "name": "own",
        "family": "bias",
        "factory": Additive,
        "title": "",
        "equation": "",
        "source": "",
        "config": {},
        "claims": {},
    }
    with pytest.raises((TypeError, ValueError), match=re.escape(told)):
        catalog.Spec(**{**given, **changes})


OWN = """
import torch
from ropewalk import Bias
print("noise of one's own")
class Own(Bias):
    heads = 2
    def __init__(self, size=1):
        super().__init__()
        {init}
    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        return torch.zeros(2, q_positions.shape[-1], kv_positions.shape[-1], dtype=dtype)
    def reference(self, head, q_position, k_position):
        return 0.0
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("class Odd(BaseException): pass\nraise Odd('own')", "cannot be imported: Odd: own"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        (OWN.format(init="raise KeyError('lost')"), "cannot be made: KeyError: 'lost'"),
        (OWN.format(init="pass").replace("size=1", "size"), "needs size"),
    ],
)
@pytest.mark.parametrize("command", [("show",), ("check",), ("bench", "attend")])
def test_a_broken_file_is_told_in_a_line(tmp_path, capsys, command, text, told):
    path = tmp_path / "own.py"
    path.write_text(text)
    assert entry.main([*command, str(path) + ":Own"]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("noise")]
    assert out == ""
    assert len(lines) == 1
    assert told in lines[0]
    assert "make('Own', )" not in lines[0]


def test_what_a_file_prints_stays_out_of_the_answer(tmp_path, capsys):
    path = tmp_path / "loud.py"
    path.write_text(OWN.format(init="print('made')"))
    assert entry.main(["show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "Own"


def test_a_name_of_nothing_before_the_colon(capsys):
    assert entry.main(["show", ":X"]) == 2
    assert "no file or module before the colon" in capsys.readouterr().err


def test_an_argument_named_self_is_unknown():
    with pytest.raises(TypeError, match="no argument 'self'"), contextlib.nullcontext():
        catalog.get("rope").make(**{"head_dim": 64, "self": 1})
