"""Short passes through a model that say what it is, before long ones measure it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.lab.trained.losses import body_of
from ropewalk.models.said import said

TOKENS = 11
"""Of a short pass: no usual count of heads or lanes."""


def short_ids(model: nn.Module) -> Tensor:
    """Different tokens of the model's vocabulary, int64 ``[TOKENS]``."""
    embeddings: Any = model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    return (torch.arange(TOKENS) * 37 + 5) % int(embeddings.weight.shape[0])


def states(model: nn.Module, ids: Tensor) -> Tensor:
    """The last hidden states of one row of tokens, ``[tokens, width]``.

    Raises:
        ValueError: the model does not run on tokens alone.
        TypeError: it is no causal language model.
    """
    body = getattr(model, body_of(model))
    rows = ids[None].to(next(model.parameters()).device)
    try:
        with torch.inference_mode():
            found = body(input_ids=rows, use_cache=False, return_dict=True).last_hidden_state
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{type(model).__name__} does not run on tokens alone: {said(error)}"
        ) from error
    return found[0]


def require_causal(model: nn.Module) -> None:
    """Refuse what is no causal language model in eval mode.

    Raises:
        TypeError: it has no head, or a token sees later ones, so that its loss means nothing.
        ValueError: it is in training mode, or does not run on tokens alone.
    """
    if model.training:
        raise ValueError("model is in training mode; call model.eval() first")
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise TypeError(
            f"{type(model).__name__} is an encoder with a decoder; give a causal language model"
        )
    ids = short_ids(model)
    other = ids.clone()
    other[-1] = ids[0]
    before, after = (states(model, each)[:-1].double() for each in (ids, other))
    scale = float(before.abs().max()) or 1.0
    rounding = max(1e-4, 8 * torch.finfo(next(model.parameters()).dtype).eps)
    if float((before - after).abs().max()) > rounding * scale:
        raise TypeError(
            f"{type(model).__name__} lets a token see later ones, as an encoder does, so the loss "
            "of the next token means nothing; give a causal language model"
        )
