"""Exact phases in place of a model's own cos and sin tables, for models that are trained anew.

A rotary module of transformers multiplies positions by ``inv_freq`` in float32, which errs by
5e-3 rad at position 131,072. Here its frequencies, taken as exact rationals, become integer steps
(:class:`ropewalk.Spectrum`), and its tables come from those. Which frequency and which axis of the
positions each lane gets is read off the module's own tables at small positions.

A model that was trained on float32 angles has learned them with that error, so this changes what it
computes; the report says by how much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.kernels import tables
from ropewalk.models.fused import rebind, replaced
from ropewalk.spectra import Spectrum

STATE = "_ropewalk_exact"
ORIGINAL = "_ropewalk_with_tables"
_BUFFER = re.compile(r"^(?:(?P<key>.+)_)?inv_freq$")
_BY_LENGTH = ("dynamic", "longrope")
_TOKENS = 5
_CLOSE = 2e-4
"""Radians by which float32 tables may miss the exact ones at the small positions of the test."""


@dataclass(frozen=True)
class Exact:
    """The tables of one rotary module, or of one layer type of it.

    spectrum    one pair for each different column of the tables
    columns     which pair each column shows
    axes_first  whether positions come as ``[axes, batch, tokens]``
    cast        whether the tables come in the dtype of x; else in float32
    complex     whether cos + i·sin comes in one tensor
    """

    spectrum: Spectrum
    columns: tuple[int, ...]
    axes_first: bool
    cast: bool
    complex: bool

    def __call__(self, x: Tensor, positions: Tensor) -> Any:
        """What the module's forward returns."""
        axes = self.spectrum.axes
        if self.axes_first:
            if positions.dim() == 2:
                positions = positions[None]
            positions = positions.expand(axes, -1, -1).movedim(0, -1)
        steps = self.spectrum.on(positions.device)
        dtype = torch.float64 if self.cast and x.dtype == torch.float64 else torch.float32
        cos, sin = tables(positions, steps, dtype)
        if self.columns != tuple(range(self.spectrum.pairs)):
            lanes = torch.tensor(self.columns, device=cos.device)
            cos, sin = cos.index_select(-1, lanes), sin.index_select(-1, lanes)
        if self.complex:
            return torch.complex(cos, sin)
        return (cos.to(x.dtype), sin.to(x.dtype)) if self.cast else (cos, sin)


@dataclass
class Table:
    """A rotary module of a model: how far its angles are from exact ones, or why it is left."""

    module: str
    key: str | None
    difference: float | None
    context: int
    reason: str | None = None
    stored: torch.dtype = torch.float32

    def __str__(self) -> str:
        name = self.module + (f" ({self.key})" if self.key else "")
        if self.reason is not None:
            return f"left   tables of {name}: {self.reason}"
        return (
            f"exact  tables of {name}: angles differ by up to {self.difference:.2g} rad "
            f"up to position {self.context - 1}"
            + (f" (inv_freq is stored in {self.stored})" if self.stored.itemsize < 4 else "")
        )


def make_exact(model: nn.Module) -> list[Table]:
    """Let every rotary module of ``model`` take its tables from exact phases."""
    found: list[Table] = []
    for name, module in model.named_modules():
        if STATE in module.__dict__:
            found += module.__dict__[STATE]["tables"]
            continue
        buffers = _frequencies(module)
        if not buffers:
            continue
        made, reports = {}, []
        for key, inv_freq in buffers.items():
            exact = _exact(module, key, inv_freq)
            reports.append(_report(name, key, module, model, inv_freq, exact))
            if isinstance(exact, Exact):
                made[key] = exact
        if made:
            _take_over(module, made, reports)
        found += reports
    return found or [Table("the model", None, None, 0, "no module in it has an inv_freq")]


def _take_over(module: nn.Module, made: dict[str | None, Exact], reports: list[Table]) -> None:
    cls = type(module)
    module.__class__ = exact_class(cls)
    module.__dict__[STATE] = {"exact": made, "tables": reports}
    rebind(module, {_forward(cls): _forward(type(module))})


