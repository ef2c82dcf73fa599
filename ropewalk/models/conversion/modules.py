"""Attention of transformers run with the weights before and after, one layer of each kind.

The class itself says how it packs heads and where it rotates; nothing of what the conversion knows
is used. Where the class turns another layout than the weights have, its rotation is replaced by the
same one for that layout (:func:`ropewalk.models.patch`).
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.conversion.plan import Layer
from ropewalk.models.conversion.probe import Reader
from ropewalk.models.fused import place_of
from ropewalk.models.patching import patch

TOLERANCE, SEEN = 1e-4, 1e-3
"""Of float32 outputs; and the least that the other layout must change, for a proof."""
_LATER = 1000
"""The first position: differences between pairs show."""


class NotRun(ValueError):
    """A class that could not be run this way, with the reason."""


def output_difference(
    layer: Layer,
    configs: tuple[Any, Any],
    readers: tuple[Reader, Reader],
    natives: tuple[str, str],
    layouts: tuple[str, str],
) -> float:
    """Largest difference of what attention gives, over its largest value.

    Args:
        layer: to run.
        configs: of transformers, for the weights before and after.
        readers: of both checkpoints.
        natives: the layout that the class turns, under each config.
        layouts: of the weights of both.

    Raises:
        NotRun: the class cannot be run alone, or its outputs do not show the layout.
    """
    before, after = (
        _Attention(layer, config, reader, native)
        for config, reader, native in zip(configs, readers, natives, strict=True)
    )
    wanted, found = before.run(layouts[0]), after.run(layouts[1])
    scale = wanted.abs().max().item()
    if not (after.run(layouts[0]) - wanted).abs().max().item() > SEEN * scale:
        raise NotRun("its outputs do not depend on the layout, so they prove nothing")
    return (found - wanted).abs().max().item() / scale


class _Attention:
    """One attention module with its weights, and arguments to call it with."""

    def __init__(self, layer: Layer, config: Any, reader: Reader, native: str) -> None:
        self.native = native
        model = _empty(config)
        name = next(iter(layer.turned))
        part = layer.turned[name][0]
        self.path = name.removesuffix(f".{part.module}.{part.parameter}")
        path, self.module = _find(model, self.path)
        self.module.to_empty(device="cpu").float().eval()
        if next(self.module.buffers(), None) is not None:
            raise NotRun("it holds buffers, which no file gives")
        weights = {
            n.removeprefix(self.path + "."): reader.whole(n).float()
            for n in reader.names()
            if n.startswith(self.path + ".")
        }
        self.module.load_state_dict(weights)
        random = torch.Generator().manual_seed(0)
        x = torch.randn(1, 6, _width(config), generator=random)
        self.given = _arguments(self.module, model, path, config, x)
        patch(self.module)
        self.call()

    def call(self) -> Tensor:
        """The output for the arguments."""
        with torch.no_grad():
            out = self.module(**self.given)
        return out[0] if isinstance(out, tuple) else out

    def run(self, layout: str) -> Tensor:
        """The output, pairs turned in ``layout``."""
        places = [p for m in self.module.modules() if (p := place_of(m)) is not None]
        reason = next((p.left for p in places if p.left), None)
        if not places or reason:
            raise NotRun(f"its rotation cannot be replaced: {reason or 'none is known'}")
        for place in places:
            place.layout = None if layout == self.native else layout
        return self.call()


def _empty(config: Any) -> nn.Module:
    """The model's body without memory for its weights."""
    from transformers import AutoModel

    with torch.device("meta"):
        return AutoModel.from_config(config, attn_implementation="eager", dtype=torch.float32)


def _find(model: nn.Module, path: str) -> tuple[str, nn.Module]:
    """The module at ``path``, whose first words a body may lack."""
    words = path.split(".")
    for i in range(len(words)):
        shorter = ".".join(words[i:])
        try:
            return shorter, model.get_submodule(shorter)
        except AttributeError:
            continue
    raise NotRun(f"the class has no module {path}")


def _width(config: Any) -> int:
    return config.get_text_config().hidden_size


def _arguments(
    module: nn.Module, model: nn.Module, path: str, config: Any, x: Tensor
) -> Mapping[str, Any]:
    """What the module's forward asks for."""
    positions = torch.arange(_LATER, _LATER + x.shape[1])[None]
    known: dict[str, Any] = {
        "hidden_states": x,
        "attention_mask": None,
        "position_ids": positions,
        "position_embeddings": None,
    }
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if name == "position_embeddings":
            given[name] = _tables(module, model, config, x, positions)
        elif name in known:
            given[name] = known[name]
        elif (
            parameter.default is parameter.empty
            and parameter.kind == parameter.POSITIONAL_OR_KEYWORD
        ):
            raise NotRun(f"its forward asks for {name}")
    return given


def _tables(module: nn.Module, model: nn.Module, config: Any, x: Tensor, positions: Tensor) -> Any:
    """cos and sin as the model's own rotary module makes them."""
    text = config.get_text_config()
    for name, owner in model.named_modules():
        if name.endswith(("rotary_emb", "rotary_pos_emb")) and "vis" not in name:
            made = type(owner)(config=text)
            parameters = inspect.signature(made.forward).parameters
            kinds = getattr(text, "layer_types", None)
            more = {}
            if "layer_type" in parameters and kinds:
                more["layer_type"] = kinds[getattr(module, "layer_idx", 0)]
            return made(x, positions, **more)
    raise NotRun("no rotary module is in the model")
