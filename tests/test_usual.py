"""The usual call of a patched model, straight to the kernel, against the model's own function."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import rotary_zoo as zoo
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ropewalk
from ropewalk.kernels import eager, fused, native
from ropewalk.models.fused import place_of
from ropewalk.models.plan import plan
from ropewalk.models.recognise import recognised
from ropewalk.models.rotation import Rotation
from ropewalk.models.usual import straight
from ropewalk.spectra.lanes import number, pair_slices

TAKEN = ["spin", "spin_front", "spin_neighbours"]
OTHERS = ["spin_back", "spin_last", "spin_complex", "spin_sorted"]
HALF = torch.bfloat16, torch.float16


def rotation(name: str) -> Rotation:
    found = recognised(getattr(zoo, name))
    assert isinstance(found, Rotation), found
    return found


def usual(name: str) -> Any:
    found = straight(rotation(name))
    assert found is not None
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_other_forms_have_no_usual_call(name: str):
    assert straight(rotation(name)) is None


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def doubled(name: str, angles: Tensor) -> tuple[Tensor, Tensor]:
    both = angles.repeat_interleave(2, -1) if "neighbours" in name else torch.cat((angles,) * 2, -1)
    return both.cos(), both.sin()


def near(mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        bound = 3e-2 if b.dtype in HALF else 2e-6
        assert (a.double() - b.double()).abs().max() <= bound * b.abs().max()


def rows(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1, most])


@pytest.mark.parametrize("kernel", ["active", "pytorch"])
@pytest.mark.parametrize("name", TAKEN)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_does_what_the_function_does(name: str, kernel: str, data: Any):
    tokens, heads = data.draw(rows(5)), data.draw(st.sampled_from([(1, 1), (6, 2), (2, 2)]))
    batch, table_batch, table_tokens = data.draw(rows(3)), data.draw(rows(3)), data.draw(rows(5))
    dtype, of_table = (
        data.draw(st.sampled_from([torch.float32, torch.float64, *HALF])) for _ in range(2)
    )
    width = data.draw(st.sampled_from([4, 8, 12])) if name == "spin_front" else 12
    q, k = (
        normal(batch, tokens, n, 12, seed=n, dtype=dtype).transpose(1, 2)
        if data.draw(st.booleans())
        else normal(batch, n, tokens, 12, seed=n, dtype=dtype)
        for n in heads
    )
    cos, sin = (
        t.to(of_table) for t in doubled(name, normal(table_batch, table_tokens, width // 2))
    )
    args = (q, k, cos, sin)
    keyed: dict[str, Any] = {"unsqueeze_dim": 1} if data.draw(st.booleans()) else {}
    turned, own = usual(name), getattr(zoo, name)
    with pytest.MonkeyPatch.context() as patched, torch.no_grad():
        if kernel == "pytorch":
            patched.setattr(fused, "direct", lambda _: eager)
        try:
            wanted = own(*args, **keyed)
        except RuntimeError:
            return  # what the model never does
        near(turned(*args, **keyed), wanted)


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("name", TAKEN)
def test_the_usual_call_takes_no_detour(name: str, tokens: int, monkeypatch: pytest.MonkeyPatch):
    turned, own = usual(name), getattr(zoo, name)
    monkeypatch.setattr(Rotation, "__call__", None)
    q, k = (normal(2, tokens, n, 12, seed=n).transpose(1, 2) for n in (6, 2))
    tables = doubled(name, normal(2, tokens, 6))
    with torch.no_grad():
        near(turned(q, k, *tables), own(q, k, *tables))


@pytest.mark.parametrize("name", TAKEN)
def test_calls_of_another_kind_go_the_careful_way(name: str):
    turned, own = usual(name), getattr(zoo, name)
    q, k = normal(2, 5, 6, 12), normal(2, 5, 2, 12, seed=1)
    cos, sin = doubled(name, normal(2, 5, 6))
    near(turned(q, k, cos, sin, 2), own(q, k, cos, sin, 2))
    near(turned(q[0], k[0], cos[0], sin[0], 1), own(q[0], k[0], cos[0], sin[0], 1))
    rest = dict(zip(own.__code__.co_varnames[2:4], (cos, sin), strict=True))
    near(turned(q, k, unsqueeze_dim=2, **rest), own(q, k, unsqueeze_dim=2, **rest))


@pytest.mark.parametrize("name", TAKEN)
def test_gradients_and_transforms_flow(name: str):
    turned, own = usual(name), getattr(zoo, name)
    tables = doubled(name, normal(1, 5, 6))
    found = []
    for function in (turned, own):
        leaves = [normal(2, n, 5, 12, seed=n).requires_grad_() for n in (6, 2)]
        results = function(*leaves, *tables)
        found.append(torch.autograd.grad([(y * y.detach().sin()).sum() for y in results], leaves))
    near(*found)
    inputs = normal(3, 2, 6, 5, 12), normal(3, 2, 2, 5, 12, seed=1)
    mine, theirs = (torch.vmap(partial(_by, f, tables))(*inputs) for f in (turned, own))
    near(mine, theirs)


def _by(function: Any, tables: tuple[Tensor, Tensor], q: Tensor, k: Tensor) -> Any:
    return function(q, k, *tables)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("kernel", ["active", "pytorch"])
def test_the_second_copy_is_not_read(layout: str, kernel: str):
    ops: Any = native.kernel().ops if kernel == "active" else eager
    q, k = normal(2, 6, 5, 12), normal(2, 2, 5, 12, seed=1)
    cos, sin = normal(2, 5, 4, seed=2), normal(2, 5, 4, seed=3)
    lanes = pair_slices(12, 4, layout, 2, "standard")
    once, twice = ([torch.full_like(x, math.nan) for x in (q, k)] for _ in range(2))
    ops.rotate_qk_by(q, k, *once, cos, sin, number(lanes))
    poisoned = [torch.stack((t, torch.full_like(t, math.nan)), -1) for t in (cos, sin)]
    both = [t.flatten(-2) if layout == "interleaved" else t.mT.flatten(-2) for t in poisoned]
    ops.rotate_qk_by(q, k, *twice, *both, number(lanes, twice=True))
    for a, b in zip(once, twice, strict=True):
        assert torch.equal(a, b)
    alone = torch.full_like(q, math.nan)
    ops.rotate_by(q, alone, *both, number(lanes, twice=True))
    assert torch.equal(alone, once[0])
    with pytest.raises(RuntimeError, match="even width"):
        ops.rotate_by(q, alone, both[0][..., :7], both[1][..., :7], number(lanes, twice=True))


def test_a_place_is_settled_once_its_tables_were_compared():
    (name,) = plan(zoo.Attention).methods
    method = plan(zoo.Attention).methods[name]
    assert method.settled is not None
    assert method.functions == {"spin"}
    module = zoo.Attention()
    ropewalk.models.patch(module)
    place = place_of(module)
    assert place is not None
    x, tables = normal(1, 3, 32), zoo.tables(3, 16)
    settled, results = [], []
    for _ in range(3):
        settled.append(place.settled)
        results.append(module(x, *tables))
    assert settled == [False, True, True]
    assert torch.equal(results[1], results[2])
    near((results[1],), (results[0],))
    changes = {"instead": lambda applied: applied.tensors, "layout": "interleaved", "left": "why"}
    for name, value in changes.items():
        assert place.settled
        setattr(place, name, value)
        assert not place.settled
        changed = module(x, *tables)
        assert torch.allclose(changed, results[0], atol=1e-5) == (name == "left")
        assert not place.settled
        setattr(place, name, None)
        assert torch.equal(module(x, *tables), results[0])


def test_a_place_is_not_settled_before_an_angle_other_than_0_was_seen():
    module = zoo.Attention()
    ropewalk.models.patch(module)
    place = place_of(module)
    assert place is not None
    for start, settled in ((0, False), (0, False), (7, True)):
        module(normal(1, 1, 32), *zoo.tables(1, 16, start=start))
        assert place.settled is settled


def test_copies_that_differ_never_settle():
    module = zoo.Attention()
    ropewalk.models.patch(module)
    place = place_of(module)
    assert place is not None
    tables = zoo.tables(3, 16, twins=False)
    for _ in range(2):
        module(normal(1, 3, 32), *tables)
        assert not place.settled
        assert place.left is not None
