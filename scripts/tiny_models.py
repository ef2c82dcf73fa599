"""Tiny random models of every architecture in the installed transformers that rotates q and k.

A config is shrunk by the names of its fields (widths, layers, heads, experts, vocabularies, image
sizes …), the exceptions stand in ``HINTS``. Weights are drawn anew with unit gain, so attention is
far from uniform and a wrong rotation shows in the output.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.plan import plan

TOKENS = 12
SIZES: tuple[tuple[str, int], ...] = (
    (r"^(num_)?(n_)?(attention_|decoder_attention_|encoder_attention_|num_)?heads?$", 4),
    (r"num_attention_heads|num_heads|n_head$|attention_heads|encoder_heads|decoder_heads", 4),
    (r"num_key_value_heads|num_kv_heads|n_head_kv|key_value_heads", 2),
    (r"linear_num_(key|value)_heads|mamba_n_heads|mamba_num_heads|n_mamba_heads", 4),
    (r"qk_rope_head_dim|rotary_dim", 16),
    (r"qk_nope_head_dim|v_head_dim|head_dim$|head_size$|kv_channels", 16),
    (r"lora_rank|_rank$", 16),
    (r"index_n_heads|index_num_heads", 2),
    (r"index_topk", 4),
    (r"vocab_size|num_embeddings$", 128),
    (r"num_hidden_layers|num_layers$|n_layers?$|^depth$|encoder_layers$|decoder_layers$", 2),
    (r"num_nextn_predict_layers|mtp_num", 0),
    (r"(num|n)_(local_|routed_)?experts$|moe_num_experts|num_routed_experts", 4),
    (r"experts_per_tok(en)?|moe_k$|moe_topk|num_experts_per|top_k_experts|moe_top_k", 2),
    (r"n_shared_experts|num_shared_experts", 1),
    (r"^n_group$|topk_group", 1),
    (r"intermediate_size|ffn_dim|d_ff$|ffn_hidden|mlp_dim|feed_forward|intermediate_dim", 64),
    (r"^(hidden_size|d_model|n_embd|embed_dim|hidden_dim|dim|width|out_hidden_size)$", 64),
    (r"(hidden_size|embed_dim|hidden_dim|_width|embedding_size|d_model)$", 64),
    (r"max_position_embeddings|max_seq_len|n_positions|max_source_positions", 128),
    (r"sliding_window$|attention_chunk_size|attention_window", 8),
    (r"chunk_size$", 8),
)


GROUPS = (("num_attention_heads", "num_key_value_heads"),)


@dataclass(frozen=True)
class Unit:
    """One model class to build and run: its file, its class and its config's class."""

    file: str
    model: type
    config: type

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.model.__name__


def modeling_files() -> list[str]:
    """The names of the architectures whose source mentions a rotation."""
    import transformers

    folder = Path(transformers.__file__).parent / "models"
    words = re.compile(r"rotary|rotate_|freqs_ci|_rope\b")
    return [
        path.parent.name + "/" + path.stem
        for path in sorted(folder.glob("*/modeling_*.py"))
        if words.search(path.read_text(encoding="utf-8"))
    ]


def load(file: str) -> Any:
    """The module of a modeling file."""
    return importlib.import_module("transformers.models." + file.replace("/", "."))


def owners(module: Any) -> list[type]:
    """The classes of a modeling file in which something rotates."""
    return [
        cls
        for cls in list(vars(module).values())
        if inspect.isclass(cls)
        and issubclass(cls, nn.Module)
        and cls.__module__ == module.__name__
        and plan(cls).findings
    ]


def units(file: str) -> Iterator[Unit]:
    """The model classes of a file, small configs before composite ones, bodies before heads."""
    from transformers import PreTrainedModel

    module = load(file)
    classes = [
        cls
        for cls in list(vars(module).values())
        if inspect.isclass(cls)
        and issubclass(cls, PreTrainedModel)
        and cls.__module__ == module.__name__
        and isinstance(getattr(cls, "config_class", None), type)
        and cls.forward is not PreTrainedModel.forward
        and "forward" in {n for base in cls.__mro__[:-1] for n in vars(base)}
    ]

    def order(cls: Any) -> tuple[int, int]:
        composite = len(getattr(cls.config_class, "sub_configs", {}) or {})
        head = re.search(r"For[A-Z]", cls.__name__) is not None
        return composite, int(head)

    for cls in sorted(classes, key=order):
        yield Unit(file, cls, cls.config_class)


def tiny_config(cls: Any, **given: Any) -> Any:
    """A small config of ``cls``."""
    default = cls()
    values: dict[str, Any] = {}
    subs = getattr(cls, "sub_configs", {}) or {}
    for name in subs:
        sub = getattr(default, name, None)
        if sub is not None:
            values[name] = tiny_config(type(sub))
    for name, value in default.to_dict().items():
        if name in subs or name.startswith("_"):
            continue
        small = _small(name, value)
        if small is not value:
            values[name] = small
    for heads, groups in GROUPS:
        if getattr(default, heads, None) and getattr(default, heads) == getattr(default, groups, 0):
            values[groups] = values.get(heads, getattr(default, heads))
    values.update(_layers(default, values))
    values.update(_rope(default, values))
    for pattern, hint in HINTS.items():
        if re.fullmatch(pattern, cls.__name__):
            values.update(hint)
    values.update(given)
    values = {k: v for k, v in values.items() if v is not OMIT}
    made = cls(**values)
    made._attn_implementation = "eager"
    return made


