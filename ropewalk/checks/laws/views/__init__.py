"""One view of every family, so that a law of the contract is written once."""

from __future__ import annotations

from ropewalk.checks.laws.views.additive import AdditiveView
from ropewalk.checks.laws.views.base import HEAD_DIM, HEADS, KV_HEADS, Outputs, View
from ropewalk.checks.laws.views.bias import BiasView
from ropewalk.checks.laws.views.contextual import ContextualView
from ropewalk.checks.laws.views.rotary import RotaryView
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary


def view(encoding: Encoding, home: str = "cpu") -> View:
    """The view of the family of ``encoding``.

    Raises:
        TypeError: it belongs to none of the four families.
    """
    families = (
        (Additive, AdditiveView),
        (Rotary, RotaryView),
        (Bias, BiasView),
        (Contextual, ContextualView),
    )
    for family, kind in families:
        if isinstance(encoding, family):
            made = kind(encoding)
            made.home = home
            return made
    raise TypeError(
        f"create() returned {type(encoding).__name__}, which is none of ropewalk's families: "
        "derive it from ropewalk.Additive, Rotary, Bias or Contextual"
    )


__all__ = [
    "HEADS",
    "HEAD_DIM",
    "KV_HEADS",
    "AdditiveView",
    "BiasView",
    "ContextualView",
    "Outputs",
    "RotaryView",
    "View",
    "view",
]
