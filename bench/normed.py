"""Norm and rotation of q and k in one pass, against copying, and against both apart.

``python bench/normed.py [TOKENS …]``, on the number of threads that PyTorch takes. Medians of
ratios within a round, in which all forms take turns; the time of copying the bytes of q and k to
memory that is there is 1. q and k are views of one projection. Each form's largest error against
float64, over the largest value, stands beside its time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ropewalk import norm_rotate_qk, norm_rotate_qk_, rotate_qk
from ropewalk.bench.timing import Effort, interleaved, ratio
from ropewalk.spectra import geometric

HEADS, KV_HEADS, DIM, EPS, ROUNDS = 32, 8, 128, 1e-6, 31
SPECTRUM = geometric(DIM, 1e6)
Form = Callable[[], tuple[Tensor, ...]]


def by_transformers(q: Tensor, k: Tensor, weights: tuple[Tensor, Tensor]) -> Form | None:
    """Qwen3's modules as its attention calls them, on tables that are made beforehand."""
    try:
        from transformers.models.qwen3 import modeling_qwen3 as qwen3
    except ImportError:
        return None
    norms = [qwen3.Qwen3RMSNorm(DIM, EPS).to(q.dtype) for _ in range(2)]
    for norm, weight in zip(norms, weights, strict=True):
        norm.weight = torch.nn.Parameter(weight, requires_grad=False)
    cos, sin = SPECTRUM.tables(torch.arange(q.shape[-2]))
    tables = [torch.cat((t, t), dim=-1)[None].to(q.dtype) for t in (cos, sin)]
    return lambda: qwen3.apply_rotary_pos_emb(norms[0](q), norms[1](k), *tables)


def forms(q: Tensor, k: Tensor, weights: tuple[Tensor, Tensor]) -> dict[str, Form]:
    """Every form under its name; all but copying and the one in place give fresh tensors."""
    source = torch.cat((q, k), dim=1)
    into = torch.zeros_like(source)
    changed = q.clone(), k.clone()

    def apart() -> tuple[Tensor, ...]:
        normed = [rms_norm(x, (DIM,), w, EPS) for x, w in zip((q, k), weights, strict=True)]
        return rotate_qk(normed[0], normed[1], None, SPECTRUM)

    named: dict[str, Form] = {
        "copying": lambda: (into.copy_(source),),
        "in one pass": lambda: norm_rotate_qk(q, k, *weights, None, SPECTRUM, eps=EPS),
        "in place": lambda: norm_rotate_qk_(*changed, *weights, None, SPECTRUM, eps=EPS),
        "rms_norm, then rotate": apart,
    }
    other = by_transformers(q, k, weights)
    return named if other is None else {**named, "transformers, eager": other}


def error(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> float:
    """The largest of any value, over the largest value."""
    pairs = zip(found, exact, strict=True)
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in pairs)


def exactly(q: Tensor, k: Tensor, weights: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The definition in float64, for tables and norm alike."""
    cos, sin = SPECTRUM.tables(torch.arange(q.shape[-2]), dtype=torch.float64)
    results = []
    for x, weight in zip((q.double(), k.double()), weights, strict=True):
        row = x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()
        a, b = row.chunk(2, dim=-1)
        results.append(torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1))
    return tuple(results)


def measured(tokens: int, dtype: torch.dtype) -> list[str]:
    """A line for each form."""
    torch.manual_seed(0)
    qkv = torch.randn(1, tokens, HEADS + 2 * KV_HEADS, DIM).to(dtype).transpose(1, 2)
    q, k = qkv[:, :HEADS], qkv[:, HEADS : HEADS + KV_HEADS]
    weights = (1 + torch.randn(DIM) / 8).to(dtype), (1 + torch.randn(DIM) / 8).to(dtype)
    named = forms(q, k, weights)
    exact = exactly(q, k, weights)
    errors = {name: error(form(), exact) for name, form in named.items() if name != "copying"}
    times = interleaved(named, Effort(ROUNDS, seconds=None))
    lines = [f"{tokens} tokens, {dtype}, times copying:"]
    for name, off in errors.items():
        lines.append(f"  {name:22} {ratio(times, name, 'copying'):7.2f}   error {off:.1e}")
    return lines


if __name__ == "__main__":
    with torch.no_grad():
        for count in [int(n) for n in sys.argv[1:]] or [1, 64, 2048]:
            for kind in (torch.bfloat16, torch.float32):
                print("\n".join(measured(count, kind)), flush=True)
