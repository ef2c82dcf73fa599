"""The examples of docs/rerotate.md run, and give what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from ropewalk import models, rotate

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "rerotate.md").read_text("utf-8")


def test_the_examples_run():
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(block, scope)
    k, p, old, new = (scope[name] for name in ("k", "p", "old", "new"))
    for name, expected in (
        ("shifted", rotate(k, p - 5, old)),
        ("scaled", rotate(k, p, new)),
        ("cached", rotate(k, p - 5, new)),
    ):
        torch.testing.assert_close(scope[name], expected, rtol=0, atol=3e-6)
    assert (scope["moved"].turned, scope["switched"].turned) == ([0], [0])
    assert scope["cache"].get_seq_length() == 16
    model, ids = scope["model"], scope["ids"]
    kept = torch.cat([ids[:, :2], ids[:, 7:], torch.tensor([[7]])], dim=1)
    with torch.no_grad():
        expected = model(kept).logits[:, -1:]
    torch.testing.assert_close(scope["logits"], expected, rtol=0, atol=1e-5)


def test_every_name_is_told():
    for name in ("rerotate", "rerotate_", "rerotate_cache", "shift_cache", "Moved"):
        assert hasattr(models, name)
        assert f"::: ropewalk.models.{name}\n" in PAGE
