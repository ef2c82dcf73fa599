"""A language model as one function, whatever the names of its arguments and results."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.models.said import said

_CACHES = ("cache", "past_key_values")
_RESULTS = ("logits", "last_hidden_state")
_SPECIAL = re.compile(r"_token_id$|_token_index$|_token$|_id$")


@dataclass(frozen=True)
class Read:
    """What a model made of tokens: values ``[batch, tokens, width]``, and its cache if asked."""

    values: Tensor
    cache: Any


class Reader:
    """Calls a model with tokens.

    Attributes:
        takes: the names of the arguments that its forward has.
        cached: how it calls its cache, None if it has none.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self.cached = next((name for name in _CACHES if name in self.takes), None)
        config = getattr(model, "config", None)
        get = getattr(config, "get_text_config", None)
        self.config = config if get is None else get()

    def refusal(self) -> str | None:
        """Why the model cannot be given tokens alone, if so."""
        if "input_ids" not in self.takes:
            return "the model does not read tokens (its forward has no input_ids)"
        if getattr(self.model.config, "is_encoder_decoder", False):
            return "the model has an encoder and a decoder, and needs both to be fed"
        if self.embedding() is None:
            return "the model has no table of token embeddings"
        try:
            first, again = (self(self.tokens(1, 4)).values for _ in range(2))
        except Exception as error:
            return f"it does not run on tokens alone: {type(error).__name__}: {said(error)}"
        if not torch.equal(first, again) and first.isfinite().all():
            return "it gives another result each time it is run"
        return None

    def embedding(self) -> nn.Embedding | None:
        """The table of token embeddings."""
        try:
            table = self.model.get_input_embeddings()  # pyright: ignore[reportCallIssue]
        except (NotImplementedError, AttributeError):
            return None
        return table if isinstance(getattr(table, "weight", None), Tensor) else None  # pyright: ignore

    @property
    def device(self) -> torch.device:
        """Where tokens go."""
        table = self.embedding()
        return torch.device("cpu") if table is None else table.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the model's weights."""
        table = self.embedding()
        if table is not None and table.weight.is_floating_point():
            return table.weight.dtype
        return next((p.dtype for p in self.model.parameters() if p.is_floating_point()), _WIDE)

    def tokens(self, rows: int, count: int, seed: int = 0) -> Tensor:
        """Random ordinary tokens ``[rows, count]``, all different as far as there are enough."""
        table = self.embedding()
        assert table is not None
        size = min(table.weight.shape[0], getattr(self.config, "vocab_size", None) or 1 << 30)
        special = self._special()
        usable = torch.tensor([i for i in range(min(size, 1 << 17)) if i not in special])
        generator = torch.Generator().manual_seed(seed)
        drawn = usable[torch.randperm(len(usable), generator=generator)]
        repeated = drawn.repeat(1 + rows * count // len(drawn))
        return repeated[: rows * count].reshape(rows, count).to(self.device)

    def _special(self) -> set[int]:
        found: set[int] = {0}
        for config in (self.model.config, self.config):
            for name, value in vars(config).items():
                values = value if isinstance(value, (list, tuple)) else [value]
                if _SPECIAL.search(name):
                    found.update(v for v in values if isinstance(v, int))
        return found

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        cache: Any = None,
        caching: bool = False,
        last: int | None = None,
    ) -> Read:
        """Read ``ids`` ``[batch, tokens]``; ``last`` wants only that many values at the end."""
        given: dict[str, Any] = {"input_ids": ids}
        if positions is not None:
            given["position_ids"] = positions
        if mask is not None and "attention_mask" in self.takes:
            given["attention_mask"] = mask
        if "use_cache" in self.takes:
            given["use_cache"] = caching
        if cache is not None and self.cached is not None:
            given[self.cached] = cache
        if last is not None and "logits_to_keep" in self.takes:
            given["logits_to_keep"] = last
        out = self.model(**given)
        made = next((getattr(out, n) for n in _CACHES if hasattr(out, n)), None)
        values = _values(out)
        return Read(values if last is None else values[:, -last:], made)


_WIDE = torch.float32


def _values(out: Any) -> Tensor:
    for name in _RESULTS:
        value = getattr(out, name, None)
        if isinstance(value, Tensor):
            return value
    raise TypeError(f"{type(out).__name__} has none of {', '.join(_RESULTS)}")
