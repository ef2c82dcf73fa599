"""extend --measure: the loss by place under other frequencies, and what is said of it."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from reading_models import made, save

from ropewalk import records
from ropewalk.cli.entry import main
from ropewalk.configs import resolve
from ropewalk.configs.extend import extend
from ropewalk.lab.trained import losses
from ropewalk.lab.trained.lengths import Curve, Lengthened, lengthened, plans
from ropewalk.lab.trained.losses import counting, layers_of, token_losses
from ropewalk.lab.trained.passages import Passage, passages
from ropewalk.lab.trained.spread import beyond, spread
from ropewalk.lab.trained.variants import variant
from ropewalk.models.loading import load, load_tokenizer
from ropewalk.report.lengthened import page
from ropewalk.report.lengthened_words import verdicts

pytestmark = pytest.mark.filterwarnings("ignore:.*past_key_values.*:FutureWarning")

DEEPSEEK = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}
KINDS: dict[str, dict[str, Any]] = {
    "LlamaConfig": {},
    "Gemma2Config": {"head_dim": 16},  # caps its logits
    "Gemma3TextConfig": {
        "head_dim": 16,
        "layer_types": [*["sliding_attention"] * 2, "full_attention"],
    },
    "CohereConfig": {},  # scales its logits, interleaved
    "GraniteConfig": {"logits_scaling": 3.0},
    "GPTNeoXConfig": {},  # partial, another head
    "PhiConfig": {},  # a head with a bias
    "DeepseekV3Config": DEEPSEEK,
    "GPT2Config": {"n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 64},
    "BloomConfig": {"n_head": 4, "n_layer": 3},
}


def drawn(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 98, (length,), generator=torch.Generator().manual_seed(seed))


def literal(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """−ln p from the whole logits, in float64."""
    with torch.no_grad():
        logits = model(ids[None]).logits[0].double()
    chances = logits.log_softmax(-1)
    return torch.stack([-chances[i, ids[i + 1]] for i in range(len(ids) - 1)])


# --- losses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("chunk", [7, 512])
def test_losses_are_those_of_the_whole_logits(name: str, chunk: int, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK", chunk)
    model, ids = made(name, **KINDS[name]), drawn(40)
    body = getattr(model, model.base_model_prefix)
    torch.testing.assert_close(token_losses(model, ids), literal(model, ids), rtol=1e-5, atol=1e-5)
    assert getattr(model, model.base_model_prefix) is body


def test_logits_exist_for_a_chunk_at_a_time(monkeypatch):
    monkeypatch.setattr(losses, "CHUNK", 16)
    model, seen = made(), []
    model.lm_head.register_forward_hook(lambda module, args, out: seen.append(out.shape[1]))
    token_losses(model, drawn(50))
    assert seen == [16, 16, 16, 1]


def test_a_failure_leaves_the_model_whole(monkeypatch):
    model = made()
    body, hooks = model.model, len(model.model.layers[0]._forward_hooks)
    monkeypatch.setattr(model.lm_head, "forward", lambda x: 1 / 0)
    with pytest.raises(ZeroDivisionError), counting(model, 1, lambda done, of: None):
        token_losses(model, drawn(9))
    assert model.model is body
    assert len(model.model.layers[0]._forward_hooks) == hooks


def test_layers_are_counted():
    model, told = made(), []
    with counting(model, 2, lambda done, of: told.append((done, of))):
        token_losses(model, drawn(9))
        token_losses(model, drawn(9))
    assert told == [(i, 6) for i in range(1, 7)]


def test_losses_refuse_what_has_none():
    import transformers

    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=101
    )
    with pytest.raises(TypeError, match="BertModel is no causal language model"):
        token_losses(transformers.BertModel(config), drawn(9))
    with pytest.raises(ValueError, match="at least 2 tokens"):
        token_losses(made(), drawn(1))


FALCON_H1 = {
    "head_dim": 16,
    "mamba_d_ssm": 64,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}
BAMBA = {
    "attn_layer_indices": [1],
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_chunk_size": 16,
}


def test_a_head_may_ask_the_body_for_its_numbers():
    model, ids = made("FalconH1Config", **FALCON_H1, lm_head_multiplier=0.5), drawn(40)
    torch.testing.assert_close(token_losses(model, ids), literal(model, ids), rtol=1e-5, atol=1e-5)


def test_layers_are_found_where_the_first_has_no_attention():
    assert len(layers_of(made("BambaConfig", **BAMBA))) == 3
    kinds = {"lru_width": 64, "block_types": ["recurrent", "recurrent", "attention"]}
    assert len(layers_of(made("RecurrentGemmaConfig", **kinds, head_dim=16))) == 3


def test_losses_refuse_tokens_of_another_vocabulary():
    for token in (101, -1):
        with pytest.raises(ValueError, match=f"ids has token {token}, .* tokens 0 to 100"):
            token_losses(made(), torch.tensor([3, token, 4]))


def test_losses_that_are_not_finite_are_refused():
    model = made()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="not finite"):
        token_losses(model, drawn(9))


# --- passages and their spread --------------------------------------------------------------------


def test_passages_begin_a_quarter_in_and_after_the_token_that_is_expected(tmp_path: Path):
    text = "".join(chr(33 + i % 90) for i in range(400))
    file = tmp_path / "text.txt"
    file.write_text(text)
    plain, with_bos = (
        load_tokenizer(str(save(tmp_path / str(bos), bos=bos))) for bos in (False, True)
    )
    (found,) = passages(plain, 50, files=[file])
    assert plain.decode(found.ids).replace(" ", "") == text[100:150]
    (found,) = passages(with_bos, 50, files=[file])
    assert found.ids[0] == 1
    assert len(found.ids) == 50
    assert with_bos.decode(found.ids[1:]).replace(" ", "") == text[100:149]
    (found,) = passages(plain, 399, files=[file])  # a quarter in there is too little left
    assert plain.decode(found.ids).replace(" ", "") == text[1:]
    with pytest.raises(ValueError, match="has 400 tokens, 401 are needed"):
        passages(plain, 401, files=[file])
    with pytest.raises(ValueError, match="count=5 must be from 1 to 4"):
        passages(plain, 10, count=5)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        passages(plain, 10, files=[file])


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_beyond_the_spread_is_a_students_interval_without_0(values: list[float]):
    scipy_stats = pytest.importorskip("scipy.stats")
    found = spread(values)
    assert math.isclose(found.mean, sum(values) / len(values), abs_tol=1e-12)
    assert beyond(values) == beyond([-v for v in values])
    if len(values) < 2:
        assert not beyond(values)
        return
    bar = scipy_stats.t.ppf(0.975, min(len(values) - 1, 20)) * found.sd / len(values) ** 0.5
    if abs(abs(found.mean) - bar) > 1e-3 * bar:
        assert beyond(values) == (abs(found.mean) > bar)


def test_chance_is_seldom_called_beyond_the_spread():
    drawn_by_three = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).tolist()
    assert 0.035 < sum(map(beyond, drawn_by_three)) / 4000 < 0.065


# --- variants -------------------------------------------------------------------------------------

TURNING = [name for name in KINDS if name not in ("GPT2Config", "BloomConfig", "GPTNeoXConfig")]


@pytest.mark.parametrize("name", TURNING)
@pytest.mark.parametrize("method", ["yarn", "linear", "ntk", "dynamic"])
def test_a_variant_is_what_the_written_config_runs(name: str, method: str, tmp_path: Path):
    model = made(name, **KINDS[name])
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    written = json.loads(path.read_text())
    plan = extend(resolve(written), 128, method)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    found = variant(model, plan)
    path.write_text(json.dumps({**written, **plan.changed()}))
    loaded = load(str(tmp_path)).eval()
    ids = drawn(100)
    assert torch.equal(token_losses(found, ids), token_losses(loaded, ids))
    assert not torch.equal(token_losses(found, ids), token_losses(model, ids))
    shared = dict(found.named_parameters())
    assert all(p.data_ptr() == shared[k].data_ptr() for k, p in model.named_parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_variant_that_changes_nothing_is_the_model():
    model = made()
    plan = extend(resolve(model.config.to_dict()), 128, "yarn", factor=1.0)
    ids = drawn(100)
    assert torch.equal(token_losses(variant(model, plan), ids), token_losses(model, ids))


def test_a_model_that_ignores_its_config_is_refused(monkeypatch):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    original = LlamaRotaryEmbedding.__init__

    def ignoring(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        original(self, config, *args, **kwargs)
        self.inv_freq = 10000.0 ** (-torch.arange(0, 16, 2) / 16)

    model = made()
    plan = extend(resolve(model.config.to_dict()), 128)
    variant(model, plan)
    monkeypatch.setattr(LlamaRotaryEmbedding, "__init__", ignoring)
    with pytest.raises(ValueError, match="does not turn by the frequencies of yarn ×2"):
        variant(model, plan)


def test_a_model_without_a_config_to_change_is_refused():
    model = made("GPTJConfig", n_embd=64, n_head=4, n_layer=2, rotary_dim=8, n_positions=64)
    plan = extend(resolve({**model.config.to_dict(), "max_position_embeddings": 64}), 128)
    with pytest.raises(ValueError, match="GPTJForCausalLM"):
        variant(model, plan)


# --- measured -------------------------------------------------------------------------------------


def measured(*methods: str, texts: int = 2, to: int = 128) -> tuple[Any, list[Passage], Lengthened]:
    model = made()
    read = [Passage(f"text {i}", drawn(to, i)) for i in range(texts)]
    wanted = plans(resolve(model.config.to_dict()), to, methods, None)
    return model, read, lengthened(model, wanted, read, bucket=48)


def test_buckets_are_means_of_the_losses_in_them():
    model, read, found = measured("linear", "yarn:4")
    assert found.edges == ((0, 48), (48, 96), (96, 128))
    assert [c.name for c in found.curves] == ["untouched", "linear ×2", "yarn ×4"]
    models = [model, *(variant(model, c.plan) for c in found.curves[1:] if c.plan)]
    for each, curve in zip(models, found.curves, strict=True):
        for t, text in enumerate(read):
            by_place = [math.nan, *literal(each, text.ids).tolist()]
            for b, (start, stop) in enumerate(found.edges):
                mean = statistics.fmean(by_place[max(start, 1) : stop])
                assert curve.buckets[b][t] == pytest.approx(mean, rel=1e-5)


def test_what_is_read_alone_shows_how_hard_it_is():
    model, read, found = measured("linear")
    for t, text in enumerate(read):
        for b, (start, stop) in enumerate(found.edges):
            mean = literal(model, text.ids[start:stop]).mean().item()
            assert found.alone[b][t] == pytest.approx(mean, rel=1e-5)
    assert found.alone[0] == found.curves[0].buckets[0]
    assert found.excess(found.curves[0], 0).values == (0.0, 0.0)
    # The token that is expected before a text stands before each bucket too.
    begun = [Passage("text", torch.cat((torch.ones(1, dtype=torch.int64), drawn(127))), 1)]
    wanted = plans(resolve(model.config.to_dict()), 128, ("ntk",), None)
    found = lengthened(model, wanted, begun, bucket=64)
    window = torch.cat((begun[0].ids[:1], begun[0].ids[64:]))
    assert found.alone[1][0] == pytest.approx(literal(model, window)[1:].mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("to", "bucket", "edges"),
    [
        (128, 48, [0, 48, 96, 128]),
        (110, 48, [0, 48, 110]),  # 14 tokens are no bucket
        (120, 48, [0, 48, 96, 120]),
        (30, 48, [0, 30]),
        (96, 48, [0, 48, 96]),
    ],
)
def test_what_is_left_of_a_text_is_not_a_bucket_if_it_is_short(to, bucket, edges):
    from ropewalk.lab.trained.lengths import _edges

    assert _edges(to, bucket) == tuple(itertools.pairwise(edges))


def test_where_frequencies_follow_the_length_short_text_is_read_as_such():
    model = made()
    read = [Passage("text", drawn(128))]
    wanted = plans(resolve(model.config.to_dict()), 128, ("dynamic", "ntk:3"), None)
    found = lengthened(model, wanted, read, bucket=32)
    untouched, dynamic, ntk = found.curves
    assert dynamic.buckets[:2] == untouched.buckets[:2]
    assert dynamic.buckets[2:] != untouched.buckets[2:]
    # Twice the native length with a factor of 2: the theta of NTK by 2 · 2 − (2 − 1) = 3.
    for a, b in zip(dynamic.buckets[2:], ntk.buckets[2:], strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert ntk.buckets[:2] != untouched.buckets[:2]


@pytest.mark.parametrize("native", [1, 2, 3, 7])
@pytest.mark.parametrize("to", [8, 9, 17])
def test_buckets_of_a_short_context_hold_losses(native: int, to: int):
    model = made()
    wanted = plans(resolve(model.config.to_dict()), to, ("ntk",), native)
    found = lengthened(model, wanted, [Passage("text", drawn(to))])
    assert all(math.isfinite(v) for curve in found.curves for row in curve.buckets for v in row)
    assert all(math.isfinite(v) for row in found.alone for v in row)
    for bucket in (0, -1, 3):
        with pytest.raises(ValueError, match=f"bucket={bucket} must be 4 tokens or more"):
            lengthened(model, wanted, [Passage("text", drawn(to))], bucket=bucket)


def test_an_encoder_is_not_measured():
    import transformers

    torch.manual_seed(0)
    config = transformers.ModernBertConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        vocab_size=101,
        intermediate_size=32,
        pad_token_id=0,
        max_position_embeddings=64,
    )
    model = transformers.ModernBertForMaskedLM(config).train()
    wanted = plans(resolve(model.config.to_dict()), 128, ("ntk",), None)
    with pytest.raises(TypeError, match="lets a token see later ones"):
        lengthened(model, wanted, [Passage("text", drawn(128))])
    assert model.training


def test_the_model_is_left_as_it_was():
    """A module that follows the length keeps the frequencies of the longest text it read."""
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    model = made(rope_parameters=dynamic).train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    wanted = plans(resolve(model.config.to_dict()), 256, ("ntk",), 64)
    lengthened(model, wanted, [Passage("text", drawn(256))])
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert all(module.training for module in model.modules())


def told(values: dict[str, list[list[float]]], native: int = 2) -> Lengthened:
    """What would be said of losses; one bucket a place, native to the second, all equally hard."""
    plan = extend(resolve(made().config.to_dict()), 128)
    curves = [
        Curve(name, None if name == "untouched" else plan, tuple(map(tuple, rows)))
        for name, rows in values.items()
    ]
    count = len(curves[0].buckets)
    texts = tuple(f"t{i}" for i in range(len(curves[0].buckets[0])))
    edges = tuple((i, i + 1) for i in range(count))
    alone = ((1.0,) * len(texts),) * count
    return Lengthened(native, count, texts, tuple(curves), edges, alone)


def test_who_wins_and_what_is_written():
    found = told(
        {
            "untouched": [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [5.0, 6.0, 7.1]],
            "good": [[1.2, 2.2, 3.21], [1.2, 2.2, 3.21], [1.1, 2.0, 3.0]],
            "like it": [[1.1, 2.1, 3.11], [1.1, 2.1, 3.11], [1.0, 2.2, 3.1]],
            "worse": [[3.0, 4.0, 5.1], [3.0, 4.1, 5.0], [3.0, 4.1, 5.0]],
        }
    )
    first, _, last = found.buckets()
    assert (first.best, first.tied) == ("untouched", ())
    assert (last.best, last.tied) == ("good", ("like it",))
    # Not apart beyond the native length, so the one that costs short text less.
    assert found.chosen().name == "like it"
    said = verdicts(found)
    assert said[0].startswith(
        "untouched: less the loss alone, the last bucket (from 2) is 4.033 ± 0.058 nats above"
    )
    assert said[1].startswith(
        "good: short text (0–1) costs 0.203 ± 0.006 nats; less the loss alone, the last bucket "
        "(from 2) is 0.170"
    )
    assert "0–2: untouched is best" in said
    assert "2–3: good is best; like it not apart from it" in said


def test_a_rise_is_told_against_the_first_bucket_of_the_method():
    """A method that costs everywhere alike stays level, though it is above the tokens alone."""
    found = told({"untouched": [[1.0, 1.0]] * 3, "even": [[1.5, 1.6]] + [[1.4, 1.5]] * 2})
    assert verdicts(found)[1].endswith("(from 2) is 0.100 ± 0.000 nats below the first")


def test_one_text_has_no_spread_to_be_within():
    found = told({"untouched": [[1.0]] * 3, "worse": [[1.5], [1.6], [1.7]]})
    said = verdicts(found)
    assert not any("within" in line for line in said)
    assert said[-1].startswith("one text has no spread")


def test_nothing_is_written_where_the_untouched_model_is_best():
    found = told({"untouched": [[1.0, 2.0]] * 3, "worse": [[1.5, 2.5]] * 3})
    assert found.chosen().plan is None
    assert found.as_dict()["config"] is None


def test_one_text_tells_nothing_apart():
    found = told({"untouched": [[1.0]] * 3, "worse": [[9.0]] * 3})
    assert found.buckets()[0].tied == ("worse",)
    assert "one text has no spread" in verdicts(found)[-1]


def test_the_page_asks_for_nothing_and_obeys_no_name():
    _, _, found = measured("yarn", "linear")
    text = page(found, "<script>alert(1)</script>")
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    inside = re.search(r'href="data:application/json;base64,([^"]+)"', text)
    assert inside
    import base64

    whole = {"source": "<script>alert(1)</script>", **found.as_dict()}
    assert json.loads(base64.b64decode(inside[1])) == json.loads(json.dumps(whole))


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        (("magic",), "method='magic' is unknown"),
        (("yarn:x",), "write a name, or a name and a factor"),
        *(
            ((f"yarn:{f}",), "must be from 1")
            for f in ("0.5", "1", "0", "-4", "nan", "inf", "1e400")
        ),
        (("yarn:1048577",), "must be from 1 to 1048576"),
        (("yarn:",), "write a name, or a name and a factor"),
        (("ntk", ""), "methods has an empty name"),
        (("ntk", "magic"), "method='magic' is unknown"),
        (("longrope", "longrope"), "names longrope twice"),
        (("yarn", "yarn:2"), "names yarn ×2 twice"),
        ((), "methods is empty"),
        (("longrope",), "longrope needs"),
    ],
)
def test_methods_that_cannot_be(methods: tuple[str, ...], words: str):
    resolved = resolve(made().config.to_dict())
    with pytest.raises(ValueError, match=re.escape(words)):
        plans(resolved, 128, methods, None)
    with pytest.raises(ValueError, match="nothing to lengthen"):
        plans(resolved, 64, ("yarn",), None)


# --- the command ----------------------------------------------------------------------------------


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    """``--text FILE`` twice."""
    found: list[object] = []
    for name in "ab":
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(chr(int(i)) for i in drawn(400, ord(name)) + 28))
        found += ["--text", path]
    return found


def test_the_command_measures_and_writes_what_it_chose(capsys, tmp_path: Path, files):
    folder = save(tmp_path / "model")
    html, new = tmp_path / "figure.html", tmp_path / "new.json"
    more = ["--html", html, "--write", new, "--methods", "linear,yarn:4", "--json"]
    status, out, err = run(capsys, "extend", folder, "--to", 128, "--measure", *files, *more)
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert [m["name"] for m in document["methods"]] == ["untouched", "linear ×2", "yarn ×4"]
    assert len(document["texts"]) == 2
    assert "<svg" in html.read_text()
    if document["chosen"] == "untouched":
        assert not new.exists() or not new.read_text()
    else:
        method = next(m for m in document["methods"] if m["name"] == document["chosen"])
        block = json.loads(new.read_text())["rope_parameters"]
        assert (block["rope_type"], block["factor"]) == (method["method"], method["factor"])
    status, out, _ = run(capsys, "extend", folder, "--to", 128, "--measure", *files)
    assert status == 0
    assert "untouched" in out
    assert "0–16" in out
    assert "alone" in out


def test_the_command_writes_without_measuring(capsys, tmp_path: Path):
    folder = save(tmp_path / "model")
    new = tmp_path / "new.json"
    status, _, _ = run(capsys, "extend", folder, "--to", 128, "--method", "linear", "--write", new)
    assert status == 0
    written = json.loads(new.read_text())
    assert written["rope_parameters"]["rope_type"] == "linear"
    assert written["hidden_size"] == 64
    assert resolve(written).text().context.scaled == 128


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["MODEL", "--to", "64", "--measure"], "nothing to lengthen"),
        (["MODEL", "--to", "128", "--measure", "--texts", "9"], "from 1 to 4"),
        (["MODEL", "--to", "128", "--measure", "--texts", "0"], "from 1 to 4"),
        (["MODEL", "--to", "128", "--measure", "--text", "none.txt"], "none.txt"),
        (["MODEL", "--to", "99999999", "--measure"], "tokens"),
        (["MODEL", "--to", "128", "--texts", "2"], "add --measure"),
        (["MODEL", "--to", "128", "--write", "model.safetensors"], "must end in .json"),
        (["MODEL", "--to", "128", "--methods", "yarn"], "add --measure"),
        (["MODEL", "--to", "128", "--methods", ""], "add --measure"),
        (["MODEL", "--to", "128", "--texts", "0"], "add --measure"),
        (["MODEL", "--to", "128", "--measure", "--methods", "ntk", "--method", "ntk"], "give one"),
        (
            ["MODEL", "--to", "128", "--measure", "--html", "no/such/folder/x.html"],
            "does not exist",
        ),
        (["MODEL", "--to", "128", "--html", "x.none", "--write", "./x.none"], "a file of its own"),
        (["nowhere", "--to", "128", "--measure"], "nowhere"),
        (["BROKEN", "--to", "128", "--measure"], "tokenizer"),
    ],
)
def test_the_command_refuses_in_one_line(capsys, tmp_path: Path, arguments, words):
    folder, broken = save(tmp_path / "model"), tmp_path / "broken"
    made().save_pretrained(broken)
    places = {"MODEL": folder, "BROKEN": broken}
    status, out, err = run(capsys, "extend", *(places.get(a, a) for a in arguments))
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("command", ["extend", "usage", "precision", "audit"])
def test_the_command_passes_no_word_of_other_libraries_on(tmp_path: Path, files, command: str):
    """Each in a process of its own: transformers says once that it falls back to its own code."""
    kinds = {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    }
    folder = save(tmp_path / "model", made("Qwen3NextConfig", **kinds))
    more = {
        "extend": ["--to", 128, "--measure", "--methods", "ntk", *files],
        "usage": ["--lengths", 32, "--bands", 1, *files],
        "precision": ["--length", 32, "--formats", "int8", *files],
        "audit": ["--quick"],
    }[command]
    line = [sys.executable, "-m", "ropewalk", command, str(folder), *map(str, more), "--json"]
    found = subprocess.run(line, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1)
    assert found.stderr == ""
    assert json.loads(found.stdout)


# --- the record -----------------------------------------------------------------------------------


def test_smollm2_to_16384():
    """The bars of YaRN and of the untouched model are set on losses of which the text's own
    difficulty is taken off: the plays grow harder towards their middle, by .2 nats."""
    record = records.load("extend_smollm2")
    assert record is not None
    methods = {m["name"]: m for m in record["methods"]}
    assert record["to"] == 16384
    mean = statistics.fmean
    short = {name: m["buckets"][0]["loss"]["mean"] for name, m in methods.items()}
    far = {
        name: mean(b["excess"]["mean"] for b in m["buckets"] if b["from"] >= 12288)
        - m["buckets"][0]["excess"]["mean"]
        for name, m in methods.items()
    }
    assert far["untouched"] > 1.0
    assert abs(far["yarn ×4"]) < 0.15
    assert short["linear ×4"] - short["untouched"] > 1.0
    assert (Path(__file__).parent.parent / record["script"]).is_file()
    for m in methods.values():
        for b, whole in zip(m["buckets"], record["buckets"], strict=True):
            pairs = zip(b["loss"]["values"], whole["alone"]["values"], strict=True)
            assert b["excess"]["values"] == pytest.approx([x - y for x, y in pairs], abs=1e-9)
