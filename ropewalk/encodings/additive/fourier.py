r"""Fourier: sines and cosines of random directions, fixed or learned, for any number of axes.

Fixed, with v = p · unit in coordinates and B of D/2 rows drawn from N(0, σ²), in cycles:

.. math:: E(p) = \bigl[\, \sin(2πBv) \;\|\; \cos(2πBv) \,\bigr], \qquad B_{ca} \sim N(0, σ^2)

σ sets what is told apart: E·E is about exp(−2π²σ²‖Δv‖²), so large σ sees detail and small σ the
large. Phases are 64-bit integers, and B follows from a seed or is given.

Learned, with F features, W_r of F/2 rows in radians per coordinate and one hidden layer:

.. math:: r = \tfrac{1}{\sqrt F} \bigl[\, \cos(W_r v) \;\|\; \sin(W_r v) \,\bigr], \qquad
          E(p) = W_2\,\mathrm{GeLU}(W_1 r + b_1) + b_2, \qquad W_r \sim N(0, γ^{-2})

Learned frequencies are float parameters; p · W_r is computed in float64 and errs by about 1e-16 of
itself. Its layers multiply and sum token by token, since a matrix product would let the last bits
of a token depend on how many others there are.

Source: Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains
(Tancik et al., 2020), §5, and the authors' notebook for the order of lanes; Learnable Fourier
Features for Multi-Dimensional Spatial Positional Encoding (Li et al., 2021), §3. Confirmed: the
fixed form against transformers' SAM (tests/test_catalogue_additive.py), its kernel by mathematics
and measurement. The learned form was read in two independent implementations, not in the paper.
They differ in what γ means: N(0, γ⁻²) has standard deviation 1/γ, their code takes γ⁻²; here it is
``std``. The paper's groups of coordinates are one encoding each, side by side. The defaults of
std, features and hidden are not confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.catalog import Spec, Variant, register
from ropewalk.core import Additive, integer_positions, wide_dtype
from ropewalk.encodings.width import check_dim, check_floating, check_std, empty_parameter
from ropewalk.kernels.phases import phase_tables
from ropewalk.spectra import Spectrum, exact_angle
from ropewalk.spectra.arguments import LARGEST, check_even, check_flag, check_number
from ropewalk.spectra.gaussian import gaussian_matrix


class Fourier(Additive):
    """Fixed Fourier features.

    Args:
        dim: width of the code, even.
        axes: number of position axes.
        std: σ, in cycles per unit of coordinate; 10 in the paper's images on [0, 1].
        unit: size of one integer position in coordinates; 2⁻¹⁰ puts 1024 of them on [0, 1].
        seed: of B.
        matrix: B itself, ``[axes][dim/2]`` in cycles, such as a checkpoint's; std and seed are
            unused then.

    Raises:
        TypeError, ValueError: a value is out of range, or matrix has other sizes.
    """

    steps: Tensor

    def __init__(
        self,
        dim: int,
        axes: int = 1,
        *,
        std: float = 10.0,
        unit: float = 2.0**-10,
        seed: int = 0,
        matrix: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.axes = check_even("dim", dim), check_dim(axes, "axes")
        check_number("unit", unit, above=0, at_most=LARGEST)
        check_std(std)
        rows = gaussian_matrix(axes, dim // 2, std, seed=seed) if matrix is None else matrix
        if len(rows) != axes or any(len(row) != dim // 2 for row in rows):
            raise ValueError(
                f"matrix has rows of lengths {[len(row) for row in rows]}; axes={axes} and dim="
                f"{dim} need [{axes}][{dim // 2}]"
            )
        turns = [[math.tau * unit * b for b in row] for row in rows]
        self.spectrum = Spectrum(tuple(map(tuple, turns)), dim)
        self.register_derived()

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``, all sines and then all cosines."""
        where = integer_positions(positions, self.axes)
        cos, sin = phase_tables(where, self.steps, 1.0, wide_dtype(check_floating(dtype)))
        return torch.cat((sin, cos), dim=-1).to(dtype)

    def reference(self, position: int | Sequence[int], length: int | None = None) -> list[float]:
        """The code of one position from exactly reduced angles."""
        angles = self._angles((position,) if isinstance(position, int) else tuple(position))
        return [turn(angle) for turn in (math.sin, math.cos) for angle in angles]

    def _angles(self, where: Sequence[int]) -> list[float]:
        columns = zip(*self.spectrum.matrices[0], strict=True)
        return [
            math.fsum(exact_angle(p, f) for p, f in zip(where, column, strict=True))
            for column in columns
        ]

    def shift_matrix(self, k: int) -> Tensor | None:
        """M_k of k on every axis, float64 ``[dim, dim]``."""
        angles = torch.tensor(self._angles((k,) * self.axes), dtype=torch.float64)
        cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
        return torch.cat((torch.cat((cos, sin), dim=1), torch.cat((-sin, cos), dim=1)))

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The int64 steps of the frequencies, ``[axes, dim/2]``."""
        return {"steps": self.spectrum.on(device).tensor}

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"dim={self.dim}, axes={self.axes}"


class LearnedFourier(Additive):
    """Learned Fourier features through one hidden layer.

    Args:
        dim: width of the code.
        axes: number of position axes.
        std: of the initial frequencies, 1/γ, in radians per unit of coordinate.
        unit: size of one integer position in coordinates.
        features: F, even; dim, rounded up to even, if None.
        hidden: width of the hidden layer.
        device, dtype: of the parameters.

    Raises:
        TypeError, ValueError: a value is out of range.
    """

    def __init__(
        self,
        dim: int,
        axes: int = 1,
        *,
        std: float = 0.1,
        unit: float = 1.0,
        features: int | None = None,
        hidden: int = 32,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.axes = check_dim(dim), check_dim(axes, "axes")
        self.std = check_std(std)
        self.unit = check_number("unit", unit, above=0, at_most=LARGEST)
        self.features = check_even("features", dim + dim % 2 if features is None else features)
        shape = (self.axes, self.features // 2)
        self.frequencies = empty_parameter(shape, device, dtype)
        width = check_dim(hidden, "hidden")
        self.inner = nn.Linear(self.features, width, device=device, dtype=dtype)
        self.outer = nn.Linear(width, dim, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw frequencies from N(0, std²) and the layers as PyTorch does."""
        nn.init.normal_(self.frequencies, std=self.std)
        self.inner.reset_parameters()
        self.outer.reset_parameters()

    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """``[..., T, dim]``; see the module."""
        where = integer_positions(positions, self.axes)
        wide = wide_dtype(check_floating(dtype))
        places = (where if self.axes > 1 else where[..., None]).to(torch.float64) * self.unit
        frequencies = self.frequencies.to(torch.float64)
        angles = sum(places[..., a, None] * frequencies[a] for a in range(self.axes))
        assert isinstance(angles, Tensor)
        waves = torch.cat((angles.cos(), angles.sin()), dim=-1).to(wide) / self.features**0.5
        return _layer(nn.functional.gelu(_layer(waves, self.inner)), self.outer).to(dtype)

    def reference(self, position: int | Sequence[int], length: int | None = None) -> list[float]:
        """The code of one position by plain loops over the parameters."""
        where = (position,) if isinstance(position, int) else tuple(position)
        columns = zip(*_plain(self.frequencies), strict=True)
        angles = [
            math.fsum(p * self.unit * f for p, f in zip(where, column, strict=True))
            for column in columns
        ]
        waves = [turn(a) / self.features**0.5 for turn in (math.cos, math.sin) for a in angles]
        lanes = [h * (1 + math.erf(h / 2**0.5)) / 2 for h in _literal(waves, self.inner)]
        return _literal(lanes, self.outer)

    def extra_repr(self) -> str:
        """Shown by ``print(module)``."""
        return f"dim={self.dim}, axes={self.axes}, features={self.features}"


