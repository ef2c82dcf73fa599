"""Multimodal RoPE: every pair turns along one of several axes."""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.spectra.arguments import check_int
from ropewalk.spectra.spectrum import Spectrum

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


def along(spectrum: Spectrum, axes: str, letters: str = LETTERS) -> Spectrum:
    """A one-axis spectrum with each pair turning along its own axis only.

    Args:
        spectrum: one axis.
        axes: a letter a pair, such as ``"THWTHWTT"``.
        letters: the letters of the axes of positions, in order.

    Raises:
        ValueError: another number of letters than pairs, or an unknown letter.
    """
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


def _sizes(sections: Sequence[int], letters: str) -> list[int]:
    if isinstance(sections, str) or not isinstance(sections, Sequence):
        raise TypeError(f"sections={sections!r} must be a sequence of ints")
    if not 1 <= len(sections) <= len(letters):
        raise ValueError(f"sections has {len(sections)} entries; use 1 to {len(letters)}")
    return [check_int(f"sections[{i}]", size, at_least=0) for i, size in enumerate(sections)]
