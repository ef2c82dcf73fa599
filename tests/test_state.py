"""What happens to a module around its forward must not change what it computes."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ropewalk import RoPE, spectra
from ropewalk.core import Encoding
from ropewalk.encodings.additive import Sinusoidal
from ropewalk.encodings.bias import ALiBi
from ropewalk.encodings.rotary import AxialRoPE
from ropewalk.kernels import Steps
from ropewalk.spectra import Spectrum, geometric

POSITIONS = (0, 1, 255, 4095, 131_071, 10_000_019, 2**25 + 3, 2**31 + 5)
"""The last two are no float32 numbers."""
MAKERS: dict[str, Callable[[], Encoding]] = {
    "rope": lambda: RoPE(16, 5e5),
    "rope of heads": lambda: RoPE(Spectrum((((1.0, 0.1),), ((0.3, 2.0),)), 16, lane_offset=3)),
    "float32 rope": lambda: RoPE(16, 5e5, phases="float32"),
    "axial": lambda: AxialRoPE(16),
    "sinusoidal": lambda: Sinusoidal(16),
    "alibi": lambda: ALiBi(6),
}


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def used(encoding: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    """What the encoding computes, at small and large positions."""
    positions = torch.tensor(POSITIONS)
    if isinstance(encoding, RoPE):
        x = drawn(2, 4, len(POSITIONS), 16, dtype=dtype)
        where = positions if encoding.axes == 1 else torch.stack((positions, -positions), -1)
        return encoding.encode_q(x, where)
    if isinstance(encoding, Sinusoidal):
        return encoding.encode(positions, dtype=dtype)
    return encoding.bias(positions, positions, dtype)


@pytest.fixture(params=MAKERS)
def make(request) -> Callable[[], Encoding]:
    return MAKERS[request.param]


@pytest.fixture
def poison() -> Iterator[None]:
    """Memory that nobody wrote holds NaN and the largest integers."""
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, dtype=torch.int64).tolist() == [2**63 - 1] * 3
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Model(nn.Module):
    """An encoding inside of something that has weights."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(encoding)])

    @property
    def encoding(self) -> Encoding:
        found = next(m for m in self.modules() if isinstance(m, Encoding))
        assert isinstance(found, Encoding)
        return found


def assert_unchanged(encoding: nn.Module, make: Callable[[], Encoding]) -> None:
    fresh = make()
    assert torch.equal(used(encoding), used(fresh))
    for (name, found), (other, expected) in zip(
        encoding.named_buffers(), fresh.named_buffers(), strict=True
    ):
        assert name == other
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


# Casts and moves

CASTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "to bfloat16": lambda m: m.to(torch.bfloat16),
    "to float16 on cpu": lambda m: m.to("cpu", torch.float16),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "double": lambda m: m.double(),
    "type": lambda m: m.type(torch.float16),
    "there and back": lambda m: m.half().float(),
    "cpu": lambda m: m.cpu(),
    "shared memory": lambda m: m.share_memory(),
}


@pytest.mark.parametrize("cast", CASTS.values(), ids=list(CASTS))
def test_casts_change_nothing(make, cast):
    assert_unchanged(cast(make()), make)
    model = Model(make())
    cast(model)
    assert_unchanged(model.encoding, make)


def test_autocast_changes_nothing(make):
    encoding, expected = make(), used(make())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = used(encoding)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert torch.equal(used(encoding), expected)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16, torch.float16])
def test_default_dtypes_change_nothing(make, default):
    expected, before = used(make()), torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        encoding = make()
        found = used(encoding)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, expected)
    assert_unchanged(encoding, make)


def test_earlier_calls_change_nothing(make):
    encoding, expected = make(), used(make())
    used(encoding, torch.bfloat16)
    used(encoding, torch.float64)
    with torch.inference_mode():
        assert torch.equal(used(encoding), expected)
    assert torch.equal(used(encoding), expected)


def test_made_under_inference_mode():
    with torch.inference_mode():
        rope = RoPE(16)
    x = drawn(1, 3, 16).requires_grad_()
    rope.encode_q(x, offset=5).backward(x.detach())
    assert x.grad is not None
    assert torch.equal(rope.encode_q(x.detach()), RoPE(16).encode_q(x.detach()))


