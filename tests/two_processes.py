"""Checks that two gloo processes run together; ``test_distributed.py`` starts them and judges.

Each takes the rank and raises where something is wrong. Both processes run all of them in order.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from docs_examples import documented
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ropewalk import RoPE, attend, norm_rotate, norm_rotate_, rotate, rotate_, rotate_by, rotate_qk
from ropewalk.kernels import Steps
from ropewalk.spectra import Spectrum, axial, geometric

Check = Callable[[int], None]
CHECKS: dict[str, Check] = {}
FAR = 2**40 + 3


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (2,))


def spread(x: Tensor, *placements: Placement) -> DTensor:
    return distribute_tensor(x, mesh(), placements)


def same(found: Any, expected: Tensor) -> None:
    """All parts together, and this rank's own, are ``expected`` bit for bit."""
    assert isinstance(found, DTensor)
    assert torch.equal(found.full_tensor(), expected)
    own = distribute_tensor(expected, found.device_mesh, found.placements).to_local()
    assert torch.equal(found.to_local(), own)


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call()


SHARDINGS = (Shard(0), Shard(1), Shard(2), Replicate())
"""Of batch, heads and tokens; 3, 5 and 7 of them do not divide by two."""


@check
def every_sharding_gives_the_same_bits(rank: int) -> None:
    spectrum = geometric(8, rotary_dim=6).replace(attention_factor=1.25)
    line, rows = torch.arange(7) + FAR, torch.arange(21).reshape(3, 7) ** 5
    for placement in SHARDINGS:
        for dtype in (torch.float32, torch.bfloat16):
            x = drawn(3, 5, 7, 8, dtype=dtype)
            parts = spread(x, placement)
            for positions, offset in ((None, None), (None, FAR), (line, None), (rows, None)):
                whole = rotate(x, positions, spectrum, offset=offset)
                same(rotate(parts, positions, spectrum, offset=offset), whole)
            starts = torch.tensor([4, -FAR, 9])
            same(
                rotate(parts, None, spectrum, offset=starts, inverse=True),
                rotate(x, None, spectrum, offset=starts, inverse=True),
            )


@check
def positions_may_be_distributed_too(rank: int) -> None:
    x, spectrum = drawn(3, 5, 7, 8), axial(8)
    line, rows = torch.arange(14).reshape(7, 2) + FAR, torch.arange(42).reshape(3, 7, 2) ** 5
    for placement in SHARDINGS:
        for where in (line, rows):
            for held in (Replicate(), Shard(0)):
                found = rotate(spread(x, placement), spread(where, held), spectrum)
                same(found, rotate(x, where, spectrum))


@check
def a_mesh_of_two_axes(rank: int) -> None:
    two = init_device_mesh("cpu", (1, 2))
    x = drawn(3, 5, 7, 8)
    for placements in ((Shard(0), Shard(2)), (Shard(2), Shard(2)), (Replicate(), Shard(1))):
        parts = distribute_tensor(x, two, placements)
        same(rotate(parts, None, geometric(8), offset=9), rotate(x, None, geometric(8), offset=9))


@check
def gradients_are_sharded_like_the_values(rank: int) -> None:
    cotangent, spectrum = drawn(3, 5, 7, 8, seed=1), geometric(8)
    x = drawn(3, 5, 7, 8).requires_grad_()
    (expected,) = torch.autograd.grad(rotate(x, None, spectrum), x, cotangent)
    for placement in SHARDINGS:
        parts = spread(x.detach(), placement).requires_grad_()
        rotate(parts, None, spectrum).backward(spread(cotangent, placement))
        assert parts.grad is not None
        same(parts.grad, expected)


@check
def strides_are_kept(rank: int) -> None:
    """[batch, tokens, heads, head_dim] seen as [batch, heads, tokens, head_dim], as models do."""
    x, spectrum = drawn(2, 7, 4, 8), geometric(8)
    parts = spread(x, Shard(2)).transpose(1, 2)
    found = rotate(parts, None, spectrum)
    expected = rotate(x.transpose(1, 2), None, spectrum)
    same(found, expected)
    same(found.transpose(1, 2).flatten(2), expected.transpose(1, 2).flatten(2))