def restore_tables(module: nn.Module) -> bool:
    """Give a module its own tables back; False if it has them."""
    if STATE not in module.__dict__:
        return False
    exact = type(module)
    cls = module.__class__ = vars(exact)[ORIGINAL]
    del module.__dict__[STATE]
    rebind(module, {_forward(exact): _forward(cls)})
    return True


def _forward(cls: Any) -> Any:
    return cls.forward


@cache
def exact_class(cls: type) -> type:
    """The subclass of a rotary module whose forward gives exact tables."""
    original = cls.forward  # pyright: ignore[reportAttributeAccessIssue]

    @wraps(original)
    def forward(self: nn.Module, x: Tensor, position_ids: Tensor, layer_type: Any = None) -> Any:
        exact = self.__dict__[STATE]["exact"].get(layer_type)
        if exact is None:
            exact = self.__dict__[STATE]["exact"].get(None)
        if exact is not None:
            return exact(x, position_ids)
        extra = () if layer_type is None else (layer_type,)
        return original(self, x, position_ids, *extra)

    body = {
        "forward": forward,
        ORIGINAL: cls,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": lambda self, protocol: (_empty, (cls,), self.__getstate__()),
    }
    return type(cls)(cls.__name__, (cls,), body)


def _empty(cls: type) -> Any:
    made: Any = exact_class(cls)
    return made.__new__(made)


def _frequencies(module: nn.Module) -> dict[str | None, Tensor]:
    """The frequency buffers of a rotary module, by layer type."""
    found: dict[str | None, Tensor] = {}
    for name, buffer in module.named_buffers(recurse=False):
        match = _BUFFER.match(name)
        if match and not name.endswith("original_inv_freq"):
            found[match["key"]] = buffer
    return found


def _exact(module: nn.Module, key: str | None, inv_freq: Tensor) -> Exact | str:
    """The exact tables that match those of ``module``, or why there are none."""
    kind = getattr(module, "rope_type", None)
    kind = kind.get(key) if isinstance(kind, dict) else kind
    if kind in _BY_LENGTH:
        return f"its frequencies depend on the length (rope_type {kind!r})"
    reason = replaced(module, _forward(type(module)))
    if reason is not None:
        return reason
    if inv_freq.device.type == "meta":
        return "it is on the meta device; load its weights first"
    frequencies = [float(f) for f in inv_freq.detach().flatten().tolist()]
    for axes, first in ((1, False), (2, True), (3, True), (4, True), (2, False), (3, False)):
        exact = _read_off(module, key, frequencies, axes, first)
        if exact is not None and _agrees(module, key, exact):
            return exact
    return "its tables are not cos and sin of position times frequency"


def _shape(positions: Tensor, first: bool) -> Tensor:
    """Positions ``[tokens, axes]`` as the module takes them."""
    if positions.shape[-1] == 1:
        return positions[None, :, 0]
    return positions.T[:, None, :] if first else positions


def _own(
    module: nn.Module, key: str | None, positions: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, bool] | None:
    """The module's own cos, sin ``[tokens, columns]``, and whether they came as one tensor."""
    buffer = next(module.buffers(recurse=False))
    x = torch.zeros(1, 1, 1, dtype=dtype, device=buffer.device)
    arguments = (x, positions.to(buffer.device)) + (() if key is None else (key,))
    try:
        with torch.no_grad():
            result = module.forward(*arguments)
    except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, KeyError):
        return None
    joined = isinstance(result, Tensor) and result.is_complex()
    pair = (result.real, result.imag) if joined else result
    if not isinstance(pair, tuple) or len(pair) != 2:
        return None
    cos, sin = (t.squeeze(0) if isinstance(t, Tensor) and t.dim() == 3 else t for t in pair)
    if not isinstance(cos, Tensor) or cos.dim() != 2 or cos.shape[0] != _TOKENS:
        return None
    return cos, sin, joined


