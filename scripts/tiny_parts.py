"""Classes that rotate, to run by themselves where their whole model cannot be built."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tiny_configs import tiny_config
from tiny_models import TOKENS, energise, units
from torch import Tensor, nn


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
