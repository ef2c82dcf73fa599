"""Plans: which encoding each layer of a model has, and how far it sees.

>>> from ropewalk.plan import interleave
>>> plan = interleave(ropewalk.RoPE(64), None, every=4, layers=12)
>>> plan[0].encoding is None, plan[3].encoding is None
(False, True)
>>> y = ropewalk.attend(q, k, v, **plan.layer(3))

A plan is a module, so that encodings with parameters move and train with the model that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.core import Additive, Encoding
from ropewalk.encodings.tempered import Llama4Scale, LogitScale, LogScale, Tempered
from ropewalk.spectra.arguments import FARTHEST, WIDEST, check_int, shown


@dataclass(frozen=True, eq=False)
class Layer:
    """How the tokens of one layer see each other.

    Args:
        encoding: rotary, bias or contextual; None for no position.
        window: a query sees the keys fewer than ``window`` tokens away; all if None.
        chunk: a query sees its own chunk of so many tokens only, counted from the first key.

    Raises:
        TypeError, ValueError: a value is of another type or out of range.
    """

    encoding: Encoding | None
    window: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        found = self.encoding
        if found is not None and (not isinstance(found, Encoding) or isinstance(found, Additive)):
            raise TypeError(
                f"encoding of a layer must be rotary, bias, contextual or None, got "
                f"{type(found).__name__}; additive codes are added once, to the embeddings"
            )
        for name, value in (("window", self.window), ("chunk", self.chunk)):
            if value is not None:
                check_int(name, value, at_least=1, at_most=FARTHEST)
        if self.window is not None and self.chunk is not None:
            raise ValueError(f"window={self.window} and chunk={self.chunk} exclude each other")


class Plan(nn.Module):
    """The layers of a model; a sequence of :class:`Layer`.

    Args:
        period: the layers that repeat, at least one.
        layers: of the model; the last period may be cut short. None repeats without end: any
            layer can be asked for, and there is no length.

    Raises:
        TypeError, ValueError: an argument is of another type or out of range.
    """

    def __init__(self, period: Sequence[Layer], layers: int | None = None) -> None:
        super().__init__()
        if not isinstance(period, Sequence):
            raise TypeError(f"period={shown(period)} must be a list of Layers: Plan([Layer(rope)])")
        if not period or not all(isinstance(layer, Layer) for layer in period):
            raise TypeError("period must hold Layers, and at least one: Plan([Layer(rope)])")
        if layers is not None:
            check_int("layers", layers, at_least=1)
        self.period, self.layers = tuple(period), layers
        different = {id(x.encoding): x.encoding for x in period if x.encoding is not None}
        self.encodings = nn.ModuleList(different.values())

    def __len__(self) -> int:
        if self.layers is None:
            raise TypeError("this plan repeats without end; give layers= for a length")
        return self.layers

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Layer:
        check_int("layer", index)
        last = self.layers
        if index < 0 and last is not None:
            index += last
        if index < 0 or (last is not None and index >= last):
            many = "without end" if last is None else f"of {last} layers"
            raise IndexError(f"layer {index} is not in this plan {many}")
        return self.period[index % len(self.period)]

    def __iter__(self) -> Iterator[Layer]:
        return (self[i] for i in range(len(self)))

    def layer(self, index: int, *, tokens: int | None = None) -> dict[str, Any]:
        """Arguments of :func:`ropewalk.attend` for one layer: ``attend(q, k, v, **plan.layer(i))``.

        Args:
            index: of the layer.
            tokens: of the keys, from the first of the sequence; needed by layers with chunks.

        Raises:
            IndexError: there is no such layer.
            ValueError: the layer has chunks and ``tokens`` is not given.
        """
        found = self[index]
        arguments: dict[str, Any] = {"encoding": found.encoding, "window": found.window}
        if found.chunk is not None:
            if tokens is None:
                raise ValueError(
                    f"layer {index} sees chunks of {found.chunk} tokens; give the number of keys: "
                    f"plan.layer({index}, tokens=k.shape[-2])"
                )
            arguments["segments"] = chunks(tokens, found.chunk, self._device())
        return arguments

    def _device(self) -> torch.device | None:
        tensors = (*self.parameters(), *self.buffers())
        return tensors[0].device if tensors else None

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        shown = [type(x.encoding).__name__ if x.encoding else "none" for x in self.period]
        return f"{', '.join(shown)}; layers={self.layers}"


def chunks(tokens: int, size: int, device: torch.device | None = None) -> Tensor:
    """Segments ``[tokens]`` of ``size`` tokens each, for ``attend(…, segments=…)``.

    Raises:
        TypeError, ValueError: tokens is no int ≥ 0, or size no int ≥ 1.
    """
    check_int("tokens", tokens, at_least=0, at_most=FARTHEST)
    check_int("size", size, at_least=1, at_most=FARTHEST)
    return torch.arange(tokens, device=device).div(size, rounding_mode="floor")


Given = Encoding | Layer | None


def interleave(
    usual: Given, other: Given, *, every: int = 4, at: int = -1, layers: int | None = None
) -> Plan:
    """``other`` in one of ``every`` layers, ``usual`` in the rest.

    Args:
        usual, other: an encoding, None for no position, or a :class:`Layer` with a window.
        every: layers of a period, at least 2. ``interleave(rope, None, every=4)`` has no position
            in layers 3, 7, 11, … as SmolLM3 and Llama 4 do.
        at: which layer of the period is ``other``; the last unless given, 0 the first.
        layers: of the model; None repeats without end.

    Raises:
        TypeError, ValueError: an argument is of another type or out of range.
    """
    check_int("every", every, at_least=2, at_most=WIDEST)
    check_int("at", at)
    if not -every <= at < every:
        raise ValueError(f"at={at} is not one of the {every} layers of a period")
    one, another = _layer(usual), _layer(other)
    return Plan([another if i == at % every else one for i in range(every)], layers)


def sliding(
    local: Given, everywhere: Given, *, window: int, every: int = 6, layers: int | None = None
) -> Plan:
    """Layers that see ``window`` tokens, and in one of ``every`` all of them, as Gemma 3.

    Args:
        local: of the layers with the window; Gemma 3 has RoPE of base 10,000.
        everywhere: of the layers that see all; base 1,000,000 there.
        window, every, layers: as in :class:`Layer` and :func:`interleave`.
    """
    return interleave(_seeing(local, window=window), everywhere, every=every, layers=layers)


def irope(
    rope: Given,
    nope: Encoding,
    *,
    every: int = 4,
    chunk: int | None = 8192,
    scale: LogitScale | None = Llama4Scale(),  # noqa: B008 (frozen)
    layers: int | None = None,
) -> Plan:
    """iRoPE of Llama 4: rotary layers that see a chunk, then one without position that sees all.

    Args:
        rope: of the layers with chunks.
        nope: a rotary encoding that turns nothing; its q is scaled by position.
        chunk: tokens of a chunk; None for rotary layers that see all.
        scale: of the logits of layers without position; None leaves them.
        every, layers: as in :func:`interleave`.
    """
    far = nope if scale is None else Tempered(nope, scale)
    return interleave(_seeing(rope, chunk=chunk), far, every=every, layers=layers)


def swan(
    rope: Given,
    nope: Encoding,
    *,
    window: int,
    a: float,
    every: int = 4,
    layers: int | None = None,
) -> Plan:
    """SWAN: one layer without position that sees all, then rotary layers with a window.

    Args:
        rope: of the layers with the window.
        nope: a rotary encoding that turns nothing; its q is scaled by ln(a + n).
        window: tokens that rotary layers see.
        a: see :class:`ropewalk.encodings.tempered.LogScale`.
        every, layers: as in :func:`interleave`.
    """
    far = Tempered(nope, LogScale(a))
    return interleave(_seeing(rope, window=window), far, every=every, at=0, layers=layers)


def _seeing(given: Given, **how_far: int | None) -> Layer:
    if isinstance(given, Layer):
        raise TypeError("give the encoding, and how far its layers see beside it, not a Layer")
    return Layer(given, **how_far)


def _layer(given: Given) -> Layer:
    return given if isinstance(given, Layer) else Layer(given)


__all__ = [
    "Layer",
    "Llama4Scale",
    "LogScale",
    "LogitScale",
    "Plan",
    "Tempered",
    "chunks",
    "interleave",
    "irope",
    "sliding",
    "swan",
]
