"""Values: what the operations give, and their derivatives."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from ropewalk.checks.laws.case import HALVES, Case, equal, law, like, require
from ropewalk.checks.laws.views import Outputs, View


class ValueLaws(Case):
    """Values: see the module."""

    @law
    def test_reference(self) -> None:
        """Every operation gives what the literal reference gives, in float64 and float32."""
        original = self._made()
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            encoding = copy.deepcopy(original).to(dtype)
            self._matches_reference(encoding, dtype, tolerance)

    @law
    def test_gradient(self) -> None:
        """Backward agrees with the difference quotient of the literal reference.

        A parameter may multiply the position, so that its quotient means something near 0 only.
        """
        encoding = self._made().double()
        seen = self._view(encoding)
        samples = [p for p in self._samples(encoding) if abs(p) < 2**18]
        near = [p for p in samples if abs(p) <= 8]
        learned = [p for p in encoding.parameters() if p.requires_grad]
        self._agrees_with_quotients(seen, samples, None, self.step)
        if learned:
            self._agrees_with_quotients(seen, near, learned, self.step / 10)

    def _agrees_with_quotients(
        self, seen: View, samples: list[int], learned: Sequence[Tensor] | None, length: float
    ) -> None:
        """Derivatives of parameters, or else of the inputs, along a random direction each."""
        inputs = [x.requires_grad_() for x in seen.inputs(2, len(samples), torch.float64)]
        positions = seen.scatter(samples)
        outputs = seen.apply(inputs, positions)
        cotangents = {name: like(y, 10 + i) for i, (name, y) in enumerate(outputs.items())}

        def pairing(results: Outputs) -> Tensor:
            return sum((results[n] * c).sum() for n, c in cotangents.items())  # pyright: ignore

        total = pairing(outputs)
        if not total.requires_grad:
            require(not list(seen.encoding.parameters()), "no gradient reaches the parameters")
            require(
                self._unread(seen), "no gradient reaches the inputs, which the values depend on"
            )
            return
        leaves = inputs if learned is None else learned
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        size = sum(
            float((y.detach().abs() * cotangents[n].abs()).sum()) for n, y in outputs.items()
        )
        for i, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
            direction = like(leaf, 20 + i)
            found = 0.0 if gradient is None else float((gradient * direction).sum())
            with torch.no_grad():
                kept = leaf.clone()
                ends = []
                for sign in (1, -1):
                    leaf.copy_(kept + sign * length * direction)
                    ends.append(float(pairing(seen.expected(inputs, positions))))
                leaf.copy_(kept)
            quotient = (ends[0] - ends[1]) / (2 * length)
            allowed = 1e-6 * (abs(quotient) + 1.0) + 1e-15 * size / length
            require(
                abs(found - quotient) <= allowed,
                f"the gradient of leaf {i} {tuple(leaf.shape)} along a random direction is "
                f"{found}; the reference rises by {quotient}",
            )

    @law
    def test_gradcheck(self) -> None:
        """First and second derivatives of the inputs pass PyTorch's own numerical check."""
        encoding = self._made().double()
        seen = self._view(encoding)
        inputs = [x.requires_grad_() for x in seen.inputs(1, 3, torch.float64)]
        positions = seen.place(1, 3)

        names = [n for n, y in seen.apply(inputs, positions).items() if y.requires_grad]

        def results(*leaves: Tensor) -> tuple[Tensor, ...]:
            outputs = seen.apply(leaves, positions)
            return tuple(outputs[name] for name in names)

        if names:
            torch.autograd.gradcheck(results, inputs, fast_mode=True, rtol=1e-6, atol=1e-7)
            torch.autograd.gradgradcheck(results, inputs, fast_mode=True)

    @law
    def test_rounding(self) -> None:
        """bfloat16 and float16 results, and gradients of inputs, are rounded float32 ones."""
        encoding = self._made()
        seen = self._view(encoding)
        if not seen.halves:
            return
        tokens = min(40, self._long(encoding) - 7)
        for dtype in HALVES:
            low = [x.requires_grad_() for x in seen.inputs(2, tokens, dtype)]
            wide = [x.detach().float().requires_grad_() for x in low]
            found, exact = seen.apply(low, None, 7), seen.apply(wide, None, 7)
            for name, y in found.items():
                require(y.dtype == dtype, f"{name} of {dtype} has dtype {y.dtype}")
            rounded = {name: y.to(dtype) for name, y in exact.items()}
            self._same(found, rounded, f"{dtype} results and rounded float32 ones", exact=True)
            for name, y in found.items():
                if not y.requires_grad:
                    continue
                cotangent = like(y, 3)
                gradients = torch.autograd.grad(y, low, cotangent, allow_unused=True)
                precise = torch.autograd.grad(
                    exact[name], wide, cotangent.float(), allow_unused=True
                )
                for g, p in zip(gradients, precise, strict=True):
                    require((g is None) == (p is None), f"{name}: gradients of other inputs")
                    if g is not None and p is not None:
                        equal(g, p.to(dtype), f"{dtype} gradient of {name}")