# Memory that is not there yet


@pytest.mark.usefixtures("poison")
def test_meta_then_to_empty(make):
    with torch.device("meta"):
        encoding, model = make(), Model(make())
    assert {b.device.type for b in encoding.buffers()} == {"meta"}
    assert_unchanged(encoding.to_empty(device="cpu"), make)
    model.to_empty(device="cpu")
    assert_unchanged(model.encoding, make)
    assert_unchanged(make().to("meta").to_empty(device="cpu").half(), make)


@pytest.mark.usefixtures("poison")
def test_meta_then_module_by_module(make):
    """As sharded training does it: each module alone is given memory, then asked to initialise."""
    with torch.device("meta"):
        model = Model(make())
    for module in model.modules():
        module.to_empty(device="cpu", recurse=False)
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    assert_unchanged(model.encoding, make)


@pytest.mark.usefixtures("poison")
def test_reset_parameters_rebuilds_what_was_replaced(make):
    encoding = make()
    for name, buffer in list(encoding.named_buffers()):
        encoding._buffers[name] = torch.empty_like(buffer)
    encoding.reset_parameters()
    assert_unchanged(encoding, make)


# Checkpoints


def test_state_dicts_are_empty(make):
    assert make().state_dict() == {}
    assert set(Model(make()).state_dict()) == {"layers.0.weight", "layers.0.bias"}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_loading_rebuilds(make, assign, strict):
    encoding = make()
    for buffer in encoding.buffers():
        buffer.fill_(3)
    encoding.load_state_dict({}, strict=strict, assign=assign)
    assert_unchanged(encoding, make)
    model, other = Model(make()), Model(make())
    model.half().load_state_dict(other.half().state_dict(), strict=strict, assign=assign)
    assert_unchanged(model.encoding, make)


def test_assigning_to_a_model_on_meta(make):
    weights = Model(make()).state_dict()
    with torch.device("meta"):
        model = Model(make())
    model.load_state_dict(weights, strict=True, assign=True)
    assert_unchanged(model.encoding, make)


def test_a_rope_left_on_meta_still_turns():
    for phases in ("integer", "float32"):
        with torch.device("meta"):
            rope = RoPE(16, phases=phases)
        assert torch.equal(used(rope), used(RoPE(16, phases=phases)))
        assert rope.steps.is_meta  # forward changes no state


def saved(value: Any, weights_only: bool) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=weights_only)


def test_copies(make):
    for duplicate in (
        copy.copy(make()),
        copy.deepcopy(make()),
        pickle.loads(pickle.dumps(make())),
        saved(make(), weights_only=False),
        copy.deepcopy(Model(make())).encoding,
        saved(Model(make()), weights_only=False).encoding,
    ):
        assert_unchanged(duplicate, make)
    model = Model(make())
    model.load_state_dict(saved(Model(make()).state_dict(), weights_only=True))
    assert_unchanged(model.encoding, make)


def test_steps_and_spectra_load_as_weights():
    spectrum = geometric(16, 5e5, rotary_dim=8).replace(attention_factor=1.5)
    steps, loaded = saved((spectrum.on(), spectrum), weights_only=True)
    assert loaded == spectrum
    assert loaded.steps == spectrum.steps
    assert steps.spectrum == spectrum
    assert torch.equal(steps.tensor, spectrum.on().tensor)


# A checkpoint that holds inv_freq


def usual_inv_freq(dim: int, base: float) -> Tensor:
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))


