"""Find out what each class of the installed transformers does with position.

    python scripts/probe_architectures.py            # writes ropewalk/configs/architectures.json
    python scripts/probe_architectures.py --check    # exit 1 if the file is stale
    python scripts/probe_architectures.py llama glm  # prints the facts of some

For every model_type: the defaults of its config class; where other spellings of a key end up (by
setting each to a value of its own and looking where it comes out); and, by running a tiny random
model, which layers rotate, which lanes, in which pairs (every lane alone through the function that
rotates), and which frequencies. A class that cannot be run that way is probed function by function.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent))
from probe_config import DIMENSIONS, composite, defaults, layer_facts, rope_facts, rope_of
from probe_run import ROTATES, function_facts, run_facts

OUT = Path(__file__).resolve().parent.parent / "ropewalk" / "configs" / "architectures.json"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="only these, printed")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(50)
    torch.set_num_threads(1)
    if options.types:
        print(json.dumps({t: facts(t) for t in options.types}, indent=1))
        return 0
    text = written(everything())
    if options.check:
        same = OUT.exists() and OUT.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{OUT.name} is stale: run scripts/probe_architectures.py")
        return 0 if same else 1
    OUT.write_text(text, encoding="utf-8")
    print(f"{len(json.loads(text)['types'])} model types, {len(text)} bytes")
    return 0


def written(document: dict[str, Any]) -> str:
    """The file: a line for each model type."""
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}"
        for name, row in sorted(document["types"].items())
    )
    made = json.dumps(document["made_with"])
    return f'{{"made_with": {made},\n"types": {{\n{rows}\n}}}}\n'


def everything() -> dict[str, Any]:
    """The facts of every model type that has a position in its config or code."""
    from transformers.models.auto import configuration_auto

    types = {}
    for model_type in vars(configuration_auto)["CONFIG_MAPPING_NAMES"]:
        found = facts(model_type)
        if found:
            types[model_type] = found
    return {"made_with": {"transformers": transformers.__version__}, "types": types}


def facts(model_type: str) -> dict[str, Any] | None:
    """What is known of one model type; None if nothing speaks of rotation."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        config_class = CONFIG_MAPPING[model_type]
        plain = config_class()
        module = importlib.import_module(
            config_class.__module__.replace("configuration_", "modeling_")
        )
    except Exception:
        return None
    parts = composite(plain)
    if parts and not rope_of(plain):
        return {"parts": parts}
    functions = [n for n, v in vars(module).items() if ROTATES.match(n) and inspect.isfunction(v)]
    found: dict[str, Any] = {"defaults": defaults(config_class, plain)}
    names = {
        key: own
        for key, own in getattr(config_class, "attribute_map", {}).items()
        if key in DIMENSIONS
    }
    if names:
        found["names"] = names
    found.update(rope_facts(config_class, plain))
    found.update(layer_facts(config_class))
    found.update(run_facts(config_class, model_type, module) or function_facts(module, functions))
    if "kind" not in found:
        if not rope_of(plain) and not (functions and _has_rope(plain)):
            return {"kind": "other", "defaults": found["defaults"]}
        found["kind"] = "rotary"
    if found["kind"] != "rotary":
        for key in ("rope", "rope_lacking", "scaling_goes_to", "goes_to"):
            found.pop(key, None)
    if parts:
        found["parts"] = parts
    return found


def _has_rope(plain: Any) -> bool:
    """Whether a config has a place for rope parameters; one beside it in a file may not."""
    return any(field in vars(plain) for field in ("rope_parameters", "rope_theta"))


if __name__ == "__main__":
    sys.exit(main())
