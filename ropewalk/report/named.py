"""How a measured model is named, alike in the terminal and on pages."""

from __future__ import annotations


def named(source: str, model: str) -> str:
    """A model as it was given, and its class where that is known."""
    return f"{source} ({model})" if model else source
