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
OMIT = object()
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


GROUPS = tuple(
    (f"{part}num_attention_heads", f"{part}num_key_value_heads")
    for part in ("", "encoder_", "decoder_")
)


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


def file_of(name: str) -> str:
    """The modeling file of an architecture, by the name of its folder."""
    return next(file for file in modeling_files() if file.split("/")[0] == name)


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
    classes: list[Any] = [
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


def tiny_config(cls: Any, sections: bool = False) -> Any:
    """A small config of ``cls``; with ``sections`` its M-RoPE sections fit the smaller head."""
    default = cls()
    before = default.to_dict()
    values: dict[str, Any] = {}
    subs = getattr(cls, "sub_configs", {}) or {}
    for name in subs:
        sub = getattr(default, name, None)
        if sub is not None:
            values[name] = tiny_config(type(sub), sections)
    for name, value in before.items():
        if name in subs or name.startswith("_"):
            continue
        small = _small(name, value)
        if small is not value:
            values[name] = small
    for heads, groups in GROUPS:
        if before.get(heads) and before.get(heads) == before.get(groups):
            values[groups] = values.get(heads, before[heads])
    values.update(_layers(before))
    if sections:
        values.update(_sections(before, values))
    for pattern, hint in HINTS.items():
        if re.fullmatch(pattern, cls.__name__):
            values.update(hint)
    made = cls(**{k: v for k, v in values.items() if v is not OMIT})
    made._attn_implementation = "eager"
    return made


def _small(name: str, value: Any) -> Any:
    if name == "head_dim" and value is None:
        return 16
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        return value
    if isinstance(value, int):
        if re.search(r"token_(id|index)|_token$", name):
            return value if value < 100 else 100 + value % 20
        for pattern, size in SIZES:
            if re.search(pattern, name):
                return min(size, value) if value > 0 else value
    return value


def _layers(before: dict[str, Any]) -> dict[str, Any]:
    """Lists with one entry a layer, cut so that each kind of layer stays."""
    names = ("num_hidden_layers", "n_layer", "num_layers", "depth", "num_decoder_layers")
    count = next((n for n in names if isinstance(before.get(n), int)), None)
    if count is None:
        return {}
    full = before[count]
    changed: dict[str, Any] = {}
    kinds = before.get("layer_types")
    if isinstance(kinds, (list, tuple)) and len(kinds) == full:
        keep = sorted({list(kinds).index(kind) for kind in kinds})
        if len(keep) == 1:
            keep = [0, 1]
        changed[count] = len(keep)
        for name, value in before.items():
            if isinstance(value, (list, tuple)) and len(value) == full:
                changed[name] = [value[i] for i in keep]
    return changed


def _sections(before: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Three sections of M-RoPE over the pairs of a head."""
    parameters = before.get("rope_parameters")
    if not isinstance(parameters, dict):
        return {}

    def now(name: str, otherwise: Any) -> Any:
        return values.get(name, before.get(name)) or otherwise

    head_dim = now("head_dim", now("hidden_size", 64) // now("num_attention_heads", 4))
    nested = any(isinstance(value, dict) for value in parameters.values())

    def fitted(one: Any) -> Any:
        if not isinstance(one, dict):
            return one
        pairs = int(head_dim * one.get("partial_rotary_factor", 1.0)) // 2
        count = len(one.get("mrope_section") or (1, 1, 1))
        share = [pairs // count] * count
        share[0] += pairs - sum(share)
        if count == 3:
            share = [pairs - 2 * (3 * pairs // 8), 3 * pairs // 8, 3 * pairs // 8]
        return {**one, "mrope_section": share}

    if nested:
        return {"rope_parameters": {name: fitted(one) for name, one in parameters.items()}}
    return {"rope_parameters": fitted(parameters)}


MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16}
SHORT = {"num_hidden_layers": 2}
HINTS: dict[str, dict[str, Any]] = {
    "BailingHybridConfig": {"num_local_experts": 4, "num_experts": OMIT, "n_group": 1},
    "BambaConfig": {"attn_layer_indices": [1], **MAMBA, "layer_types": OMIT},
    "GraniteMoeHybridConfig": {
        "layer_types": ["mamba", "attention"],
        "position_embedding_type": "rope",
        "layers_block_type": OMIT,
        **MAMBA,
    },
    "RecurrentGemmaConfig": {"num_hidden_layers": 3, "layer_types": OMIT, "head_dim": OMIT},
    "Zamba2Config": {
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "layer_types": OMIT,
        "num_hidden_layers": 3,
        "use_mem_rope": True,
        "n_mamba_heads": 4,
        "mamba_d_state": 16,
        "attention_head_dim": OMIT,
        "hybrid_layer_ids": OMIT,
    },
    "ChameleonConfig": {"vocabulary_map": {"<image>": 3, "IMGIMGA": 4}},
    "ChameleonVQVAEConfig": {"base_channels": 32, "resolution": 32, "num_embeddings": 16},
    "DbrxConfig": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "DeepseekV2Config": {"num_experts_per_tok": 2},
    "DeepseekOcr2TextConfig": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "DoryConfig": {
        "num_hidden_layers": 4,
        "n_input_layers": 1,
        "n_output_layers": 1,
        "n_recurrent_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "Dots1Config": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "DiffusionGemmaTextConfig": {
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    "EsmConfig": {"vocab_size": 128, "position_embedding_type": "rotary", "pad_token_id": 1},
    "DINOv3ViTConfig": {"layerscale_value": 1.0, "image_size": 64},
    "EomtDinov3Config": {"image_size": 64, "num_upscale_blocks": 0, "num_blocks": 1},
    "Gemma3nTextConfig": {
        "num_kv_shared_layers": 0,
        "num_hidden_layers": 5,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "activation_sparsity_pattern": [0.0] * 5,
        "intermediate_size": [64] * 5,
        "vocab_size_per_layer_input": 128,
    },
    "GradiumPhononTTSFlowHeadConfig|PocketTTSFlowHeadConfig": {"condition_dim": 64},
    "HunYuanVLTextConfig": {},
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "LongcatFlashConfig": {"head_dim": 16, "qk_head_dim": OMIT, "num_layers": 1},
    "Mistral4Config": {"head_dim": OMIT, "qk_head_dim": OMIT},
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ple_embed_dim": 32,
    },
    "Step3p7TextConfig": {"sliding_window": 8},
    "TimesFm2_5Config": {"patch_length": 8, "context_length": 64, "horizon_length": 8},
    "VJEPA2Config": {"crop_size": 32, "frames_per_clip": 4, "pred_num_attention_heads": 4},
    "VoxtralRealtimeEncoderConfig": {"sliding_window": 8},
    "EsmFold2AtomEncoderConfig": {"hidden_size": 128, "num_attention_heads": 4, "head_dim": 32},
    "Dots3Note.*Config": {"per_layer_config": OMIT, "adapter_input_size": 64},
    "EfficientLoFTRConfig": {"hidden_size": OMIT, "num_attention_heads": 8},
    "Inkling2VisionConfig": {"patch_size": 4, "posemb_grid_size": 8},
    "Kimi_K25VisionConfig": {"patch_size": 4, "pos_emb_height": 8, "pos_emb_width": 8},
    "MiniMaxM3VLVisionConfig": {"image_size": 56},
    "Llama4VisionConfig": {
        "image_size": 56,
        "patch_size": 14,
        "intermediate_size": 64,
        "projector_input_dim": 64,
        "projector_output_dim": 64,
        "vision_output_dim": 64,
        "pixel_shuffle_ratio": 0.5,
    },
    "MoonshineStreamingConfig": {"num_key_value_heads": 4},
    "RoFormerConfig": {"embedding_size": 64},
    "Wav2Vec2BertConfig|Wav2Vec2ConformerConfig": {"position_embeddings_type": "rotary"},
    "SeamlessM4TConfig": {
        "position_embeddings_type": "rotary",
        "feature_projection_input_dim": 160,
    },
    "NemotronConfig": {"head_dim": 16, "num_key_value_heads": 2},
    "IdeficsConfig": {},
}
"""Per config class, by a pattern of its name."""


def build(unit: Unit, sections: bool = False, seed: int = 0) -> nn.Module:
    """A tiny random model with weights of unit gain, in float32 and eval mode."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unit.model(tiny_config(unit.config, sections)).float().eval()
    energise(model)
    return model


def energise(model: nn.Module) -> None:
    """Draw every matrix with unit gain: attention is then far from uniform."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            fan = max(1, parameter[0].numel())
            parameter.data.normal_(0, fan**-0.5, generator=generator)
        elif parameter.dim() == 1 and not parameter.any():
            parameter.data.uniform_(0.1, 0.5, generator=generator)  # gates that start closed


PICTURES = ("image", "rows", "patches", "batch of patches", "cubes", "batch of rows")


def inputs(model: Any, picture: str = "image", seed: int = 0) -> dict[str, Any]:
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
        given[name] = _input(name, config, generator, picture)
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
    most = min(90, _get(config, "vocab_size", default=90))
    return torch.randint(5, most, (2, TOKENS), generator=generator)


def _input(name: str, config: Any, generator: torch.Generator, picture: str) -> Any:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    if name in ("input_ids", "decoder_input_ids"):
        return _ids(config, generator)
    if name in ("inputs_embeds", "hidden_states") and not hasattr(config, "patch_size"):
        return normal(2, TOKENS, _get(config, "hidden_size", "d_model"))
    if name in ("attention_mask", "decoder_attention_mask"):
        return torch.ones(2, TOKENS, dtype=torch.long)
    if name in ("grid_thw", "image_grid_thw"):
        return torch.tensor([[1, 4, 4]])
    if name == "grid_hws":
        return torch.tensor([[4, 4]])
    if name == "merge_sizes":
        return torch.tensor([1])
    if name in ("pixel_values", "hidden_states"):
        return _picture("rows" if name == "hidden_states" else picture, config, normal)
    if name == "pixel_values_videos":
        side = config.crop_size
        return normal(1, config.frames_per_clip, 3, side, side)
    if name == "pixel_position_ids":
        return torch.cartesian_prod(torch.arange(4), torch.arange(4))[None].expand(2, -1, -1)
    if name == "input_features":
        bins = _get(
            config,
            "feature_projection_input_dim",
            "num_mel_bins",
            "feature_size",
            "mel_bins",
            default=80,
        )
        return normal(2, bins, 32) if picture == "rows" else normal(2, 32, bins)
    if name == "input_values":
        return normal(2, 1, 1600) if picture == "image" else normal(2, 1600)
    if name == "past_values":
        return [normal(64), normal(64)]
    if name in ("noise_embeds", "target_hidden_states"):
        return normal(2, TOKENS, config.hidden_size)
    raise ValueError(f"no way to make {name}")


def _picture(kind: str, config: Any, normal: Any) -> Any:
    """Pictures in the shapes that models take: whole, or cut into 4 × 4 patches."""
    channels = _get(config, "num_channels", "in_channels", "in_chans", default=3)
    patch = _get(config, "patch_size", default=4)
    patch = patch[0] if isinstance(patch, (list, tuple)) else patch
    depth = _get(config, "temporal_patch_size", "patch_temporal", default=1)
    if kind == "image":
        size = _get(config, "image_size", default=4 * patch)
        size = tuple(size) if isinstance(size, (list, tuple)) else (size, size)
        return normal(2, channels, *size)
    if kind == "rows":
        return normal(16, channels * depth * patch * patch)
    if kind == "batch of rows":
        return normal(2, 16, channels * patch * patch)
    if kind == "cubes":
        return normal(16, channels, depth, patch, patch)
    patches = normal(16, channels, patch, patch)
    return patches[None] if kind == "batch of patches" else patches


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


def working(unit: Unit, run: Any) -> tuple[nn.Module, dict[str, Any]]:
    """A model of ``unit`` and inputs for which ``run(model, inputs)`` works.

    Raises:
        Exception: none of the shapes that were tried worked; the first failure.
    """
    first: Exception | None = None
    for sections in (False, True):
        try:
            model = build(unit, sections)
        except Exception as error:
            first = first or error
            continue
        pictured = any(w in inspect.signature(model.forward).parameters for w in _SHAPED)
        for picture in PICTURES if pictured else PICTURES[:1]:
            try:
                given = inputs(model, picture)
                run(model, given)
            except Exception as error:
                first = first or error
            else:
                return model, given
    assert first is not None
    raise first


_SHAPED = ("pixel_values", "hidden_states", "input_features", "input_values")


@dataclass(frozen=True)
class Alone:
    """A class that rotates, to run by itself where the whole model cannot be built."""

    file: str
    model: type

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.model.__name__ + " alone"


def config_classes(file: str) -> list[Any]:
    """The config classes of a file's models, and of their parts."""
    found: list[Any] = []

    def add(cls: Any) -> None:
        if isinstance(cls, type) and cls not in found:
            found.append(cls)
            for name, part in (getattr(cls, "sub_configs", None) or {}).items():
                if part.__name__ == "AutoConfig":
                    add(type(getattr(cls(), name, None)))
                else:
                    add(part)

    for unit in units(file):
        add(unit.config)
    return found


def working_alone(
    part: Alone, run: Any, interleaved: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """The class by itself, with tables of random angles, and inputs for which it works.

    ``interleaved`` tables hold the two copies of an angle side by side.

    Raises:
        Exception: nothing that was tried worked; the first failure.
    """
    first: Exception = ValueError("no config of its own fits")
    kinds = [(c, kind) for c in config_classes(part.file) for kind in ("eager", "sdpa")]
    for config_class, attention in kinds:
        try:
            config = tiny_config(config_class)
            config._attn_implementation = attention
            model = _built_alone(part.model, config)
        except Exception as error:
            first = first if str(error).startswith("AutoConfig") else error
            continue
        for attempt in _attempts_alone(model, interleaved):
            try:
                run(model, attempt)
            except Exception as error:
                first = error
            else:
                return model, attempt
    raise first


def _built_alone(cls: Any, config: Any) -> nn.Module:
    torch.manual_seed(0)
    known = {
        "config": config,
        "atom_config": getattr(config, "atom_encoder", config),
        "layer_idx": 0,
        "layer_type": "full_attention",
        "dim": 64,
        "hidden_size": 64,
        "num_heads": 4,
        "kv_in_dim": 64,
    }
    required = [
        name
        for name, p in inspect.signature(cls.__init__).parameters.items()
        if name != "self" and (p.default is p.empty or name in ("layer_idx", "config"))
    ]
    model = cls(**{name: known[name] for name in required if name in known}).float().eval()
    energise(model)
    return model


def _attempts_alone(model: nn.Module, interleaved: bool) -> Iterator[dict[str, Any]]:
    """Inputs of several shapes, for the names that a forward has."""
    generator = torch.Generator().manual_seed(0)
    names = inspect.signature(model.forward).parameters
    width = next(m.in_features for m in model.modules() if isinstance(m, nn.Linear))
    main = next(iter(names))
    shapes = ((2, TOKENS, width), (TOKENS, width), (2, 3, 4, width), (2, 1, TOKENS, width))
    for shape in (*shapes, (2, width, 3, 4), (2, 256, 4, 3)):
        x = torch.randn(shape, generator=generator)
        for lanes in (16, 8, 32, 4, 64, 128):
            for lead in ((1, TOKENS), (TOKENS,), (2, TOKENS), (1, 2 * TOKENS), (1, 4)):
                tables = _tables((*lead, lanes), generator, interleaved)
                given: dict[str, Any] = {main: x}
                for name in names:
                    if name in _ALONE:
                        given[name] = _ALONE[name](x, tables)
                yield given


def _tables(
    shape: tuple[int, ...], generator: torch.Generator, interleaved: bool
) -> tuple[Tensor, Tensor]:
    angles = torch.randn((*shape[:-1], shape[-1] // 2), generator=generator)
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


_ALONE: dict[str, Any] = {
    "position_embeddings": lambda x, tables: tables,
    "attention_mask": lambda x, tables: None,
    "cu_seqlens": lambda x, tables: torch.tensor([0, TOKENS], dtype=torch.int32),
    "key": lambda x, tables: x + 1,
    "value": lambda x, tables: x,
    "context_hidden_states": lambda x, tables: x,
    "layer_idx": lambda x, tables: 0,
    "cache": lambda x, tables: None,
    "position_ids": lambda x, tables: torch.arange(TOKENS)[None],
    "rotary_pos_emb": lambda x, tables: torch.atan2(tables[1], tables[0]),
    "freqs_ci": lambda x, tables: torch.complex(*(t[..., : t.shape[-1] // 2] for t in tables)),
    "position_embeddings_k": lambda x, tables: tables,
    "rope_k_repeat": lambda x, tables: 1,
}
