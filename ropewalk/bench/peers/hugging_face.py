"""transformers: its models' own functions, as they are and compiled."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import CohereConfig, LlamaConfig
from transformers.models.cohere import modeling_cohere
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama

from ropewalk.bench.cases import BASE
from ropewalk.bench.rotor import TorchRotor
from ropewalk.spectra import Spectrum


class Eager(TorchRotor):
    """Llama's function; GPT-NeoX's where some lanes pass through, Cohere's for interleaved lanes.

    Angles come from the rotary module of the same model, in float32, and the tables are cast to the
    dtype of x as there; on two axes, which no such module makes, exact tables are cast. The
    functions rotate q and k; a single tensor goes with a k of no heads.
    """

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        interleaved = spectrum.layout == "interleaved"
        if interleaved:
            self.require_layout("interleaved")
            self.apply: Callable[..., Any] = modeling_cohere.apply_rotary_pos_emb
        elif spectrum.rotary_dim < spectrum.head_dim:
            self.apply = modeling_gpt_neox.apply_rotary_pos_emb
        else:
            self.apply = modeling_llama.apply_rotary_pos_emb
        if spectrum.axes > 1:
            cosine, sine = (table.repeat(1, 2)[None] for table in self.tables(dtype))
        else:
            cosine, sine = _tables(spectrum.rotary_dim, interleaved, positions, dtype)
        self.cosine, self.sine = cosine, sine

    def turn(self, x: Tensor) -> Tensor:
        return self.apply(x, x[:, :0], self.cosine, self.sine)[0]

    def pair(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.apply(q, k, self.cosine, self.sine)


def _tables(
    width: int, interleaved: bool, positions: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    sizes: dict[str, Any] = {
        "hidden_size": width,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "rope_theta": BASE,
        "rope_parameters": {"rope_type": "default", "rope_theta": BASE},
    }
    if interleaved:
        module = modeling_cohere.CohereRotaryEmbedding(CohereConfig(**sizes))
    else:
        module = modeling_llama.LlamaRotaryEmbedding(LlamaConfig(**sizes))
    with torch.no_grad():
        return module(torch.empty(0, dtype=dtype), positions[None])


class Compiled(Eager):
    """:class:`Eager` through ``torch.compile``, which also fuses the write into ``out``."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        torch.compiler.reset()
        apply, cosine, sine = self.apply, self.cosine, self.sine

        def turn(x: Tensor) -> Tensor:
            return apply(x, x[:, :0], cosine, sine)[0]

        def into(x: Tensor, out: Tensor) -> Tensor:
            return out.copy_(turn(x))

        def pair(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            return apply(q, k, cosine, sine)

        def pair_in_place(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            one, other = apply(q, k, cosine, sine)
            return q.copy_(one), k.copy_(other)

        self._turn, self._into = _compiled(turn), _compiled(into)
        self._pair, self._pair_in_place = _compiled(pair), _compiled(pair_in_place)

    def turn(self, x: Tensor) -> Tensor:
        return self._turn(x)

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        return self._into(x, out)

    def in_place(self, x: Tensor) -> Tensor:
        return self._into(x, x)

    def pair(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._pair(q, k)

    def pair_in_place(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._pair_in_place(q, k)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, fullgraph=True)
