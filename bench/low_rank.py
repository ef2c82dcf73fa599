"""LowRank against the numbers of the same bias, and attention without position.

    python bench/low_rank.py [--tokens 4096] [--rounds 3] [--error 1e-3] [--backward] [--json]

Each form is compared with the numbers of the bias before it is timed: an output may differ by no
more than the stated error allows. Times are medians of ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ropewalk import Bias, LowRank, attend
from ropewalk.encodings.bias import T5, Kerple

Form = Callable[[Tensor, Tensor, Tensor], Tensor]
ROUNDING = 2e-5
"""Of float32 attention, for values of a few units."""


def main() -> int:
    options = parsed()
    torch.manual_seed(0)
    shape = (1, options.heads, options.tokens, options.head_dim)
    q, k, v, grad = (torch.randn(shape) for _ in range(4))
    biases: dict[str, Bias] = {"t5": T5(options.heads, std=1.0), "kerple": Kerple(options.heads)}
    found: dict[str, dict[str, float]] = {"rank": {}, "near": {}, "error": {}, "away": {}}
    forms: dict[str, Form] = {
        "plain": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    }
    for name, bias in biases.items():
        bias.requires_grad_(False)
        low = LowRank(bias, length=options.tokens, error=options.error)
        forms[name], forms[f"{name}, low rank"] = with_(bias), with_(low)
        error = low.error.amax().item()
        away = (with_(low)(q, k, v) - with_(bias)(q, k, v)).abs().amax().item()
        if away > v.abs().amax().item() * math.expm1(2 * error) + ROUNDING:
            print(f"{name}: off by {away:.3g}, and not timed", file=sys.stderr)
            return 1
        found["rank"][name], found["near"][name] = low.rank, low.near
        found["error"][name], found["away"][name] = error, away
    times = ratios(forms, [q, k, v], grad if options.backward else None, options.rounds)
    found["forward and backward" if options.backward else "forward"] = times
    if options.json:
        print(json.dumps({"tokens": options.tokens} | found))
        return 0
    for key, row in found.items():
        print(f"{key:22}", *(f"{n} {x:.3g}" for n, x in row.items()), sep="  ")
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="LowRank against the numbers of a bias.")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--error", type=float, default=1e-3)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def with_(bias: Bias) -> Form:
    return lambda q, k, v: attend(q, k, v, bias)


def ratios(
    forms: dict[str, Form], tensors: list[Tensor], grad: Tensor | None, rounds: int
) -> dict[str, float]:
    """Median time of each form over that of the plain one in the same round."""
    leaves = [x.requires_grad_(grad is not None) for x in tensors]
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        seconds = {}
        for name, form in forms.items():
            begin = time.perf_counter()
            out = form(*leaves)
            if grad is not None:
                torch.autograd.grad(out, leaves, grad)
            seconds[name] = time.perf_counter() - begin
        for name, one in seconds.items():
            taken.setdefault(name, []).append(one / seconds["plain"])
    return {name: statistics.median(many) for name, many in taken.items()}


if __name__ == "__main__":
    sys.exit(main())
