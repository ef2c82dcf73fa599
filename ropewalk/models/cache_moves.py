"""The keys of a whole transformers cache moved, layer by layer and in place.

Everything is looked at before anything is changed: a refusal leaves the cache as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ropewalk.encodings.rotary.rope import Phases
from ropewalk.kernels.arguments import require_own_memory
from ropewalk.models.cache_layers import Held, held_by, require_cache, require_forgetful
from ropewalk.models.cache_places import Places
from ropewalk.models.cache_spectra import Sides, layer_sides
from ropewalk.models.moves import Move, require_no_graph
from ropewalk.models.sides import Side
from ropewalk.positions import left_padded
from ropewalk.spectra.arguments import check_int


@dataclass
class Moved:
    """What was done with a cache: layers whose keys were turned, and the others with the reason."""

    turned: list[int] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)


def rerotate_cache(
    cache: Any,
    old: Any,
    new: Any,
    positions: Tensor | None = None,
    new_positions: Tensor | None = None,
    *,
    old_length: int | None = None,
    new_length: int | None = None,
    phases: Phases = "float32",
) -> Moved:
    """Every key of a transformers cache moved in place, as :func:`ropewalk.models.rerotate` does.

    Args:
        cache: a DynamicCache or StaticCache, its layers full, sliding, or with a recurrent state.
        old: what rotated the keys: a Spectrum or RoPE for all layers; a list with one (or None, or
            several in turn) a layer; a config, path or anything :func:`ropewalk.configs.resolve`
            takes; or the model itself, with the frequencies that its modules hold.
        new: what shall have rotated them, likewise.
        positions: of all tokens the cache has seen, ``[tokens]`` or ``[batch, tokens]`` (``,
            axes``), or ``None`` for 0 … T−1 on one axis. Sliding layers use the last of them.
        new_positions: likewise; ``None`` if they stay.
        old_length, new_length: pin frequencies that depend on the length (dynamic NTK, LongRoPE).
        phases: ``"float32"`` undoes and makes the angles that transformers computes, with their
            rounding; ``"integer"`` is exact, for models that are exact.

    Returns:
        :class:`Moved`: the layers that were turned, and why the others were not.

    Raises:
        TypeError: a cache or layer of another kind, quantised keys, keys in an autograd graph.
        ValueError: layers, lanes, axes or positions do not fit.
    """
    plan = _Plan(cache)
    before = layer_sides("old", old, len(plan.layers), old_length, phases)
    after = layer_sides("new", new, len(plan.layers), new_length, phases)
    p = None if positions is None else Places.of("positions", positions, before)
    q = None if new_positions is None else Places.of("new_positions", new_positions, after)
    for held in plan.held:
        where = Places.of("positions", None, before, held.total) if p is None else p
        there = None if q is None else q.last(held.stored, held.total)
        here = where.last(held.stored, held.total)
        plan.turn(held, before[held.index], after[held.index], here, there, held.stored)
    plan.carry_out(lambda held: {name: held.part(name) for name in ("keys", "values")})
    return plan.moved


def shift_cache(
    cache: Any,
    source: Any,
    *,
    drop: int,
    keep: int = 0,
    attention_mask: Tensor | None = None,
    positions: Tensor | None = None,
    new_positions: Tensor | None = None,
    length: int | None = None,
    phases: Phases = "float32",
) -> Moved:
    """Forget ``drop`` tokens after the first ``keep`` and move the rest up, in place.

    What follows stands at the positions it would have had without the dropped tokens, and the
    cache counts ``drop`` tokens less. Values, and keys that do not rotate, move unchanged. Cut
    columns ``keep … keep + drop − 1`` out of an attention mask too.

    Args:
        cache: as for :func:`rerotate_cache`; layers with a recurrent state are refused, since it
            has seen the dropped tokens.
        source: what rotated the keys, as ``old`` of :func:`rerotate_cache`.
        drop: tokens to forget.
        keep: tokens in front that stay where they are (attention sinks, a system prompt).
        attention_mask: ``[batch, tokens]`` of all tokens seen, for rows with padding: real tokens
            count from 0 (:func:`ropewalk.positions.left_padded`), before the cut and after.
        positions: of all tokens seen; ``None`` for 0 … T−1 on one axis.
        new_positions: of the tokens that remain; if ``None``, those behind the gap move so that
            the first of them stands where the first dropped one stood, row by row.
        length: pins frequencies that depend on it.
        phases: as for :func:`rerotate_cache`.

    Returns:
        :class:`Moved`.

    Raises:
        TypeError: as :func:`rerotate_cache`.
        ValueError: there are fewer tokens; a sliding layer lacks tokens that its window needs.
    """
    plan = _Plan(cache)
    gap = slice(check_int("keep", keep, at_least=0), keep + check_int("drop", drop, at_least=0))
    sides = layer_sides("source", source, len(plan.layers), length, phases)
    if attention_mask is not None:
        if positions is not None or new_positions is not None:
            raise ValueError("attention_mask says what positions are; give one of them")
        positions = left_padded(attention_mask)
        rest = attention_mask[..., : gap.start], attention_mask[..., gap.stop :]
        new_positions = left_padded(torch.cat(rest, dim=-1))
    given = None if positions is None else Places.of("positions", positions, sides)
    stated = None if new_positions is None else Places.of("new_positions", new_positions, sides)
    for index, layer in enumerate(plan.layers):
        require_forgetful(index, layer)
    for held in plan.held:
        _require_droppable(held, gap)
        where = Places.of("positions", None, sides, held.total) if given is None else given
        left = held.total - drop
        moved = where.closed(gap) if stated is None else stated
        stored = held.stored - _gone(held, gap)
        p, q = where.without(gap, held.total).last(stored, left), moved.last(stored, left)
        own = sides[held.index]
        plan.turn(held, own, own, p, q, stored)
    plan.carry_out(
        lambda held: {n: _remaining(held, gap, n) for n in ("keys", "values")},
        lambda held, parts: held.keep(parts["keys"], parts["values"], held.total - drop),
    )
    return plan.moved


class _Plan:
    """What will be done with each layer, checked in full before the first is touched."""

    def __init__(self, cache: Any) -> None:
        self.layers = require_cache(cache)
        self.moved = Moved()
        self.held: list[Held] = []
        self.turns: dict[int, tuple[str, list[Move]]] = {}
        self._made: dict[Any, Move] = {}
        if getattr(cache, "offloading", False) and torch.accelerator.is_available():
            torch.accelerator.synchronize()  # layers are on their way to the CPU
        for index, layer in enumerate(self.layers):
            found = held_by(index, layer)
            if isinstance(found, str):
                self.moved.left[index] = found
                continue
            require_no_graph(f"the keys of layer {index}", layer.keys)
            self.held.append(found)

    def turn(
        self,
        held: Held,
        old: Sides,
        new: Sides,
        positions: Tensor,
        new_positions: Tensor | None,
        tokens: int,
    ) -> None:
        """Plan to turn the keys of one layer, ``tokens`` of them."""
        if not old and not new:
            self.moved.left[held.index] = "its keys are not rotated"
            return
        if len(old) != len(new):
            raise ValueError(
                f"layer {held.index} is turned by {len(old)} spectra of old and {len(new)} of new; "
                "give both the same lanes"
            )
        moves, name = [], "keys"
        for a, b in zip(old, new, strict=True):
            name, a, b = _as_held(held, a, b)
            k = held.part(name)[..., :tokens, :]
            require_own_memory(f"{name} of layer {held.index}", k)
            moves.append(self._move(held, a, b, positions, new_positions, k))
        self.turns[held.index] = name, moves
        self.moved.turned.append(held.index)

    def _move(
        self, held: Held, old: Side, new: Side, p: Tensor, q: Tensor | None, k: Tensor
    ) -> Move:
        """The move of one layer, shared with layers that are alike."""
        key = (old, new, k.shape, k.dtype, held.total, k.device)
        if key not in self._made:
            there = None if q is None else q.to(k.device)
            try:
                self._made[key] = Move(old, new, p.to(k.device), there, k)
            except (TypeError, ValueError) as error:
                raise type(error)(f"layer {held.index}: {error}") from None
        return self._made[key]

    def carry_out(
        self,
        parts_of: Callable[[Held], dict[str, Tensor]],
        store: Callable[[Held, dict[str, Tensor]], None] | None = None,
    ) -> None:
        """Turn what was planned, and store it where that is needed."""
        for held in self.held:
            with torch.inference_mode(held.layer.keys.is_inference()), torch.no_grad():
                parts = parts_of(held)
                name, moves = self.turns.get(held.index, ("keys", []))
                for move in moves:
                    move.in_place(parts[name])
                if store is not None:
                    store(held, parts)


# --- lanes ------------------------------------------------------------------------------------


def _as_held(held: Held, old: Side, new: Side) -> tuple[str, Side, Side]:
    """Where the turned lanes of a layer are, and its sides as they are there.

    Latent attention (MLA) keeps latents that do not rotate as keys, and the rotated lanes, which
    all heads share, as values. Latents may be as wide as a head, so width alone tells nothing
    where the turned lanes stand behind others.
    """
    keys, values, spectrum = held.layer.keys, held.layer.values, old.spectrum
    latent = values.shape[-3] == 1 and values.shape[-1] == spectrum.rotary_dim
    if not latent or (keys.shape[-1] == spectrum.head_dim and not spectrum.lane_offset):
        return "keys", old, new
    return "values", _alone(old), _alone(new)


def _alone(side: Side) -> Side:
    spectrum = side.spectrum
    return Side(spectrum.replace(head_dim=spectrum.rotary_dim, lane_offset=0), side.phases)


# --- tokens -----------------------------------------------------------------------------------


def _require_droppable(held: Held, gap: slice) -> None:
    drop = gap.stop - gap.start
    if gap.stop > held.total:
        raise ValueError(
            f"drop={drop} after keep={gap.start} is more than the {held.total} tokens of layer "
            f"{held.index} of the cache"
        )
    if held.window is None:
        return
    kept, needed = held.stored - _gone(held, gap), min(held.window, held.total - drop)
    if kept < needed:
        raise ValueError(
            f"layer {held.index} of the cache keeps tokens {held.first} … {held.total - 1} only, "
            f"and without tokens {gap.start} … {gap.stop - 1} its window reaches back to earlier "
            f"ones; drop more than {held.first} from the front (keep=0), end the gap before token "
            f"{held.first + 1}, or compute the cache anew"
        )


def _gone(held: Held, gap: slice) -> int:
    """How many of the stored tokens lie in the gap."""
    return max(0, gap.stop - max(held.first, gap.start))


def _remaining(held: Held, gap: slice, name: str) -> Tensor:
    """A copy of the stored tokens outside the gap."""
    part = held.part(name)
    front, back = (max(0, end - held.first) for end in (gap.start, gap.stop))
    return torch.cat([part[..., :front, :], part[..., back:, :]], dim=-2)
