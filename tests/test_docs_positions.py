"""The examples of docs/positions.md run, and its table names every family."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ropewalk import positions

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "positions.md").read_text("utf-8")


def test_the_examples_run():
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, scope)
    assert scope["y"].shape == scope["q"].shape
    assert scope["decoded"].tolist() == [[scope["placed"].next] * 3]
    assert scope["found"].delta.tolist() == [-2, -2]
    assert scope["share"].indices.tolist() == [0, 1, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23]


def test_every_name_exists_and_every_family_is_told():
    for name in positions.__all__:
        assert hasattr(positions, name)
    for name in positions.FAMILIES:
        assert f"`{name}`" in PAGE
    for name in re.findall(r"`(\w+)\(", PAGE):
        assert hasattr(positions, name), name
