"""Whether a model that runs does what its config says about position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from ropewalk.configs import Resolved, resolve
from ropewalk.models.auditing.behaviour import (
    Subject,
    check_cache,
    check_history,
    check_neighbours,
    check_packing,
    check_padding,
    check_shift,
)
from ropewalk.models.auditing.by_length import check_crossing, check_far_neighbour, check_growth
from ropewalk.models.auditing.compare import rounding_of
from ropewalk.models.auditing.expected import expected_layers
from ropewalk.models.auditing.far import around, check_far, original_length
from ropewalk.models.auditing.reader import Reader
from ropewalk.models.auditing.report import Audit, Check
from ropewalk.models.auditing.rotation import check_rotation
from ropewalk.models.auditing.state import undisturbed
from ropewalk.models.auditing.tables import check_factors, check_tables


def audit(model: nn.Module) -> Audit:
    resolved = resolve(model.config)
    reader = Reader(model)
    found = Audit(type(model).__name__, str(reader.dtype).removeprefix("torch."))
    n = original_length(resolved)
    with undisturbed(model) as state:
        found.checks.append(check_tables(model, resolved, n - 1))
        found.checks.append(check_factors(model, resolved))
        reason = reader.refusal()
        if reason:
            found.checks.append(Check.skipped("everything that runs", reason))
            return found
        layers = expected_layers(resolved)
        state.restore()
        check, good = check_rotation(reader, layers)
        found.checks.append(check)
        state.restore()
        found.checks.append(check_far(reader, layers, good, resolved, around(n)))
        state.restore()
        rounding = rounding_of(reader)
        if rounding.too_loud:
            found.checks.append(Check.skipped("behaviour", rounding.too_loud))
            return found
        s = Subject(reader, resolved, state, rounding)
        for c in (check_cache, check_padding, check_packing, check_neighbours, check_shift):
            found.checks.append(c(s))
        found.checks.append(check_history(s, n))
        for c in (check_crossing, check_far_neighbour, check_growth):
            found.checks.append(c(s, n))
    return found
