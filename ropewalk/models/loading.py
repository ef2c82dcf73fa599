"""A model from this machine's files: safetensors or GGUF, nothing downloaded, no code run."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from torch import nn

from ropewalk.configs.sources import MAGIC
from ropewalk.models.said import said

DTYPES = ("float32", "bfloat16", "float16", "float64", "auto")


def load(source: str, dtype: str = "float32") -> nn.Module:
    """The model of a folder or GGUF file, by transformers' own classes.

    Args:
        source: a folder with config.json and safetensors files, or with one GGUF file; or that.
        dtype: of the weights; ``"auto"`` is what the files have.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is nothing to load, or it needs code or pickles from the folder.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    path = Path(source)
    folder, gguf = _found(path)
    transformers = _transformers()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if gguf is not None:
        options["gguf_file"] = gguf
    with quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **options)
            cls = _class_of(config, transformers)
            model, told = cls.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
        except Exception as error:
            raise ValueError(f"{source} cannot be loaded: {said(error, 300)}") from None
    lacking = sorted(told.get("missing_keys") or [])
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ValueError(
            f"{source} lacks the weights {lacking[0]}{more}: what would run is not the model; give "
            "a complete folder"
        )
    return model


def load_tokenizer(source: str) -> Any:
    """The tokenizer beside a model, as :func:`load` finds it.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is none, or it needs code from the folder.
    """
    folder, gguf = _found(Path(source))
    transformers = _transformers()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if gguf is not None:
        options["gguf_file"] = gguf
    with quiet():
        try:
            return transformers.AutoTokenizer.from_pretrained(folder, **options)
        except Exception as error:
            raise ValueError(
                f"{source} has no usable tokenizer: {said(error, 300)}; save one there with "
                "tokenizer.save_pretrained"
            ) from None


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ImportError(
            "loading a model needs transformers: pip install 'ropewalk[models]'"
        ) from None
    return transformers


def _found(path: Path) -> tuple[str, str | None]:
    """The folder to load from, and the GGUF file in it to load, if that is what there is.

    Raises:
        ValueError: there is no model.
    """
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder; models are read from this machine only")
    if path.is_file():
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                return str(path.parent), path.name
        raise ValueError(f"{path} is not a GGUF file; give a model's folder or a GGUF file")
    if (path / "config.json").exists():
        if any(path.glob("*.safetensors")):
            return str(path), None
        pickles = any(path.glob("*.bin")) or any(path.glob("*.pt"))
        raise ValueError(
            f"{path} has no .safetensors file"
            + ("; pickled weights are not loaded, convert them first" if pickles else "")
        )
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return str(path), files[0].name
    raise ValueError(
        f"{path} has no config.json and {len(files)} GGUF files; give a model's folder or one file"
    )


def _class_of(config: Any, transformers: Any) -> Any:
    """The class that the config names, if transformers has it; else the one for its type."""
    for name in getattr(config, "architectures", None) or ():
        cls = getattr(transformers, str(name), None)
        if isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel):
            return cls
    known = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    return transformers.AutoModelForCausalLM if known else transformers.AutoModel


@contextmanager
def quiet() -> Iterator[None]:
    """Loading without a word: what matters is raised or told by the audit."""
    with hushed(), redirect_stderr(io.StringIO()):
        yield


@contextmanager
def hushed() -> Iterator[None]:
    """Without the warnings and bars of transformers; stderr is left to those who have a line."""
    logging = _transformers().logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(50)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