OMIT = object()


def _small(name: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        return value
    if isinstance(value, int):
        if re.search(r"token_(id|index)|_token$", name):
            return value if value < 100 else 100 + value % 20
        for pattern, size in SIZES:
            if re.search(pattern, name):
                return min(size, value) if value > 0 else value
    return value


def _layers(default: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Lists with one entry a layer, cut so that each kind of layer stays."""
    count = next(
        (n for n in ("num_hidden_layers", "n_layer", "num_layers", "depth") if hasattr(default, n)),
        None,
    )
    if count is None:
        return {}
    full = getattr(default, count)
    changed: dict[str, Any] = {}
    kinds = getattr(default, "layer_types", None)
    if isinstance(kinds, (list, tuple)) and len(kinds) == full:
        keep = sorted({list(kinds).index(kind) for kind in kinds})
        if len(keep) == 1:
            keep = [0, 1]
        changed[count] = len(keep)
        for name, value in default.to_dict().items():
            if isinstance(value, (list, tuple)) and len(value) == full:
                changed[name] = [value[i] for i in keep]
    return changed


def _rope(default: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Sections of M-RoPE that fit the smaller head."""
    parameters = getattr(default, "rope_parameters", None)
    if not isinstance(parameters, dict):
        return {}
    heads = values.get("num_attention_heads", getattr(default, "num_attention_heads", 4))
    width = values.get("hidden_size", getattr(default, "hidden_size", 64))
    head_dim = values.get("head_dim", getattr(default, "head_dim", None)) or width // heads
    pairs = int(head_dim * parameters.get("partial_rotary_factor", 1.0)) // 2
    sections = len(parameters.get("mrope_section", (1, 1, 1)))
    share = [pairs // sections] * sections
    share[0] += pairs - sum(share)
    return {"rope_parameters": {**parameters, "mrope_section": share}}


HINTS: dict[str, dict[str, Any]] = {}
"""Per config class, by a pattern of its name."""


def build(unit: Unit, seed: int = 0) -> nn.Module:
    """A tiny random model with weights of unit gain, in float32 and eval mode."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unit.model(tiny_config(unit.config)).float().eval()
    energise(model)
    return model


def energise(model: nn.Module) -> None:
    """Draw every matrix with unit gain: attention is then far from uniform."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            fan = parameter[0].numel()
            parameter.data.normal_(0, fan**-0.5, generator=generator)


def inputs(model: Any, seed: int = 0) -> dict[str, Any]:
    """Random inputs for ``model``, by the names of what its forward needs."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    parameters = inspect.signature(model.forward).parameters
    needed = [
        n
        for n, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    main = getattr(model, "main_input_name", "input_ids")
    if main in parameters and main not in needed:
        needed.insert(0, main)
    elif not needed:
        needed = [next(iter(parameters))]
    for pattern, hint in INPUTS.items():
        if re.fullmatch(pattern, type(model).__name__):
            return hint(config, generator)
    given = {}
    for name in needed:
        given[name] = _input(name, config, generator)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        given["decoder_input_ids"] = _ids(config, generator)
    return given


def _get(config: Any, *names: str, default: Any = None) -> Any:
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def _ids(config: Any, generator: torch.Generator) -> Tensor:
    return torch.randint(5, 90, (2, TOKENS), generator=generator)


def _input(name: str, config: Any, generator: torch.Generator) -> Any:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    if name in ("input_ids", "decoder_input_ids"):
        return _ids(config, generator)
    if name in ("inputs_embeds", "hidden_states") and not hasattr(config, "patch_size"):
        return normal(2, TOKENS, _get(config, "hidden_size", "d_model"))
    if name in ("attention_mask", "decoder_attention_mask"):
        return torch.ones(2, TOKENS, dtype=torch.long)
    if name in ("pixel_values", "hidden_states", "grid_thw", "image_grid_thw"):
        return _picture(name, config, normal)
    if name in ("input_features",):
        return normal(2, 32, _get(config, "num_mel_bins", "feature_size", "mel_bins", default=80))
    if name == "input_values":
        return normal(2, 1, 1600)
    raise ValueError(f"no way to make {name}")


def _picture(name: str, config: Any, normal: Any) -> Any:
    channels = _get(config, "num_channels", "in_channels", "in_chans", default=3)
    patch = _get(config, "patch_size", default=4)
    patch = patch[0] if isinstance(patch, (list, tuple)) else patch
    if name in ("grid_thw", "image_grid_thw"):
        return torch.tensor([[1, 4, 4]])
    if name == "hidden_states":
        depth = _get(config, "temporal_patch_size", default=1)
        return normal(16, channels * depth * patch * patch)
    size = _get(config, "image_size", default=4 * patch)
    size = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
    return normal(2, channels, *size)


INPUTS: dict[str, Any] = {}
"""Per model class, by a pattern of its name: a function (config, generator) → inputs."""


def outputs(result: Any) -> list[Tensor]:
    """Every floating tensor in what a model returns."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, dict):
        return [t for v in result.values() for t in outputs(v)]
    if isinstance(result, (list, tuple)):
        return [t for v in result for t in outputs(v)]
    return []
