"""Claim 2: a head without position cannot attend to itself past an equal token; fast RoPE can.

One head, trained for nothing else than to look at its own place in [bos, x, x], where the token
before is the same::

    python runs/claim_02_positional_heads.py
"""

from __future__ import annotations

import torch
from claims import SEEDS, Claim, Statement, minus, options, written
from torch import nn

import ropewalk
from ropewalk.checks.content import one_thread
from ropewalk.core import Encoding
from ropewalk.spectra import geometric, linear

CLAIM = Claim(
    number=2,
    title="Positional heads need RoPE's fast frequencies",
    said="on [bos, x, x] one head without position gives its own place less than 1/2, whatever its "
    "weights; high-frequency RoPE reaches 1 − ε (theorem)",
    source="Barbero et al. (2024), Round and Round We Go! What makes Rotary Positional Encodings "
    "useful?, section 4",
    setting="one head of 16 lanes over 32 symbols, 300 steps to attend to its own place",
    script="claim_02_positional_heads.py",
)
SYMBOLS, WIDTH, STEPS, RATE = 32, 16, 300, 0.02
SLOW = 1e4
"""By so much slower than usual are the frequencies of the second RoPE."""


def encodings() -> dict[str, Encoding | None]:
    """No position, RoPE, and RoPE whose fastest pair turns by 10⁻⁴ a token."""
    slow = linear(geometric(WIDTH, 10000.0), SLOW)
    return {"none": None, "rope": ropewalk.RoPE(WIDTH), "slow rope": ropewalk.RoPE(slow)}


def own_share(encoding: Encoding | None, seed: int) -> float:
    """The weight of the third token on itself after training, mean over all symbols."""
    torch.manual_seed(seed)
    embedding = nn.Embedding(SYMBOLS + 1, WIDTH).double()
    q_of, k_of = (nn.Linear(WIDTH, WIDTH, bias=False).double() for _ in range(2))
    parameters = [p for m in (embedding, q_of, k_of) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    x = torch.arange(SYMBOLS)[:, None]
    ids = torch.cat([torch.full_like(x, SYMBOLS), x, x], 1)
    places = torch.eye(3, dtype=torch.float64).expand(
        SYMBOLS, 1, 3, 3
    )  # what is attended to, as values
    for _ in range(STEPS):
        hidden = embedding(ids)[:, None]
        weights = ropewalk.attend(q_of(hidden), k_of(hidden), places, encoding)
        loss = -weights[:, 0, 2, 2].log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        hidden = embedding(ids)[:, None]
        found = ropewalk.attend(q_of(hidden), k_of(hidden), places, encoding)
    return found[:, 0, 2, 2].mean().item()


def main() -> None:
    given = options(CLAIM)
    with one_thread():
        share = {
            name: {seed: own_share(encoding, seed) for seed in range(SEEDS)}
            for name, encoding in encodings().items()
        }
    unit = "weight on its own place"
    statements = [
        Statement(
            "no position stays below one half",
            f"one half − {unit}",
            {seed: 0.5 - value for seed, value in share["none"].items()},
            "above",
        ),
        Statement("RoPE comes close to 1", unit, share["rope"], "above", 0.99),
        Statement(
            "RoPE with slow frequencies alone does not", unit, share["slow rope"], "below", 0.6
        ),
        Statement(
            "RoPE above RoPE with slow frequencies alone",
            unit,
            minus(share["rope"], share["slow rope"]),
            "above",
        ),
    ]
    written(CLAIM, statements, given.out, {"config": {"symbols": SYMBOLS, "steps": STEPS}})


if __name__ == "__main__":
    main()
