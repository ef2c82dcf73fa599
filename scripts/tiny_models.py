"""Tiny random models of every architecture in the installed transformers that rotates q and k.

Configs come from :mod:`tiny_configs`. Weights are drawn anew with unit gain, so attention is
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
from tiny_configs import tiny_config
from torch import Tensor, nn

from ropewalk.models.plan import plan

TOKENS = 12


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
