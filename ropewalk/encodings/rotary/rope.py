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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Rotary, token_positions, wide_dtype
from ropewalk.kernels import Steps, rotate, rotate_by, rotate_qk
from ropewalk.kernels.phases import float_tables
from ropewalk.kernels.plain import broadcast_tables
from ropewalk.kernels.rotate import spectrum_lanes
from ropewalk.spectra import Layout, Spectrum, axial, exact_angle, geometric
from ropewalk.spectra.arguments import check_int
from ropewalk.spectra.rope_parameters import scaled

Phases = Literal["integer", "float32"]
PHASES: tuple[Phases, ...] = ("integer", "float32")
Scaling = Callable[[Spectrum], Spectrum] | Mapping[str, Any] | None


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
        phases: ``"integer"`` is exact at any position. ``"float32"`` multiplies positions and
            frequencies in float32, as most trained models did, bit for bit.

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
        phases: Phases = "integer",
    ) -> None:
        super().__init__()
        if phases not in PHASES:
            raise ValueError(f"phases={phases!r} is unknown; use one of {PHASES}")
        if (spectrum is None) == (head_dim is None):
            raise TypeError("RoPE needs a Spectrum or head_dim, and not both: RoPE(head_dim=64)")
        check_int("axes", axes, at_least=1)
        base, scaling = _theta(base, scaling)
        spectrum = head_dim if spectrum is None else spectrum
        if isinstance(spectrum, Spectrum):
            _refuse_both(base=base, axes=axes, layout=layout, rotary_dim=rotary_dim)
        else:
            spectrum = _usual(spectrum, base, axes, layout or "half", rotary_dim, phases)
        self.spectrum = scaled(spectrum, scaling)
        self.phases = phases
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
        steps = self._on(q)
        if self.phases == "integer":
            return rotate(q, positions, Steps(steps, self.spectrum), offset=offset)
        spectrum = self.spectrum
        spectrum_lanes(spectrum, q)
        where = token_positions(positions, offset, q, self.axes)
        tables = float_tables(where, steps, spectrum.attention_factor, wide_dtype(q.dtype))
        cos, sin = (broadcast_tables(t, q, spectrum.heads is not None) for t in tables)
        if cos.dim() > 2:  # heads and batch where those of q stand
            cos, sin = (t[(None,) * (q.dim() - t.dim())] for t in (cos, sin))
        return rotate_by(
            q,
            cos,
            sin,
            layout=spectrum.layout,
            lane_offset=spectrum.lane_offset,
            pairing=spectrum.pairing,
        )

    def _on(self, x: Tensor) -> Tensor:
        """The steps where x is: the buffer, unless it was left behind elsewhere, say on meta."""
        return self.steps if self.steps.device == x.device else self.derive(x.device)["steps"]

    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` rotated, as q is."""
        return self.encode_q(k, positions, offset=offset)

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
        return (
            self.encode_q(q, positions, offset=offset),
            self.encode_k(k, positions, offset=offset),
        )

    def matrix(self, position: int | Sequence[int], head: int = 0) -> Tensor:
        """The rotation at ``position`` as a float64 matrix ``[head_dim, head_dim]``."""
        matrix = torch.eye(self.head_dim, dtype=torch.float64)
        for a, b, cos, sin in self._turns(position, head):
            matrix[a, a] = matrix[b, b] = cos
            matrix[a, b], matrix[b, a] = -sin, sin
        return matrix

    def reference(
        self, x: Sequence[float], position: int | Sequence[int], head: int = 0
    ) -> list[float]:
        """One vector of ``head`` of k rotated by a float64 loop with exactly reduced angles."""
        result = [float(value) for value in x]
        for a, b, cos, sin in self._turns(position, head):
            result[a], result[b] = x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos
        return result

    def _turns(
        self, position: int | Sequence[int], head: int
    ) -> Iterator[tuple[int, int, float, float]]:
        """Both lanes, cos and sin of each pair at ``position``."""
        where = (position,) if isinstance(position, int) else tuple(position)
        spectrum = self.spectrum
        matrix = spectrum.matrices[0 if spectrum.heads is None else head]
        first, second = spectrum.lanes
        lanes = range(spectrum.head_dim)
        for pair, (a, b) in enumerate(zip(lanes[first], lanes[second], strict=True)):
            angle = math.fsum(
                exact_angle(p, row[pair], spectrum.unit)
                for p, row in zip(where, matrix, strict=True)
            )
            factor = spectrum.attention_factor
            yield a, b, math.cos(angle) * factor, math.sin(angle) * factor

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """What positions are multiplied with: int64 steps, or float32 frequencies."""
        if self.phases == "integer":
            return {"steps": Steps.of(self.spectrum, device).tensor}
        return {"steps": torch.tensor(self.spectrum.freqs, dtype=torch.float32, device=device)}

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
            problem = self._compare(stored)
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

    def _compare(self, stored: Tensor) -> str | None:
        if stored.device.type == "meta" or not stored.dtype.is_floating_point:
            return f"is {stored.dtype} on {stored.device}; it must hold floating values to compare"
        own = torch.tensor(self.spectrum.freqs, dtype=torch.float64, device="cpu").squeeze()
        held = stored.detach().to("cpu", torch.float64).squeeze()
        if held.shape != own.shape:
            return f"has shape {tuple(stored.shape)}; the spectrum has {tuple(own.shape)}"
        # float32 code computes base^(2c/d) up to 6e-7 off, whatever dtype it is stored in, and
        # below its smallest normal number a dtype rounds to a fixed spacing
        kind = torch.finfo(stored.dtype)
        allowed = (2e-6 + kind.eps) * own.abs() + kind.eps * kind.smallest_normal
        apart = (held - own).abs()
        if bool((apart <= allowed).all()):
            return None
        relative = (apart / own.abs().clamp_min(1e-300)).masked_fill(apart <= allowed, 0.0)
        pair = int(relative.reshape(-1).argmax())
        return (
            f"differs from the spectrum by {relative.reshape(-1)[pair]:.2g} relative at pair "
            f"{pair}: checkpoint {held.reshape(-1)[pair]:.6g}, spectrum "
            f"{own.reshape(-1)[pair]:.6g}; build the encoding with the checkpoint's base and "
            "scaling"
        )

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        s = self.spectrum
        return (
            f"head_dim={s.head_dim}, rotary_dim={s.rotary_dim}, axes={s.axes}, "
            f"layout={s.layout!r}, phases={self.phases!r}"
        )


def _theta(base: float | None, scaling: Scaling) -> tuple[float | None, Scaling]:
    """base, or the rope_theta that a rope_parameters dictionary may hold, and the rest of it."""
    if not isinstance(scaling, Mapping) or "rope_theta" not in scaling:
        return base, scaling
    theta = scaling["rope_theta"]
    if base is not None and base != theta:
        raise ValueError(f"base={base!r} and scaling's rope_theta={theta!r} differ; state one")
    return theta, {key: value for key, value in scaling.items() if key != "rope_theta"}


def _refuse_both(**given: Any) -> None:
    usual = {"base": None, "axes": 1, "layout": None, "rotary_dim": None}
    extra = [name for name, value in given.items() if value != usual[name]]
    if extra:
        raise ValueError(
            f"{', '.join(extra)} given beside a Spectrum, which states them already; use "
            "spectrum.replace(…), or RoPE(head_dim, base, …)"
        )


def _usual(
    head_dim: int | None,
    base: float | None,
    axes: int,
    layout: Layout,
    rotary_dim: int | None,
    phases: Phases,
) -> Spectrum:
    if isinstance(head_dim, bool) or not isinstance(head_dim, int):
        raise TypeError(f"head_dim={head_dim!r} must be an int; or give a Spectrum in its place")
    if axes == 1:
        theta = 10000.0 if base is None else base
        spectrum = geometric(head_dim, theta, rotary_dim=rotary_dim, layout=layout)
        return _as_float32(spectrum, theta) if phases == "float32" else spectrum
    if rotary_dim not in (None, head_dim):
        raise ValueError(
            f"rotary_dim={rotary_dim} with axes={axes}: state the lanes with a Spectrum"
        )
    return axial(head_dim, 100.0 if base is None else base, axes=axes, layout=layout)


def _as_float32(spectrum: Spectrum, base: float) -> Spectrum:
    """The frequencies as float32 code computes them: 1 / base^(arange(0, d, 2) / d)."""
    dim = spectrum.rotary_dim
    exponents = torch.arange(0, dim, 2, dtype=torch.int64, device="cpu").float() / dim
    return spectrum.replace(freqs=((1.0 / (base**exponents)).tolist(),))


def rope(
    head_dim: int,
    base: float | None = None,
    *,
    layout: Layout = "half",
    rotary_dim: int | None = None,
    scaling: Scaling = None,
    phases: Phases = "integer",
) -> RoPE:
    """One-axis RoPE, base 10000 if not stated; arguments as in :class:`RoPE`."""
    return RoPE(
        head_dim, base, layout=layout, rotary_dim=rotary_dim, scaling=scaling, phases=phases
    )


ROTATION_CLAIMS: dict[str, bool | None] = {
    "unique": True,
    "linear": True,
    "relative": True,
    "norm": True,
    "bounded": True,
    "decay": False,
    "extends": True,
    "deterministic": True,
    "axes": None,
    "precision": True,
}
"""What integer-phase rotations by distinct frequencies hold."""

ROTATION_REASONS = {
    "decay": "for any distance some q and k peak there: k = R(−Δ)q; only constant q = k decays",
    "axes": "one axis",
}

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
        },
    )
)
