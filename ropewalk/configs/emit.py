"""From what was resolved back to a config: the keys or flags that make a program do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ropewalk.configs.diff import diff
from ropewalk.configs.emit_engines import for_llama_cpp, for_mlx, for_vllm
from ropewalk.configs.emit_layout import KEYS as LAYOUT_KEYS
from ropewalk.configs.emit_layout import layout_keys
from ropewalk.configs.emit_transformers import (
    Config,
    for_both,
    for_transformers4,
    for_transformers5,
)
from ropewalk.configs.resolve import resolve
from ropewalk.configs.resolved import Resolved


def emit(resolved: Resolved, target: str) -> Config:
    """The keys that make ``target`` do what was resolved, for the text part if there are parts.

    Args:
        resolved: from :func:`ropewalk.configs.resolve`.
        target: ``"transformers4"`` (rope_theta, rope_scaling), ``"transformers5"``
            (rope_parameters), ``"transformers"`` (both at once), ``"vllm"`` (``hf_overrides``),
            ``"llama.cpp"`` (flags and GGUF keys) or ``"mlx"``.

    Returns:
        the position keys of a config.json; for vllm and llama.cpp ``flags``, a command line's.

    Raises:
        ValueError: unknown target, or one that cannot do it, such as turn the pairs of converted
            weights; the message says what and why.
    """
    if target not in TARGETS:
        raise ValueError(f"target={target!r} is unknown; use one of {', '.join(TARGETS)}")
    if resolved.errors:
        first = resolved.errors[0]
        raise ValueError(f"the config has an error, {first.code}: {first.message}; {first.remedy}")
    text = resolved.text()
    if not any(group.kind == "rotary" for group in text.layers):
        raise ValueError("no layer of this config rotates, so there is nothing to write")
    told = layout_keys(text, target)
    written = {**TARGETS[target](text), **told}
    if "flags" not in written:
        _read_back(text, written, target)
    return written


def _read_back(text: Resolved, written: Config, target: str) -> None:
    """Nothing leaves that reads back as something else."""
    back = resolve(written)
    differences = [layer for layer in diff(text, back).layers if not layer.same]
    if not differences and not back.errors:
        return
    why = back.errors[0].message if back.errors else "layers would rotate otherwise"
    raise ValueError(
        f"{text.model_type or 'this config'} cannot be written in the keys of {target}: {why}"
    )


TARGETS: dict[str, Callable[[Resolved], Config]] = {
    "transformers": for_both,
    "transformers4": for_transformers4,
    "transformers5": for_transformers5,
    "vllm": for_vllm,
    "llama.cpp": for_llama_cpp,
    "mlx": for_mlx,
}
"""target → what is written for it."""


POSITION_KEYS = frozenset(
    (
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
        "rotary_dim",
        "rotary_pct",
        "rotary_emb_base",
        "rope_local_base_freq",
        "local_rope_theta",
        "global_rope_theta",
        "rope_ratio",
        "layer_rope_theta",
    )
)
"""Keys of a file that written ones replace."""


def whole(config: dict[str, Any], written: Config) -> Config:
    """``config`` with its position keys replaced by the written ones, in its text part if any.

    Raises:
        ValueError: what was written is not a config.
    """
    if "flags" in written:
        raise ValueError("flags are no config; --whole goes with transformers and mlx")
    if "text_config" in config and isinstance(config["text_config"], dict):
        return {**config, "text_config": whole(config["text_config"], written)}
    kept = {key: value for key, value in config.items() if key not in POSITION_KEYS}
    ours = POSITION_KEYS | LAYOUT_KEYS
    return {**kept, **{k: v for k, v in written.items() if k in ours or k not in kept}}