@pytest.mark.parametrize(("dim", "base"), [(16, 1e4), (128, 5e5), (112, 1e7), (100, 1.5e8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_an_inv_freq_that_fits_is_accepted(dim, base, dtype):
    stored = {"inv_freq": usual_inv_freq(dim, base).to(dtype)}
    for phases in ("integer", "float32"):
        rope = RoPE(dim, base, phases=phases)
        rope.load_state_dict(stored, strict=True)
        assert torch.equal(rope.steps, RoPE(dim, base, phases=phases).steps)
    assert set(stored) == {"inv_freq"}
    model = nn.ModuleDict({"rope": RoPE(dim, base), "rest": nn.Linear(1, 1)})
    weights = {**model.state_dict(), "rope.inv_freq": stored["inv_freq"]}
    model.load_state_dict(weights, strict=True)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (usual_inv_freq(16, 1.01e4), r"differs from the spectrum by .* at pair 7.*base and scal"),
        (usual_inv_freq(16, 1e4).bfloat16().float(), r"differs from the spectrum by 0\.00"),
        (usual_inv_freq(8, 1e4), r"has shape \(4,\); the spectrum has \(8,\)"),
        (torch.full((8,), float("nan")), r"differs from the spectrum"),
        (torch.ones(8, dtype=torch.int64), r"is torch.int64 on cpu; it must hold floating"),
        (torch.ones(8, device="meta"), r"is torch.float32 on meta; it must hold"),
    ],
)
def test_an_inv_freq_that_does_not_fit_is_named(stored, message):
    model = nn.ModuleDict({"rope": RoPE(16)})
    with pytest.raises(RuntimeError, match=r"rope\.inv_freq " + message):
        model.load_state_dict({"rope.inv_freq": stored})
    assert_unchanged(model["rope"], lambda: RoPE(16))


# Threads and processes


def test_threads_do_not_disturb_each_other(make):
    encoding, expected = make(), used(make())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: used(encoding), range(32)))
        fresh = list(pool.map(lambda _: used(make()), range(8)))
    for result in found + fresh:
        assert torch.equal(result, expected)


def in_child(names: list[str], pickled: bytes) -> list[tuple[list[float], list[float]]]:
    """For every name: what a fresh encoding and the parent's pickled one compute."""
    torch.set_num_threads(1)
    parents = pickle.loads(pickled)
    return [
        (used(MAKERS[name]()).flatten().tolist(), used(parents[name]).flatten().tolist())
        for name in names
    ]


def test_a_spawned_process_computes_the_same():
    names = list(MAKERS)
    pickled = pickle.dumps({name: MAKERS[name]() for name in names})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        results = pool.apply(in_child, (names, pickled))
    for name, (fresh, parents) in zip(names, results, strict=True):
        expected = used(MAKERS[name]()).flatten().tolist()
        assert fresh == expected, name
        assert parents == expected, name


# Export and trees


class Use(nn.Module):
    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if isinstance(self.encoding, RoPE):
            return self.encoding.encode_q(x, positions)
        if isinstance(self.encoding, Sinusoidal):
            return self.encoding(x, positions)
        assert isinstance(self.encoding, ALiBi)
        return self.encoding.bias(positions, positions)


def test_export_save_load(make, tmp_path):
    module = Use(make())
    axes = module.encoding.axes
    positions = torch.tensor(POSITIONS)
    positions = positions if axes == 1 else torch.stack((positions, positions), -1)
    x = drawn(2, 4, len(POSITIONS), 16)
    torch.export.save(torch.export.export(module, (x, positions)), tmp_path / "module.pt2")
    loaded = torch.export.load(tmp_path / "module.pt2").module()
    assert torch.equal(loaded(x, positions), module(x, positions))


def test_steps_are_a_tree():
    steps = geometric(16).replace(attention_factor=1.5).on()
    leaves, structure = pytree.tree_flatten(steps)
    assert len(leaves) == 1
    assert leaves[0] is steps.tensor
    again = pytree.tree_unflatten(leaves, structure)
    assert isinstance(again, Steps)
    assert again.spectrum == steps.spectrum
    doubled = pytree.tree_map(lambda t: 2 * t, {"steps": [steps]})["steps"][0]
    assert torch.equal(doubled.tensor, 2 * steps.tensor)
    assert doubled.spectrum == steps.spectrum
    ((path, leaf),), _ = pytree.tree_flatten_with_path(steps)
    assert pytree.keystr(path) == ".tensor"
    assert leaf is steps.tensor
    written = pytree.treespec_dumps(structure)
    restored = pytree.tree_unflatten(leaves, pytree.treespec_loads(written))
    assert restored.spectrum == steps.spectrum
    assert restored.spectrum.steps == steps.spectrum.steps
    assert structure == pytree.tree_flatten(geometric(16).replace(attention_factor=1.5).on())[1]
    assert structure != pytree.tree_flatten(geometric(16).on())[1]