@check
def in_place_and_out(rank: int) -> None:
    x, spectrum = drawn(3, 5, 7, 8), geometric(8)
    expected = rotate(x, None, spectrum)
    for placement in SHARDINGS:
        parts = spread(x.clone(), placement)
        version = parts._version
        assert rotate_(parts, None, spectrum) is parts
        same(parts, expected)
        assert parts._version > version, "a change that autograd would not notice"
        into = torch.empty_like(parts)
        assert rotate(spread(x, placement), None, spectrum, out=into) is into
        same(into, expected)
        leaf = spread(x, placement).requires_grad_()
        rotate_(leaf * 1, None, spectrum).sum().backward()
        assert leaf.grad is not None
        same(leaf.grad, rotate(torch.ones_like(x), None, spectrum, inverse=True))


@check
def q_and_k_with_their_own_numbers_of_heads(rank: int) -> None:
    q, k, spectrum = drawn(2, 8, 7, 8), drawn(2, 2, 7, 8, seed=1), geometric(8)
    expected = rotate_qk(q, k, None, spectrum, offset=FAR)
    parts = rotate_qk(spread(q, Shard(1)), spread(k, Shard(1)), None, spectrum, offset=FAR)
    for found, whole in zip(parts, expected, strict=True):
        same(found, whole)
    for kind in ("integer", "float32"):
        rope = RoPE(8, phases=kind)
        for found, whole in zip(
            rope(spread(q, Shard(1)), spread(k, Shard(2))), rope(q, k), strict=True
        ):
            same(found, whole)


@check
def frequencies_per_head_follow_their_heads(rank: int) -> None:
    freqs = tuple(((1.0 / (head + 1), 0.1 * head),) for head in range(3))
    spectrum = Spectrum(freqs, 6, attention_factor=0.5)
    for heads in (3, 9):  # 9 heads over 2 ranks: 5 and 4, in the middle of a group
        x = drawn(2, heads, 7, 6)
        for placement in SHARDINGS:
            same(rotate(spread(x, placement), None, spectrum), rotate(x, None, spectrum))
    lone = drawn(2, 1, 7, 6)
    single = Spectrum(freqs[1:2], 6)
    same(rotate(spread(lone, Shard(1)), None, single), rotate(lone, None, single))


@check
def given_tables(rank: int) -> None:
    x, cotangent = drawn(3, 5, 7, 8), drawn(3, 5, 7, 8, seed=1)
    for shape in ((7, 4), (3, 7, 4), (3, 1, 7, 4), (3, 5, 7, 4), (1, 1, 1, 4)):
        cos, sin = (drawn(*shape, seed=s).requires_grad_() for s in (2, 3))
        whole = x.clone().requires_grad_()
        expected = rotate_by(whole, cos, sin)
        gradients = torch.autograd.grad(expected, (whole, cos, sin), cotangent)
        for placement in SHARDINGS:
            same(rotate_by(spread(x, placement), cos.detach(), sin.detach()), expected.detach())
            leaves = [spread(x, placement)] + [spread(t.detach(), Replicate()) for t in (cos, sin)]
            leaves = [leaf.requires_grad_() for leaf in leaves]
            rotate_by(*leaves).backward(spread(cotangent, placement))
            for leaf, gradient in zip(leaves, gradients, strict=True):
                assert isinstance(leaf.grad, DTensor)
                assert torch.allclose(leaf.grad.full_tensor(), gradient, atol=1e-5)


@check
def normed_by_one_weight(rank: int) -> None:
    spectrum, x, weight = geometric(8), drawn(3, 5, 7, 8), drawn(8, seed=2)
    whole = [t.clone().requires_grad_() for t in (x, weight)]
    expected = norm_rotate(whole[0], whole[1], None, spectrum, offset=FAR)
    expected_grads = torch.autograd.grad(expected, whole, drawn(3, 5, 7, 8, seed=1))
    for placement in SHARDINGS:
        parts = spread(x, placement).requires_grad_(), spread(weight, Replicate()).requires_grad_()
        found = norm_rotate(*parts, None, spectrum, offset=FAR)
        same(found, expected.detach())
        grads = torch.autograd.grad(found, parts, spread(drawn(3, 5, 7, 8, seed=1), placement))
        for one, other in zip(grads, expected_grads, strict=True):
            assert isinstance(one, DTensor)
            torch.testing.assert_close(one.full_tensor(), other)
        again = norm_rotate_(spread(x, placement), weight, None, spectrum, offset=FAR)
        same(again, expected.detach())
    parts = spread(x, Shard(1))
    wanted = weight.clone().requires_grad_()
    refused(TypeError, "lack the other ranks'", lambda: norm_rotate(parts, wanted, None, spectrum))
    replicated = spread(weight, Replicate())
    refused(TypeError, "weight is a DTensor", lambda: norm_rotate(x, replicated, None, spectrum))


