"""A usage as JSON has it: every norm, share and loss."""

from __future__ import annotations

import math
from typing import Any

from ropewalk.lab.trained.norms import Attention
from ropewalk.lab.trained.shares import Group, share_of_slowest_half
from ropewalk.lab.trained.usage import Effect, Usage
from ropewalk.lab.trained.usage_words import LITERATURE, cautions, verdicts


def document(found: Usage) -> dict[str, Any]:
    """Everything that was measured; norms are dimensionless, losses nats a token.

    ``attentions`` have q and k by head and pair; ``groups`` the frequencies and shares of layers
    that turn alike; ``bands`` and ``p_rope`` the loss before and after, at each length.
    """
    return {
        "kind": "usage",
        "model": found.model,
        "context": found.context,
        "layers": found.layers,
        "layers_that_do_not_rotate": list(found.unrotated),
        "texts": list(found.texts),
        "lengths": list(found.lengths),
        "norms_at": found.lengths[-1],
        "slowest_half": None if found.slowest_half is None else found.slowest_half.as_dict(),
        "groups": [_group(group) for group in found.groups],
        "attentions": [_attention(attention) for attention in found.attentions],
        "untouched": [
            {"length": n, "loss": loss.as_dict()} for n, loss in sorted(found.untouched.items())
        ],
        "bands": [_effect(effect, found) for effect in found.bands],
        "p_rope": [{"p": e.band.start, **_effect(e, found)} for e in found.p_rope],
        "reading": list(verdicts(found)),
        "cautions": list(cautions(found)),
        "literature": list(LITERATURE),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "layers": list(group.layers),
        "inv_freq": list(group.frequencies),
        "wavelengths": [w if math.isfinite(w) else None for w in group.wavelengths],
        "shares": [share.as_dict() for share in group.shares],
    }


def _attention(attention: Attention) -> dict[str, Any]:
    return {
        "layer": attention.layer,
        "part": attention.part,
        "q": attention.q.tolist(),
        "k": None if attention.k is None else attention.k.tolist(),
        "slowest_half": share_of_slowest_half(attention),
    }


def _effect(effect: Effect, found: Usage) -> dict[str, Any]:
    return {
        "band": effect.band.name,
        "treatment": effect.treatment,
        "pairs": [list(effect.band.of(group.order)) for group in found.groups],
        "length": effect.length,
        "before": effect.before.as_dict(),
        "after": effect.after.as_dict(),
        "change": effect.change.as_dict(),
        "beyond_spread": effect.beyond,
    }
