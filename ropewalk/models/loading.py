"""A model from this machine's files: safetensors or GGUF, nothing downloaded, no code run."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from torch import nn

from ropewalk.models.faults import (
    config_fault,
    require_complete,
    require_shapes,
    tokenizer_fault,
    unbuilt,
    weights_fault,
)
from ropewalk.models.folder import Found, found

DTYPES = ("float32", "bfloat16", "float16", "float64", "auto")


def load(source: str, dtype: str = "float32") -> nn.Module:
    """The model of a folder or GGUF file, by transformers' own classes.

    Args:
        source: a folder with config.json and safetensors files, or with one GGUF file; or that.
        dtype: of the weights; ``"auto"`` is what the files have.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is nothing to load, its config or its weights cannot be used or do not
            belong together, or it needs code or pickles from the folder.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is unknown; use one of {', '.join(DTYPES)}")
    there = found(source)
    with quiet():
        config = _config(there)
        cls = _class_of(config, _transformers())
        try:
            model, told = cls.from_pretrained(
                there.folder,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # told below, by name
                output_loading_info=True,
                **_options(there),
            )
        except Exception as error:
            fault = unbuilt(cls, config)
            if fault is not None:
                raise _config_fault(there, fault) from None
            raise weights_fault(there, error) from None
    require_shapes(source, told.get("mismatched_keys") or ())
    require_complete(source, told.get("missing_keys") or ())
    return model


def require_config(source: str) -> None:
    """Refuse what :func:`load` would refuse, as far as that is seen at once: of a GGUF file that it
    is one, of a folder that transformers makes a config of its keys.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is no model, or no config that can be used.
    """
    there = found(source)
    if there.gguf is None:  # the keys of a GGUF file come with all its vocabulary, which takes long
        with quiet():
            _config(there)


def load_tokenizer(source: str) -> Any:
    """The tokenizer beside a model, as :func:`load` finds it.

    Raises:
        ImportError: transformers is missing.
        ValueError: there is no model with a usable config, there is no tokenizer, or it needs code
            from the folder.
    """
    there = found(source)
    with quiet():
        try:
            return _transformers().AutoTokenizer.from_pretrained(there.folder, **_options(there))
        except Exception as error:
            _config(there)  # a tokenizer is looked up by it, and its faults are not the tokenizer's
            raise tokenizer_fault(there, error) from None


def _config(there: Found) -> Any:
    """The config object.

    Raises:
        ValueError: transformers makes none of the keys.
    """
    try:
        return _transformers().AutoConfig.from_pretrained(there.folder, **_options(there))
    except Exception as error:
        raise _config_fault(there, error) from None


def _config_fault(there: Found, error: Exception) -> ValueError:
    return config_fault(there, error, _transformers().CONFIG_MAPPING)


def _options(there: Found) -> dict[str, Any]:
    """Of every call that reads files: none are downloaded, and no code in them is run."""
    alone = {"local_files_only": True, "trust_remote_code": False}
    return alone if there.gguf is None else {**alone, "gguf_file": there.gguf}


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ImportError(
            "loading a model needs transformers: pip install 'ropewalk[models]'"
        ) from None
    return transformers


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
