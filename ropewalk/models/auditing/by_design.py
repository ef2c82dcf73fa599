"""Models that by design do not hold an invariance, and why.

Found by running every architecture of transformers (scripts/audit_sweep.py) and reading those
that do not hold one.
"""

from __future__ import annotations

_BLOCKS = "it compresses keys in blocks that begin at multiples of their size"
_LEARNED = "its frequencies are scaled by learned weights"
_SCALED = "its queries are scaled by their position"

SHIFT, PADDING, PACKING = "all positions may move", "left-padded = unpadded", "packed = separate"
FUNCTIONS = "rotary functions, lane by lane"
CROSSING = "cached decoding over the original length"

REASONS: dict[str, dict[str, str]] = {
    "beam": {SHIFT: _SCALED},
    "dory": {FUNCTIONS: "it runs some layers several times, under other numbers"},
    "esm": {PACKING: "it takes a mask for padding alone"},
    "mistral_large4": {SHIFT: _SCALED, FUNCTIONS: _LEARNED},
    "mistral_large4_text": {SHIFT: _SCALED, FUNCTIONS: _LEARNED},
    "deepseek_v4": dict.fromkeys((SHIFT, PADDING, PACKING, CROSSING), _BLOCKS),
    "recurrent_gemma": {
        SHIFT: "it forgets its state at position 0",
        PADDING: "it has layers with a recurrent state, which reads the padding",
    },
}


def excused(model_type: str | None, check: str) -> str | None:
    """Why a model of this type need not pass a check, if there is a reason."""
    return REASONS.get(model_type or "", {}).get(check)
