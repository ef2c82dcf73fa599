"""The loss of every token of a passage, in memory that grows with its length and no faster.

The body of the model reads the passage in one pass; logits, which are a vocabulary wide, are made
of a few hundred tokens at a time by the model's own forward, whose body then answers from the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CHUNK = 512
"""Tokens whose logits exist at a time."""

Told = Callable[[int, int], None]
"""Called with how many are done, and how many there are."""


@dataclass
class Counted:
    """Layers run so far, of all that will be, told to a progress bar."""

    of: int
    told: Told
    done: int = 0

    def another(self, *_: object) -> None:
        """One more is done; a forward hook."""
        self.done += 1
        self.told(self.done, self.of)


def token_losses(model: nn.Module, ids: Tensor) -> Tensor:
    """−ln p of each token after the first, given those before it, float64 ``[tokens − 1]``, nats.

    Args:
        model: a causal language model of transformers, in eval mode.
        ids: int64 ``[tokens]``, at least 2.

    Raises:
        TypeError: the model is no causal language model.
        ValueError: ids does not fit the model, or a loss is not finite.
    """
    body = body_of(model)
    if ids.dim() != 1 or ids.shape[0] < 2:
        raise ValueError(f"ids has shape {tuple(ids.shape)}; give one row of at least 2 tokens")
    _require_known(model, ids)
    rows = ids[None].to(next(model.parameters()).device)
    found = []
    with torch.inference_mode():
        output = getattr(model, body)(input_ids=rows, use_cache=False, return_dict=True)
        states = output.last_hidden_state
        for start in range(0, ids.shape[0] - 1, CHUNK):
            stop = min(start + CHUNK, ids.shape[0] - 1)
            with _answering(model, body, output, states[:, start:stop]):
                logits = model(input_ids=rows[:, start:stop], use_cache=False).logits[0]
            targets = rows[0, start + 1 : stop + 1]
            found.append(cross_entropy(logits.float(), targets, reduction="none").double().cpu())
    losses = torch.cat(found)
    if not losses.isfinite().all():
        raise ValueError(
            f"the loss of {type(model).__name__} on these texts is not finite, so nothing can be "
            "compared with it; see what 'ropewalk audit' says of it"
        )
    return losses


def _require_known(model: nn.Module, ids: Tensor) -> None:
    """Refuse tokens that the model has no embedding or no logit for."""
    embeddings: Any = model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
    known = int(embeddings.weight.shape[0])
    wrong = ids[(ids < 0) | (ids >= known)]
    if len(wrong):
        raise ValueError(
            f"ids has token {int(wrong[0])}, {type(model).__name__} has tokens 0 to {known - 1}; "
            "give the tokenizer that it was trained with"
        )


def body_of(model: nn.Module) -> str:
    """The name of the part of a causal language model that gives hidden states.

    Raises:
        TypeError: there is none, or nothing that makes logits of them.
    """
    name = getattr(model, "base_model_prefix", "")
    if not isinstance(getattr(model, name or "head", None), nn.Module):
        name = _child_with(model, getattr(model, "get_input_embeddings", lambda: None)())
    has_head = getattr(model, "get_output_embeddings", lambda: None)() is not None
    if not name or not isinstance(getattr(model, name, None), nn.Module) or not has_head:
        raise TypeError(
            f"{type(model).__name__} is no causal language model, so it has no loss on text; give "
            "one with a head, such as LlamaForCausalLM"
        )
    return name


def _child_with(model: nn.Module, part: Any) -> str:
    """The child that has ``part`` in it; ``""`` if none has."""
    inside = (name for name, c in model.named_children() if any(m is part for m in c.modules()))
    return next(inside, "") if part is not None else ""


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a model: the longest list of modules with attention in them.

    Raises:
        TypeError: there is none.
    """
    lists = [
        each
        for each in model.modules()
        if isinstance(each, nn.ModuleList) and len(each) and any(_attends(layer) for layer in each)
    ]
    if not lists:
        raise TypeError(f"{type(model).__name__} has no list of layers with attention")
    return list(max(lists, key=len))


def _attends(layer: nn.Module) -> bool:
    """Whether a layer has attention in it, by the names of its parts and of their classes."""
    return any(
        "attn" in name or "attention" in f"{name} {type(part).__name__.lower()}"
        for name, part in layer.named_modules()
    )


@contextmanager
def counting(model: nn.Module, passes: int, told: Told) -> Iterator[None]:
    """Tell how many of the layers of ``passes`` passes have run."""
    layers = layers_of(model)
    counted = Counted(passes * len(layers), told)
    hooks = [layer.register_forward_hook(counted.another) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Answer(nn.Module):
    """Stands for the body and gives hidden states that it made before; else it is as the body."""

    def __init__(self, own: nn.Module, output: Any, states: Tensor) -> None:
        super().__init__()
        self.__dict__["_own"] = own  # no child: it may have the model in it
        self._given = type(output)(last_hidden_state=states)

    def forward(self, *args: object, **kwargs: object) -> Any:
        """The same whatever is asked."""
        return self._given

    def __getattr__(self, name: str) -> Any:
        """What a head asks of the body, such as a multiplier of logits."""
        return getattr(self.__dict__["_own"], name)


@contextmanager
def _answering(model: nn.Module, body: str, output: Any, states: Tensor) -> Iterator[None]:
    own = getattr(model, body)
    setattr(model, body, _Answer(own, output, states))
    try:
        yield
    finally:
        setattr(model, body, own)
