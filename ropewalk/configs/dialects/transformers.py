"""transformers 4 and 5: the keys are canonical as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.configs.reader import store_of
from ropewalk.configs.value import Value

NAME = "transformers"


def translate(config: Mapping[str, Any]) -> dict[str, Value]:
    """Every key as it stands."""
    return store_of(config)
