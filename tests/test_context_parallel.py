"""Tokens shared out over ranks, and which tokens belong together."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
)

from ropewalk import positions

ORDERS = ("zigzag", "contiguous", "striped")
RANKS = st.integers(1, 5)


def ends(lengths: list[int]) -> list[int]:
    return [0, *itertools.accumulate(lengths)]


def shards(tokens: Any, ranks: int, **how: Any) -> list[positions.Shard]:
    return [positions.context_parallel(tokens, rank=r, ranks=ranks, **how) for r in range(ranks)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cut", ["each", "whole"])
@given(ranks=RANKS, chunks=st.lists(st.integers(0, 4), min_size=1, max_size=5))
def test_ranks_together_hold_every_token_once(order, cut, ranks, chunks):
    line = ends([2 * ranks * c for c in chunks])
    parts = shards(line, ranks, order=order, cut=cut)
    held = torch.cat([part.indices for part in parts])
    assert sorted(held.tolist()) == list(range(line[-1]))
    whole, owner = positions.packed(line), positions.segments(line)
    for part in parts:
        assert len(part.indices) == line[-1] // ranks
        assert torch.equal(part.positions, whole[part.indices])
        assert torch.equal(part.segments, owner[part.indices])
        counts = [int((part.segments == s).sum()) for s in range(len(chunks))]
        assert part.cu_seqlens.tolist() == ends(counts)
        if cut == "each":
            assert counts == [2 * c for c in chunks]
    back = positions.restored(line, ranks=ranks, order=order, cut=cut)
    assert held[back].tolist() == list(range(line[-1]))


@given(RANKS, st.integers(0, 6))
def test_zigzag_is_the_head_and_tail_of_torch(ranks, chunk):
    tokens = 2 * ranks * chunk
    expected = _HeadTailLoadBalancer(tokens, ranks, "cpu")
    parts = shards(tokens, ranks)
    held = torch.cat([part.indices for part in parts])
    assert held.tolist() == expected._generate_indices()[0].tolist()
    back = positions.restored(tokens, ranks=ranks)
    assert back.tolist() == expected._generate_indices(restore=True)[0].tolist()


@given(RANKS, st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_each_sequence_is_cut_as_torch_cuts_documents(ranks, chunks):
    """torch lists document by document, each in the order of ranks; here rank by rank."""
    lengths = [2 * ranks * c for c in chunks]
    listed = _PerDocumentHeadTailLoadBalancer([lengths], ranks, "cpu")._generate_indices()[0]
    documents = listed.split(lengths)
    for rank, part in enumerate(shards(ends(lengths), ranks)):
        own = [document.chunk(ranks)[rank] for document in documents]
        assert part.indices.tolist() == torch.cat(own).tolist()


def test_two_ranks_by_hand():
    """Megatron-LM and Transformer Engine: of 2R chunks, rank r has r and 2R − 1 − r."""
    first, second = shards(8, 2)
    assert first.indices.tolist() == [0, 1, 6, 7]
    assert second.indices.tolist() == [2, 3, 4, 5]
    first, second = shards([0, 4, 12], 2)
    assert first.indices.tolist() == [0, 3, 4, 5, 10, 11]
    assert first.positions.tolist() == [0, 3, 0, 1, 6, 7]
    assert first.segments.tolist() == [0, 0, 1, 1, 1, 1]
    assert second.positions.tolist() == [1, 2, 2, 3, 4, 5]
    assert second.cu_seqlens.tolist() == [0, 2, 6]
    whole = shards([0, 3, 8], 2, cut="whole")
    assert whole[0].positions.tolist() == [0, 1, 3, 4]
    assert whole[0].cu_seqlens.tolist() == [0, 2, 4]
    assert [p.indices.tolist() for p in shards(6, 2, order="striped")] == [[0, 2, 4], [1, 3, 5]]
    assert [p.indices.tolist() for p in shards(6, 2, order="contiguous")] == [[0, 1, 2], [3, 4, 5]]


@given(RANKS, st.integers(1, 6))
def test_zigzag_gives_every_rank_the_same_work(ranks, chunk):
    """Under a causal mask a token at p reads p + 1 keys."""
    work = [int((p.positions + 1).sum()) for p in shards(2 * ranks * chunk, ranks)]
    assert len(set(work)) == 1


def test_attention_over_shards_is_attention_over_the_whole():
    """Queries of a rank against all keys, by their positions, give the rows of the full pass."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 24, 16, generator=generator, dtype=torch.float64)
    line = [0, 8, 24]
    where, owner = positions.packed(line), positions.segments(line)
    import ropewalk

    rope = ropewalk.RoPE(16)
    whole = ropewalk.attend(q, k, v, rope, q_positions=where, kv_positions=where, segments=owner)
    keys = rope.encode_k(k, where)
    for part in shards(line, 2):
        own = rope.encode_q(q[..., part.indices, :], part.positions)
        sees = (part.segments[:, None] == owner) & (part.positions[:, None] >= where)
        found = torch.nn.functional.scaled_dot_product_attention(own, keys, v, attn_mask=sees)
        torch.testing.assert_close(found, whole[..., part.indices, :])


