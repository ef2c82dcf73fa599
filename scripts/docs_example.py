"""The example of a docs page: a few lines that run as they stand."""

from __future__ import annotations

from ropewalk.catalog import Spec
from ropewalk.checks import probes
from ropewalk.core import Additive, Bias, Contextual, Encoding, Rotary

TOKENS = 16
GRIDS = {1: (TOKENS,), 2: (4, 4), 3: (2, 2, 4), 4: (2, 2, 2, 2)}


def example(spec: Spec, encoding: Encoding) -> str:
    """Python that makes the encoding and uses it where it enters attention."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in spec.config.items())
    making = f'encoding = ropewalk.make("{spec.name}", {arguments})'
    return "\n".join(["import ropewalk, torch", "", making, *_use(encoding)])


def _use(encoding: Encoding) -> list[str]:
    where = _where(encoding.axes)
    if isinstance(encoding, Additive):
        call = "encoding(x)" if encoding.axes == 1 else "encoding(x, where)"
        shape = f"2, {TOKENS}, {encoding.dim}"
        return [f"x = torch.randn({shape})  # batch, tokens, dim", *where, f"y = {call}"]
    heads, width = _size(encoding)
    lines = [
        f"q, k, v = torch.randn(3, 2, {heads}, {TOKENS}, {width})  "
        "# batch, heads, tokens, head_dim",
        *where,
    ]
    given = "encoding"
    if isinstance(encoding, Contextual) and encoding.content_dim is not None:
        shape = f"2, {TOKENS}, {encoding.content_dim}"
        lines.append(f"x = torch.randn({shape})  # hidden states of the tokens")
        given = "encoding.read(x)"
    stated = ", q_positions=where, kv_positions=where" if where else ""
    return [*lines, f"y = ropewalk.attend(q, k, v, {given}{stated})"]


def _where(axes: int) -> list[str]:
    """A grid of positions, where one axis is not enough."""
    if axes == 1:
        return []
    sizes = GRIDS.get(axes, (*([1] * (axes - 1)), TOKENS))
    return [f"where = ropewalk.positions.grid({', '.join(map(str, sizes))})  # [tokens, axes]"]


def _size(encoding: Encoding) -> tuple[int, int]:
    """Heads and head_dim that the encoding takes."""
    if isinstance(encoding, Rotary):
        heads = probes.heads_of(encoding)
        return (heads if heads > 1 else 8), encoding.head_dim
    if isinstance(encoding, Bias):
        return encoding.heads, 64
    if isinstance(encoding, Contextual):
        return probes.contextual_size(encoding)
    raise TypeError(f"{type(encoding).__name__} belongs to no family")
