"""What the figures of a usage say, in words, and what others have found."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.configs.resolved import ranges
from ropewalk.lab.trained.bands import FREE, ZEROED
from ropewalk.lab.trained.usage import Effect, Usage

LITERATURE = (
    {
        "title": "Round and Round We Go! What makes Rotary Positional Encodings useful?",
        "authors": "Barbero et al.",
        "year": 2024,
        "arxiv": "2410.06205",
        "side": "slow bands carry meaning, not position",
        "claim": "The largest q and k norms sit in the lowest frequencies, which carry semantics; "
        "removing the rotation there (p-RoPE) does not hurt.",
    },
    {
        "title": "Does RoPE Prevent or Degrade Retrieval Heads?",
        "authors": "Bayram",
        "year": 2026,
        "arxiv": "2606.21249",
        "side": "slow bands are needed",
        "claim": "Retrieval heads rely on the slow bands: zeroing their lowest frequencies takes "
        "recall down step by step, zeroing as many random ones does not.",
    },
)
NORM_IS_NOT_USE = (
    "Norm is not use: a pair with large q and k may add nearly the same to every score, which a "
    "softmax does not see. What a model loses without the rotation of a pair, or without the pair, "
    "is measured by its loss."
)
NOT_TRAINED = (
    "Nothing was trained: a model trained without these rotations may do better than this one does "
    "when they are taken from it."
)


def verdicts(found: Usage) -> tuple[str, ...]:
    """The findings, a sentence each, from those of this model to those of others."""
    return tuple(_verdicts(found))


def _verdicts(found: Usage) -> Iterator[str]:
    if found.unrotated:
        yield f"Layers {ranges(found.unrotated)} do not rotate and have no pairs."
    if found.slowest_half is not None:
        yield (
            f"The slowest half of the pairs carries {found.slowest_half.mean:.0%} of ‖q‖‖k‖ "
            "(before the rotation, mean over layers and heads)."
        )
    for how in (FREE, ZEROED):
        slow = [e for e in found.bands if e.treatment == how and e.band.stop == 1.0]
        costs = " and ".join(f"{_nats(e)} at {e.length:,} tokens" for e in slow)
        name = slow[0].band.name
        which = name if name.startswith("all") else f"the {name}"
        yield f"With {which} {how}, loss changes by {costs}."
    yield NORM_IS_NOT_USE
    yield NOT_TRAINED
    for entry in LITERATURE:
        yield f"{entry['authors']} ({entry['year']}, arXiv {entry['arxiv']}): {entry['claim']}"


def _nats(effect: Effect) -> str:
    return f"{signed(effect.change.mean)} nats ({certainty(effect)})"


def signed(value: float) -> str:
    """A change with its sign, to a ten-thousandth."""
    text = f"{value:+.4f}"
    return "0.0000" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")


def certainty(effect: Effect) -> str:
    """Whether a change exceeds its spread over passages."""
    if len(effect.change.values) < 2:
        return "one passage, so no spread"
    return "beyond the spread" if effect.beyond else "within the spread"


def cautions(found: Usage) -> tuple[str, ...]:
    """What limits the figures."""
    notes = []
    if len(found.texts) < 2:
        notes.append("One passage has no spread: give several texts to tell chance from effect.")
    beyond = [n for n in found.lengths if found.context is not None and n > found.context]
    if beyond:
        notes.append(
            f"{', '.join(f'{n:,}' for n in beyond)} tokens are beyond the {found.context:,} of the "
            "config: there the untouched model may fail as well."
        )
    if len(found.groups) > 1:
        notes.append("Layers have several spectra; a band is taken in each by its own frequencies.")
    if any(a.k is None for a in found.attentions):
        layers = tuple(sorted({a.layer for a in found.attentions if a.k is None}))
        notes.append(f"Layers {ranges(layers)} read the keys of another layer: no share is told.")
    return tuple(notes)
