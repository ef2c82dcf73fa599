"""Audit a tiny random model of every architecture: nothing may be found in a healthy one.

    python scripts/audit_sweep.py [ARCHITECTURE …]

Of each modeling file the class is told in which most checks apply. Ends with status 1 if there is a
finding in an architecture that is not listed in ``KNOWN``.
"""

from __future__ import annotations

import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import tiny_configs
import tiny_models
import torch

from ropewalk.models import Audit, audit

SECONDS = 60
ENOUGH = 13
"""Checks that apply in a model that reads text, rotates and keeps a cache."""
LEFT_OUT = {"blt": "takes minutes", "csm": "is fed frames of codes"}
KNOWN = {
    "bamba": "decoding token by token differs from the full pass, from the second token on",
    "moshi": "its cache keeps a window that its full pass does not have",
}
"""What the audit finds in transformers 5.24 itself, or in what explain knows."""


def readers(file: str) -> Iterator[tiny_models.Unit]:
    """The model classes of a file, those with a head for text first."""
    names = ("ForCausalLM", "ForConditionalGeneration", "Model")
    found = [u for u in tiny_models.units(file) if u.name.endswith(names)]
    yield from sorted(found, key=lambda u: not u.name.endswith("ForCausalLM"))


def build(unit: tiny_models.Unit, sections: bool) -> Any:
    """A tiny model; sinusoids are put back where weights were drawn anew."""
    model: Any = tiny_models.build(unit, sections)
    for module in model.modules():
        made: Any = getattr(module, "create_weight", None)
        if "Sinusoidal" in type(module).__name__ and made is not None:
            module.weight.data.copy_(made())
    return model


def best(file: str) -> tuple[str, Audit] | str:
    """The class of a file in which most checks apply, and its audit; or why none was built."""
    found: tuple[int, str, Audit] | None = None
    first = "no model class"
    for unit in readers(file):
        for sections in (False, True):
            try:
                outcome = audit(build(unit, sections))
            except TimeoutError:
                raise
            except Exception as error:
                first = f"{unit.name}: {type(error).__name__} {' '.join(str(error).split())[:90]}"
                continue
            ran = len(outcome.checks) - len(outcome.skipped)
            if found is None or ran > found[0]:
                found = ran, unit.name, outcome
            if ran >= ENOUGH:
                return unit.name, outcome
    return first if found is None else found[1:]


def main(chosen: list[str]) -> int:
    """Sweep what is named, or all."""
    from transformers import logging

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    heads = [(p, 32 if "index_n_heads" in p else n) for p, n in tiny_configs.SIZES]
    tiny_configs.SIZES = tuple(heads)  # few heads of an indexer give every token the score 0
    counts = {"whole": 0, "in part": 0, "not run": 0, "known": 0, "new": 0}
    for file in tiny_models.modeling_files():
        name = file.split("/")[0]
        if chosen and name not in chosen:
            continue
        if name in LEFT_OUT:
            print(f"{name:24} not run, it {LEFT_OUT[name]}")
            continue
        start = time.time()
        signal.alarm(SECONDS)
        try:
            result: tuple[str, Audit] | str = best(file)
        except TimeoutError:
            result = f"more than {SECONDS} s"
        signal.alarm(0)
        if isinstance(result, str):
            counts["not run"] += 1
            print(f"{name:24} not run, {result}", flush=True)
            continue
        cls, outcome = result
        ran = len(outcome.checks) - len(outcome.skipped)
        wrong = [f for f in outcome.findings if f.severity != "info"]
        kind = ("known" if name in KNOWN else "new") if wrong else ""
        counts[kind or ("whole" if ran >= ENOUGH else "in part")] += 1
        print(f"{name:24} {cls}: {ran} checks, {time.time() - start:.1f} s {kind}", flush=True)
        for finding in wrong:
            print(f"    {finding.severity} {finding.code} {finding.key}: {finding.message}")
        for check, reason in outcome.skipped.items():
            if ran < ENOUGH or chosen:
                print(f"    not {check}: {reason}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return int(counts["new"] > 0)


def bell(*_: Any) -> None:
    """A model that takes too long is not waited for."""
    raise TimeoutError("slow")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, bell)
    torch.set_num_threads(1)
    sys.exit(main([word for word in sys.argv[1:] if re.fullmatch(r"\w+", word)]))
