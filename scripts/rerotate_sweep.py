"""Move the cache of a tiny random model of every architecture, and compare with one filled there.

    python scripts/rerotate_sweep.py [ARCHITECTURE …]

A prompt is read at positions 0 … 11 and again at 7 … 18. Attention depends on differences of
positions, so both caches hold the same keys but for their rotation: every layer of the first one,
moved by 7, must equal the second. Frequencies come once from the config and once from the model.
"""

from __future__ import annotations

import copy
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import tiny_models
import torch
from torch import Tensor

from ropewalk.models import rerotate_cache

SHIFT = 7
BOUND = 3e-6
SECONDS = 20
LEFT_OUT = {"blt": "takes minutes", "csm": "counts positions itself, so nothing moves"}


def readers(file: str) -> Iterator[tiny_models.Unit]:
    """The model classes of a file that may read text into a cache."""
    for unit in tiny_models.units(file):
        if unit.name.endswith(("ForCausalLM", "ForConditionalGeneration", "Model")):
            yield unit


def distance(a: Any, b: Any) -> float:
    """Largest difference of what two caches hold, over the largest number of its tensor."""
    worst = 0.0
    for one, other in zip(a.layers, b.layers, strict=True):
        for name in ("keys", "values"):
            x, y = getattr(one, name, None), getattr(other, name, None)
            if x is None or y is None or not x.numel():
                continue
            scale = y.abs().max().clamp_min(1e-9)
            worst = max(worst, ((x - y).abs().max() / scale).item())
    return worst


def moved(cache: Any, source: Any, tokens: int) -> Any:
    """A copy of ``cache`` with its keys moved by ``source``, on as many axes as it has."""
    where = torch.arange(tokens)
    for axes in (1, 2, 3, 4):
        made = copy.deepcopy(cache)
        p = where if axes == 1 else where[:, None].expand(-1, axes)
        try:
            rerotate_cache(made, source, source, p, p + SHIFT)
        except ValueError as error:
            if "axes=" not in str(error):
                raise
        else:
            return made
    raise ValueError("no number of axes fits")


def compared(unit: tiny_models.Unit, sections: bool) -> list[str]:
    """How far the keys were apart, and what is left of it by model and by config."""
    model: Any = tiny_models.build(unit, sections)
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError("encoder and decoder")
    ids = tiny_models._ids(model.config.get_text_config(), torch.Generator().manual_seed(0))
    positions = torch.arange(ids.shape[1])[None].expand(2, -1)

    def read(where: Tensor) -> Any:
        with torch.no_grad():
            return model(input_ids=ids, position_ids=where, use_cache=True).cache

    here, there = read(positions), read(positions + SHIFT)
    cells = [f"{distance(here, there):.1e}"]
    for source in (model, model.config):
        try:
            cells.append(f"{distance(moved(here, source, ids.shape[1]), there):.1e}")
        except (TypeError, ValueError) as error:
            cells.append(f"refused: {error}")
    return cells


def sweep(file: str) -> tuple[str, list[str]] | str:
    """The first model of a file that reads text into a cache, or why none does."""
    first = "no model that reads text"
    for unit in readers(file):
        for sections in (False, True):
            try:
                return unit.name, compared(unit, sections)
            except Exception as error:
                first = f"{unit.name}: {type(error).__name__} {str(error)[:100]}"
    return first


def main(chosen: list[str]) -> int:
    """Sweep what is named, or all; 1 if a key is elsewhere than it should be."""
    from transformers import logging

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    good = refused = wrong = 0
    for file in tiny_models.modeling_files():
        name = file.split("/")[0]
        if chosen and name not in chosen:
            continue
        if name in LEFT_OUT:
            print(f"{name:24} not run, it {LEFT_OUT[name]}")
            continue
        signal.alarm(SECONDS)
        result = sweep(file)
        signal.alarm(0)
        if isinstance(result, str):
            print(f"{name:24} not run, {result}", flush=True)
            continue
        cells = result[1]
        print(f"{name:24} {result[0]}: apart {cells[0]}, by model {cells[1]}, by config {cells[2]}")
        numbers = [float(c) for c in cells[1:] if not c.startswith("refused")]
        refused += not numbers
        missed = bool(numbers) and max(numbers) > BOUND
        wrong += missed
        good += bool(numbers) and not missed
    print(f"{good} architectures moved, {refused} refused, {wrong} wrong")
    return int(wrong > 0)


def bell(*_: Any) -> None:
    """A model that takes too long is not waited for."""
    raise TimeoutError("slow")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, bell)
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
