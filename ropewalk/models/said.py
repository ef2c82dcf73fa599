"""What an error of somebody else's says, as part of a line of our own."""

from __future__ import annotations


def said(error: BaseException, most: int = 200) -> str:
    """Its words in one line of at most ``most`` characters; its type where it has none."""
    return " ".join(str(error).split())[:most] or type(error).__name__
