"""Which layers of a transformers cache hold rotated keys, of which tokens, and where.

A layer class is known by its name: what it keeps and how it counts is a fact about that class. One
that is not known is refused, since it may keep rotated keys elsewhere too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

_MODULE = "transformers.cache_utils"
_CACHES = ("Cache", "DynamicCache", "StaticCache")
_GROWING, _FIXED, _WINDOW = "growing", "fixed", "window"
_KINDS: dict[str, frozenset[str]] = {
    "DynamicLayer": frozenset({_GROWING}),
    "DynamicSlidingWindowLayer": frozenset({_GROWING, _WINDOW}),
    "StaticLayer": frozenset({_FIXED}),
    "StaticSlidingWindowLayer": frozenset({_FIXED, _WINDOW}),
}
_WITH_STATE = {
    "LinearAttentionAndFullAttentionLayer": "DynamicLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer": "DynamicSlidingWindowLayer",
    "LinearAttentionAndStaticFullAttentionLayer": "StaticLayer",
    "LinearAttentionAndStaticSlidingWindowAttentionLayer": "StaticSlidingWindowLayer",
}
_WITHOUT_KEYS = {
    "DummyLayer": "it keeps nothing",
    "LinearAttentionLayer": "it keeps a recurrent state and no keys",
}
_REFUSED = {
    "Indexed": "it keeps the keys of an indexer too, which rotates them in its own way",
    "Quantized": "its keys are quantised, and each turn would round them again",
}
_CACHES_REFUSED = {
    "QuantizedCache": "its keys are quantised, and each turn would round them again; use a "
    "DynamicCache, or compute the keys anew",
    "EncoderDecoderCache": "it holds two caches, and the keys of cross attention are not rotated; "
    "give cache.self_attention_cache",
}


@dataclass(frozen=True)
class Held:
    """The tokens of one layer: the last ``stored`` of ``total``, at the front of its tensors.

    ``window`` is how many it needs at most; None if all. ``state`` says that a recurrent state
    beside the keys has seen every token.
    """

    index: int
    layer: Any
    total: int
    stored: int
    window: int | None
    fixed: bool
    state: bool

    @property
    def first(self) -> int:
        """The number of the first token that is stored."""
        return self.total - self.stored

    def part(self, name: str) -> Tensor:
        """The stored tokens of ``keys`` or ``values``, a view."""
        return getattr(self.layer, name)[..., : self.stored, :]

    def keep(self, keys: Tensor, values: Tensor, total: int) -> None:
        """Store these tokens, the last of ``total``, in place of all others."""
        layer, stored = self.layer, keys.shape[-2]
        if not self.fixed:
            layer.keys, layer.values = keys, values
            if self.window is not None:
                layer.cumulative_length = total
            return
        for held, kept in ((layer.keys, keys), (layer.values, values)):
            held[..., :stored, :].copy_(kept)
            held[..., stored:, :].zero_()
        layer.cumulative_length.fill_(stored if self.window is not None else total)
        if self.window is not None:
            layer.cumulative_length_int = total


def require_cache(cache: object) -> list[Any]:
    """The layers of a cache whose layers are known one by one.

    Raises:
        TypeError: it is another object, or keeps its keys in another way.
    """
    name = type(cache).__name__
    if name in _CACHES_REFUSED:
        raise TypeError(f"cache is a {name}: {_CACHES_REFUSED[name]}")
    if name not in _CACHES or type(cache).__module__ != _MODULE:
        raise TypeError(
            f"cache is a {type(cache).__module__}.{name}; give a DynamicCache or StaticCache of "
            "transformers, or move the keys of another with ropewalk.models.rerotate_"
        )
    return list(cache.layers)  # pyright: ignore[reportAttributeAccessIssue]


def held_by(index: int, layer: Any) -> Held | str:
    """What layer ``index`` holds, or why there is nothing to turn.

    Raises:
        TypeError: its class is not known, or is one whose keys cannot be moved.
    """
    name = type(layer).__name__
    known = type(layer).__module__ == _MODULE
    if known and name in _WITHOUT_KEYS:
        return _WITHOUT_KEYS[name]
    kind = _KINDS.get(_WITH_STATE.get(name, name)) if known else None
    if kind is None:
        bases = " ".join(base.__name__ for base in type(layer).__mro__)
        why = next((words for word, words in _REFUSED.items() if word in bases), None)
        raise TypeError(
            f"layer {index} of the cache is a {name}: {why or 'what it keeps is not known'}; "
            "compute the keys anew, or move them with ropewalk.models.rerotate_"
        )
    total = int(layer.get_seq_length()) if layer.is_initialized else 0
    if total == 0:
        return "it is empty"
    fixed = _FIXED in kind
    window = None
    if _WINDOW in kind:
        window = layer.max_cache_len if fixed else layer.sliding_window - 1
    stored = min(total, layer.keys.shape[-2])
    return Held(index, layer, total, stored, window, fixed, name in _WITH_STATE)


def require_forgetful(index: int, layer: Any) -> None:
    """Refuse a layer that cannot forget a token.

    Raises:
        TypeError: it has a recurrent state.
    """
    name = type(layer).__name__
    if name in _WITH_STATE or name == "LinearAttentionLayer":
        raise TypeError(
            f"layer {index} of the cache is a {name}: its recurrent state has seen every token and "
            "cannot forget some; compute the cache anew"
        )