def test_steps_move_without_changing():
    steps = Spectrum((((1.0, 0.1),), ((0.3, 2.0),)), 8).on()
    assert steps.tensor.dtype == torch.int64
    assert steps.to("meta").tensor.is_meta
    assert steps.to("meta").spectrum is steps.spectrum
    assert torch.equal(steps.to("cpu").tensor, steps.tensor)
    for duplicate in (copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert torch.equal(duplicate.tensor, steps.tensor)
        assert duplicate.spectrum == steps.spectrum


# phases="float32": the usual product, bit for bit


def usual_rotation(x: Tensor, positions: Tensor, inv_freq: Tensor, factor: float = 1.0) -> Tensor:
    """Half layout as most model code writes it."""
    angle = positions[:, None].float() * inv_freq
    cos, sin = angle.cos() * factor, angle.sin() * factor
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
@pytest.mark.parametrize("dim", [64, 128, 80])
@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}])
def test_float32_phases_are_the_usual_product(dim, base, scaling):
    rope = RoPE(dim, base, phases="float32", scaling=scaling)
    inv_freq = usual_inv_freq(dim, base) / (1.0 if scaling is None else 4.0)
    assert rope.steps.dtype == torch.float32
    assert torch.equal(rope.steps[0], inv_freq)
    positions, x = torch.tensor(POSITIONS), drawn(2, 4, len(POSITIONS), dim)
    expected = usual_rotation(x, positions, inv_freq)
    assert torch.equal(rope.encode_q(x, positions), expected)
    assert torch.equal(rope(x, x[:, :2], positions)[1], expected[:, :2])
    assert torch.equal(rope.half().encode_q(x, positions), expected)
    assert torch.equal(rope.encode_q(x, offset=4090), usual_rotation(x, torch.arange(
        4090, 4090 + len(POSITIONS)), inv_freq))  # fmt: skip
    exact = RoPE(dim, base, scaling=scaling).encode_q(x, positions)
    drift = (exact - expected).abs().amax((0, 1, 3))
    assert drift[0] == 0
    assert drift[5] > 1e-3  # at 10 million, the usual product is far off


def test_float32_phases_scale_like_the_others():
    spectrum = spectra.proportional(16, fraction=0.5).replace(attention_factor=1.25)
    x, positions = drawn(4, 3, 16), torch.tensor([0, 1, 77])
    found = RoPE(spectrum, phases="float32").encode_q(x, positions)
    torch.testing.assert_close(found, RoPE(spectrum).encode_q(x, positions), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dim", [64, 128, 80])
@pytest.mark.parametrize(
    "parameters", [{"rope_type": "default"}, {"rope_type": "linear", "factor": 8.0}]
)
def test_float32_phases_are_those_of_transformers(dim, parameters):
    llama = pytest.importorskip(
        "transformers.models.llama.modeling_llama", reason="needs the extra 'models'"
    )
    parameters = {**parameters, "rope_theta": 5e5}
    config = llama.LlamaConfig(
        hidden_size=4 * dim, num_attention_heads=4, head_dim=dim, rope_parameters=dict(parameters)
    )
    theirs = llama.LlamaRotaryEmbedding(config)
    rope = RoPE(dim, phases="float32", scaling=parameters)
    assert torch.equal(rope.steps[0], theirs.inv_freq)
    q, k = drawn(2, 4, len(POSITIONS), dim), drawn(2, 2, len(POSITIONS), dim)
    positions = torch.stack((torch.tensor(POSITIONS), torch.arange(len(POSITIONS))))
    expected = llama.apply_rotary_pos_emb(q, k, *theirs(q, positions))
    for found, wanted in zip(rope(q, k, positions), expected, strict=True):
        assert torch.equal(found, wanted)
    rope.load_state_dict({"inv_freq": theirs.inv_freq}, strict=True)
    RoPE(dim, scaling=parameters).load_state_dict({"inv_freq": theirs.inv_freq}, strict=True)
