"""Who reads a checkpoint in a layout rightly, and who would compute something else."""

from __future__ import annotations

from ropewalk.configs.layouts import RECORD

_FLAGS = {
    "interleaved": "interleaved=True, is_neox_style=False, traditional=True, GPT-J style",
    "half": "interleaved=False, is_neox_style=True, traditional=False, NeoX style",
}
"""What other programs call the layouts."""


def consumers(model_type: str | None, usual: str | None, to: str, key: str | None) -> list[str]:
    """Sentences about programs, those that are right first."""
    name = model_type or "this model"
    told = (
        "right where the layout is told: ropewalk (RoPE.from_config reads the config), and kernels "
        f"that take it ({_FLAGS[to]})"
    )
    if key is None:
        return [f"right in programs that know {name}: {to} is the layout of its class", told]
    if key != RECORD:
        return [
            f"right in transformers, whose {name} reads {key}",
            told,
            f"wrong, without a word, in programs that do not read {key}",
        ]
    return [
        told,
        f"wrong, without a word, in transformers, vLLM and others that know {name}: they turn "
        f"{usual} pairs whatever the config says",
    ]