@check
def what_has_no_rule_names_the_remedy(rank: int) -> None:
    x, spectrum = drawn(2, 4, 6, 8), geometric(8)
    parts = spread(x, Shard(1))
    refused(TypeError, "cut head_dim", lambda: rotate(spread(x, Shard(3)), None, spectrum))
    refused(TypeError, "Shard(1)", lambda: rotate(spread(x, Shard(3)), None, spectrum))
    pending = DTensor.from_local(x, mesh(), [Partial()])
    refused(TypeError, "x.redistribute", lambda: rotate(pending, None, spectrum))
    line = spread(torch.arange(6), Replicate())
    refused(TypeError, "positions.to_local()", lambda: rotate(x, line, spectrum))
    leaf = x.clone().requires_grad_() * 1
    refused(TypeError, "positions.to_local()", lambda: rotate_(leaf, line, spectrum))
    refused(TypeError, "positions.to_local()", lambda: rotate_qk(x, x, line, spectrum))
    refused(
        TypeError, "offset.full_tensor()", lambda: rotate(parts, None, spectrum, offset=line[:2])
    )
    refused(TypeError, "empty_like(x)", lambda: rotate(parts, None, spectrum, out=x.clone()))
    other = torch.empty_like(spread(x, Shard(2)))
    refused(TypeError, "same shape", lambda: rotate(parts, None, spectrum, out=other))
    cos, sin = drawn(6, 4), drawn(6, 4)
    refused(TypeError, "cut head_dim", lambda: rotate_by(spread(x, Shard(3)), cos, sin))
    refused(TypeError, "distribute_tensor(cos", lambda: rotate_by(parts, cos.requires_grad_(), sin))
    refused(TypeError, "cos.to_local()", lambda: rotate_by(x, spread(sin, Replicate()), sin))
    own = torch.arange(3)
    refused(ValueError, "3 tokens", lambda: rotate(spread(x, Shard(2)), own, spectrum))
    refused(TypeError, "to_local()", lambda: attend(parts, parts, parts, RoPE(8)))
    elsewhere = distribute_tensor(
        torch.arange(6), init_device_mesh("cpu", (1, 2)), [Replicate(), Replicate()]
    )
    refused(TypeError, "different meshes", lambda: rotate(parts, elsewhere, spectrum))


@check
def a_replicated_module(rank: int) -> None:
    rope, x = RoPE(8), drawn(2, 4, 6, 8)
    expected = rope.encode_q(x)
    distribute_module(rope, mesh())
    assert isinstance(rope.steps, DTensor)
    same(rope.encode_q(spread(x, Shard(2))), expected)
    assert torch.equal(rope.encode_q(x), expected)
    leaf, steps = x.clone().requires_grad_(), Steps(rope.steps, rope.spectrum)
    assert torch.equal(rotate_(leaf * 1, None, steps), expected)
    assert torch.equal(rotate_(x.clone(), None, steps), expected)


# Small models


class Attention(nn.Module):
    rope: RoPE

    def __init__(self, dim: int = 16, head_dim: int = 4) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.head_dim, self.rope = head_dim, RoPE(head_dim)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.heads(linear(x)) for linear in (self.q, self.k, self.v))
        if isinstance(q, DTensor):
            parts: list[Any] = [*self.rope(q, k), v]
            own = attend(*(part.to_local() for part in parts))
            joined = DTensor.from_local(own, q.device_mesh, q.placements)
            return self.o(joined.transpose(1, 2).flatten(2))
        return self.o(attend(q, k, v, self.rope).transpose(1, 2).flatten(2))


class Layers(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.layers, self.recompute = nn.ModuleList(Attention() for _ in range(2)), recompute

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + (checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x))
        return x


Model = TypeVar("Model", bound=nn.Module)


def seeded(model: Model) -> Model:
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=index) / 4)
    return model


