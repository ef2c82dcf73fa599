"""Step 8: the same rotation along two and three axes."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.encodings.rotary import AxialRoPE, RoPE
from ropewalk.spectra import Spectrum, geometric
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.layer import generator
from ropewalk.walk.step import Figure, Step, order, rounded

SIZE = 33
HEAD_DIM = 64


def shared(head_dim: int) -> RoPE:
    """One frequency per pair for both axes: the angle is (x + y)·θ."""
    row = geometric(head_dim, 100.0).inv_freq
    return RoPE(Spectrum((row, row), head_dim))


def codes(rope: RoPE, where: Tensor) -> Tensor:
    """What the rotation makes of one vector of ones at each place, ``[places, head_dim]``."""
    ones = torch.ones(1, len(where), rope.head_dim, dtype=torch.float64)
    return rope.encode_q(ones, where)[0]


def collisions(rope: RoPE, size: int) -> int:
    """Places of a size × size grid whose code another place has too (within 1e-9)."""
    grid = codes(rope, positions.grid(size, size))
    gaps = torch.cdist(grid, grid, compute_mode="donot_use_mm_for_euclid_dist")
    gaps.fill_diagonal_(float("inf"))
    return int((gaps.min(-1).values < 1e-9).sum())


def similarity(rope: RoPE, size: int = SIZE) -> Tensor:
    """Mean cosine between the centre and every place of a grid, ``[size, size]``."""
    grid = positions.grid(size, size)
    all_codes = codes(rope, grid)
    centre = all_codes[len(grid) // 2]
    return (all_codes @ centre / rope.head_dim).reshape(size, size)


def shift_error(rope: RoPE, shift: tuple[int, ...]) -> float:
    """Change of scores, in their standard deviation, when every place moves by ``shift``."""
    draw = generator(4)
    q, k = (torch.randn(1, 64, rope.head_dim, dtype=torch.float64, generator=draw) for _ in "qk")
    here, there = (torch.randint(0, 32, (64, rope.axes), generator=draw) for _ in range(2))
    move = torch.tensor(shift)

    def scores(i: Tensor, j: Tensor) -> Tensor:
        return rope.encode_q(q, i)[0] @ rope.encode_k(k, j)[0].T

    exact = scores(here, there)
    return ((scores(here + move, there + move) - exact).abs().max() / exact.std()).item()


def run(text: Embedded) -> Step:
    """A grid with one shared frequency, with axial frequencies, and three axes at once."""
    one, two, three = shared(HEAD_DIM), AxialRoPE(HEAD_DIM), AxialRoPE(96, axes=3)
    here, there = (5, 7), (6, 6)
    pair = codes(one, torch.tensor([here, there]))
    apart = codes(two, torch.tensor([here, there]))
    same = (pair[0] - pair[1]).norm().item()
    distinct = (apart[0] - apart[1]).norm().item()
    collided = collisions(one, 32), collisions(two, 32)
    far = 1 << 20
    errors = {
        "y": shift_error(two, (far, 0)),
        "x": shift_error(two, (0, far)),
        "both": shift_error(two, (far, -far)),
    }
    cube = max(shift_error(three, s) for s in ((far, 0, 0), (0, far, 0), (0, 0, far), (far,) * 3))
    return Step(
        name="axes",
        title="Rotate along several axes",
        question="What about images, video, anything with more than one coordinate?",
        verdict=(
            f"With one frequency for both axes the angle is (x + y)·θ, and {here} and {there} are "
            f"the same place (distance {order(same)}). Give each pair its own axis and they are "
            f"{distinct:.2f} apart, {collided[1]:,} of the 1,024 places of a 32 × 32 grid collide "
            f"instead of {collided[0]:,}, and scores stay "
            f"relative along each axis and jointly ({order(max(errors.values()))}), in three "
            f"dimensions too ({order(cube)})."
        ),
        evidence="proved",
        figures={
            "shared_collisions": Figure(
                collided[0], "places of a 32 × 32 grid that collide, shared frequency"
            ),
            "axial_collisions": Figure(collided[1], "the same, axial frequencies"),
            "shared_distance": Figure(same, f"code distance of {here} and {there}, shared"),
            "axial_distance": Figure(distinct, f"code distance of {here} and {there}, axial"),
            "shift_error_y": Figure(errors["y"], "score change, all places moved along y"),
            "shift_error_x": Figure(errors["x"], "score change, all places moved along x"),
            "shift_error_joint": Figure(errors["both"], "score change, moved along both"),
            "shift_error_3d": Figure(cube, "score change in three dimensions, worst"),
        },
        paragraphs=(
            "Rotations of one plane add up, so a pair may turn by x·θ or by y·φ or by both. A "
            "rotary encoding is a matrix of frequencies, axes by pairs: one row is text, two rows "
            "an image, three a video. An axial encoding fills each column in one row only.",
            "What must not happen is that two rows are equal. Then only x + y is known, and every "
            "place on an anti-diagonal is the same place.",
        ),
        equations=(r"\mathrm{angle}_c = \sum_a p_a\,\theta_{a,c}",),
        drawing={
            "shared": rounded(similarity(one), 4),
            "axial": rounded(similarity(two), 4),
            "collision": {"a": list(here), "b": list(there)},
            "per_axis": [{"axis": axis, "error": rounded(e)} for axis, e in errors.items()]
            + [{"axis": "three axes", "error": rounded(cube)}],
        },
    )
