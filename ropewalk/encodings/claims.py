"""What rotations by integer phases hold, plain and under each scaling."""

from __future__ import annotations

from typing import Any

ROTATION_CLAIMS: dict[str, bool | None] = {
    "unique": True,
    "linear": True,
    "relative": True,
    "norm": True,
    "bounded": True,
    "decay": False,
    "extends": True,
    "deterministic": True,
    "axes": None,
    "precision": True,
}
"""What integer-phase rotations by distinct frequencies hold."""

ROTATION_REASONS = {
    "decay": "for any distance some q and k peak there: k = R(−Δ)q; only constant q = k decays",
    "axes": "one axis",
}

_LENGTH = {"original_max_position_embeddings": 4096}
_SPIRAL = tuple(1.0 + c / 4 for c in range(32))
SCALED: dict[str, tuple[dict[str, Any], str]] = {
    "linear": ({"scaling": {"rope_type": "linear", "factor": 4.0}}, ""),
    "NTK": ({"scaling": {"rope_type": "ntk", "factor": 4.0}}, ""),
    "dynamic NTK, pinned": (
        {"scaling": {"rope_type": "dynamic", "factor": 2.0, **_LENGTH}, "length": 16384},
        "linear and relative at one length; a key turned at another length does not match",
    ),
    "YaRN": (
        {"scaling": {"rope_type": "yarn", "factor": 4.0, **_LENGTH}},
        "the length of vectors is multiplied by attention_factor, 1.1386",
    ),
    "LongRoPE, pinned": (
        {
            "scaling": {
                "rope_type": "longrope",
                "short_factor": (1.0,) * 32,
                "long_factor": _SPIRAL,
                "factor": 8.0,
                **_LENGTH,
            },
            "length": 8192,
        },
        "relative at one length; keys from before its switch do not match later queries",
    ),
    "Llama 3": (
        {
            "scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                **_LENGTH,
            }
        },
        "",
    ),
}
"""Scalings that are checked as variants, and what to know of them; their claims are RoPE's own."""
