r"""RoPE: pairs of lanes of q and k turn by an angle proportional to position.

.. math:: \begin{pmatrix} y_{a} \\ y_{b} \end{pmatrix} =
   \begin{pmatrix} \cos pθ_c & -\sin pθ_c \\ \sin pθ_c & \cos pθ_c \end{pmatrix}
   \begin{pmatrix} x_{a} \\ x_{b} \end{pmatrix}, \qquad θ_c = \mathrm{base}^{-2c/\text{rotary\_dim}}

with (a, b) = (c, c + rotary_dim/2) in the half layout and (2c, 2c+1) in the interleaved one. Then
⟨R(i)q, R(j)k⟩ depends on i − j alone.

Source: RoFormer: Enhanced Transformer with Rotary Position Embedding (Su et al., 2021), §3.2.
Confirmed: the matrix, element-wise and operator forms agree (tests/test_encodings.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Rotary, wide_dtype
from ropewalk.encodings.checkpoint import difference
from ropewalk.encodings.claims import ROTATION_CLAIMS, ROTATION_REASONS, SCALED
from ropewalk.encodings.literal import angles, lane_pairs, turned
from ropewalk.encodings.tables import places, turn
from ropewalk.encodings.usual import Scaling, refuse_both, theta, usual
from ropewalk.kernels import Steps, rotate, rotate_qk
from ropewalk.kernels.arguments import require_as_many_tokens
from ropewalk.kernels.phases import float_tables
from ropewalk.spectra import Layout, Spectrum
from ropewalk.spectra.arguments import check_int, check_option
from ropewalk.spectra.rope_parameters import scaled

Phases = Literal["integer", "float32"]
PHASES: tuple[Phases, ...] = ("integer", "float32")


class RoPE(Rotary):
    """Rotary encoding of any :class:`Spectrum`.

    ``RoPE(spectrum)`` takes one as it is; ``RoPE(head_dim, base)`` builds the usual one.

    Args:
        spectrum: a Spectrum, or head_dim.
        base: rope_theta, if head_dim is given; 10000 (100 with several axes) if None.
        head_dim: width of a head, an even int; the same as giving it first.
        axes: number of position axes; more than one gives :func:`ropewalk.spectra.axial`.
        layout: ``"half"`` (if None) or ``"interleaved"``.
        rotary_dim: rotated lanes; all if None (one axis only).
        scaling: a function Spectrum → Spectrum, or a ``rope_parameters`` dictionary.
        length: pins frequencies that depend on the length of the sequence (dynamic NTK, LongRoPE);
            those of short sequences if None. Nothing is read off x.
        phases: ``"integer"`` is exact at any position. ``"float32"`` multiplies positions and
            frequencies in float32, as most trained models did, bit for bit. That lives in this
            module and not in ``spectrum``: ``rotate(…, rope.spectrum)`` has exact phases. For a
            model trained on float32 phases use :meth:`encode_q` and :meth:`encode_k`, or
            ``rotate_by`` with ``kernels.phases.float_tables`` of ``steps``.

    Raises:
        TypeError, ValueError: a value is out of range; the message names it and the remedy.
    """

    steps: Tensor

    def __init__(
        self,
        spectrum: Spectrum | int | None = None,
        base: float | None = None,
        *,
        head_dim: int | None = None,
        axes: int = 1,
        layout: Layout | None = None,
        rotary_dim: int | None = None,
        scaling: Scaling = None,
        length: int | None = None,
        phases: Phases = "integer",
    ) -> None:
        super().__init__()
        check_option("phases", phases, PHASES)
        if (spectrum is None) == (head_dim is None):
            raise TypeError("RoPE needs a Spectrum or head_dim, and not both: RoPE(head_dim=64)")
        check_int("axes", axes, at_least=1)
        base, scaling = theta(base, scaling)
        spectrum = head_dim if spectrum is None else spectrum
        if isinstance(spectrum, Spectrum):
            refuse_both(base=base, axes=axes, layout=layout, rotary_dim=rotary_dim)
        else:
            single = phases == "float32"
            own = "half" if layout is None else layout
            spectrum = usual(spectrum, base, axes, own, rotary_dim, single)
        spectrum = scaled(spectrum, scaling)
        self.spectrum = spectrum if length is None else spectrum.for_length(length)
        self.phases: Phases = phases
        self.register_derived()

    @classmethod
    def from_config(
        cls,
        config: Any,
        layer: int = 0,
        *,
        length: int | None = None,
        phases: Phases = "integer",
    ) -> RoPE:
        """The rotation of one layer of a model, from its config (:func:`ropewalk.configs.resolve`).

        Args:
            config: a dictionary, a path, or a config object of transformers.
            layer: number of the layer, in the text part if the config has parts.
            length: pins frequencies that depend on it; short ones if None.
            phases: as for the class.

        Raises:
            TypeError: config or layer is of another type.
            ValueError: the layer does not exist or does not rotate, or the config has an error.
        """
        from ropewalk.configs import resolve

        resolved = resolve(config)
        if resolved.errors:
            first = resolved.errors[0]
            raise ValueError(f"config has an error, {first.code}: {first.message}; {first.remedy}")
        return cls(resolved.layer(layer).spectrum(length), phases=phases)

    @property
    def head_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Width of one head."""
        return self.spectrum.head_dim

    @property
    def axes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of position axes."""
        return self.spectrum.axes

    @property
    def attention_factor(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """By which cos and sin are multiplied."""
        return self.spectrum.attention_factor

    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` rotated; see :func:`ropewalk.rotate`."""
        return self._turned(q, positions, offset, False)

    def _turned(
        self, x: Tensor, positions: Tensor | None, offset: int | Tensor | None, inverse: bool
    ) -> Tensor:
        steps, spectrum = self._on(x), self.spectrum
        if self.phases == "integer":
            held = Steps(steps, spectrum)
            return rotate(x, positions, held, inverse=inverse, offset=offset)
        where = places(x, positions, offset, spectrum)
        cos, sin = float_tables(where, steps, float(spectrum.written_factor), wide_dtype(x.dtype))
        return turn(x, cos, sin, spectrum, inverse=inverse)

    def _on(self, x: Tensor) -> Tensor:
        """The steps where x is: the buffer, unless it was left behind elsewhere, say on meta."""
        steps = self.steps
        return steps if steps.device == x.device else self.derive(x.device)["steps"]

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` rotated, as q is."""
        return self.encode_q(k, positions, offset=offset)

    def for_length(self, length: int) -> RoPE:
        """This rotation pinned to sequences of ``length`` tokens: scalings that depend on it."""
        return RoPE(self.spectrum.for_length(length), phases=self.phases)

    def undo(
        self, x: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """x turned back by the angles of its positions, and divided by attention_factor.

        It undoes :meth:`encode_k`. Where values are turned too, the output of attention is turned
        back at the queries' positions, and then depends on distances alone::

            v = encoding.encode_k(v, kv_positions)
            y = encoding.undo(attend(q, k, v, encoding), q_positions)
        """
        return self._turned(x, positions, offset, True)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """q and k rotated at the same positions."""
        if self.phases == "integer":
            return rotate_qk(q, k, positions, Steps(self._on(q), self.spectrum), offset=offset)
        return self._each(q, k, positions, offset)

    def _each(
        self, q: Tensor, k: Tensor, positions: Tensor | None, offset: int | Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """q and k encoded one by one, at the same positions."""
        encoded = (
            self.encode_q(q, positions, offset=offset),
            self.encode_k(k, positions, offset=offset),
        )
        require_as_many_tokens(q, k)
        return encoded

    def matrix(self, position: int | Sequence[int], head: int = 0) -> Tensor:
        """The rotation at ``position`` as a float64 matrix ``[head_dim, head_dim]``."""
        matrix = torch.eye(self.head_dim, dtype=torch.float64)
        turns = zip(lane_pairs(self.spectrum), self._turns(position, head), strict=True)
        for (a, b), (cos, sin) in turns:
            matrix[a, a] = matrix[b, b] = cos
            matrix[a, b], matrix[b, a] = -sin, sin
        return matrix

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of ``head`` of k rotated by a float64 loop with exactly reduced angles."""
        return turned(x, self.spectrum, self._turns(position, head))

    def _turns(self, position: int | Sequence[int], head: int) -> list[tuple[float, float]]:
        factor = self.spectrum.attention_factor
        found = angles(self.spectrum, position, head)
        return [(math.cos(t) * factor, math.sin(t) * factor) for t in found]

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """What positions are multiplied with: int64 steps, or float32 frequencies."""
        if self.phases == "integer":
            return {"steps": Steps.of(self.spectrum, device).tensor}
        freqs = torch.tensor(self.spectrum.freqs, dtype=torch.float64, device="cpu")
        freqs = (freqs * self.spectrum.unit).tolist()
        return {"steps": torch.tensor(freqs, dtype=torch.float32, device=device)}

    def _load_from_state_dict(
        self,
        state_dict,
        prefix,
        local_metadata,
        strict,
        missing_keys,
        unexpected_keys,
        error_msgs,
    ) -> None:
        """Accept an ``inv_freq`` that a checkpoint may hold, and compare it with the spectrum."""
        stored = state_dict.pop(prefix + "inv_freq", None)
        if stored is not None:
            problem = difference(stored, self.spectrum)
            if problem:
                error_msgs.append(f"{prefix}inv_freq {problem}")
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        s = self.spectrum
        return (
            f"head_dim={s.head_dim}, rotary_dim={s.rotary_dim}, axes={s.axes}, "
            f"layout={s.layout!r}, phases={self.phases!r}"
        )


def rope(
    head_dim: int,
    base: float | None = None,
    *,
    layout: Layout = "half",
    rotary_dim: int | None = None,
    scaling: Scaling = None,
    length: int | None = None,
    phases: Phases = "integer",
) -> RoPE:
    """One-axis RoPE, base 10000 if not stated; arguments as in :class:`RoPE`."""
    return RoPE(
        head_dim,
        base,
        layout=layout,
        rotary_dim=rotary_dim,
        scaling=scaling,
        length=length,
        phases=phases,
    )


register(
    Spec(
        name="rope",
        family="rotary",
        factory=rope,
        title="rotary: pairs of q and k turn with position",
        equation=r"q_m^\top k_n = (R(m\theta)\,x_q)^\top (R(n\theta)\,x_k) = "
        r"x_q^\top R((n-m)\theta)\,x_k",
        source="Su et al. (2021), RoFormer: Enhanced Transformer with Rotary Position Embedding",
        config={"head_dim": 64},
        claims=ROTATION_CLAIMS,
        reasons=ROTATION_REASONS,
        variants={
            "float32 phases": Variant(
                {"phases": "float32"},
                {"precision": False, "relative": False, "linear": False},
                "the product position · inv_freq in float32 drifts with position",
                {
                    "reference": "a float32 angle departs from the exact one with position",
                    "gradient": "so does the derivative of a rotation by it",
                },
            ),
            "interleaved": Variant({"layout": "interleaved"}),
            **{
                name: Variant(change, {"linear": True, "relative": True, "norm": True}, why)
                for name, (change, why) in SCALED.items()
            },
        },
    )
)
