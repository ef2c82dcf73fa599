"""How much the model's angles and results suffer from narrower tables: figures, no verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ropewalk.models.auditing.compare import difference
from ropewalk.models.auditing.report import Check
from ropewalk.models.auditing.subject import SHORT, Subject, tried
from ropewalk.models.auditing.tables import rows

NAME = "sensitivity to the dtype of tables"


def check_precision(subject: Subject, last: int) -> Check:
    """Angles if frequencies were cast to bfloat16, and results if cos and sin were."""
    reader = subject.reader

    def run(check: Check) -> str | None:
        held = [row for row in rows(reader.model) if not row.values.is_meta and not row.what]
        if not held:
            return "no module holds frequencies under the name inv_freq"
        figures: dict[str, Any] = {"position": last}
        for narrow in (torch.bfloat16, torch.float16):
            name = str(narrow).removeprefix("torch.")
            worst = max(
                (row.values.double() - row.values.to(narrow).double()).abs().max().item()
                for row in held
            )
            figures[f"rad_with_inv_freq_in_{name}"] = worst * last
        ids = reader.tokens(2, SHORT)
        plain = reader(ids).values
        with _narrowed([row.module for row in held], torch.bfloat16):
            figures["cos_and_sin_in_bfloat16"] = difference(reader(ids).values, plain)
        figures["rounding"] = subject.rounding.moved
        check.figures = figures
        return None

    return tried(NAME, subject, run)


@contextmanager
def _narrowed(modules: list[torch.nn.Module], dtype: torch.dtype) -> Iterator[None]:
    """Within it the results of ``modules`` are rounded to ``dtype``."""

    def rounded(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(rounded(one) for one in value)
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.to(dtype).to(value.dtype)
        return value

    handles = [
        module.register_forward_hook(lambda _m, _a, out: rounded(out))
        for module in dict.fromkeys(modules)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
