"""Compilers: no graph a length, and the same bits."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.checks.laws.case import Case, equal, law, like, require


class CompileLaws(Case):
    """Compilers: see the module."""

    @law
    def test_compile(self) -> None:
        """``torch.compile(fullgraph=True)`` has equal bits and no new graph for every length.

        The gradient of a parameter is a sum over tokens, which a compiler may add up otherwise.
        """
        seen = self._view(self._made())
        graphs: list[object] = []
        eager = torch._dynamo.lookup_backend("aot_eager")

        def counting(graph, examples):
            graphs.append(graph)
            return eager(graph, examples)

        def call(inputs: list[Tensor], starts: Tensor) -> list[Tensor]:
            return list(seen.apply(inputs, None, starts).values())  # counted inside the graph

        torch.compiler.reset()
        try:
            compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=counting)
            starts = torch.tensor([2, 0], device=seen.device)
            traced: list[int] = []
            for tokens in (23, 29, 31):  # no width or head count, whose symbol they would share
                inputs = [x.requires_grad_() for x in seen.inputs(2, tokens)]
                leaves = [*inputs, *(p for p in seen.encoding.parameters() if p.requires_grad)]
                pair = []
                for run in (compiled, call):
                    results = run(inputs, starts)
                    total = sum((y * like(y, i)).sum() for i, y in enumerate(results))
                    assert isinstance(total, Tensor)
                    graded = total.requires_grad
                    grads = torch.autograd.grad(total, leaves, allow_unused=True) if graded else ()
                    pair.append((results, [torch.zeros(()) if g is None else g for g in grads]))
                for what, found, expected in zip(("result", "gradient"), *pair, strict=True):
                    require(len(found) == len(expected), f"a compiled {what} is missing")
                    for i, (y, e) in enumerate(zip(found, expected, strict=True)):
                        summed = what == "gradient" and i >= len(inputs)  # in any order
                        slack = max(self.slack, 1e-6 if summed else 0.0)
                        equal(y.detach(), e.detach(), f"compiled {what} {i}", slack)
                traced.append(len(graphs))
            # The second length may still turn a constant into a symbol; the third needs nothing.
            require(traced[1] == traced[2], "it is traced again for every length")
        finally:
            torch.compiler.reset()
