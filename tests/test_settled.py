"""A settled place, given later what its first call did not have: as the model's own function."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import rotary_zoo as zoo
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ropewalk.models import patch
from ropewalk.models.fused import place_of


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def both(cls: type = zoo.Attention) -> tuple[nn.Module, nn.Module]:
    """A module, and its patched copy whose first call was an ordinary one."""
    torch.manual_seed(0)
    plain = cls()
    patched = copy.deepcopy(plain)
    patch(patched)
    patched(normal(1, 3, 32), *zoo.tables(3, 16, start=5))
    place = place_of(patched)
    assert place is not None
    assert place.left is None
    return plain, patched


LATER: dict[str, Callable[[Tensor, Tensor], tuple[Any, Any]]] = {
    "one row": lambda c, s: (c[:, :1], s[:, :1]),
    "one angle for all lanes": lambda c, s: (c[..., :1], s[..., :1]),
    "narrower than heads": lambda c, s: (c[..., :8], s[..., :8]),
    "sin of another shape": lambda c, s: (c, s[:, :1]),
    "sin in float64": lambda c, s: (c, s.double()),
    "cos in float64": lambda c, s: (c.double(), s),
    "both in float64": lambda c, s: (c.double(), s.double()),
    "integers": lambda c, s: ((c * 9).long(), (s * 9).long()),
    "flags": lambda c, s: (c > 0, s > 0),
    "complex": lambda c, s: (c + 0j, s + 0j),
    "two dimensions": lambda c, s: (c[0], s[0]),
    "four dimensions": lambda c, s: (c[None], s[None]),
    "numbers": lambda c, s: (0.5, 0.3),
    "none": lambda c, s: (None, None),
    "expanded": lambda c, s: (c[:, :1, :1].expand(1, 3, 16), s[:, :1, :1].expand(1, 3, 16)),
}


@pytest.mark.parametrize("cls", [zoo.Attention, zoo.Helped, zoo.Inline])
@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize("watched", [False, True])
def test_later_tables_of_another_kind(cls: type, kind: str, watched: bool):
    plain, patched = both(cls)
    x, tables = normal(2, 3, 32), LATER[kind](*zoo.tables(3, 16, start=9))
    with torch.set_grad_enabled(watched):
        try:
            wanted = plain(x, *tables)
        except (RuntimeError, AttributeError, IndexError, TypeError):
            with pytest.raises((RuntimeError, AttributeError, IndexError, TypeError, ValueError)):
                patched(x, *tables)
            return
        found = patched(x, *tables)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert (found - wanted).abs().max() <= 2e-6 * wanted.abs().max()


@pytest.mark.parametrize("cls", [zoo.Attention, zoo.Helped, zoo.Inline])
@pytest.mark.parametrize("first", [False, True])
def test_gradients_of_tables_reach_both_copies(cls: type, first: bool):
    plain, patched = both(cls)
    if first:
        patch(patched := copy.deepcopy(plain))
    found = []
    for module in (plain, patched):
        leaves = [t.requires_grad_() for t in zoo.tables(3, 16, start=9)]
        found.append(torch.autograd.grad(module(normal(2, 3, 32), *leaves).square().sum(), leaves))
    for wanted, mine in zip(*found, strict=True):
        assert (mine - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    tables = zoo.tables(3, 16, twins=False, start=9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forward mode scripts its own decompositions
        tangents = [
            torch.func.jvp(lambda *t, m=m: m(normal(2, 3, 32), *t), zoo.tables(3, 16), tables)
            for m in (plain, patched)
        ]
    assert (tangents[1][1] - tangents[0][1]).abs().max() <= 1e-5 * tangents[0][1].abs().max()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("cls", [zoo.Attention, zoo.Helped, zoo.Inline])
def test_a_checkpoint_may_be_the_first_call(cls: type, reentrant: bool, twins: bool):
    torch.manual_seed(0)
    plain = cls()
    patch(patched := copy.deepcopy(plain))
    found = []
    for module in (plain, patched):
        x = normal(1, 3, 32).requires_grad_()
        made: Any = checkpoint(module, x, *zoo.tables(3, 16, twins=twins), use_reentrant=reentrant)
        found.append(
            torch.autograd.grad(made.square().sum(), x) if not reentrant else _grad(made, x)
        )
    place = place_of(patched)
    assert place is not None
    assert (place.left is None) is twins
    (wanted,), (mine,) = found
    assert (mine - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def _grad(made: Tensor, x: Tensor) -> tuple[Tensor]:
    made.square().sum().backward()
    assert x.grad is not None
    return (x.grad,)


def test_settling_makes_no_new_graph():
    torch.compiler.reset()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    patch(patched := zoo.Attention())
    compiled = torch.compile(patched, backend=backend, fullgraph=True)
    x, tables = normal(1, 3, 32), zoo.tables(3, 16, start=5)
    with torch.no_grad():
        wanted = compiled(x, *tables)
        assert not place_of(patched).settled  # pyright: ignore[reportOptionalMemberAccess]
        patched(x, *tables)
        assert place_of(patched).settled  # pyright: ignore[reportOptionalMemberAccess]
        assert torch.equal(compiled(x, *tables), wanted)
    assert len(graphs) == 1


@pytest.mark.parametrize("first", [True, False])
def test_each_call_of_a_function_is_compared_once(first: bool):
    plain = zoo.Again()
    patch(patched := copy.deepcopy(plain))
    twins, others = zoo.tables(3, 16, start=5), zoo.tables(3, 16, twins=False, start=5)
    tables = (*others, *twins) if first else (*twins, *others)
    x = normal(2, 3, 32)
    for _ in range(3):
        wanted = plain(x, *tables)
        assert (patched(x, *tables) - wanted).abs().max() <= 2e-6 * wanted.abs().max()
    place = place_of(patched)
    assert place is not None
    assert place.left is not None
    assert not place.settled
