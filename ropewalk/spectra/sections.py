"""Multimodal RoPE: every pair turns along one of several axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from ropewalk.spectra.arguments import check_int, check_option, shown
from ropewalk.spectra.spectrum import Spectrum, require_spectrum

LETTERS = "THWXYZ"
"""Time, height, width; a letter for each axis of positions."""


def blocks(sections: Sequence[int], letters: str = LETTERS) -> str:
    """The axis of each pair as a letter, in blocks: [2, 1, 1] → ``"TTHW"``.

    Raises:
        TypeError, ValueError: a section is not an int ≥ 0, or there are more than letters.

    Source: Qwen2-VL (Wang et al., 2024).
    """
    return "".join(
        letter * size for letter, size in zip(letters, _sizes(sections, letters), strict=False)
    )


def interleaved(sections: Sequence[int], letters: str = LETTERS) -> str:
    """The axis of each pair where axes alternate: [4, 2, 2] → ``"THWTHWTT"``.

    Axis k > 0 owns every n-th pair from k on, as many as its section says; the first axis has the
    rest.

    Raises:
        TypeError, ValueError: a section is not an int ≥ 0, or there are more than letters.

    Source: Qwen3-VL (2025).
    """
    sizes = _sizes(sections, letters)
    owner = [letters[0]] * sum(sizes)
    for axis in range(1, len(sizes)):
        for pair in range(axis, min(len(sizes) * sizes[axis], len(owner)), len(sizes)):
            owner[pair] = letters[axis]
    return "".join(owner)


def alternating(sections: Sequence[int]) -> str:
    """The axis of each pair where H and W take turns and T comes last: [2, 2, 1] → ``"HWHWT"``.

    Sections are H, W, T. Where H and W differ, what is left of the longer follows their turns.

    Raises:
        TypeError, ValueError: not three ints ≥ 0.

    Source: ERNIE-4.5-VL (Baidu, 2025); VideoRoPE (Wei et al., 2025), §4.
    """
    sizes = _sizes(sections, LETTERS)
    if len(sizes) != 3:
        raise ValueError(f"sections={list(sections)} must be three: height, width, time")
    height, width, time = sizes
    both = min(height, width)
    return "HW" * both + "H" * (height - both) + "W" * (width - both) + "T" * time


def along(spectrum: Spectrum, axes: str, letters: str = LETTERS) -> Spectrum:
    """A one-axis spectrum with each pair turning along its own axis only.

    Args:
        spectrum: one axis.
        axes: a letter a pair, such as ``"THWTHWTT"``.
        letters: the letters of the axes of positions, in order.

    Raises:
        ValueError: another number of letters than pairs, or an unknown letter.
    """
    require_spectrum(spectrum)
    for name, value in (("axes", axes), ("letters", letters)):
        if not isinstance(value, str):
            raise TypeError(f"{name}={shown(value)} must be a str of letters such as {LETTERS[:3]}")
    row = spectrum.inv_freq
    if len(axes) != len(row):
        raise ValueError(f"axes names {len(axes)} pairs; the spectrum has {len(row)}")
    unknown = sorted(set(axes) - set(letters))
    if unknown:
        raise ValueError(f"axes has {', '.join(unknown)}; known letters are {letters}")
    count = max(letters.index(letter) for letter in axes) + 1
    rows = tuple(
        tuple(f if own == letter else 0.0 for own, f in zip(axes, row, strict=True))
        for letter in letters[:count]
    )
    return spectrum.replace(freqs=rows)


Order = Literal["blocks", "interleaved", "alternating"]
ORDERS: Mapping[Order, Callable[[Sequence[int]], str]] = {
    "blocks": blocks,
    "interleaved": interleaved,
    "alternating": alternating,
}
"""How sections become an axis for each pair."""


def usual_sections(pairs: int, order: Order = "blocks") -> tuple[int, int, int]:
    """Sections in the proportion of the models that use an order.

    64 pairs give [16, 24, 24] (Qwen2-VL), [24, 20, 20] interleaved (Qwen3-VL) and [22, 22, 20]
    alternating (ERNIE-4.5-VL).

    Raises:
        ValueError: fewer than three pairs.
    """
    if pairs < 3:
        raise ValueError(f"{pairs} pairs cannot serve three axes; use a wider head or rotary_dim")
    if order == "alternating":
        each = max(1, 11 * pairs // 32)
        return each, each, pairs - 2 * each
    each = max(1, (3 * pairs // 8) if order == "blocks" else (5 * pairs // 16))
    return pairs - 2 * each, each, each


def sectioned(spectrum: Spectrum, sections: Sequence[int], order: Order = "blocks") -> Spectrum:
    """A one-axis spectrum as one of three axes, time, height and width, by sections.

    Args:
        spectrum: one axis.
        sections: pairs of each axis: T, H, W; for ``"alternating"`` H, W, T. One may be 0.
        order: ``"blocks"``, ``"interleaved"`` or ``"alternating"``.

    Returns:
        axes T, H, W whatever the order; the frequencies stay with their pairs, so positions that
        are equal on all axes turn as with ``spectrum``.

    Raises:
        TypeError, ValueError: sections are not three ints ≥ 0 that sum to the pairs; an unknown
            order; sections that cannot be interleaved.
    """
    require_spectrum(spectrum)
    check_option("order", order, ORDERS)
    sizes, pairs = _sizes(sections, LETTERS), spectrum.pairs
    if len(sizes) != 3 or sum(sizes) != pairs:
        raise ValueError(
            f"sections={sizes} sum to {sum(sizes)}; the spectrum has {pairs} pairs: use three that "
            f"sum to {pairs}, such as {list(usual_sections(pairs, order))}"
        )
    owners = ORDERS[order](sizes)
    meant = sizes[1:] + sizes[:1] if order != "alternating" else sizes
    if [owners.count(letter) for letter in "HWT"] != meant:
        raise ValueError(
            f"sections={sizes} cannot be interleaved: height owns every third pair from 1, width "
            "from 2, so neither may outnumber time; use such as "
            f"{list(usual_sections(pairs, order))}, or order='blocks'"
        )
    rows = tuple(
        tuple(f if own == letter else 0.0 for own, f in zip(owners, spectrum.inv_freq, strict=True))
        for letter in "THW"
    )
    return spectrum.replace(freqs=rows)


def _sizes(sections: Sequence[int], letters: str) -> list[int]:
    if isinstance(sections, (str, bytes)) or not isinstance(sections, Sequence):
        raise TypeError(f"sections={shown(sections)} must be a sequence of ints")
    if not 1 <= len(sections) <= len(letters):
        raise ValueError(f"sections has {len(sections)} entries; use 1 to {len(letters)}")
    return [check_int(f"sections[{i}]", size, at_least=0) for i, size in enumerate(sections)]
