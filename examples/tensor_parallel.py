"""Attention with its heads split over processes gives what one process gives.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py

q, k and v are cut by output columns, which are heads, and o by input columns. A rotation is the
same for every head, so each process rotates those it has and none needs to know which they are.
"""

from __future__ import annotations

import os
import sys

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import ropewalk

DIM, HEAD_DIM, HEADS, KV_HEADS = 64, 8, 8, 4
ROWS, TOKENS = 2, 24
LIMIT = 1e-12  # float64 sums in another order


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rope = ropewalk.RoPE(HEAD_DIM)
        self.q, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (  # as many heads as are here
            linear(x).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        y = ropewalk.attend(q, k, v, self.rope)
        return self.o(y.transpose(1, 2).flatten(2))


def results(model: Attention, x: Tensor) -> dict[str, Tensor]:
    """The output and every gradient of its mean square, whole."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.square().mean().backward()
    found = {"output": y.detach(), "x": x.grad}
    found |= {name: parameter.grad for name, parameter in model.named_parameters()}
    whole = {}
    for name, value in found.items():
        assert value is not None, f"no gradient reached {name}"
        whole[name] = value.full_tensor() if isinstance(value, DTensor) else value
    return whole


def main() -> int:
    """Compute both ways and compare: 0 if output and gradients are the same to rounding."""
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if KV_HEADS % ranks:
        raise ValueError(f"{KV_HEADS} key heads do not divide by {ranks} processes: use 1, 2 or 4")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same weights and tokens in every process
    whole, split = Attention(), Attention()
    split.load_state_dict(whole.state_dict())
    x = torch.randn(ROWS, TOKENS, DIM)

    by_heads = {name: ColwiseParallel() for name in ("q", "k", "v")}
    mesh = init_device_mesh("cpu", (ranks,))
    parallelize_module(split, mesh, {**by_heads, "o": RowwiseParallel()})
    found, expected = results(split, x), results(whole, x)

    error = torch.stack([(found[name] - expected[name]).abs().max() for name in expected]).max()
    distributed.all_reduce(error, distributed.ReduceOp.MAX)
    if rank == 0:
        print(
            f"tensor_parallel processes={ranks}: {HEADS} query and {KV_HEADS} key heads, "
            f"output and gradients differ from one process by {error:.1e}"
        )
    distributed.destroy_process_group()
    return 0 if error <= LIMIT else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a thread of gloo that lets go of a tensor while Python shuts down aborts
