"""Attention with its tokens split over processes gives what one process gives.

    torchrun --nproc-per-node 2 examples/context_parallel.py

Each process has some tokens of one sequence: a front and a back chunk ("zigzag", equal work under
a causal mask) or one chunk ("contiguous"). It rotates q and k at the positions that its tokens
have in the whole sequence; after that, keys and values can be gathered from all.
"""

from __future__ import annotations

import os
import sys

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import ropewalk
from ropewalk.positions import context_parallel, restored
from ropewalk.positions.context_parallel import Order

DIM, HEAD_DIM = 32, 8
ROWS, TOKENS = 2, 48
LIMIT = 1e-12  # float64 sums in another order


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rope = ropewalk.RoPE(HEAD_DIM)
        self.qkv, self.o = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor, mesh: DeviceMesh | None = None, order: Order = "zigzag") -> Tensor:
        """x ``[rows, tokens, dim]``: all tokens, or those of this process if there is a mesh."""
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        if mesh is None:
            y = ropewalk.attend(q, k, v, self.rope)
        else:
            ranks = mesh.size()
            share = context_parallel(TOKENS, rank=mesh.get_rank(), ranks=ranks, order=order)
            q, k = self.rope(q, k, share.positions)
            line = restored(TOKENS, ranks=ranks, order=order)
            keys, values = (gathered(t, mesh)[:, :, line] for t in (k, v))
            y = attended(q, keys, values, share.indices)
        return self.o(y.transpose(1, 2).flatten(2))


def gathered(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The tokens of all processes, one's behind another's; gradients go back to their owner."""
    parts = DTensor.from_local(x, mesh, [Shard(2)])
    return parts.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])


def attended(q: Tensor, keys: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    """Each run of neighbouring queries sees the keys up to its last: causal, aligned to the end."""
    breaks = (indices.diff() != 1).nonzero().flatten() + 1
    runs = zip(q.tensor_split(breaks, dim=2), indices.tensor_split(breaks), strict=True)
    seen = ((run, int(own[-1]) + 1) for run, own in runs)
    parts = [ropewalk.attend(run, keys[:, :, :n], values[:, :, :n]) for run, n in seen]
    return torch.cat(parts, dim=2)


def results(model: Attention, x: Tensor, *how) -> list[Tensor]:
    """The output, and the gradients of its square: of x and of the weights."""
    x = x.clone().requires_grad_()
    y = model(x, *how)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), (x, *model.parameters()))]


def main() -> int:
    """Compute both ways and compare: 0 if output and gradients are the same to rounding."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same weights and tokens in every process
    model, x = Attention(), torch.randn(ROWS, TOKENS, DIM)
    mesh, errors = init_device_mesh("cpu", (ranks,)), []
    output, of_x, *of_weights = results(model, x)
    for order in ("zigzag", "contiguous"):
        own = context_parallel(TOKENS, rank=rank, ranks=ranks, order=order).indices
        found = results(model, x[:, own], mesh, order)
        for gradient in found[2:]:
            distributed.all_reduce(gradient)  # weights are shared: their gradients add up
        expected = [output[:, own], of_x[:, own], *of_weights]
        errors += [(f - e).abs().max() for f, e in zip(found, expected, strict=True)]

    error = torch.stack(errors).max()
    distributed.all_reduce(error, distributed.ReduceOp.MAX)
    if rank == 0:
        print(
            f"context_parallel processes={ranks}: {TOKENS} tokens, zigzag and contiguous, "
            f"output and gradients differ from one process by {error:.1e}"
        )
    distributed.destroy_process_group()
    return 0 if error <= LIMIT else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a thread of gloo that lets go of a tensor while Python shuts down aborts
