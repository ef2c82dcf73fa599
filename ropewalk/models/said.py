"""What an error of somebody else's says, as part of a line of our own."""

from __future__ import annotations

CUT = " …"


def said(error: BaseException, most: int = 200) -> str:
    """Its words in one line of at most ``most`` characters, cut between words; its type where it
    has no words, or only the key that was not found."""
    words = " ".join(str(error).split())
    if isinstance(error, KeyError):
        words = f"{type(error).__name__}: {words}"
    if len(words) <= most:
        return words or type(error).__name__
    kept = words[: most - len(CUT) + 1]
    return (kept.rpartition(" ")[0] or kept[:-1]) + CUT
