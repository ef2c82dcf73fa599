"""What SmolLM2-135M loses on text with keys in few bits and with narrow rotary tables.

What ``ropewalk precision smollm2 --length 1024`` measures, as a stored record: three plays of
Shakespeare, 1,024 tokens each from a quarter in, float32 arithmetic, one thread. The model may have
met the plays in training, so read the changes, not the levels. Passages are measured one by one, in
processes side by side::

    python runs/precision_smollm2.py
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import stored
import torch
from torch import nn

from ropewalk.configs.packaged import packaged
from ropewalk.lab.trained.passages import PLAYS, passages
from ropewalk.lab.trained.precision import FORMS, measure
from ropewalk.lab.trained.precision_rows import Precision, together
from ropewalk.models.loading import load, load_tokenizer

SCRIPT = "runs/precision_smollm2.py"
RECORD = stored.RECORDS / "precision_smollm2.json"
TEXTS, LENGTH = 3, 1024


@cache
def subject() -> tuple[nn.Module, Any]:
    """The model and its tokenizer, loaded once a process."""
    return load(packaged()), load_tokenizer(packaged())


def one(place: int, length: int) -> Precision:
    """All that is measured on one play."""
    torch.set_num_threads(1)
    model, tokenizer = subject()
    return measure(model, [passages(tokenizer, length, count=place + 1)[place]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--texts", type=int, default=TEXTS, help="plays to read")
    parser.add_argument("--length", type=int, default=LENGTH, help="tokens of each")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(partial(one, length=options.length), range(options.texts)))
    found = together(parts)
    plays = list(PLAYS[: options.texts])
    settings = {"threads": 1, "formats": list(FORMS), "plays": plays}
    record = stored.of_smollm2("precision", SCRIPT, settings)
    stored.write({**record, "measured": found.as_dict()}, options.out)


if __name__ == "__main__":
    main()
