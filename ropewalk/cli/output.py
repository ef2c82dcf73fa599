"""What every command shares: JSON on stdout, one line on stderr, exit statuses."""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

FINE, NO, UNUSABLE = 0, 1, 2
"""Exit statuses: fine; the answer is no; the input could not be used."""


LONGEST_PHRASE = 50
"""A longer phrase may break within."""


def print_json(document: Mapping[str, Any] | list[Any]) -> None:
    """One strict JSON document on stdout, non-finite numbers as null."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(finite(document), ensure_ascii=not unicode, indent=2, allow_nan=False)
    print(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def finite(value: Any) -> Any:
    """The same structure with nan and inf replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


@contextlib.contextmanager
def answer_alone() -> Iterator[None]:
    """Inside, whatever this process or its children print goes to stderr: stdout is the answer's.

    Children have the descriptor and not ``sys.stdout``, so both are turned.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # a stream is closed: there is nothing to turn
        kept = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def complain(message: str) -> None:
    """One line on stderr; line breaks and control characters in it are shown, not obeyed."""
    line = " ".join(str(message)[:2000].split())
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
    encoding = sys.stderr.encoding or "utf-8"
    with contextlib.suppress(OSError):
        print(
            "ropewalk:",
            shown.encode(encoding, "backslashreplace").decode(encoding),
            file=sys.stderr,
            flush=True,
        )


def number(value: float | None) -> str:
    """A number for a table: three digits, integers whole, nothing for None."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.3g}"


def console():
    """A rich console; narrower than 60 columns, tables would lose their content."""
    from rich.console import Console

    screen = Console(highlight=False, soft_wrap=False)
    return screen if screen.width >= 60 else Console(highlight=False, soft_wrap=False, width=60)


def plain(text: str) -> str:
    """Text from a file without control characters."""
    return "".join(c if c.isprintable() else "�" for c in text)


def block(
    label: str,
    phrases: Sequence[str],
    width: int,
    separator: str = "; ",
    style: str = "cyan",
    indent: int = 2,
) -> list[Text]:
    """Lines of ``label`` and phrases, the later lines indented; broken between phrases if it can.

    Nothing from a file is obeyed: control characters are replaced.
    """
    from rich.text import Text

    fixed = "\N{NO-BREAK SPACE}"
    room = width - indent
    kept = [
        plain(f"{p}{'' if i == len(phrases) - 1 else separator.rstrip()}")
        for i, p in enumerate(phrases)
    ]
    kept = [p.replace(" ", fixed) if len(p) <= min(room, LONGEST_PHRASE) else p for p in kept]
    start = plain(label) + ("" if separator == " " else ":")
    lines = textwrap.wrap(
        " ".join((start.replace(" ", fixed) if len(start) <= room else start, *kept)),
        width,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    made = [Text(line.replace(fixed, " ")) for line in lines]
    for line in made[:1]:
        line.stylize(style, 0, len(start))
    return made


ASCII = str.maketrans({"–": "-", "…": "...", "×": "x", "→": "->", "·": "*"})


def _closest(error: UnicodeError) -> tuple[str, int]:
    """What a stream without a character writes in its place."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end].translate(ASCII)
    return "".join(c if ord(c) < 128 else "?" for c in lost), error.end


def make_streams_safe() -> None:
    """Standard streams that may be closed, or too narrow an encoding, and never raise for it."""
    codecs.register_error("closest", _closest)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (lives as long as the process)
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="closest")
