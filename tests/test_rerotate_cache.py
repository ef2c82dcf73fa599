"""Caches of transformers moved in place: against caches filled anew, and what is refused."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import DynamicCache, StaticCache, cache_utils

from ropewalk import Spectrum, spectra
from ropewalk.models import rerotate_cache, shift_cache
from ropewalk.positions import left_padded

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 64,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
IDS = torch.randint(1, 64, (2, 20), generator=torch.Generator().manual_seed(2))
NEXT = torch.tensor([[7], [9]])
CLOSE = 3e-6
"""Differences of float32 logits that rounding explains; a key at a wrong place moves them by .1."""


def model_of(name: str = "Llama", seed: int = 0, **changed: Any) -> Any:
    """A tiny random model with attention far from uniform."""
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **changed})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, parameter.shape[-1] ** -0.5, generator=generator)
    return model


def dynamic(model: Any) -> Any:
    return DynamicCache(config=model.config)


def static(model: Any) -> Any:
    return StaticCache(config=model.config, max_cache_len=40)


KINDS = pytest.mark.parametrize("kind", [dynamic, static])


@torch.no_grad()
def fill(model: Any, cache: Any, ids: Tensor, **more: Any) -> Any:
    model(ids, cache=cache, **more)
    return cache


@torch.no_grad()
def following(model: Any, cache: Any, tokens: Tensor = NEXT, **more: Any) -> Tensor:
    return model(tokens, cache=cache, **more).logits


def without(ids: Tensor, drop: int, keep: int = 0) -> Tensor:
    return torch.cat([ids[:, :keep], ids[:, keep + drop :]], dim=1)


def largest(a: Tensor, b: Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


# ---- context shift -------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("keep", [0, 3])
@pytest.mark.parametrize("source", ["config", "model", "spectrum"])
def test_dropping_tokens_of_one_layer_is_a_fresh_prefill(kind, keep, source):
    model = model_of()
    by = {"config": model.config, "model": model, "spectrum": spectra.geometric(16)}[source]
    cache = fill(model, kind(model), IDS)
    result = shift_cache(cache, by, drop=5, keep=keep)
    assert (result.turned, result.left) == ([0], {})
    fresh = fill(model, kind(model), without(IDS, 5, keep))
    assert int(cache.get_seq_length()) == int(fresh.get_seq_length()) == 15
    for name in ("keys", "values"):
        torch.testing.assert_close(
            getattr(cache.layers[0], name), getattr(fresh.layers[0], name), rtol=0, atol=CLOSE
        )
    for _ in range(3):
        assert largest(following(model, cache), following(model, fresh)) < CLOSE


def test_without_the_turn_the_next_token_would_be_another():
    """What the tests above would show if keys stayed where they were, and only counts moved."""
    model = model_of()
    cache = fill(model, dynamic(model), IDS)
    shift_cache(cache, [None], drop=5)
    fresh = fill(model, dynamic(model), without(IDS, 5))
    assert largest(following(model, cache), following(model, fresh)) > 1e-2


def test_deeper_layers_remember_what_was_dropped():
    model = model_of(num_hidden_layers=2)
    cache = fill(model, dynamic(model), IDS)
    shift_cache(cache, model, drop=5)
    fresh = fill(model, dynamic(model), without(IDS, 5))
    apart = [largest(a.keys, b.keys) for a, b in zip(cache.layers, fresh.layers, strict=True)]
    assert apart[0] < CLOSE
    assert apart[1] > 1e-2


def test_all_layers_are_right_where_nothing_is_dropped():
    """The same text at other positions: no key differs but in its rotation, at any depth."""
    model = model_of(num_hidden_layers=3)
    p = torch.arange(20)
    cache = fill(model, dynamic(model), IDS)
    rerotate_cache(cache, model, model, p, p + 131052)
    fresh = fill(model, dynamic(model), IDS, position_ids=(p + 131052)[None].expand(2, -1))
    for one, other in zip(cache.layers, fresh.layers, strict=True):
        assert largest(one.keys, other.keys) < 5e-2  # deeper inputs: float32 angles at 131,052
    assert largest(cache.layers[0].keys, fresh.layers[0].keys) < CLOSE
    exact = fill(model, dynamic(model), IDS)
    rerotate_cache(exact, model, model, p, p + 131052, phases="integer")
    assert largest(exact.layers[0].keys, fresh.layers[0].keys) > 1e-4


@KINDS
def test_rows_with_padding_move_each_by_what_they_lost(kind):
    model = model_of()
    mask = torch.ones(2, 20, dtype=torch.int64)
    mask[0, :3] = 0

    def places(mask: Tensor) -> dict[str, Tensor]:
        return {"attention_mask": mask, "position_ids": left_padded(mask)}

    cache = fill(model, kind(model), IDS, **places(mask))
    shift_cache(cache, model, drop=5, attention_mask=mask)
    fresh = fill(model, kind(model), without(IDS, 5), **places(mask[:, 5:]))
    grown = torch.cat([mask[:, 5:], torch.ones(2, 1, dtype=torch.int64)], dim=1)
    last = {"attention_mask": grown, "position_ids": left_padded(grown)[:, -1:]}
    found, expected = (following(model, c, **last) for c in (cache, fresh))
    assert largest(found, expected) < CLOSE


@KINDS
@pytest.mark.parametrize(
    ("drop", "keep"), [(5, 0), (15, 0), (13, 0), (12, 0), (5, 2), (19, 0), (20, 0), (10, 2), (0, 0)]
)
def test_a_sliding_layer_moves_what_its_window_holds(kind, drop, keep):
    model = model_of("Mistral", sliding_window=8, pad_token_id=None)
    cache = fill(model, kind(model), IDS)
    result = shift_cache(cache, model, drop=drop, keep=keep)
    assert result.turned == [0]
    if drop == 20:
        assert int(cache.get_seq_length()) == 0
        return
    fresh = fill(model, kind(model), without(IDS, drop, keep))
    for i in range(10):  # through the window and beyond
        token = (NEXT + i) % 60
        assert largest(following(model, cache, token), following(model, fresh, token)) < CLOSE


@KINDS
def test_a_window_that_reaches_over_the_gap_is_refused(kind):
    model = model_of("Mistral", sliding_window=8, pad_token_id=None)
    cache = fill(model, kind(model), IDS)
    before = copy.deepcopy(cache)
    with pytest.raises(ValueError, match=r"layer 0.*keeps tokens 1[23] … 19 only.*drop more than"):
        shift_cache(cache, model, drop=14, keep=2)
    assert torch.equal(cache.layers[0].keys, before.layers[0].keys)
    assert int(cache.get_seq_length()) == 20


def test_layers_without_position_drop_tokens_too():
    model = model_of(
        "SmolLM3", num_hidden_layers=2, no_rope_layers=[0, 1], bos_token_id=None, eos_token_id=None
    )
    cache = fill(model, dynamic(model), IDS)
    result = shift_cache(cache, model, drop=5)
    assert result.turned == [1]
    assert "not rotated" in result.left[0]
    fresh = fill(model, dynamic(model), without(IDS, 5))
    assert largest(cache.layers[0].keys, fresh.layers[0].keys) < CLOSE
    assert cache.layers[1].keys.shape == fresh.layers[1].keys.shape


def test_images_move_by_what_the_text_before_them_took():
    mrope = spectra.sectioned(spectra.geometric(16), [2, 3, 3])
    text = torch.arange(4)[:, None].expand(-1, 3)
    image = 4 + torch.cartesian_prod(torch.arange(1), torch.arange(2), torch.arange(2))
    p = torch.cat([text, image, torch.tensor([[6, 6, 6]])])
    cache, before = cache_with(torch.randn(1, 2, 9, 16))
    shift_cache(cache, mrope, drop=2, positions=p, phases="integer")
    keys = cache.layers[0].keys
    from ropewalk import rotate

    expected = rotate(rotate(before, p, mrope, inverse=True)[..., 2:, :], p[2:] - 2, mrope)
    torch.testing.assert_close(keys, expected, rtol=0, atol=CLOSE)
    with pytest.raises(ValueError, match=r"move by \[0, 0, 1\].*cuts an image"):
        shift_cache(cache_with(before)[0], mrope, drop=1, keep=4, positions=p)
    with pytest.raises(ValueError, match=r"write positions.movedim\(0, -1\)"):
        shift_cache(cache_with(before)[0], mrope, drop=1, positions=p.T[:, None])
    with pytest.raises(ValueError, match=r"positions=None.*axes=3.*expand\(-1, 3\)"):
        shift_cache(cache_with(before)[0], mrope, drop=1)


def cache_with(keys: Tensor) -> tuple[Any, Tensor]:
    cache = DynamicCache()
    cache.update(keys.clone(), torch.zeros_like(keys), 0)
    return cache, keys


# ---- other frequencies ---------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "default", "rope_theta": 80000.0},
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    ],
    ids=["ntk", "yarn", "linear"],
)
@pytest.mark.parametrize("source", ["config", "model"])
def test_a_switch_of_one_layer_is_recomputation(kind, scaling, source):
    """NTK is another base; YaRN changes the attention factor as well."""
    model, other = model_of(), model_of(rope_parameters=scaling)
    old, new = (model, other) if source == "model" else (model.config, other.config)
    cache = fill(model, kind(model), IDS)
    assert rerotate_cache(cache, old, new).turned == [0]
    fresh = fill(other, kind(other), IDS)
    assert largest(cache.layers[0].keys, fresh.layers[0].keys) < 1e-6
    assert largest(following(other, cache), following(other, fresh)) < CLOSE
    assert rerotate_cache(cache, new, old).turned == [0]
    back = fill(model, kind(model), torch.cat([IDS, NEXT], dim=1))
    assert largest(cache.layers[0].keys, back.layers[0].keys) < 2e-6


def test_longrope_switches_from_short_to_long():
    def phi(original: int) -> Any:
        scaling = {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0],
            "original_max_position_embeddings": original,
            "attention_factor": 1.1,
        }
        return model_of("Phi3", rope_parameters=scaling, bos_token_id=None, eos_token_id=None)

    model, long = phi(64), phi(4)
    cache = fill(model, dynamic(model), IDS)
    with pytest.raises(ValueError, match=r"depend on the length.*old_length="):
        rerotate_cache(cache, model.config, model.config)
    rerotate_cache(cache, model.config, model.config, old_length=20, new_length=65)
    fresh = fill(long, dynamic(long), IDS)
    assert largest(cache.layers[0].keys, fresh.layers[0].keys) < 1e-6
    with pytest.raises(ValueError, match=r"layers 0 have frequencies.* length="):
        shift_cache(cache, model.config, drop=1)


def test_narrow_caches_round_once():
    model = model_of().to(torch.bfloat16)
    cache = fill(model, dynamic(model), IDS)
    wide = cache.layers[0].keys.float()
    other = spectra.ntk(spectra.geometric(16), 8.0)
    rerotate_cache(cache, model, other)
    exact, _ = cache_with(wide)
    rerotate_cache(exact, model, other)
    assert torch.equal(cache.layers[0].keys, exact.layers[0].keys.to(torch.bfloat16))


def test_the_frequencies_are_those_that_the_model_holds():
    """A model whose inv_freq was cast to bfloat16 turns by other angles than its config says."""
    model = model_of()
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq.to(torch.bfloat16)
    cache = fill(model, dynamic(model), IDS)
    by_config = copy.deepcopy(cache)
    shift_cache(cache, model, drop=5)
    shift_cache(by_config, model.config, drop=5)
    fresh = fill(model, dynamic(model), without(IDS, 5))
    assert largest(by_config.layers[0].keys, fresh.layers[0].keys) > 1e-4
    assert largest(cache.layers[0].keys, fresh.layers[0].keys) < CLOSE


def test_a_model_with_other_frequencies_than_its_config_is_refused():
    model = model_of()
    model.model.rotary_emb.inv_freq.mul_(1.01)
    cache = fill(model, dynamic(model), IDS)
    with pytest.raises(ValueError, match=r"layers 0 have inv_freq 1, .*no module of the model"):
        shift_cache(cache, model, drop=5)


def test_a_cache_of_inference_mode_moves():
    model = model_of()
    with torch.inference_mode():
        cache = dynamic(model)
        model(IDS, cache=cache)
    shift_cache(cache, model, drop=5)
    rerotate_cache(cache, model, spectra.geometric(16, 5e5))
    shift_cache(cache, spectra.geometric(16, 5e5), drop=1)
    assert cache.get_seq_length() == 14


# ---- every way of keeping keys -------------------------------------------------------------------


@pytest.fixture(scope="module")
def sweep() -> Any:
    sys.path.insert(0, str(SCRIPTS))
    spec = importlib.util.spec_from_file_location("rerotate_sweep", SCRIPTS / "rerotate_sweep.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPTS))


ARCHITECTURES = {
    "llama": "halves",
    "cohere": "neighbours",
    "gpt_neox": "some lanes",
    "nanochat": "backwards",
    "deepseek_v2": "latents, neighbours",
    "deepseek_v3": "latents, neighbours kept in halves",
    "minicpm3": "latents, halves",
    "gemma3": "sliding layers with another base",
    "qwen2_vl": "three axes",
    "bamba": "some layers recurrent",
    "falcon_h1": "recurrent beside attention",
    "smollm3": "some layers without position",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ARCHITECTURES, ids=list(ARCHITECTURES.values()))
def test_each_layer_of_an_architecture_moves_by_its_config(sweep, name):
    result = sweep.sweep(sweep.tiny_models.file_of(name))
    assert not isinstance(result, str), result
    apart, by_model, by_config = (float(cell) for cell in result[1])
    assert apart > 0.1
    assert max(by_model, by_config) < sweep.BOUND


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dory", "runs some layers several times"),
        ("longcat_flash", "attends twice"),
        ("deepseek_v32", "DynamicIndexedLayer: it keeps the keys of an indexer"),
        ("codegen", "no module of the model holds these"),
    ],
)
def test_an_architecture_that_keeps_keys_otherwise_is_refused(sweep, name, words):
    result = sweep.sweep(sweep.tiny_models.file_of(name))
    assert words in result[1][1]


# ---- refusals ------------------------------------------------------------------------------------

G = spectra.geometric(16)


def bare(cls: Any) -> Any:
    """An object of a class whose construction needs more than there is here."""
    return object.__new__(cls)


def with_layer(layer: Any) -> Any:
    cache = DynamicCache()
    cache.layers = [layer]
    return cache


class Own(cache_utils.DynamicLayer):
    """A layer of somebody else."""


class OwnCache(DynamicCache):
    """A cache of somebody else."""


def graph() -> Any:
    return cache_with(torch.zeros(1, 2, 3, 16, requires_grad=True) * 1)[0]


def full() -> Any:
    return cache_with(torch.ones(1, 2, 3, 16))[0]


REFUSED = [
    (lambda: bare(transformers.QuantizedCache), {}, TypeError, "QuantizedCache: its keys are quan"),
    (
        lambda: transformers.EncoderDecoderCache(DynamicCache(), DynamicCache()),
        {},
        TypeError,
        "cache.self_attention_cache",
    ),
    (OwnCache, {}, TypeError, "OwnCache; give a DynamicCache or StaticCache"),
    (lambda: torch.zeros(3), {}, TypeError, "cache is a torch.Tensor"),
    (
        lambda: with_layer(bare(cache_utils.HQQQuantizedLayer)),
        {},
        TypeError,
        "layer 0 of the cache is a HQQQuantizedLayer: its keys are quantised",
    ),
    (
        lambda: with_layer(cache_utils.DynamicIndexedLayer()),
        {},
        TypeError,
        "DynamicIndexedLayer: it keeps the keys of an indexer",
    ),
    (lambda: with_layer(Own()), {}, TypeError, "layer 0 of the cache is a Own: what it keeps is"),
    (graph, {}, ValueError, "keys of layer 0 are part of an autograd graph.*no_grad"),
    (full, {"old": [G, G]}, ValueError, "old has 2 entries, the cache has 1 layers"),
    (full, {"old": [None]}, ValueError, "turned by 0 spectra of old and 1 of new"),
    (full, {"old": spectra.geometric(8)}, ValueError, "layer 0: k has shape"),
    (full, {"new": spectra.geometric(16, layout="interleaved")}, ValueError, "layer 0: old pairs"),
    (
        full,
        {"old": {"model_type": "gpt2"}},
        ValueError,
        "kind 'learned'.*no rotation undoes: it is in the embeddings",
    ),
    (full, {"new": torch.nn.Linear(2, 2)}, TypeError, "new is a Linear without a config"),
    (full, {"old": "no such file"}, OSError, "no such file"),
    (full, {"positions": torch.arange(4)}, ValueError, r"4 tokens;\s+the cache has 3"),
    (full, {"positions": torch.arange(3.0)}, TypeError, "positions have dtype"),
    (
        lambda: full_of_two(),
        {"old": [G, spectra.sectioned(G, [2, 3, 3])]},
        ValueError,
        "layers have 1 and 3 axes",
    ),
]


def full_of_two() -> Any:
    cache = full()
    cache.update(torch.ones(1, 2, 3, 16), torch.ones(1, 2, 3, 16), 1)
    return cache


@pytest.mark.parametrize(("made", "changed", "kind", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_moved_is_refused_and_left(made, changed, kind, words):
    cache = made()
    keys = (
        cache.layers[0].keys.clone() if cache.__class__ is DynamicCache and full_one(cache) else 0
    )
    with pytest.raises(kind, match=words):
        rerotate_cache(cache, **{"old": G, "new": spectra.ntk(G, 2.0), **changed})
    if isinstance(keys, Tensor):
        assert torch.equal(cache.layers[0].keys, keys)


def full_one(cache: Any) -> bool:
    return isinstance(getattr(cache.layers[0], "keys", None), Tensor)


ONES = torch.ones(1, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"drop": 1, "attention_mask": ONES, "positions": torch.arange(3)}, "give one of them"),
        ({"drop": 1, "attention_mask": ONES[:, :2]}, "positions.*2 tokens.*has 3"),
        ({"drop": 4}, "drop=4 after keep=0 is more than the 3 tokens"),
        ({"drop": -1}, "drop=-1 must be at least 0"),
        ({"drop": 1, "keep": -1}, "keep=-1 must be at least 0"),
        ({"drop": 1, "new_positions": torch.arange(3)}, "new_positions.*3 tokens.*has 2"),
    ],
)
def test_a_shift_that_does_not_fit_is_refused(changed, words):
    cache = full()
    with pytest.raises(ValueError, match=words):
        shift_cache(cache, G, **changed)
    assert torch.equal(cache.layers[0].keys, torch.ones(1, 2, 3, 16))


def test_a_refusal_in_the_last_layer_leaves_the_first():
    cache = full_of_two()
    with pytest.raises(ValueError, match="layer 1: k has shape"):
        rerotate_cache(cache, [G, spectra.geometric(8)], [spectra.ntk(G, 2.0), G])
    assert torch.equal(cache.layers[0].keys, torch.ones(1, 2, 3, 16))


def test_a_recurrent_state_cannot_forget():
    cache = with_layer(cache_utils.LinearAttentionLayer())
    with pytest.raises(TypeError, match="recurrent state has seen every token"):
        shift_cache(cache, G, drop=1)
    assert rerotate_cache(cache, G, spectra.ntk(G, 2.0)).left == {
        0: "it keeps a recurrent state and no keys"
    }


def test_an_empty_cache_has_nothing_to_move():
    layered = with_layer(cache_utils.DynamicLayer())
    assert rerotate_cache(layered, G, G).left == {0: "it is empty"}
    assert shift_cache(with_layer(cache_utils.DummyLayer()), G, drop=1).left == {
        0: "it keeps nothing"
    }


def test_two_spectra_turn_one_after_the_other():
    halves = [Spectrum(((1.0, 0.1),), 16, lane_offset=o) for o in (0, 8)]
    others = [s.map(lambda f: f / 2) for s in halves]
    from ropewalk import rotate

    k, p = torch.randn(1, 2, 3, 16), torch.arange(3)
    cache, _ = cache_with(rotate(rotate(k, p, halves[0]), p, halves[1]))
    rerotate_cache(cache, [halves], [others], phases="integer")
    expected = rotate(rotate(k, p, others[0]), p, others[1])
    torch.testing.assert_close(cache.layers[0].keys, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["DeepseekV3", "DeepseekV2"])
@pytest.mark.parametrize("rank", [16, 12, 8])
def test_latents_of_any_width_are_left_alone(kind, rank):
    """A latent as wide as a head (8 + 8 lanes) or as its rotating part is no key that turns."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        kv_lora_rank=rank,
        q_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
    )
    model = getattr(transformers, f"{kind}Model")(config).eval()
    ids = torch.randint(3, 64, (1, 20))
    moved, anew = (transformers.DynamicCache(config=config) for _ in range(2))
    with torch.no_grad():
        model(ids, cache=moved)
        shift_cache(moved, model, drop=4)
        model(ids[:, 4:], cache=anew)
    for part in ("keys", "values"):
        got, wanted = (getattr(c.layers[0], part) for c in (moved, anew))
        assert (got - wanted).abs().max() < 1e-5 * wanted.abs().max()
