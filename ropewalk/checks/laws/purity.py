"""Purity: results depend on inputs, positions and configuration, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from ropewalk.checks.laws.case import HALVES, Case, equal, law, like, require


class PurityLaws(Case):
    """Purity: see the module."""

    @law
    def test_history(self) -> None:
        """Earlier calls leave no trace: longer ones, other dtypes, other configurations."""
        encoding = self._made()
        used = copy.deepcopy(encoding)
        expected = self._values(encoding)
        others = [self._placed(other) for other in self.siblings()]
        again = self._view(used)
        tokens = self._long(used)
        for dtype in HALVES if again.halves else ():
            again.apply(again.inputs(2, 5, dtype))
            self._same(self._values(used), expected, f"values after a call in {dtype}", exact=True)
        again.apply(again.inputs(1, tokens))
        again.apply(again.inputs(1, 2, torch.float64), None, tokens - 2)
        with torch.autocast(self.device.partition(":")[0], torch.bfloat16):
            again.apply(again.inputs(1, 4))
        self._same(self._values(used), expected, "values after other calls", exact=True)
        for other in others:
            self._values(other)
        self._same(self._values(encoding), expected, "values after its siblings ran", exact=True)
        self._same(self._values(self._twin(encoding)), expected, "a later instance", exact=True)
        if "reference" not in self.waivers:
            for other in others:
                self._matches_reference(other, torch.float32, 1e-6, few=True)

    @law
    def test_purity(self) -> None:
        """Nothing is written but the result, which is nobody else's memory."""
        encoding = self._made()
        seen = self._view(encoding)
        inputs = seen.inputs(2, 7)
        positions = seen.place(torch.tensor([0, 4], device=seen.device), 7)
        held = [*inputs, positions, *encoding.parameters(), *encoding.buffers()]
        before = [(x, x.detach().clone(), x._version) for x in held]
        chance = torch.random.get_rng_state()
        first = seen.raw(inputs, positions)
        for x, value, version in before:
            require(x._version == version, f"a tensor {tuple(x.shape)} was written")
            equal(x.detach(), value, "a tensor that the call was given or holds")
        require(torch.equal(chance, torch.random.get_rng_state()), "random numbers were drawn")
        second = seen.raw(inputs, positions)
        self._same(second, first, "a second call", exact=True)
        kept = {id(x): x.untyped_storage().data_ptr() for x in held if x.numel()}
        for name, y in first.items():
            if any(y is x for x in inputs):
                continue  # an encoding that does nothing may hand back what it was given
            address = y.untyped_storage().data_ptr()
            require(address not in kept.values(), f"{name} shares memory with what it was given")
            require(
                address != second[name].untyped_storage().data_ptr(),
                f"{name} shares memory with the result of another call",
            )
        encoding.eval()
        self._same(seen.raw(inputs, positions), first, "training and eval mode", exact=True)

    @law
    def test_pure_gradient(self) -> None:
        """Backward writes no cotangent and gives the same a second time."""
        seen = self._view(self._made())
        inputs = [x.requires_grad_() for x in seen.inputs(2, 7)]
        for name, y in seen.apply(inputs, seen.place(3, 7)).items():
            if not y.requires_grad:
                continue
            cotangent = like(y, 4)
            kept = cotangent.clone()
            leaves = [*inputs, *(p for p in seen.encoding.parameters() if p.requires_grad)]
            passes = [
                torch.autograd.grad(y, leaves, cotangent, retain_graph=True, allow_unused=True)
                for _ in range(2)
            ]
            equal(cotangent, kept, f"the cotangent of {name}")
            for a, b, leaf in zip(*passes, leaves, strict=True):
                require((a is None) == (b is None), f"{name}: gradients come and go")
                if a is not None and b is not None:
                    require(a.dtype == leaf.dtype, f"{name}: gradient of another dtype")
                    equal(a, b, f"the second gradient of {name}")

    @law
    def test_ambient(self) -> None:
        """Autocast, the default dtype and grad mode do not change values."""
        encoding = self._made()
        expected = self._values(encoding)
        for dtype in HALVES:
            with torch.autocast(self.device.partition(":")[0], dtype):
                found = self._values(encoding)
            self._same(found, expected, f"values under autocast to {dtype}", exact=True)
        default = torch.get_default_dtype()
        try:
            for dtype in (torch.float64, *HALVES):
                torch.set_default_dtype(dtype)
                what = f"under default dtype {dtype}"
                self._same(self._values(encoding), expected, f"values {what}", exact=True)
                twin = self._made()
                twin.load_state_dict(encoding.state_dict(), assign=True)
                self._same(self._values(twin), expected, f"an encoding made {what}", exact=True)
        finally:
            torch.set_default_dtype(default)
        with torch.inference_mode():
            found = self._values(encoding)
        self._same(found, expected, "values in inference mode", exact=True)

    @law
    def test_strides(self) -> None:
        """Transposed, strided, expanded inputs give what contiguous ones give."""
        seen = self._view(self._made())
        inputs = seen.inputs(2, 6)
        positions = seen.place(4, 6)
        expected = seen.apply(inputs, positions)
        kinds: dict[str, Callable[[Tensor], Tensor]] = {
            "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
            "tokens first": lambda x: x.transpose(1, -2).contiguous().transpose(1, -2),
            "strided": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2],
            "with a gap": lambda x: torch.cat((x, x + 1), dim=-2)[..., : x.shape[-2], :],
        }
        for what, change in kinds.items():
            moved = [change(x).requires_grad_() for x in inputs]
            found = seen.apply(moved, positions)
            self._same(found, expected, f"{what} inputs")
            plain = [x.clone().requires_grad_() for x in inputs]
            for name, y in seen.apply(plain, positions).items():
                if not y.requires_grad:
                    continue
                cotangent = change(like(y, 6))
                pair = [
                    torch.autograd.grad(results, leaves, cotangent, allow_unused=True)
                    for results, leaves in ((found[name], moved), (y, plain))
                ]
                for a, b in zip(*pair, strict=True):
                    if a is not None and b is not None:
                        equal(a, b, f"the gradient of {name} with {what} inputs", self.slack)
        one = [x[:1].expand(2, *x.shape[1:]) for x in inputs]
        self._same(
            seen.apply(one, positions),
            seen.apply([x.contiguous() for x in one], positions),
            "expanded inputs",
        )