def _read_off(
    module: nn.Module, key: str | None, frequencies: list[float], axes: int, first: bool
) -> Exact | None:
    """Which frequency and axis each column shows, from a step along each axis."""
    rows: list[list[float]] = []
    factor = 1.0
    joined = cast = False
    for axis in range(axes):
        positions = torch.zeros(_TOKENS, axes, dtype=torch.int64)
        positions[1, axis] = 1
        own = _own(module, key, _shape(positions, first), torch.float32)
        half = _own(module, key, _shape(positions, first), torch.bfloat16)
        if own is None or half is None:
            return None
        cos, sin, joined = own
        cast = half[0].dtype == torch.bfloat16
        factor = cos[0].double().max().item()
        angles = torch.atan2(sin[1].double(), cos[1].double()).tolist()
        rows.append([_nearest(angle, frequencies) for angle in angles])
    if any(f != f for row in rows for f in row) or factor <= 0:
        return None
    columns = list(zip(*rows, strict=True))
    pairs = list(dict.fromkeys(columns))
    freqs = tuple(tuple(pair[axis] for pair in pairs) for axis in range(axes))
    spectrum = Spectrum(
        freqs, head_dim=2 * len(pairs), attention_factor=_factor(module, key, factor)
    )
    index = tuple(pairs.index(column) for column in columns)
    return Exact(spectrum, index, first, cast, joined)


def _factor(module: nn.Module, key: str | None, seen: float) -> float:
    """The module's own factor, where it is the one seen in its tables (in float32)."""
    stated = getattr(
        module, "attention_scaling" if key is None else f"{key}_attention_scaling", None
    )
    known = isinstance(stated, (int, float)) and abs(stated - seen) <= 1e-6 * seen
    return float(stated) if known and stated is not None else seen


def _nearest(angle: float, frequencies: list[float]) -> float:
    """The frequency whose angle this is; 0 for a lane that stands; nan if it is none of them."""
    if angle == 0.0:
        return 0.0
    best = min(frequencies, key=lambda f: abs(f - angle))
    return best if abs(best - angle) <= 2e-6 * abs(best) + 1e-12 else float("nan")


def _agrees(module: nn.Module, key: str | None, exact: Exact) -> bool:
    """Whether the exact tables are the module's own, but for rounding, at other positions."""
    random = torch.Generator().manual_seed(3)
    positions = torch.randint(0, 200, (_TOKENS, exact.spectrum.axes), generator=random)
    own = _own(module, key, _shape(positions, exact.axes_first), torch.float32)
    if own is None:
        return False
    x = torch.zeros(1, 1, 1)
    shaped = _shape(positions, exact.axes_first).to(own[0].device)
    mine = exact(x, shaped)
    pair = (mine.real, mine.imag) if exact.complex else mine
    limit = _CLOSE * exact.spectrum.attention_factor
    return all(
        bool((a.reshape(b.shape) - b).abs().max() <= limit)
        for a, b in zip(pair, own[:2], strict=True)
    )


def _report(
    name: str,
    key: str | None,
    module: nn.Module,
    model: nn.Module,
    inv_freq: Tensor,
    exact: Exact | str,
) -> Table:
    context = _context(module, model)
    if isinstance(exact, str):
        return Table(name, key, None, context, exact)
    difference = angle_difference(inv_freq, context)
    return Table(name, key, difference, context, stored=inv_freq.dtype)


def _context(module: nn.Module, model: nn.Module) -> int:
    """The longest sequence that the module's config, or the model's, speaks of."""
    for config in _configs(module, model):
        try:
            length = getattr(config, "max_position_embeddings", None)
        except Exception:
            continue
        if isinstance(length, int) and length > 0:
            return length
    return 4096


def _configs(module: nn.Module, model: nn.Module) -> Iterator[Any]:
    for owner in (module, model):
        config = getattr(owner, "config", None)
        if config is not None:
            yield config
            get = getattr(config, "get_text_config", None)
            if get is not None:
                yield get()


def angle_difference(inv_freq: Tensor, context: int) -> float:
    """Largest difference in radians between float32 angles and exact ones below ``context``.

    Every position is tried up to 65,536, beyond that the last 65,536.
    """
    exact = inv_freq.detach().to("cpu", torch.float64).flatten()
    worst = 0.0
    for start in range(max(0, context - 65536), context, 4096):
        positions = torch.arange(start, min(context, start + 4096))
        rounded = positions[:, None].float() * exact.float()
        true = positions[:, None].double() * exact
        worst = max(worst, (rounded.double() - true).abs().max().item())
    return worst
