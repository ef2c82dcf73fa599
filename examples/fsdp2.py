"""Training with FSDP2 gives the losses of one process.

    torchrun --nproc-per-node 2 examples/fsdp2.py

Each process holds its part of every parameter and its own rows of the batch. A RoPE has no
parameters: its steps are computed again wherever the model is built, here on the meta device, so
there is nothing of it to shard, to initialise or to load.
"""

from __future__ import annotations

import os
import sys

import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

import ropewalk

VOCABULARY, DIM, HEADS, LAYERS = 50, 32, 4, 2
ROWS_EACH, TOKENS, STEPS = 2, 24, 5
LIMIT = 1e-12  # float64 sums in another order


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.rope = nn.RMSNorm(DIM), ropewalk.RoPE(DIM // HEADS)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [rows, heads, tokens, head_dim]
        y = ropewalk.attend(q, k, v, self.rope)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, DIM), nn.Linear(DIM, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(0, 1))  # [rows · tokens, vocabulary]


def sharded_like(whole: Model) -> Model:
    """The same model, built on the meta device, cut up, and filled with the same weights."""
    with torch.device("meta"):
        model = Model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    set_model_state_dict(model, whole.state_dict(), options=StateDictOptions(full_state_dict=True))
    return model


def trained(model: nn.Module, ids: Tensor) -> Tensor:
    """The loss of each step, over the rows that are given."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(STEPS):
        loss = functional.cross_entropy(model(ids[:, :-1]), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def main() -> int:
    """Train both ways and compare: 0 if every loss is the same to rounding."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same weights and batch in every process
    whole, ids = Model(), torch.randint(VOCABULARY, (ROWS_EACH * ranks, TOKENS + 1))

    sharded = sharded_like(whole)
    losses = trained(sharded, ids.chunk(ranks)[rank])
    distributed.all_reduce(losses)
    expected = trained(whole, ids)

    error = (losses / ranks - expected).abs().max()
    if rank == 0:
        print(
            f"fsdp2 processes={ranks}: loss {expected[0]:.4f} to {expected[-1]:.4f} in {STEPS} "
            f"steps, differs from one process by {error:.1e}"
        )
    distributed.destroy_process_group()
    return 0 if error <= LIMIT else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a thread of gloo that lets go of a tensor while Python shuts down aborts
