"""Golden-gate frequencies: every pair turns along a direction of its own, evenly spread."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cache
from statistics import NormalDist

from ropewalk.spectra.arguments import WIDEST, check_even, check_int, check_number
from ropewalk.spectra.spectrum import Layout, Spectrum
from ropewalk.spectra.turns import scaled_pi

_DIGITS = 50


def golden(
    head_dim: int,
    min_freq: float,
    max_freq: float,
    *,
    heads: int = 1,
    axes: int = 2,
    zero_fraction: float = 0.0,
    layout: Layout = "half",
    unit: float = 1.0,
) -> Spectrum:
    r"""Frequency c of head h is ω_c times a unit vector u_i, i = h·pairs + c.

    .. math:: ω = 0, …, 0, \; ω_{\min} (ω_{\max}/ω_{\min})^{j/(m-1)} \; (j = 0 … m-1)

    with ``round(zero_fraction · pairs)`` zeros first. In two dimensions u_i = (cos iα, sin iα) with
    α = π(√5 − 1)/2. In n > 2, with g the root of :math:`g^{n+1} = g + 1`,

    .. math:: u_i \propto \mathrm{erf}^{-1}(2 z_i - 1), \qquad
              z_i = \mathrm{frac}\bigl((i+1)\,(g^{-1}, …, g^{-n})\bigr)

    Computed with 50 decimal digits and rounded once to float64.

    Args:
        head_dim: width of a head, even.
        min_freq, max_freq: radians per coordinate; 0.2 and 20 suit coordinates in [−1, 1].
        heads: heads of k, each with directions of its own.
        axes: number of position axes, at least 2.
        zero_fraction: share of the pairs that do not turn.
        layout: how lanes pair.
        unit: size of one integer position, see :func:`ropewalk.positions.fixed`.

    Raises:
        TypeError, ValueError: a value is out of range.

    Source: On N-dimensional Rotary Positional Embeddings (Xiong, 2025). The author's code finds g
    by ten steps of g ← (1 + g)^(1/(n+1)), 4e-8 off for n = 3 or less; here it is exact.
    """
    pairs = check_even("head_dim", head_dim) // 2
    check_int("heads", heads, at_least=1, at_most=WIDEST)
    if check_int("axes", axes, at_most=WIDEST) < 2:
        raise ValueError(f"axes={axes} leaves no direction to choose; use geometric, or axes=2")
    if heads * pairs * axes > WIDEST:
        raise ValueError(
            f"heads={heads}, axes={axes} and head_dim={head_dim} make {heads * pairs * axes} "
            f"frequencies; at most {WIDEST} are made with 50 digits"
        )
    low, high = check_number("min_freq", min_freq, above=0), check_number("max_freq", max_freq)
    if high < low:
        raise ValueError(f"max_freq={high!r} must be finite and at least {low:g}, the min_freq")
    share = check_number("zero_fraction", zero_fraction, at_least=0)
    if share > 1:
        raise ValueError(f"zero_fraction={zero_fraction!r} must be from 0 to 1")
    speeds = _speeds(low, high, pairs - round(share * pairs), pairs)
    units = directions(heads * pairs, axes)
    with localcontext(_exact()):
        matrices = tuple(
            tuple(
                tuple(
                    float(speed * units[head * pairs + c][axis]) for c, speed in enumerate(speeds)
                )
                for axis in range(axes)
            )
            for head in range(heads)
        )
    freqs = matrices[0] if heads == 1 else matrices
    return Spectrum(freqs, head_dim, layout=layout, unit=unit)


@cache
def directions(count: int, axes: int) -> tuple[tuple[Decimal, ...], ...]:
    """Unit vectors spread over the half sphere of lines through 0, ``[count][axes]``."""
    with localcontext(_exact()):
        return tuple(_on_circle(count) if axes == 2 else _on_sphere(count, axes))


def _exact() -> Context:
    return Context(
        prec=_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, clamp=0, traps=[]
    )


def _speeds(low: float, high: float, turning: int, pairs: int) -> tuple[Decimal, ...]:
    with localcontext(_exact()):
        start, ratio = Decimal(low), Decimal(high) / Decimal(low)
        steps = max(turning - 1, 1)
        moving = tuple(start * (ratio.ln() * j / steps).exp() for j in range(turning))
    return (Decimal(0),) * (pairs - turning) + moving


def _pi() -> Decimal:
    return Decimal(scaled_pi(256)) / Decimal(1 << 256)


def _on_circle(count: int) -> Iterator[tuple[Decimal, ...]]:
    """(cos iα, sin iα), by the addition theorem from one exact angle."""
    angle = _pi() * (Decimal(5).sqrt() - 1) / 2
    cos, sin = _cos_sin(angle)
    here = (Decimal(1), Decimal(0))
    for _ in range(count):
        yield here
        here = (here[0] * cos - here[1] * sin, here[0] * sin + here[1] * cos)


def _cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    sums, term, n = [Decimal(0), Decimal(0)], Decimal(1), 0
    while abs(term) > Decimal(10) ** (-_DIGITS - 5):
        sums[n % 2] += -term if n % 4 >= 2 else term
        n += 1
        term = term * angle / n
    return sums[0], sums[1]


def _on_sphere(count: int, axes: int) -> Iterator[tuple[Decimal, ...]]:
    ratio = _generalised_golden_ratio(axes)
    strides = [1 / ratio**power for power in range(1, axes + 1)]
    for i in range(1, count + 1):
        normal = [_normal_quantile(i * stride % 1) for stride in strides]
        length = sum((x * x for x in normal), Decimal(0)).sqrt()
        yield tuple(x / length for x in normal)


def _generalised_golden_ratio(axes: int) -> Decimal:
    """The root of g^(axes+1) = g + 1 above 1, by Newton's method."""
    g = Decimal(2)
    for _ in range(64):
        g -= (g ** (axes + 1) - g - 1) / ((axes + 1) * g**axes - 1)
    return g


def _normal_quantile(share: Decimal) -> Decimal:
    """x with Φ(x) = share, which is √2·erf⁻¹(2·share − 1): Newton from the float64 value."""
    x = Decimal(NormalDist().inv_cdf(float(share)))
    for _ in range(2):  # 16 digits become 32, then 64
        density = (-x * x / 2).exp() / (2 * _pi()).sqrt()
        x -= (_half_normal(x, density) + Decimal(1) / 2 - share) / density
    return x


def _half_normal(x: Decimal, density: Decimal) -> Decimal:
    """Φ(x) − ½ = density · (x + x³/3 + x⁵/(3·5) + …)."""
    term, total, n = x, x, 1
    while abs(term) > Decimal(10) ** (-_DIGITS - 5):
        n += 2
        term = term * x * x / n
        total += term
    return density * total
