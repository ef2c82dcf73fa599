"""Modules: casts, copies, the meta device and checkpoints keep the encoding right."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import torch

from ropewalk.checks.laws.case import Case, law, require
from ropewalk.checks.laws.poison import poisoned_memory
from ropewalk.core import Encoding


class ModuleLaws(Case):
    """Modules: see the module."""

    @law
    def test_casts(self) -> None:
        """Casts of the module round its parameters and nothing else."""
        encoding = self._made()
        casts: list[tuple[str, torch.dtype, Callable[[Encoding], Encoding]]] = [
            ("bfloat16", torch.bfloat16, lambda m: m.to(torch.bfloat16)),
            ("half", torch.float16, lambda m: m.half()),
            ("double", torch.float64, lambda m: m.double()),
        ]
        for name, dtype, cast in casts:
            rounded = copy.deepcopy(encoding)
            with torch.no_grad():
                for p in rounded.parameters():
                    p.copy_(p.to(dtype))
            expected = self._values(rounded)
            narrow = cast(copy.deepcopy(encoding))
            if not list(encoding.parameters()):
                self._same(self._values(narrow), expected, f"values after .{name}()", exact=True)
            back = narrow.float()
            self._same(self._values(back), expected, f"values after .{name}().float()", exact=True)
        moved = copy.deepcopy(encoding).to("cpu").to(self.device)
        self._same(self._values(moved), self._values(encoding), "values after a move", exact=True)

    @law
    def test_copies(self) -> None:
        """Deep copies and pickles give the same values."""
        encoding = self._made()
        expected = self._values(encoding)
        self._same(self._values(copy.deepcopy(encoding)), expected, "a deep copy", exact=True)
        again = pickle.loads(pickle.dumps(encoding))
        self._same(self._values(again), expected, "a pickle", exact=True)
        file = io.BytesIO()
        torch.save(encoding, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        self._same(self._values(loaded), expected, "torch.save and load", exact=True)

    @law
    def test_meta(self) -> None:
        """Built on the meta device and given memory, it is right after a load and after a reset."""
        encoding = self._made()
        expected = self._values(encoding)
        for assign in (False, True):
            blank = self._from_meta()
            blank.load_state_dict(encoding.state_dict(), strict=True, assign=assign)
            self._same(
                self._values(blank), expected, f"a meta module loaded, {assign=}", exact=True
            )
        blank = self._from_meta()
        blank.reset_parameters()
        values = self._values(blank)
        if list(encoding.parameters()):
            for name, y in values.items():
                require(
                    bool(torch.isfinite(y).all()),
                    f"{name} reads memory that reset_parameters() left uninitialised",
                )
        else:
            self._same(values, expected, "a meta module after reset_parameters()", exact=True)
        wrapped = torch.nn.Sequential(copy.deepcopy(encoding).to("meta"))
        with poisoned_memory():
            wrapped.to_empty(device=self.device)
        wrapped.load_state_dict({f"0.{k}": v for k, v in encoding.state_dict().items()})
        inner = wrapped[0]
        assert isinstance(inner, Encoding)
        self._same(self._values(inner), expected, "a meta module inside another", exact=True)

    @law
    def test_state(self) -> None:
        """The state_dict holds the parameters and nothing else, and loads."""
        encoding = self._made()
        expected = self._values(encoding)
        state = encoding.state_dict()
        learned = {name for name, _ in encoding.named_parameters()}
        require(
            set(state) == learned,
            f"state_dict holds {sorted(set(state) ^ learned)} beside or without its parameters; "
            "constants are derived, see Encoding.derive",
        )
        for assign in (False, True):
            twin = self._made()
            twin.load_state_dict(copy.deepcopy(state), strict=True, assign=assign)
            self._same(self._values(twin), expected, f"a twin loaded with {assign=}", exact=True)
            narrow = self._made().half()
            narrow.load_state_dict(copy.deepcopy(state), strict=True, assign=assign)
            if assign or not learned:
                self._same(self._values(narrow), expected, f"a half twin, {assign=}", exact=True)
