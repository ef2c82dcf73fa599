"""How the tokens of a video and of its sound take turns in a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.positions.families import Family


def turns(video: Tensor, audio: Tensor, rules: Family) -> Tensor:
    """The order of the tokens, as indices into video then audio.

    Args:
        video, audio: temporal ids from 0 on, rising, int64 ``[tokens]``.
        rules: a family with ``mingle``.

    Returns:
        int64 ``[video tokens + audio tokens]``.
    """
    if rules.mingle == "ids":
        return torch.cat((video, audio)).argsort(stable=True)
    size = int(rules.rate * rules.seconds_per_chunk) * rules.one
    chunk = torch.cat((_chunks(video, size), _chunks(audio, size)))
    return chunk.argsort(stable=True)


def _chunks(ids: Tensor, size: int) -> Tensor:
    """The chunk of each token.

    Chunk c ends before the first token at or past (c + 1)·size. A token ends at most one chunk, so
    after a gap of several chunks the next tokens are chunks of their own, until they catch up.
    """
    chunk, found = 0, []
    for at in ids.tolist():
        if at >= (chunk + 1) * size:
            chunk += 1
        found.append(chunk)
    return torch.tensor(found, dtype=torch.int64)