def _layer(x: Tensor, layer: nn.Linear) -> Tensor:
    """``layer(x)`` in the dtype of x, each token by itself."""
    return (x[..., None, :] * layer.weight.to(x.dtype)).sum(-1) + layer.bias.to(x.dtype)


def _plain(parameter: Tensor) -> Any:
    return parameter.detach().to(torch.float64).tolist()


def _literal(x: Sequence[float], layer: nn.Linear) -> list[float]:
    rows = zip(_plain(layer.weight), _plain(layer.bias), strict=True)
    return [math.fsum([b, *(w * v for w, v in zip(row, x, strict=True))]) for row, b in rows]


def fourier(
    dim: int,
    axes: int = 1,
    *,
    learned: bool = False,
    std: float | None = None,
    unit: float | None = None,
    seed: int | None = None,
    hidden: int | None = None,
) -> Fourier | LearnedFourier:
    """:class:`Fourier`, or :class:`LearnedFourier`; what is None takes the default of its class.

    Args:
        dim, axes, std, unit: of both.
        learned: which of them; ``seed`` is of the fixed one, ``hidden`` of the learned one.

    Raises:
        TypeError, ValueError: a value is out of range, or belongs to the other form.
    """
    check_flag("learned", learned)
    given = {"std": std, "unit": unit, "seed": seed, "hidden": hidden}
    options = {name: value for name, value in given.items() if value is not None}
    foreign = "seed" if learned else "hidden"
    if foreign in options:
        raise ValueError(
            f"{foreign}={options[foreign]!r} with learned={learned!r}: only the "
            f"{'fixed' if learned else 'learned'} form has it; leave it out"
        )
    return (LearnedFourier if learned else Fourier)(dim, axes, **options)


register(
    Spec(
        name="fourier",
        family="additive",
        factory=fourier,
        title="sines and cosines along random directions, fixed or learned",
        equation=r"E(p) = [\,\sin(2\pi Bv)\;\|\;\cos(2\pi Bv)\,],\quad v = p\,u,\quad "
        r"B_{ca} \sim N(0, \sigma^2)",
        source="Tancik et al. (2020), Fourier Features Let Networks Learn High Frequency Functions "
        "in Low Dimensional Domains; Li et al. (2021), Learnable Fourier Features",
        config={"dim": 64},
        claims={
            "unique": True,
            "linear": True,
            "relative": False,
            "norm": False,
            "bounded": True,
            "extends": True,
            "deterministic": True,
            "precision": True,
        },
        reasons={
            "relative": "E·E is relative, but not after the projections W_q and W_k",
            "norm": "the code is added",
            "decay": "additive codes have no score of their own",
            "deterministic": "B follows from the seed",
            "axes": "one axis",
            "precision": "storing codes rounds equally at every position; phases are integers",
        },
        variants={
            "two axes": Variant(
                {"axes": 2},
                {"axes": False},
                "E·E depends on vector differences, but not after the projections W_q and W_k",
                when=lambda config: config.get("axes", 1) > 1,
            ),
            "learned": Variant(
                {"learned": True},
                {"linear": False, "bounded": None, "deterministic": False},
                "drawn at random, then trained; a hidden layer is not linear, and its largest value"
                " is bounded by the weights but may turn up at any position",
                when=lambda config: bool(config.get("learned")),
            ),
        },
    )
)
