"""Error of moved keys against keys rotated anew, by dtype and by move, at positions to 131,072.

    python runs/rerotate_error.py

Random normal keys of one head stand at every position 0 … 131,071. They are rotated by the old
spectrum, moved, and compared with the same keys rotated by the new one: largest difference over
the largest key, and root mean square over root mean square. The last rows let transformers rotate
(its tables are float32 products, cast to the dtype of the model).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ropewalk import RoPE, Spectrum, spectra
from ropewalk.encodings.rotary.rope import PHASES, Phases
from ropewalk.models import rerotate

TOKENS = 131072
HEAD = 128
BASE = 500000.0
PLAIN = spectra.geometric(HEAD, BASE)
LONGROPE = spectra.longrope(
    PLAIN,
    short_factor=[1.0] * (HEAD // 2),
    long_factor=[1.0 + i * i / 64 for i in range(HEAD // 2)],
    original_max_position_embeddings=4096,
    factor=32.0,
)
MOVES: dict[str, tuple[Spectrum, Spectrum, int]] = {
    "shift by 5": (PLAIN, PLAIN, -5),
    "shift by 65,536": (PLAIN, PLAIN, -65536),
    "to NTK ×8": (PLAIN, spectra.ntk(PLAIN, 8.0), 0),
    "to YaRN ×4": (PLAIN, spectra.yarn(PLAIN, 4.0, 32768), 0),
    "LongRoPE short to long": (LONGROPE.for_length(4096), LONGROPE.for_length(4097), 0),
    "YaRN ×4 to linear ×8, shifted": (
        spectra.yarn(PLAIN, 4.0, 32768),
        spectra.linear(PLAIN, 8.0),
        -1000,
    ),
}
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def keys(dtype: torch.dtype) -> Tensor:
    """The same random keys in any dtype."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, 1, TOKENS, HEAD, generator=generator).to(dtype)


def errors(found: Tensor, expected: Tensor) -> dict[str, float]:
    """Largest over largest, and root mean square over root mean square."""
    found, expected = found.double(), expected.double()
    apart = found - expected
    return {
        "largest": (apart.abs().max() / expected.abs().max()).item(),
        "rms": (apart.norm() / expected.norm()).item(),
    }


def measured(name: str, dtype: torch.dtype, phases: Phases) -> dict[str, Any]:
    """One move in one dtype."""
    old, new, shift = MOVES[name]
    k, p = keys(dtype), torch.arange(TOKENS)
    before, after = RoPE(old, phases=phases), RoPE(new, phases=phases)
    moved = rerotate(before.encode_k(k, p), before, after, p, p + shift)
    return {
        "move": name,
        "dtype": str(dtype).removeprefix("torch."),
        "rotated by": f"ropewalk, {phases} phases",
        **errors(moved, after.encode_k(k, p + shift)),
    }


def usual() -> tuple[Spectrum, Callable[[Tensor, Tensor], Tensor]]:
    """transformers' Llama rotation, and the spectrum of its own float32 frequencies."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    config = LlamaConfig(hidden_size=HEAD, num_attention_heads=1, max_position_embeddings=TOKENS)
    config.rope_parameters = {"rope_type": "default", "rope_theta": BASE}
    module: Any = llama.LlamaRotaryEmbedding(config)

    def rotated(k: Tensor, p: Tensor) -> Tensor:
        cos, sin = module(k, p[None])
        return llama.apply_rotary_pos_emb(k, k, cos, sin)[1]

    live = tuple(module.inv_freq.double().tolist())
    return PLAIN.replace(freqs=(live,)), rotated


def measured_usual(dtype: torch.dtype, phases: Phases) -> dict[str, Any]:
    """A shift of what transformers rotates, against what it rotates at the new positions."""
    spectrum, rotated = usual()
    k, p = keys(dtype), torch.arange(5, TOKENS + 5)
    moved = rerotate(rotated(k, p), spectrum, spectrum, p, p - 5, phases=phases)
    return {
        "move": f"shift by 5, phases={phases!r}",
        "dtype": str(dtype).removeprefix("torch."),
        "rotated by": "transformers",
        **errors(moved, rotated(k, p - 5)),
    }


def rows() -> Iterator[dict[str, Any]]:
    """Every measurement."""
    for name in MOVES:
        for dtype in DTYPES:
            yield measured(name, dtype, "integer")
    for name in MOVES:
        yield measured(name, torch.float32, "float32")
    for dtype in (torch.float32, torch.bfloat16):
        for phases in PHASES:
            yield measured_usual(dtype, phases)


def main() -> int:
    """One line of JSON a row; 1 if float32 misses its bound."""
    worst = 0.0
    for row in rows():
        print(json.dumps(row), flush=True)
        if row["dtype"] == "float32" and row["rotated by"] != "transformers":
            worst = max(worst, row["largest"])
    print(f"float32: {worst:.2g} at most, bound 1e-5", file=sys.stderr)
    return int(worst > 1e-5)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
