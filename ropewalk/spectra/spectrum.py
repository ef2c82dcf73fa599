"""Spectrum: the value that a rotary encoding is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ropewalk.spectra.arguments import FARTHEST, check_int, check_number, check_option
from ropewalk.spectra.lanes import LAYOUTS, PAIRINGS, Layout, Pairing, Turn, number, pair_slices
from ropewalk.spectra.turns import step

if TYPE_CHECKING:
    import torch

    from ropewalk.kernels.steps import Steps

Row = tuple[float, ...]
Matrix = tuple[Row, ...]


@dataclass(frozen=True, eq=True)
class Spectrum:
    r"""Frequencies of a rotary encoding and the lanes they turn: frozen, hashable, torch-free.

    .. math:: \mathrm{angle}[\text{pair}] = \sum_{\text{axis}}
        \text{position}[\text{axis}] \cdot \text{unit} \cdot \text{freqs}[\text{axis}][\text{pair}]

    Args:
        freqs: float64 radians per coordinate, ``[axes][pairs]``, or ``[heads][axes][pairs]`` where
            heads are KV heads, each repeated over its group of query heads.
        head_dim: width of one head; lanes outside the rotated ones pass through unchanged.
        layout: ``"half"`` pairs lane i with i + pairs (NeoX, Llama in transformers),
            ``"interleaved"`` pairs 2i with 2i+1 (GPT-J, Meta's Llama files).
        lane_offset: the first rotated lane.
        pairing: ``"standard"``, or ``"proportional"``: lane i goes with i + head_dim/2 (Gemma 4).
        attention_factor: multiplies cos and sin of every pair, zero-frequency pairs included.
        unit: size of one integer position in coordinates (1.0 for tokens; see
            :func:`ropewalk.positions.fixed` for fractional coordinates).

    Raises:
        TypeError: a value is of another type.
        ValueError: a value is out of range; the message names argument, value and remedy.
    """

    freqs: Matrix | tuple[Matrix, ...]
    head_dim: int
    layout: Layout = "half"
    lane_offset: int = 0
    pairing: Pairing = "standard"
    attention_factor: float = 1.0
    unit: float = 1.0
    matrices: tuple[Matrix, ...] = field(init=False, repr=False, compare=False)
    """Frequencies as ``[heads][axes][pairs]``, with one head if they are shared."""
    steps: tuple[tuple[tuple[int, ...], ...], ...] = field(init=False, repr=False, compare=False)
    """The int64 steps ``[heads][axes][pairs]`` in 2⁻⁶⁴ turns per position."""
    written_steps: str = field(init=False, repr=False, compare=False)
    """The steps in the nesting of ``freqs``, as JSON: how compiled graphs hold them."""
    written_factor: str = field(init=False, repr=False, compare=False)
    """attention_factor as text, which compiled graphs hold as a constant. An object's float may
    become a number that changes, and the graph is then traced and compiled twice."""
    turns: tuple[Turn, Turn] = field(init=False, repr=False, compare=False)
    """The turn of the lanes, and the one that undoes it."""
    _shared: bool = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        freqs = _frozen(self.freqs)
        shared = not isinstance(freqs[0][0], tuple)
        object.__setattr__(self, "freqs", freqs)
        object.__setattr__(self, "matrices", (freqs,) if shared else freqs)
        object.__setattr__(self, "_shared", shared)
        check_option("layout", self.layout, LAYOUTS)
        check_option("pairing", self.pairing, PAIRINGS)
        check_int("head_dim", self.head_dim)
        check_int("lane_offset", self.lane_offset)
        if self.lane_offset < 0 or self.lane_offset + self.rotary_dim > self.head_dim:
            raise ValueError(
                f"rotary_dim={self.rotary_dim} at lane_offset={self.lane_offset} does not fit in "
                f"head_dim={self.head_dim}; rotate at most head_dim − lane_offset lanes"
            )
        if self.pairing == "proportional":
            self._check_proportional()
        for name in ("attention_factor", "unit"):
            object.__setattr__(self, name, check_number(name, getattr(self, name), above=0))
        steps = tuple(
            tuple(tuple(step(f, self.unit) for f in row) for row in matrix)
            for matrix in self.matrices
        )
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "written_steps", json.dumps(steps[0] if shared else steps))
        factor = self.attention_factor
        object.__setattr__(self, "written_factor", repr(factor))
        undo = Turn(1 / factor, number(self.lanes, negative=True))
        object.__setattr__(self, "turns", (Turn(factor, number(self.lanes)), undo))
        given = tuple(getattr(self, f.name) for f in dataclasses.fields(self) if f.compare)
        object.__setattr__(self, "_hash", hash(given))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self):
        """Pickle what was given; what follows from it is checked and computed anew."""
        given = tuple(getattr(self, f.name) for f in dataclasses.fields(self) if f.init)
        return type(self), given

    def _check_proportional(self) -> None:
        if self.layout != "half":
            raise ValueError(
                f"pairing='proportional' needs layout='half', got layout={self.layout!r}: "
                "it pairs lane i with i + head_dim/2"
            )
        if self.head_dim % 2 or self.lane_offset + self.pairs > self.head_dim // 2:
            raise ValueError(
                f"pairing='proportional' with {self.pairs} pairs at lane_offset="
                f"{self.lane_offset} does not fit in half of head_dim={self.head_dim}"
            )

    @property
    def heads(self) -> int | None:
        """Number of KV heads that have their own frequencies; None if all share one set."""
        return None if self._shared else len(self.matrices)

    @property
    def axes(self) -> int:
        """Number of position axes."""
        return len(self.matrices[0])

    @property
    def pairs(self) -> int:
        """Number of rotated pairs of lanes."""
        return len(self.matrices[0][0])

    @property
    def rotary_dim(self) -> int:
        """Number of rotated lanes, 2 · pairs."""
        return 2 * self.pairs

    @property
    def lanes(self) -> tuple[slice, slice]:
        """The first and the second lane of every pair."""
        return pair_slices(self.head_dim, self.pairs, self.layout, self.lane_offset, self.pairing)

    @property
    def inv_freq(self) -> Row:
        """The frequencies of a spectrum with one axis and no heads, radians per coordinate.

        Raises:
            ValueError: the spectrum has several axes or heads; use ``freqs``.
        """
        if self.axes != 1 or self.heads is not None:
            raise ValueError(
                f"inv_freq is one row; this spectrum has axes={self.axes}, heads={self.heads}: "
                "use freqs"
            )
        return self.matrices[0][0]

    def map(self, function: Callable[[float], float]) -> Spectrum:
        """The same spectrum with ``function`` applied to every frequency."""
        matrices = tuple(
            tuple(tuple(function(f) for f in row) for row in matrix) for matrix in self.matrices
        )
        return self.replace(freqs=matrices[0] if self.heads is None else matrices)

    def replace(self, **changes: object) -> Spectrum:
        """A copy with the named fields changed."""
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]

    def for_length(self, length: int) -> Spectrum:
        """The spectrum to use for a sequence of ``length`` tokens: itself, as nothing here scales.

        Raises:
            ValueError: length < 1.
        """
        check_int("length", length, at_least=1, at_most=FARTHEST)
        return self

    def on(self, device: torch.device | str | None = None) -> Steps:
        """These frequencies as an int64 tensor on ``device``; the form that ops and modules use."""
        from ropewalk.kernels.steps import Steps

        return Steps.of(self, device)

    def tables(
        self, positions: torch.Tensor, dtype: torch.dtype | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for other people's kernels, times attention_factor.

        Args:
            positions: integers ``[..., tokens]``, or ``[..., tokens, axes]`` with several axes.
            dtype: of the result, float32 if None; computed in at least float32, rounded once.

        Returns:
            cos, sin: each ``[..., tokens, pairs]``, or ``[..., heads, tokens, pairs]``.
        """
        import torch

        from ropewalk.kernels.phases import tables

        return tables(positions, self.on(positions.device), dtype or torch.float32)


def require_spectrum(spectrum: object) -> None:
    """Refuse what is no :class:`Spectrum`.

    Raises:
        TypeError: with what it is.
    """
    if not isinstance(spectrum, Spectrum):
        raise TypeError(f"spectrum must be a Spectrum, got {no_spectrum(spectrum)}")


def no_spectrum(given: object) -> str:
    """What was given in place of a spectrum, and the remedy: often the encoding that has it."""
    if isinstance(getattr(given, "spectrum", None), Spectrum):
        remedy = "pass the one it has, as in rope.spectrum"
    else:
        remedy = "build one with ropewalk.spectra.geometric(head_dim, base)"
    return f"{type(given).__name__}; {remedy}"


def _frozen(freqs: object) -> Matrix | tuple[Matrix, ...]:
    """Nested sequences of numbers as nested tuples of finite floats, rectangular and not empty."""
    depth, probe = 0, freqs
    while depth <= 3 and isinstance(probe, Sequence) and not isinstance(probe, str) and len(probe):
        probe, depth = probe[0], depth + 1
    if depth not in (2, 3):
        raise ValueError(
            "freqs must be sequences nested as [axes][pairs] or [heads][axes][pairs] with at least "
            f"one of each (an array has tolist()); got {type(freqs).__name__} of depth {depth}"
        )
    frozen = _freeze(freqs, depth, "freqs")
    for level in range(1, depth):
        _require_rectangular(frozen, level)
    return cast("Matrix | tuple[Matrix, ...]", frozen)


def _freeze(value: object, depth: int, where: str) -> object:
    if depth == 0:
        try:
            return check_number(where, cast("float", value))
        except ValueError as error:
            raise ValueError(f"{error}; use 0.0 for a pair that stands") from None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"{where}={value!r} must be a sequence")
    return tuple(_freeze(item, depth - 1, f"{where}[{i}]") for i, item in enumerate(value))


def _require_rectangular(frozen: object, level: int) -> None:
    rows: Iterable[Sequence[object]] = [cast("Sequence[object]", frozen)]
    for _ in range(level):
        rows = [cast("Sequence[object]", item) for row in rows for item in row]
    lengths = {len(row) for row in rows}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"freqs must be rectangular; found rows of lengths {sorted(lengths)}")
