"""Usage of pairs: norms, bands and p-RoPE against independent computations; the command."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from audit_faults import tiny

from ropewalk.cli.entry import main
from ropewalk.lab.trained.bands import FREE, ZEROED, Band, Banded, equal_bands, kept
from ropewalk.lab.trained.losses import token_losses
from ropewalk.lab.trained.norms import Attention, Norms
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.probing import require_causal
from ropewalk.lab.trained.rotations import Change, intercepting, rotations_of
from ropewalk.lab.trained.turning import Turning
from ropewalk.lab.trained.usage import usage
from ropewalk.lab.trained.usage_document import document
from ropewalk.lab.trained.usage_words import certainty
from ropewalk.report.usage import page

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = Band("all", 0.0, 1.0)

pytestmark = pytest.mark.filterwarnings("ignore")


def ids_of(count: int = 40, seed: int = 0) -> Tensor:
    return torch.randint(3, 128, (count,), generator=torch.Generator().manual_seed(seed))


def texts(*lengths: int, count: int = 3) -> dict[int, list[Passage]]:
    whole = [ids_of(max(lengths), seed) for seed in range(count)]
    return {n: [Passage(f"text {i}", ids[:n]) for i, ids in enumerate(whole)] for n in lengths}


def built(name: str) -> Any:
    """A tiny model of any architecture, by the name of its folder in transformers."""
    if name[0].isupper():
        return tiny(name)
    sys.path.insert(0, str(ROOT / "scripts"))
    models = __import__("tiny_models")
    units = [u for u in models.units(models.file_of(name)) if "ForCausalLM" in str(u)]
    model = models.build(units[0])
    models.energise(model)
    return model.eval()


def norms_of(model: Any, ids: Tensor) -> tuple[Attention, ...]:
    found = Norms()
    with intercepting(rotations_of(model), found):
        token_losses(model, ids)
    return found.attentions()


def losses_under(model: Any, ids: Tensor, band: Band, treatment: str) -> Tensor:
    chosen = band.chosen(norms_of(model, ids))
    with intercepting(rotations_of(model), Banded(chosen, treatment)):
        return token_losses(model, ids)


@contextmanager
def without_frequencies(model: Any) -> Iterator[None]:
    """Every inv_freq of the model is 0, so that its tables are those of position 0."""
    own = {n: b for n, b in model.named_buffers() if n.endswith("inv_freq")}
    kept_values = {n: b.clone() for n, b in own.items()}
    for buffer in own.values():
        buffer.zero_()
    yield
    for name, buffer in own.items():
        buffer.copy_(kept_values[name])


# ---- every architecture --------------------------------------------------------------------------

TABLED = (
    *("Llama", "Mistral", "Qwen3", "Gemma3", "Phi", "Phi3", "StableLm", "Cohere", "Cohere2"),
    *("Glm", "Olmo2", "SmolLM3", "GPTNeoX", "Exaone4", "HunYuanDenseV1", "Nemotron"),
    *("deepseek_v2", "deepseek_v3", "llama4", "nanochat", "falcon", "recurrent_gemma"),
)
"""Models that make their tables from an inv_freq in each call."""


@pytest.mark.parametrize("name", TABLED)
def test_position_free_everywhere_is_the_model_without_frequencies(name: str):
    model, ids = built(name), ids_of()
    untouched = token_losses(model, ids)
    with without_frequencies(model):
        wanted = token_losses(model, ids)
    with intercepting(rotations_of(model), Change()):
        assert torch.equal(token_losses(model, ids), untouched)
    found = losses_under(model, ids, EVERYTHING, FREE)
    assert (untouched - wanted).abs().max() > 1e-3, "a rotation left out would not show"
    assert (found - wanted).abs().max() < 2e-5
    assert torch.equal(token_losses(model, ids), untouched)


@pytest.mark.parametrize("name", ["gptj", "gemma3n", "longcat_flash"])
def test_other_ways_of_rotating_are_followed(name: str):
    model, ids = built(name), ids_of()
    wanted = token_losses(model, ids)
    with intercepting(rotations_of(model), Change()):
        assert torch.equal(token_losses(model, ids), wanted)
    assert (losses_under(model, ids, EVERYTHING, FREE) - wanted).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["Llama", "Gemma3", "gptj", "deepseek_v3"])
def test_q_and_k_are_told_apart(name: str):
    """Another query shows at its token alone, another key at later ones too."""

    class Scaled(Change):
        def __init__(self, role: str, scale: float) -> None:
            self.role, self.scale, self.seen = role, scale, 0

        def after(self, seen: Turning, rotated: Tensor) -> Tensor:
            if seen.role != self.role or seen.layer != 0:
                return rotated
            self.seen += 1
            changed = rotated.clone()
            changed[..., 7, :] *= self.scale
            return changed

    model, ids = built(name), ids_of(20)
    rotations = rotations_of(model)
    layer, outputs = rotations.layers[0], []

    def keep(_: Any, __: Any, output: Any) -> None:
        outputs.append((output[0] if isinstance(output, tuple) else output).reshape(20, -1))

    hook = layer.register_forward_hook(keep)
    for role, scale in (("q", 1.0), ("q", -30.0), ("k", -30.0)):
        change = Scaled(role, scale)
        with intercepting(rotations, change):
            token_losses(model, ids)
        assert change.seen == 1
    hook.remove()
    plain, query, key = outputs
    assert (plain - query).abs().amax(-1).nonzero().flatten().tolist() == [7]
    assert (plain - key).abs().amax(-1).nonzero().flatten().tolist()[-1] > 7


def test_gpt2_and_what_cannot_be_followed_is_refused():
    with pytest.raises(ValueError, match=r"no rotation of q and k runs.*'gpt2'.*ALiBi or absolute"):
        rotations_of(tiny("GPT2"))
    with pytest.raises(ValueError, match="nothing that tells a query from a key"):
        rotations_of(built("deepseek_v32"))


def test_a_module_whose_rotation_is_out_of_reach_is_named():
    model = tiny("Llama")
    attention = model.model.layers[1].self_attn
    own = type(attention)
    attention.forward = lambda *args, **given: own.forward(attention, *args, **given)
    with pytest.raises(ValueError, match=r"layers\.1\.self_attn.*its forward was replaced"):
        rotations_of(model)
    assert all(type(layer.self_attn) is own for layer in model.model.layers)


# ---- against weights and hooks of Llama ----------------------------------------------------------


def test_norms_are_those_of_the_projections():
    model, ids = tiny("Llama"), ids_of()
    seen: dict[tuple[int, str], Tensor] = {}

    def keep(key: tuple[int, str]) -> Callable[..., None]:
        return lambda _, __, out: seen.__setitem__(key, out[0].unflatten(-1, (-1, 16)))

    hooks = [
        projection.register_forward_hook(keep((i, role)))
        for i, layer in enumerate(model.model.layers)
        for role, projection in (("q", layer.self_attn.q_proj), ("k", layer.self_attn.k_proj))
    ]
    token_losses(model, ids)
    for hook in hooks:
        hook.remove()
    for attention in norms_of(model, ids):
        for role, found in (("q", attention.q), ("k", attention.k)):
            x = seen[attention.layer, role].double()
            wanted = (x[..., :8] ** 2 + x[..., 8:] ** 2).sqrt().mean(0)
            assert found is not None
            assert torch.allclose(found, wanted, rtol=1e-12)
        assert torch.allclose(
            torch.tensor(attention.frequencies).double(),
            model.model.rotary_emb.inv_freq.double(),
            rtol=2e-6,
        )
        product, (q, k) = attention.product, (attention.q, attention.k)
        assert product is not None
        assert k is not None
        assert torch.equal(
            product, torch.stack([q[0] * k[0], q[1] * k[0], q[2] * k[1], q[3] * k[1]])
        )
        assert attention.share is not None
        assert torch.allclose(attention.share.sum(-1), torch.ones(4).double())


def test_a_zeroed_band_is_that_of_weights_without_its_lanes():
    model, ids = tiny("Llama"), ids_of()
    untouched = token_losses(model, ids)
    found = losses_under(model, ids, Band("", 0.5, 0.75), ZEROED)
    for layer in model.model.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            projection.weight.data.view(-1, 16, 64)[:, [4, 5, 12, 13]] = 0
    wanted = token_losses(model, ids)
    assert (found - wanted).abs().max() < 1e-5
    assert (found - untouched).abs().max() > 1e-2


def test_the_attention_factor_stays():
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    yarn["original_max_position_embeddings"] = 32  # pyright: ignore[reportArgumentType]
    model, ids = tiny("Llama", rope_parameters=yarn), ids_of()
    assert model.model.rotary_emb.attention_scaling > 1.1
    with without_frequencies(model):
        wanted = token_losses(model, ids)
    assert (losses_under(model, ids, EVERYTHING, FREE) - wanted).abs().max() < 2e-5


def test_half_precision_is_measured_too():
    model, ids = tiny("Llama").bfloat16(), ids_of()
    wanted = token_losses(model, ids)
    found = Norms()
    with intercepting(rotations_of(model), found):
        assert torch.equal(token_losses(model, ids), wanted)
    frequencies = torch.tensor(found.attentions()[0].frequencies)
    assert torch.allclose(frequencies, model.model.rotary_emb.inv_freq.float(), rtol=0.02)


def test_the_model_is_as_it_was_whatever_happens():
    model, ids = tiny("Llama"), ids_of()

    def state() -> list[Any]:
        return [
            (type(m), sorted(m.__dict__), len(m._forward_hooks), len(m._forward_pre_hooks))
            for m in model.modules()
        ]

    before, wanted = state(), token_losses(model, ids)
    rotations = rotations_of(model)
    assert state() == before

    class Breaks(Change):
        def __init__(self, error: type[BaseException]) -> None:
            self.error = error

        def before(self, seen: Turning) -> Turning:
            if seen.layer == 1:
                raise self.error
            return seen

    for error in (KeyboardInterrupt, RuntimeError):
        with pytest.raises(error), intercepting(rotations, Breaks(error)):
            token_losses(model, ids)
        assert state() == before
        assert torch.equal(token_losses(model, ids), wanted)


def test_a_patched_model_stays_patched():
    from ropewalk.models import patch, unpatch

    model = tiny("Llama")
    patch(model)
    with intercepting(rotations_of(model), Change()):
        token_losses(model, ids_of())
    assert unpatch(model) == 2


# ---- bands ---------------------------------------------------------------------------------------


def test_bands_share_all_pairs_by_frequency():
    order = (3, 1, 0, 2, 4, 6, 5)
    for count in (1, 2, 3, 4, 7):
        parts = [band.of(order) for band in equal_bands(count)]
        assert sum(parts, ()) == order
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [b.name for b in equal_bands(4)] == [
        "fastest quarter",
        "2nd fastest quarter",
        "3rd fastest quarter",
        "slowest quarter",
    ]
    assert kept(0.75).of(range(32)) == tuple(range(24, 32))
    with pytest.raises(ValueError, match="treatment='gone'"):
        Banded({}, "gone")


def test_each_layer_has_bands_of_its_own_spectrum():
    """One layer of Gemma 3 sees locally and turns by another base."""
    layers = ["sliding_attention", "full_attention"]
    model = tiny("Gemma3", layer_types=layers)
    found = usage(model, texts(32, 48))
    assert [group.layers for group in found.groups] == [(0,), (1,)]
    for group in found.groups:
        shares = [share.mean for share in group.shares]
        assert math.isclose(sum(shares), 1)
    local, full = (group.frequencies[1] for group in found.groups)
    assert local > full
    assert "several spectra" in " ".join(document(found)["cautions"])


def test_layers_that_do_not_rotate_are_told():
    model = tiny("SmolLM3", no_rope_layers=[1, 0])
    found = usage(model, texts(32))
    assert found.unrotated == (1,)
    assert [a.layer for a in found.attentions] == [0]
    assert "Layers 1 do not rotate" in document(found)["reading"][0]
    assert "does not rotate" in page({"source": "x", **document(found)})


def test_p_rope_of_a_band_is_the_band():
    model = tiny("Llama")
    calls: list[tuple[int, int]] = []
    found = usage(model, texts(24, 40), bands=2, keep=(0.5, 0.25), told=lambda *c: calls.append(c))
    slowest = [e for e in found.bands if e.band.stop == 1 and e.treatment == FREE]
    half = [e for e in found.p_rope if e.band.start == 0.5]
    assert [e.after for e in slowest] == [e.after for e in half]
    assert [e.length for e in half] == [24, 40]
    assert calls[-1] == (2 * 3 * 2 * 6, 2 * 3 * 2 * 6), "layers × texts × lengths × distinct passes"


def test_effects_are_differences_of_losses():
    model, given = tiny("Llama"), texts(24, 40)
    found = usage(model, given)
    for effect in found.bands:
        own = given[effect.length]
        before = [token_losses(model, p.ids).mean().item() for p in own]
        after = [
            losses_under(model, p.ids, effect.band, effect.treatment).mean().item() for p in own
        ]
        assert list(effect.before.values) == before
        assert list(effect.after.values) == after
        assert list(effect.change.values) == [b - a for a, b in zip(before, after, strict=True)]


def test_one_text_has_no_spread():
    found = usage(tiny("Llama"), texts(32, count=1))
    assert {certainty(effect) for effect in found.bands} == {"one passage, so no spread"}
    assert "One passage" in document(found)["cautions"][0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bands": 9}, "bands=9 is more than the 8 pairs"),
        ({"bands": 0}, "bands=0"),
        ({"keep": (1.0,)}, "keep has 1.0"),
    ],
)
def test_arguments_that_do_not_fit(given: dict[str, Any], words: str):
    with pytest.raises(ValueError, match=words):
        usage(tiny("Llama"), texts(32), **given)


def test_texts_must_fit():
    given = texts(24, 40)
    for wrong in ({}, {24: given[24], 40: given[40][:2]}, {24: given[40]}, texts(8)):
        with pytest.raises(ValueError, match="passages"):
            usage(tiny("Llama"), wrong)


def test_an_encoder_and_a_model_in_training_are_refused():
    with pytest.raises(ValueError, match="training mode"):
        require_causal(tiny("Llama").train())
    with pytest.raises(TypeError, match="see later ones, as an encoder"):
        require_causal(encoder())


def encoder() -> Any:
    import transformers

    config = transformers.ModernBertConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return transformers.ModernBertForMaskedLM(config).eval()


# ---- the command ---------------------------------------------------------------------------------


def with_tokenizer(model: Any, folder: Path) -> Path:
    tokenizers: Any = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    model.save_pretrained(folder)
    letters = {chr(97 + i): 3 + i for i in range(26)}
    words = tokenizers.models.WordLevel({"<unk>": 0, **letters}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_tokenizer(tiny("Llama"), tmp_path_factory.mktemp("llama"))


def test_the_command_says_all_in_json(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["usage", str(folder), "--lengths", "48,32", "--bands", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert found["lengths"] == [32, 48]
    assert len(found["texts"]) == 3
    assert [len(a["q"]) for a in found["attentions"]] == [4, 4]
    assert [[len(row) for row in a["k"]] for a in found["attentions"]] == [[8, 8]] * 2
    assert len(found["bands"]) == 2 * 2 * 2
    assert [row["p"] for row in found["p_rope"]] == [0.75, 0.5, 0.25] * 2
    for row in found["bands"] + found["p_rope"]:
        assert len(row["change"]["values"]) == 3
        assert math.isclose(
            row["change"]["mean"], row["after"]["mean"] - row["before"]["mean"], abs_tol=1e-12
        )
    words = " ".join(found["reading"])
    for part in ("slowest half", "Norm is not use", "2410.06205", "2606.21249", "spread"):
        assert part in words


def test_the_command_draws_tables_and_a_page(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("COLUMNS", "160")
    text = tmp_path / "a <b>.txt"
    text.write_text("the cat sat on the mat and thought about rotation " * 9, encoding="utf-8")
    target = tmp_path / "usage.html"
    given = ["usage", str(folder), "--lengths", "32", "--text", str(text), "--html", str(target)]
    assert main(given) == 0
    out, _ = capsys.readouterr()
    for words in ("slowest quarter", "p = 0.25", "no spread", "Barbero", "Bayram", "wavelengths"):
        assert words in out
    html = target.read_text(encoding="utf-8")
    assert html.count('class="cell"') == 3 * 2 * 8
    assert html.count('class="chart"') == 3 + 2
    assert "<script" not in html
    assert "a <b>" not in html
    assert "a &lt;b&gt;" in html


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--lengths", "512,x"], "no list of whole numbers"),
        (["--lengths", ""], "no list of whole numbers"),
        (["--lengths", "64,32,64"], "64 twice"),
        (["--lengths", "4"], "too short"),
        (["--lengths", "9999999"], "tokens, 9,999,999 are needed"),
        (["--lengths", "32", "--texts", "99"], "count=99"),
        (["--lengths", "32", "--text", "missing.txt"], "missing.txt: No such file"),
        (["--lengths", "32", "--bands", "0"], "--bands 0"),
        (["--lengths", "32", "--bands", "99"], "bands=99 is more than the 8 pairs"),
        (["--lengths", "32", "--html", "no/such/folder/x.html"], "does not exist"),
    ],
)
def test_unusable_input_is_one_line(
    folder: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["usage", str(folder), *given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_models_that_cannot_be_measured_are_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    bare = tmp_path / "bare"
    tiny("Llama").save_pretrained(bare)
    absolute = with_tokenizer(tiny("GPT2"), tmp_path / "gpt2")
    masked = with_tokenizer(encoder(), tmp_path / "encoder")
    for given, words in (
        ([str(tmp_path / "nothing")], "no such file or folder"),
        ([str(bare)], "no usable tokenizer"),
        ([str(absolute)], "no rotation of q and k runs"),
        ([str(masked)], "as an encoder does"),
        ([str(folder), "--text", str(binary)], "not UTF-8"),
        ([str(folder), "--dtype", "int3"], "int3"),
    ):
        capsys.readouterr()
        assert main(["usage", *given, "--lengths", "32"]) == 2, words
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert words in err
