r"""Which tokens a rank holds when a sequence is shared out over several, and where they stand.

With R ranks and a causal mask, later tokens cost more. Three ways to cut n tokens:

- ``"zigzag"``: 2R chunks, rank r has chunks r and 2R − 1 − r, a front and a back one, so that all
  ranks work equally. Megatron-LM, Transformer Engine, PyTorch (head-tail balancing), Llama 3.
- ``"contiguous"``: R chunks, rank r has chunk r. Ring attention (Liu et al., 2023).
- ``"striped"``: rank r has tokens r, r + R, r + 2R, … Striped attention (Brandon et al., 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ropewalk.positions.builders import packed, segments
from ropewalk.spectra.arguments import FARTHEST, check_int

Order = Literal["zigzag", "contiguous", "striped"]
Cut = Literal["each", "whole"]
Line = int | Tensor | Sequence[int]


class Shard(NamedTuple):
    """The tokens of one rank."""

    indices: Tensor
    """int64 ``[tokens / ranks]``: their places in the whole line; ``x[..., indices, :]`` is x here,
    and ``positions[..., indices, :]`` are multimodal positions here."""
    positions: Tensor
    """int64 ``[tokens / ranks]``: each token's place in its own sequence."""
    segments: Tensor
    """int64 ``[tokens / ranks]``: the sequence of each token."""
    cu_seqlens: Tensor
    """int64: cumulative lengths of the sequences as far as they are here, with a leading 0."""


def context_parallel(
    tokens: Line, *, rank: int, ranks: int, order: Order = "zigzag", cut: Cut = "each"
) -> Shard:
    """The tokens of one rank, and their positions.

    Args:
        tokens: length of one sequence, or ``cu_seqlens`` of several packed ones, such as
            ``[0, 8, 12]``.
        rank: which one, 0 … ranks − 1.
        ranks: how many share the line.
        order: how a line is cut, see above.
        cut: ``"each"`` packed sequence alike, so that every rank has its share of all (Transformer
            Engine's ``thd``); or the packed line as a ``"whole"``, whatever begins in it.

    Returns:
        A :class:`Shard`; all ranks have equally many tokens.

    Raises:
        TypeError, ValueError: rank outside ranks; unknown order or cut; lengths that do not divide
            by ranks (2·ranks for zigzag).
    """
    check_int("ranks", ranks, at_least=1, at_most=FARTHEST)
    if check_int("rank", rank, at_least=0) >= ranks:
        raise ValueError(f"rank={rank} must be below ranks={ranks}")
    for name, value, known in (("order", order, Order), ("cut", cut, Cut)):
        if value not in get_args(known):
            raise ValueError(f"{name}={value!r} is unknown; use one of {get_args(known)}")
    line = [0, check_int("tokens", tokens, at_least=0)] if isinstance(tokens, int) else tokens
    own, owner = packed(line), segments(line)
    lengths = torch.as_tensor(line).diff().tolist()
    index = _share(lengths if cut == "each" else [len(own)], rank, ranks, order).to(own.device)
    ends = torch.bincount(owner[index], minlength=len(lengths)).cumsum(0)
    return Shard(index, own[index], owner[index], torch.cat((ends.new_zeros(1), ends)))


def restored(tokens: Line, *, ranks: int, order: Order = "zigzag", cut: Cut = "each") -> Tensor:
    """Where each token of the whole line stands once the ranks' tokens are laid end to end.

    ``gathered[..., restored(…), :]`` is the whole line again. Arguments and errors as in
    :func:`context_parallel`; returns int64 ``[tokens]``.
    """
    check_int("ranks", ranks, at_least=1, at_most=FARTHEST)
    shards = [
        context_parallel(tokens, rank=r, ranks=ranks, order=order, cut=cut) for r in range(ranks)
    ]
    return torch.cat([shard.indices for shard in shards]).argsort()


def _share(lengths: Sequence[int], rank: int, ranks: int, order: Order) -> Tensor:
    """The rank's part of each length, for lengths laid end to end."""
    count = 2 * ranks if order == "zigzag" else ranks
    shares, start = [torch.zeros(0, dtype=torch.int64)], 0
    for length in lengths:
        if length % count:
            raise ValueError(
                f"tokens has a length of {length}, which {count} does not divide (order={order!r}, "
                f"ranks={ranks}): pad it to {length + -length % count}"
                + ("" if len(lengths) == 1 else ", or cut='whole' where the whole line divides")
            )
        line = torch.arange(start, start + length)
        chunks = line.view(count, length // count)
        if order == "zigzag":
            shares += [chunks[rank], chunks[-1 - rank]]
        elif order == "contiguous":
            shares.append(chunks[rank])
        else:
            shares.append(line[rank::ranks])
        start += length
    return torch.cat(shares)
