"""Elements of a page: text is escaped the moment it enters one."""

from __future__ import annotations

import html


class Html(str):
    """Markup. Any other text is escaped where it meets markup."""


def el(tag: str, *children: str | None, **attributes: object) -> Html:
    """An element; ``None`` children and attributes are left out, ``class_`` is written class.

    Example:
        >>> el("p", "1 < 2", class_="note")
        '<p class="note">1 &lt; 2</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(clean(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = join(*children)
    return Html(f"<{tag}{written}>{inside}</{tag}>")


def join(*children: str | None) -> Html:
    """Children beside each other."""
    return Html("".join(_markup(child) for child in children if child is not None))


def name(text: str) -> Html:
    """A name that somebody chose: its direction of writing does not reach beyond it."""
    return el("bdi", text)


def clean(text: str) -> str:
    """Text that UTF-8 and HTML can hold: control characters and lone surrogates are replaced."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        c if c.isprintable() or c in "\n " else "\N{REPLACEMENT CHARACTER}" for c in whole
    )


def _markup(child: str) -> str:
    return child if isinstance(child, Html) else html.escape(clean(child))