def gradients(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and every gradient of its mean square, whole."""
    result = model(x)
    result.square().mean().backward()
    held = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert len(held) == len(list(model.parameters()))
    return result.detach(), {
        n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in held.items()
    }


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-6), name


@check
def tensor_parallel_attention(rank: int) -> None:
    x = drawn(2, 6, 16, seed=9)
    output, expected = gradients(seeded(Attention()), x)
    for local in (True, False):
        model = seeded(Attention())
        into = {n: ColwiseParallel(use_local_output=local) for n in ("q", "k", "v")}
        parallelize_module(model, mesh(), {**into, "o": RowwiseParallel()})
        found, own = gradients(model, x)
        assert torch.allclose(found, output, atol=1e-6), local
        close(own, expected)


@check
def context_parallel_attention(rank: int) -> None:
    """Each rank holds half of the tokens and attends to those up to its last."""
    x, tokens = drawn(2, 6, 16, seed=9), 6
    model = seeded(Attention())
    output, expected = gradients(model, x)
    model.zero_grad()
    first, last = 3 * rank, 3 * rank + 3
    q, k, v = (model.heads(linear(x[:, first:last])) for linear in (model.q, model.k, model.v))
    parts = [DTensor.from_local(t, mesh(), [Shard(2)]) for t in (q, k, v)]
    q, k = model.rope(*parts[:2])  # at the positions of this rank's tokens
    keys, values = (
        t.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
        for t in (k, parts[2])
    )
    where = torch.arange(first, last)
    again = model.rope.encode_q(parts[0].to_local(), where)
    assert torch.equal(q.to_local(), again)
    seen = (keys[:, :, :last], values[:, :, :last])
    mixed = attend(q.to_local(), *seen)  # causal, aligned to the end
    own = model.o(mixed.transpose(1, 2).flatten(2))
    assert torch.allclose(own, output[:, first:last], atol=1e-6)
    (own.square().sum() / (2 * tokens * 16)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        distributed.all_reduce(parameter.grad)
        assert torch.allclose(parameter.grad, expected[name], atol=1e-6), name


@check
def data_parallel(rank: int) -> None:
    x = drawn(4, 6, 16, seed=9)
    output, expected = gradients(seeded(Layers()), x)
    for recompute in (False, True):
        model = DistributedDataParallel(seeded(Layers(recompute)))
        found, own = gradients(model, x[2 * rank : 2 * rank + 2])
        assert torch.allclose(found, output[2 * rank : 2 * rank + 2], atol=1e-6)
        close({n.removeprefix("module."): g for n, g in own.items()}, expected)


@check
def fully_sharded_from_meta(rank: int) -> None:
    x = drawn(4, 6, 16, seed=9)
    reference: Any = seeded(Layers())
    output, expected = gradients(reference, x)
    for recompute in (False, True):
        with torch.device("meta"):
            model: Any = Layers(recompute)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh())
        fully_shard(model, mesh=mesh())
        model.to_empty(device="cpu")
        assert torch.equal(model.layers[0].rope.steps, reference.layers[0].rope.steps)
        for own, whole in zip(model.parameters(), reference.parameters(), strict=True):
            own.data.copy_(distribute_tensor(whole.detach(), own.device_mesh, own.placements))
        found, grads = gradients(model, x[2 * rank : 2 * rank + 2])
        assert torch.allclose(found, output[2 * rank : 2 * rank + 2], atol=1e-6)
        close(grads, expected)


@check
def compiled_shards(rank: int) -> None:
    x, spectrum = drawn(2, 4, 6, 8), geometric(8)
    compiled = torch.compile(lambda x: rotate(x, None, spectrum) * 2, backend="aot_eager")
    same(compiled(spread(x, Shard(2))), rotate(x, None, spectrum) * 2)


@check
def what_the_docs_say(rank: int) -> None:
    (example,) = documented("torch.distributed", has=True)
    exec("import torch, ropewalk\n" + example, {})


def run(rank: int, folder: str) -> None:
    """All checks as ``rank`` of two; what went wrong goes to ``folder/rank.json``."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="`torch.jit.script.* is deprecated")
    warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec.` is deprecated")
    torch.set_num_threads(1)
    results: dict[str, str] = {}
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=40),
    )
    try:
        for name, function in CHECKS.items():
            try:
                function(rank)
                results[name] = ""
            except Exception:
                results[name] = traceback.format_exc()
    finally:
        Path(folder, f"{rank}.json").write_text(json.dumps(results))
        distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo that lets go of a tensor while Python shuts down aborts
