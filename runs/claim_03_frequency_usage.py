"""Claim 3: trained models put their largest queries and keys into RoPE's slow pairs.

The models are those of claim 4, trained again, since a record holds no weights::

    python runs/claim_03_frequency_usage.py
"""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import torch
from claims import SEEDS, Claim, Statement, options, written

from ropewalk.checks.content import one_thread
from ropewalk.lab import executors, trial
from ropewalk.lab.executors.base import Failure
from ropewalk.lab.tasks.characters import Characters
from ropewalk.lab.trial import Trial, grid

CLAIM = Claim(
    number=3,
    title="The largest queries and keys lie in RoPE's slow pairs",
    said="in every layer of Gemma-7B the pairs with the largest norms of q and k are of low "
    "frequency; what small models do is open",
    source="Barbero et al. (2024), Round and Round We Go! What makes Rotary Positional Encodings "
    "useful?, section 3",
    setting="the RoPE models of claim 4: characters of plays, 128 tokens, 2 layers, 4 heads of 8 "
    "pairs; norms over 32 windows of the held-out play",
    script="claim_03_frequency_usage.py",
)
WINDOWS = 32
TRIALS = grid(["rope"], seeds=SEEDS, steps=600, lengths=(128, 256, 512, 640))


def measure(config: Trial) -> dict[str, Any]:
    """``norms``: mean ‖q_c‖·‖k_c‖ of each pair c, fastest first, for each layer and head."""
    task = Characters()
    with one_thread():
        model = trial.build(config, task)
        trial.train(model, config, task)
        seen: list[torch.Tensor] = []
        for block in model.blocks:
            block.qkv.register_forward_hook(lambda *call: seen.append(call[2]))  # pyright: ignore
        with torch.no_grad():
            model(task.windows(128, 640)[:WINDOWS, :-1])
    layers = []
    for qkv in seen:
        q, k, _ = qkv.unflatten(-1, (3, config.heads, -1)).unbind(-3)
        norms = [x.unflatten(-1, (2, -1)).norm(dim=-2).mean((0, 1)) for x in (q, k)]
        layers.append((norms[0] * norms[1]).tolist())
    return {"norms": layers}


def main() -> None:
    given = options(CLAIM)
    found: dict[int, list[list[list[float]]]] = {}
    local = executors.make("local", workers=given.workers)
    with closing(local.run(TRIALS, measure)) as outcomes:
        for each, answer in outcomes:
            if isinstance(answer, Failure):
                raise SystemExit(f"seed {each.seed}: {answer.reason}")
            found[each.seed] = answer["norms"]
    seeds = sorted(found)
    heads = {seed: [head for layer in found[seed] for head in layer] for seed in seeds}
    half = len(heads[0][0]) // 2
    slow = {
        seed: math.fsum(sum(head[half:]) / sum(head) for head in own) / len(own)
        for seed, own in heads.items()
    }
    top = {
        seed: sum(max(range(2 * half), key=head.__getitem__) >= half for head in own) / len(own)
        for seed, own in heads.items()
    }
    pairs = [
        sorted(
            math.fsum(head[c] / sum(head) for head in heads[seed]) / len(heads[seed])
            for seed in seeds
        )[len(seeds) // 2]
        for c in range(2 * half)
    ]
    statements = [
        Statement(
            "the slower half of the pairs holds most of the norms",
            "share of the sum of norms, mean over heads",
            slow,
            "above",
            0.5,
        ),
        Statement(
            "the largest pair is among the slower half in most heads",
            "share of heads",
            top,
            "above",
            0.5,
        ),
    ]
    written(
        CLAIM, statements, given.out, {"share_by_pair": pairs, "norms": [found[s] for s in seeds]}
    )


if __name__ == "__main__":
    main()
