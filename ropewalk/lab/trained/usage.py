"""Which pairs a trained model uses: their norms, and its loss without their rotation or them.

Norm is not use: a pair with large q and k may add the same to every score. So bands of pairs are
made position-free (frequency 0) or zeroed in all layers, and the loss is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ropewalk.lab.trained.bands import FREE, ZEROED, Band, Banded, Chosen, equal_bands, kept
from ropewalk.lab.trained.losses import counting, token_losses
from ropewalk.lab.trained.norms import Attention, Norms, mean
from ropewalk.lab.trained.passages import Passage
from ropewalk.lab.trained.probing import require_causal
from ropewalk.lab.trained.rotations import Change, Rotations, intercepting, rotations_of
from ropewalk.lab.trained.shares import Group, groups_of, slowest_half
from ropewalk.lab.trained.spread import Spread, apart, beyond, spread

KEPT = (0.75, 0.5, 0.25)
"""Shares p of the pairs that p-RoPE lets turn."""
LEAST = 16
"""Tokens of the shortest passage."""
SHORT = 64
"""Tokens that tell how fast pairs turn."""


@dataclass(frozen=True)
class Effect:
    """What became of the loss at ``length`` when the pairs of ``band`` were treated so, nats."""

    band: Band
    treatment: str
    length: int
    before: Spread
    after: Spread

    @property
    def change(self) -> Spread:
        """Of the loss, passage by passage."""
        return apart(self.after.values, self.before.values)

    @property
    def beyond(self) -> bool:
        """Whether it exceeds the spread of the changes over passages."""
        return beyond(self.change.values)


@dataclass(frozen=True)
class Usage:
    """What was measured.

    attentions  norms, averaged over passages of the longest length
    groups      layers with the same frequencies, and the shares of their pairs
    bands       effects of each equal band, position-free and zeroed, at each length
    p_rope      effects of p-RoPE by truncation, which leaves the share p of the fastest pairs
    """

    model: str
    context: int | None
    layers: int
    texts: tuple[str, ...]
    lengths: tuple[int, ...]
    attentions: tuple[Attention, ...]
    groups: tuple[Group, ...]
    slowest_half: Spread | None
    untouched: Mapping[int, Spread]
    bands: tuple[Effect, ...]
    p_rope: tuple[Effect, ...]

    @property
    def unrotated(self) -> tuple[int, ...]:
        """The layers that do not rotate."""
        rotating = {a.layer for a in self.attentions}
        return tuple(i for i in range(self.layers) if i not in rotating)


def usage(
    model: nn.Module,
    passages: Mapping[int, Sequence[Passage]],
    *,
    bands: int = 4,
    keep: Sequence[float] = KEPT,
    told: Callable[[int, int], None] | None = None,
) -> Usage:
    """Measure a causal language model on passages of one or more lengths, without training.

    Args:
        model: of transformers, in eval mode; afterwards it is as before.
        passages: length → passages of as many tokens, the same texts for each.
        bands: how many equal bands the pairs are taken in, by their frequency in each layer.
        keep: the shares p of p-RoPE, above 0 and below 1.
        told: called with how many layers were run, and how many there are to run.

    Raises:
        TypeError: the model is no causal language model.
        ValueError: it has no rotation that can be followed, or an argument does not fit.
    """
    _require(passages, bands, keep)
    require_causal(model)
    rotations = rotations_of(model)
    lengths, texts = sorted(passages), passages[max(passages)]
    first = _norms(rotations, texts[0].ids[:SHORT])[0]
    fewest = min(len(a.frequencies) for a in first)
    if bands > fewest:
        raise ValueError(f"bands={bands} is more than the {fewest} pairs that turn in a head")
    equal = [(band, how) for band in equal_bands(bands) for how in (FREE, ZEROED)]
    truncated = [(kept(p), FREE) for p in sorted(keep, reverse=True)]
    chosen = {each: _key(each[0].chosen(first), each[1]) for each in equal + truncated}
    passes = len(texts) * len(lengths) * (1 + len(set(chosen.values())))
    with counting(model, passes, told) if told is not None else nullcontext():
        seen = [_norms(rotations, text.ids) for text in texts]
        untouched = {n: _losses(rotations, passages[n], Change()) for n in lengths[:-1]}
        untouched[lengths[-1]] = spread([loss for _, loss in seen])
        after = {
            (key, n): _losses(rotations, passages[n], Banded(dict(key[1]), key[0]))
            for key in dict.fromkeys(chosen.values())
            for n in lengths
        }

    def effects(of: Sequence[tuple[Band, str]]) -> tuple[Effect, ...]:
        return tuple(
            Effect(*each, n, untouched[n], after[chosen[each], n]) for n in lengths for each in of
        )

    by_text = [attentions for attentions, _ in seen]
    config = getattr(model, "config", None)
    return Usage(
        type(model).__name__,
        getattr(config, "max_position_embeddings", None),
        len(rotations.layers),
        tuple(text.name for text in texts),
        tuple(lengths),
        mean(by_text),
        groups_of(by_text),
        slowest_half(by_text),
        untouched,
        effects(equal),
        effects(truncated),
    )


def _require(passages: Mapping[int, Sequence[Passage]], bands: int, keep: Sequence[float]) -> None:
    counts = {len(texts) for texts in passages.values()}
    if len(counts) != 1 or 0 in counts:
        raise ValueError("passages must have one length at least, and the same texts for each")
    for n, texts in passages.items():
        if any(len(text.ids) != n for text in texts) or n < LEAST:
            raise ValueError(f"passages[{n}] must be of {n} tokens each, and of {LEAST} at least")
    for p in keep:
        if not 0 < p < 1:
            raise ValueError(f"keep has {p!r}; p must be above 0 and below 1")
    if bands < 1:
        raise ValueError(f"bands={bands} must be 1 or more")


def _key(chosen: Chosen, treatment: str) -> tuple[str, tuple[tuple[Any, tuple[int, ...]], ...]]:
    """The same for bands that change the same pairs in the same way."""
    return treatment, tuple(sorted(chosen.items()))


def _norms(rotations: Rotations, ids: Tensor) -> tuple[tuple[Attention, ...], float]:
    """The norms of one passage, and its loss."""
    norms = Norms()
    with intercepting(rotations, norms):
        loss = token_losses(rotations.model, ids).mean().item()
    return norms.attentions(), loss


def _losses(rotations: Rotations, texts: Sequence[Passage], change: Change) -> Spread:
    """The loss of each passage under a change, nats a token."""
    with intercepting(rotations, change):
        return spread([token_losses(rotations.model, t.ids).mean().item() for t in texts])
