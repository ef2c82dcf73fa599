"""Every encoding of the catalogue under the contract, and the contract under planted bugs."""

from __future__ import annotations

import functools
import inspect
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import ropewalk
from ropewalk.catalog import Spec
from ropewalk.checks.contract import LAWS, EncodingContract
from ropewalk.checks.laws.poison import poisoned_memory
from ropewalk.core import token_positions


@pytest.fixture(autouse=True)
def on_device(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(EncodingContract, "device", device)
    torch.manual_seed(0)  # random parameters, and with them every comparison, are the same each run


# Every entry and every variant; then configurations at the edges, which need no second tracing.

EDGES: Mapping[str, tuple[dict[str, Any], ...]] = {
    "binary": ({"dim": 10, "bits": 5}, {"dim": 1}, {"dim": 63, "bits": 63}),
    "integer": ({"dim": 1},),
    "learned": ({"dim": 5, "length": 20, "row_offset": 2},),
    "normalised": ({"dim": 3},),
    "sinusoidal": (
        {"dim": 1},
        {"dim": 7},
        {"dim": 7, "layout": "cos_sin", "shift": 1, "scale": 0.5},
        {"dim": 21, "axes": 3, "layout": "sin_cos", "unit": 0.25},
        {"dim": 2, "axes": 2},
    ),
    "randomized": ({"dim": 3, "tokens": 40, "of": "learned", "limit": 60, "length": 60},),
    "bipe": ({"dim": 5, "heads": 3, "head_dim": 4, "length": 20},),
    "fourier": (
        {"dim": 6, "axes": 3, "unit": 0.25, "seed": 4},
        {"dim": 5, "axes": 2, "learned": True, "hidden": 3},
    ),
    "rope": (
        {"head_dim": 12, "base": 5e5, "rotary_dim": 6, "layout": "interleaved"},
        {"head_dim": 10, "scaling": {"rope_type": "linear", "factor": 4.0}},
        {"head_dim": 8, "phases": "float32"},
    ),
    "resonance": (
        {"head_dim": 10, "base": 5e5, "layout": "interleaved"},
        {"head_dim": 8, "scaling": {"rope_type": "ntk", "factor": 4.0}},
    ),
    "hope_chen": ({"head_dim": 6, "length": 100, "layout": "interleaved"},),
    "cope_clipped": ({"head_dim": 10, "pairs": 3}, {"head_dim": 6, "pairs": 0}),
    "lerope": ({"head_dim": 6, "base": 5e5, "layout": "interleaved"},),
    "hirope": (
        {"head_dim": 10, "layout": "interleaved"},
        {"head_dim": 12, "token_dim": 2},
    ),
    "hope_dai": (
        {"head_dim": 6, "scale": 2.0**-12, "center": 150, "layout": "interleaved"},
        {"head_dim": 2, "base": 77.0, "scale": 0.001, "damping": 2.0},
    ),
    "fope": (
        {"head_dim": 10, "length": 100, "layout": "interleaved"},
        {"head_dim": 6, "heads": 2, "length": 64, "gain": 1.0, "learnable": True},
    ),
    "pope": (
        {"head_dim": 5, "base": 77.0},
        {"head_dim": 4, "heads": 2, "start": "uniform"},
        {"head_dim": 3, "magnitude": "signed"},
    ),
    "rope_pp": ({"head_dim": 6, "layout": "interleaved"},),
    "nope": ({"head_dim": 7},),
    "xpos": (
        {"head_dim": 6, "center": 150, "gamma": 1.0, "layout": "interleaved"},
        {"head_dim": 2, "scale_base": 64.0},
    ),
    "p_rope": ({"head_dim": 16, "fraction": 0.25, "factor": 8.0}, {"head_dim": 6, "fraction": 0}),
    "axial": (
        {"head_dim": 12, "axes": 3},
        {"head_dim": 16, "axes_dim": (2, 8, 6)},
        {"head_dim": 10, "assignment": (1, 0, 1, 1, 0), "layout": "interleaved"},
        {"head_dim": 8, "coordinates": "normalised", "scale": (2 * math.pi, 1.0)},
    ),
    "mixed": (
        {"head_dim": 12, "heads": 1, "axes": 3, "layout": "interleaved"},
        {"head_dim": 4, "heads": 4, "axes": 1, "unit": 2.0**-20},
    ),
    "golden": (
        {"head_dim": 10, "heads": 1, "min_freq": 0.2, "max_freq": 20.0, "zero_fraction": 0.25},
        {"head_dim": 6, "heads": 4, "min_freq": 0.1, "max_freq": 0.1, "axes": 4},
    ),
    "string": ({"head_dim": 12, "heads": 1, "axes": 3, "std": 0.5, "layout": "interleaved"},),
    "commuting": (
        {"head_dim": 12, "heads": 1, "axes": 2, "block_size": 3},
        {"head_dim": 6, "heads": 4, "kind": "ld", "axes": 3, "block_size": 2, "unit": 2.0**-8},
    ),
    "lie": (
        {"head_dim": 8, "heads": 2, "axes": 1, "block_size": 4},
        {"head_dim": 6, "heads": 4, "axes": 3, "block_size": 3, "unit": 2.0**-8},
    ),
    "alibi": (
        {"heads": 12},
        {"heads": 1},
        {"heads": 3, "slopes": (0.07, 0.3, 0.0), "ahead": "authors", "past_bonus": 0.25},
    ),
    "kerple": ({"heads": 3, "kernel": "power"}, {"heads": 1}),
    "fire": ({"heads": 3, "width": 5, "length": 20.0}, {"heads": 1, "width": 1, "c": 2.0}),
    "shaw": ({"head_dim": 6, "clip": 3, "value_dim": 5},),
    "transformer_xl": ({"heads": 3, "head_dim": 5, "dim": 6, "std": 1.0},),
    "wavelet": (
        {"head_dim": 12, "scales": 3, "kind": "gaussian"},
        {"head_dim": 6, "scales": (3.0, 2.0**11), "kind": "morlet"},
    ),
    "sandwich": ({"heads": 3, "dim": 6, "first": 1, "centred": True}, {"heads": 1, "dim": 2}),
    "t5": ({"heads": 3, "buckets": 7, "max_distance": 20}, {"heads": 1, "buckets": 2}),
    "mrope": (
        {"head_dim": 16, "rotary_dim": 12, "order": "alternating", "layout": "interleaved"},
        {"head_dim": 6, "sections": (1, 1, 1), "order": "interleaved", "unit": 2.0**-20},
    ),
    "tm_rope": ({"head_dim": 8, "order": "interleaved"},),
    "video_rope": ({"head_dim": 10, "sections": (2, 2, 1)}, {"head_dim": 6}),
    "cope": ({"head_dim": 5, "npos_max": 1, "std": 1.0}, {"head_dim": 3, "npos_max": 2}),
    "dape": ({"heads": 3, "kernel": 5, "width": 2}, {"heads": 1}),
    "dual_chunk": (
        {"head_dim": 6, "chunk_size": 5, "local": 2},
        {"head_dim": 2, "chunk_size": 1, "local": 0},
        {"head_dim": 8, "original_length": 16, "layout": "interleaved"},
    ),
    "fox": ({"content_dim": 1, "heads": 3},),
    "path": (
        {"content_dim": 10, "heads": 6, "head_dim": 3, "kv_heads": 2, "rank": None},
        {"content_dim": 4, "heads": 1, "rank": 1, "kernel": None},
    ),
    "rerope": (
        {"head_dim": 10, "window": 1, "rotary_dim": 6, "leak": 3.0},
        {"head_dim": 4, "window": 7, "log_length": 2, "layout": "interleaved"},
    ),
    "selective_rope": (
        {"content_dim": 6, "heads": 6, "head_dim": 4, "kv_heads": 3, "layout": "interleaved"},
    ),
    "self_extend": (
        {"head_dim": 6, "group": 3, "window": 7},
        {"head_dim": 4, "group": 1, "window": 1},
    ),
}

TOLERANCES: Mapping[str, Mapping[str, float]] = {
    "commuting": {"drift": 1e-14},  # eigenvalues, and the series they are compared with, in float64
    "lie": {"drift": 1e-13},  # exponents are float64 products, squared many times
    "pope": {"slack": 3e-7},  # softplus rounds otherwise in the rest of a vector loop
}
# Sums over a sequence may be added up in another order, and bend as products of all its tokens do.
FAMILY: Mapping[str, dict[str, float]] = {"contextual": {"slack": 1e-5, "step": 4e-6}}


NUMBERS_ONLY = {
    *(
        "bits",
        "block_size",
        "damping",
        "fraction",
        "gate_bias",
        "hard",
        "head_dim",
        "heads",
        "leak",
    ),
    *("length", "npos_max", "pairs", "scale", "scales", "scaling", "sections", "shift", "slopes"),
    *("clip", "original_length", "start", "std", "zero_fraction"),
    "base",  # of dape: a bias of the catalogue, which is traced by itself
}
"""Arguments of variants that change numbers or sizes and no code: no need to trace it again."""


def smaller(spec: Spec) -> dict[str, Any]:
    """The configuration with another width and base: a sibling that shares no numbers."""
    changed: dict[str, Any] = {
        name: max(value // 2, 1) if isinstance(value, int) else value
        for name, value in spec.config.items()
    }
    base = inspect.signature(spec.factory).parameters.get("base")
    if base is not None and not isinstance(base.default, str):
        changed["base"] = 77.0
    return changed


def case(spec: Spec, config: Mapping[str, Any], waivers: Mapping[str, str]) -> dict[str, Any]:
    exact = (v for v in spec.variants.values() if "reference" not in v.waivers)
    others = [smaller(spec), *({**spec.config, **v.config} for v in exact)]
    return {
        "create": lambda self: spec.make(**config),
        "siblings": lambda self: [spec.make(**other) for other in others if other != config],
        "waivers": {law: reason for law, reason in waivers.items() if reason},
        **TOLERANCES.get(spec.name, {}),
        **FAMILY.get(spec.family, {}),
    }


def in_force(*waivers: Mapping[str, str]) -> dict[str, str]:
    """The waivers together; an empty reason of a variant lifts one."""
    together = {law: reason for some in waivers for law, reason in some.items()}
    return {law: reason for law, reason in together.items() if reason}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in ropewalk.encodings().items():
        yield name, case(spec, spec.config, spec.waivers)
        for title, variant in spec.variants.items():
            waivers = in_force(spec.waivers, variant.waivers)
            body = case(spec, {**spec.config, **variant.config}, waivers)
            again = set(variant.config) <= NUMBERS_ONLY
            yield f"{name}, {title}", {**body, "test_compile": None} if again else body
        for edge in EDGES.get(name, ()):
            matching = [v for v in spec.variants.values() if v.matches({**spec.config, **edge})]
            waivers = in_force(spec.waivers, *(v.waivers for v in matching))
            words = ", ".join(f"{key}={value}" for key, value in edge.items())
            yield f"{name}({words})", {**case(spec, edge, waivers), "test_compile": None}


for _title, _body in cases():
    globals()[f"Test {_title}"] = type(f"Test {_title}", (EncodingContract,), _body)


# Encodings that a user writes.


class Turns(ropewalk.Additive):
    """An additive encoding in ten lines, whose phases are float64 products."""

    def __init__(self, fastest: float = 1.0) -> None:
        super().__init__()
        self.dim, self.fastest = 6, fastest

    def frequencies(self) -> list[float]:
        return [self.fastest, self.fastest / 10, self.fastest / 100]

    def encode(self, positions, *, length=None, dtype=torch.float32):
        angles = positions[..., None].double() * torch.tensor(
            self.frequencies(), dtype=torch.float64, device=positions.device
        )
        return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)

    def reference(self, position, length=None):
        angles = [position * f for f in self.frequencies()]
        return [f(a) for f in (math.sin, math.cos) for a in angles]


class TestTurns(EncodingContract):
    drift = 1e-15

    def create(self):
        return Turns()

    def siblings(self):
        return [Turns(0.5)]


class Fading(ropewalk.Bias):
    """A bias with a learned slope per head."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.slope = nn.Parameter(torch.empty(heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.slope.copy_(torch.linspace(0.1, 1.0, self.heads, dtype=torch.float64))
        super().reset_parameters()

    def bias(self, q_positions, kv_positions, dtype=torch.float32):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        distance = (q_positions[..., :, None] - kv_positions[..., None, :]).abs().unsqueeze(-3)
        slopes = self.slope.to(wide).exp()[:, None, None]
        return (-slopes * torch.log1p(distance.to(wide))).to(dtype)

    def reference(self, head, q_position, k_position):
        slope = math.exp(self.slope.detach().double()[head].item())
        return -slope * math.log1p(abs(q_position - k_position))


class TestFading(EncodingContract):
    waivers: ClassVar = {"positions": "this toy does not refuse float positions"}

    def create(self):
        return Fading()


class Forgetting(ropewalk.Contextual):
    """c_i − c_j with c the running sum of a gate read from each key, over the keys in sight."""

    def __init__(self, heads: int = 4, head_dim: int = 16) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.gate = nn.Parameter(torch.empty(heads, head_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            ramp = torch.linspace(-0.5, 0.5, self.gate.numel(), dtype=torch.float64)
            self.gate.copy_(ramp.reshape(self.gate.shape))
        super().reset_parameters()

    def bias(self, block):
        q, k, allowed = block.q, block.k, block.allowed
        ropewalk.core.integer_positions(block.q_positions)
        forget = nn.functional.logsigmoid((k * self.gate.to(k.dtype)[:, None]).sum(-1))
        kept = forget[..., None, :].expand(*forget.shape[:-1], q.shape[-2], -1)
        if allowed is not None:
            kept = kept.masked_fill(~allowed, 0.0)
        after = kept.flip(-1).cumsum(-1).flip(-1) - kept
        return after


class TestForgetting(EncodingContract):
    slack = 1e-5  # a running sum may be added up in another order

    def create(self):
        return Forgetting()


# The contract itself: it must see each of these bugs.


class Mutant(Turns):
    """Turns with room for a bug in x + E(p)."""

    def forward(self, x, positions=None, *, offset=None, length=None):
        where = token_positions(positions, offset, x, 1)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        return (x.to(wide) + self.encode(where, dtype=wide)).to(x.dtype)


class WrongSign(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        return super().encode(-positions, length=length, dtype=dtype)


class SinglePrecisionAngles(Turns):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        angles = positions[..., None].float() * torch.tensor(self.frequencies()).float()
        return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)


class NoGradient(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(x.detach(), positions, offset=offset)


class _Skewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads: Any):
        return grads[0] * 1.001


class SkewedGradient(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(_Skewed.apply(x), positions, offset=offset)


class _Writing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads: Any):
        return grads[0].mul_(1.0).add_(1.0)


class WritesCotangent(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return _Writing.apply(super().forward(x, positions, offset=offset))


class TakesFloats(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        positions = None if positions is None else positions.long()
        return super().forward(x, positions, offset=offset)

    def encode(self, positions, *, length=None, dtype=torch.float32):
        return super().encode(positions.long(), dtype=dtype)


class IgnoresOffset(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(x, positions)


class OneOffsetForAll(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        offset = int(offset.reshape(-1)[0]) if isinstance(offset, Tensor) else offset
        return super().forward(x, positions, offset=offset)


class DependsOnLength(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(x, positions, offset=offset) * (1 + 1e-6 * x.shape[-2])


class RemembersDtype(Mutant):
    """The table of the first call, in the dtype of that call, serves all later ones."""

    table: Tensor | None = None

    def forward(self, x, positions=None, *, offset=None, length=None):
        where = token_positions(positions, offset, x, 1)
        if where.numel() == 0 or int(where.max()) > 400 or int(where.min()) < 0:
            return super().forward(x, where)
        if self.table is None:
            self.table = self.encode(torch.arange(401), dtype=x.dtype)
        return (x + self.table[where]).to(x.dtype)


class GrowsTable(Mutant):
    """A longer call rescales the table, as dynamic NTK does."""

    longest = 0

    def forward(self, x, positions=None, *, offset=None, length=None):
        self.longest = max(self.longest, x.shape[-2])
        return super().forward(x, positions, offset=offset) * (1 + 1e-6 * (self.longest > 200))


@functools.cache
def _one_for_all(dim: int) -> list[Turns]:
    return []


class SharedTable(Mutant):
    """A table of the module, keyed by the width alone."""

    def encode(self, positions, *, length=None, dtype=torch.float32):
        first = _one_for_all(self.dim)
        if not first:
            first.append(Turns(self.fastest))
        return first[0].encode(positions, dtype=dtype)


class HalfArithmetic(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return x + self.encode(token_positions(positions, offset, x, 1), dtype=x.dtype)


class MixesRows(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        y = super().forward(x, positions, offset=offset)
        return y + 1e-6 * x.mean(0, keepdim=True)


class WritesInput(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        with torch.no_grad():
            return x.copy_(super().forward(x, positions, offset=offset))


class LendsMemory(Mutant):
    kept: Tensor | None = None

    def forward(self, x, positions=None, *, offset=None, length=None):
        y = super().forward(x, positions, offset=offset)
        if self.kept is None or self.kept.shape != y.shape:
            self.kept = torch.zeros_like(y)
        return self.kept.copy_(y)


class DrawsNumbers(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(x, positions, offset=offset) + 0 * torch.rand(())


class ModalMode(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        return super().forward(x, positions, offset=offset) * (1.0 if self.training else 0.9)


class FloatBuffer(Mutant):
    """Frequencies in a float buffer, as most rotary code holds them."""

    table: Tensor

    def __init__(self, fastest: float = 1.0, persistent: bool = False) -> None:
        super().__init__(fastest)
        values = torch.tensor(super().frequencies(), dtype=torch.float32)
        self.register_buffer("table", values, persistent=persistent)

    def frequencies(self):
        return self.table.tolist() if hasattr(self, "table") else super().frequencies()


class StoredBuffer(FloatBuffer):
    def __init__(self) -> None:
        super().__init__(persistent=True)


class HoldsLambda(Mutant):
    def __init__(self) -> None:
        super().__init__()
        self.rule = lambda x: x


class MatmulAngles(Mutant):
    """Angles by a matrix product, which autocast takes as its own."""

    def encode(self, positions, *, length=None, dtype=torch.float32):
        row = torch.tensor([self.frequencies()], dtype=torch.float32)
        angles = positions[..., None].float() @ row
        return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)


class DefaultDtype(Mutant):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        angles = positions[..., None] * torch.tensor(self.frequencies())
        return torch.cat((angles.sin(), angles.cos()), dim=-1).to(dtype)


class NeedsTokens(Mutant):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        positions.max()
        return super().encode(positions, dtype=dtype)


class NeedsContiguous(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        x.view(-1)
        return super().forward(x, positions, offset=offset)


class ReadsValues(Mutant):
    def encode(self, positions, *, length=None, dtype=torch.float32):
        codes = super().encode(positions, dtype=dtype)
        return codes if int(positions.sum()) else codes.clone()


class CountsInPython(Mutant):
    def forward(self, x, positions=None, *, offset=None, length=None):
        codes = [self.encode(torch.tensor([t]), dtype=x.dtype) for t in range(x.shape[-2])]
        given = super().forward(x, positions, offset=offset)
        return given + 0 * torch.cat(codes)


class Uninitialised(Fading):
    def reset_parameters(self) -> None:
        if not self.slope.is_meta and not bool(self.slope.isnan().any()):
            super().reset_parameters()


PLANTED = (
    (WrongSign, "reference"),
    (SinglePrecisionAngles, "reference"),
    (NoGradient, "gradient"),
    (SkewedGradient, "gradient gradcheck"),
    (WritesCotangent, "pure_gradient"),
    (TakesFloats, "positions"),
    (IgnoresOffset, "positions offset"),
    (OneOffsetForAll, "positions offset"),
    (DependsOnLength, "reference prefix offset"),
    (RemembersDtype, "history"),
    (GrowsTable, "history"),
    (HalfArithmetic, "rounding"),
    (MixesRows, "batch"),
    (WritesInput, "purity"),
    (LendsMemory, "purity"),
    (DrawsNumbers, "purity"),
    (ModalMode, "purity"),
    (FloatBuffer, "casts meta"),
    (StoredBuffer, "state"),
    (HoldsLambda, "copies"),
    (MatmulAngles, "ambient"),
    (DefaultDtype, "ambient"),
    (NeedsTokens, "ragged"),
    (NeedsContiguous, "strides"),
    (ReadsValues, "compile"),
    (CountsInPython, "compile"),
    (Uninitialised, "meta"),
)


def contract_of(made: Any, **attributes: Any) -> EncodingContract:
    body = {"create": lambda self: made(), "drift": 1e-15, **attributes}
    return type("Planted", (EncodingContract,), body)()


@pytest.mark.parametrize(
    ("bug", "law"),
    [(bug, law) for bug, laws in PLANTED for law in laws.split()],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_bug_breaks_its_law(bug, law):
    try:
        getattr(contract_of(bug), f"test_{law}")()
    except NameError:
        raise
    except Exception:
        return
    pytest.fail(f"{law} holds for {bug.__name__}")


def test_a_table_shared_by_siblings_breaks_history():
    _one_for_all.cache_clear()
    with pytest.raises(AssertionError, match="departs from its reference"):
        contract_of(SharedTable, siblings=lambda self: [SharedTable(0.5)]).test_history()


def test_every_law_has_a_planted_bug():
    assert {law for _, laws in PLANTED for law in laws.split()} == set(LAWS)


@pytest.mark.parametrize("law", [law for law in LAWS if law != "compile"])
def test_the_ground_of_the_mutants_is_sound(law):
    getattr(contract_of(Mutant), f"test_{law}")()


def test_a_waived_law_must_fail():
    waived = contract_of(WrongSign, waivers={"reference": "it turns the other way"})
    waived.test_reference()
    stale = contract_of(Turns, waivers={"reference": "it once turned the other way"})
    with pytest.raises(AssertionError, match=r"'reference' is waived \(it once .* but holds"):
        stale.test_reference()


def test_a_waiver_must_name_a_law():
    with pytest.raises(AssertionError, match=r"waivers name no law: \['prefixes'\]; the laws are"):
        contract_of(Turns, waivers={"prefixes": "a slip"}).test_waivers()


def test_waivers_of_the_catalogue_name_laws():
    for spec in ropewalk.encodings().values():
        for waivers in (spec.waivers, *(v.waivers for v in spec.variants.values())):
            assert set(waivers) <= set(LAWS)


def test_create_must_give_an_encoding():
    with pytest.raises(TypeError, match="none of ropewalk's families"):
        contract_of(lambda: nn.Linear(2, 2)).test_reference()
    with pytest.raises(NotImplementedError, match=r"say in create\(\)"):
        EncodingContract().test_reference()


def test_unittest_runs_the_contract_too():
    import unittest

    class Mine(EncodingContract, unittest.TestCase):
        drift = 1e-15

        def create(self):
            return Turns()

    found = unittest.defaultTestLoader.getTestCaseNames(Mine)
    assert {f"test_{law}" for law in LAWS} <= set(found)
    result = unittest.TestResult()
    Mine("test_reference").run(result)
    assert result.wasSuccessful()
    assert result.testsRun == 1


def test_poisoned_memory_is_seen_and_put_back():
    before = torch.empty
    with poisoned_memory():
        assert torch.empty(3).isnan().all()
        assert torch.empty_like(torch.zeros(2, dtype=torch.bfloat16)).isnan().all()
        assert torch.zeros(2).new_empty(2).isnan().all()
        assert (torch.empty(2, dtype=torch.int64) > 2**60).all()
        assert torch.empty(2, device="meta").is_meta
    assert torch.empty is before
    assert "new_empty" not in vars(torch.Tensor)


def test_poisoned_memory_leaves_no_trace():
    """PyTorch notes its constructors once a process; it must not note the poisoning ones."""
    code = (
        "import torch\n"
        "from ropewalk.checks.laws.poison import poisoned_memory\n"
        "with poisoned_memory(), torch.device('meta'):\n"
        "    torch.zeros(1)\n"
        "with torch.device('meta'):\n"
        "    print(torch.empty(2).is_meta, torch.empty(2, 3).is_meta)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["True", "True"], result.stderr
