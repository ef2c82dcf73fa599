"""The examples of docs/serving.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "serving.md"


def test_the_examples_run():
    scope: dict[str, object] = {}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(examples) == 3
    for example in examples:
        exec(example, scope)