# Which tokens belong together.


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 4))
def test_masks_positions_and_boundaries_agree(lengths, padding):
    line = ends(lengths)
    tokens = line[-1] + padding
    owner = positions.segments(line, tokens)
    where = positions.packed(line, tokens)
    assert owner.tolist() == [i for i, n in enumerate(lengths) for _ in range(n)] + [-1] * padding
    assert where.tolist() == [p for n in lengths for p in range(n)] + [1] * padding
    numbered = owner + 1
    assert torch.equal(positions.document_segments(numbered), owner)
    real = [n for n in lengths if n]
    assert positions.boundaries(owner).tolist() == ends(real)
    restarts = positions.restart_segments(where[: line[-1]])
    assert restarts.tolist() == [i for i, n in enumerate(real) for _ in range(n)]


def test_boundaries_of_padded_rows_are_those_of_unpadded_kernels():
    mask = torch.tensor([[0, 1, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]])
    assert positions.boundaries(positions.mask_segments(mask)).tolist() == [0, 2, 5, 6]
    rows = torch.tensor([[0, 0, 1], [1, 2, -1]])
    assert positions.boundaries(rows).tolist() == [0, 2, 3, 4, 5]
    assert positions.restart_segments(torch.tensor([[5, 6, 0], [0, 0, 1]])).tolist() == [
        [0, 0, 1],
        [0, 1, 1],
    ]


loose: Any = positions

REFUSED = [
    (lambda: loose.context_parallel(8, rank=2, ranks=2), "rank=2 must be below ranks=2"),
    (lambda: loose.context_parallel(8, rank=0, ranks=0), "ranks=0 must be at least 1"),
    (lambda: loose.context_parallel(-8, rank=0, ranks=1), "tokens=-8 must be at least 0"),
    (lambda: loose.context_parallel(True, rank=0, ranks=1), "tokens=True must be an int"),
    (
        lambda: loose.context_parallel(6, rank=0, ranks=2),
        "tokens has a length of 6, which 4 does not divide (order='zigzag', ranks=2): pad it to 8",
    ),
    (
        lambda: loose.context_parallel([0, 4, 9], rank=0, ranks=2),
        "length of 5, which 4 does not divide (order='zigzag', ranks=2): pad it to 8, or cut='who",
    ),
    (
        lambda: loose.context_parallel([0, 3], rank=0, ranks=2, order="striped"),
        "length of 3, which 2 does not divide (order='striped', ranks=2): pad it to 4",
    ),
    (lambda: loose.context_parallel(8, rank=0, ranks=2, order="ring"), "order='ring' is unknown"),
    (lambda: loose.context_parallel(8, rank=0, ranks=2, cut="all"), "cut='all' is unknown; use"),
    (lambda: loose.context_parallel([4, 8], rank=0, ranks=2), "cu_seqlens=[4, 8] must start at 0"),
    (lambda: loose.packed([0, 4], 3), "tokens=3 is less than the 4 tokens of cu_seqlens"),
    (lambda: loose.document_segments(torch.tensor([-1])), "mask has -1; sequences are numbered"),
    (lambda: loose.document_segments([1]), "mask must be an integer tensor [..., tokens], got li"),
    (lambda: loose.restart_segments(torch.ones(2)), "positions must be an integer tensor"),
    (lambda: loose.boundaries(torch.tensor([0, 1, 0])), "segments run [0, 1, 0]: one comes back"),
    (lambda: loose.boundaries(torch.zeros(1, 1, 1).long()), "segments have shape (1, 1, 1)"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_what_is_refused_is_named(call, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()
