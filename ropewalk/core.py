"""The four doors into attention, one small contract each.

Dimension glossary, used in every shape of this library:

====  =====================================================================
B     batch rows; any number of leading dimensions unless said otherwise
H     query heads; ``kv_heads`` where they differ
T     tokens; ``q_tokens``, ``kv_tokens`` where they differ
D     width of an embedding, or of one head (``head_dim``)
axes  position axes: 1 for text, 2 for images, 3 for video
pairs rotated pairs of lanes, ``rotary_dim / 2``
====  =====================================================================

Position contract: integers ``[T]`` or ``[B, T]``, with a last dimension of axes if there are
several; ``None`` means 0 … T−1; ``offset=`` (an int, or ``[B]``) starts elsewhere. Output dtype is
input dtype, arithmetic is at least float32 and is rounded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ropewalk.positions.contract import integer_positions, token_positions


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of ``dtype`` are computed: float64 for float64, else float32."""
    return dtype if dtype == torch.float64 else torch.float32


def fits(rows: Sequence[int], lead: Sequence[int]) -> bool:
    """Whether leading dimensions ``rows`` broadcast to ``lead`` and no further."""
    pairs = zip(reversed(rows), reversed(lead), strict=False)
    return len(rows) <= len(lead) and all(r in (1, n) for r, n in pairs)


class Encoding(nn.Module, ABC):
    """Base of every encoding; see the four families below.

    Constants such as integer steps are *derived*: computed from the configuration, kept as
    non-persistent buffers, and rebuilt after every cast, move, ``to_empty`` and load, so neither
    ``.half()`` nor meta-device construction nor a checkpoint can spoil them.
    """

    family: ClassVar[str]
    axes: int = 1

    def derive(self, device: torch.device | None) -> dict[str, Tensor]:
        """The derived constants by name, on ``device``; none unless overridden."""
        return {}

    def register_derived(self) -> None:
        """Register what :meth:`derive` gives; called once at the end of a constructor."""
        for name, value in self.derive(None).items():
            self.register_buffer(name, value, persistent=False)

    def rebuild(self, instead_of_meta: torch.device | None = None) -> None:
        """Set every derived constant anew, on the device where it lives."""
        device = next((buffer.device for buffer in self.buffers(recurse=False)), None)
        if device is not None and device.type == "meta":
            device = instead_of_meta
        if device is not None and device.type != "meta":
            for name, value in self.derive(device).items():
                setattr(self, name, value)

    def reset_parameters(self) -> None:
        """Initialise anew, as FSDP calls it after ``to_empty``; constants are rebuilt."""
        self.rebuild()

    def _apply(self, fn, recurse: bool = True):
        result = super()._apply(fn, recurse)
        self.rebuild()
        return result

    def _load_from_state_dict(
        self,
        state_dict,
        prefix,
        local_metadata,
        strict,
        missing_keys,
        unexpected_keys,
        error_msgs,
    ) -> None:
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
        assigned = local_metadata.get("assign_to_params_buffers", False)
        self.rebuild(torch.get_default_device() if assigned else None)


class Additive(Encoding):
    """A code added to the token embeddings: x + E(p).

    A subclass gives ``dim``, :meth:`encode` and :meth:`reference`.
    """

    family = "additive"
    dim: int

    @abstractmethod
    def encode(
        self,
        positions: Tensor,
        *,
        length: int | Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """The codes of integer positions.

        Args:
            positions: ``[..., T]``, or ``[..., T, axes]``.
            length: tokens of the whole sequence, for codes that depend on it; others ignore it.
            dtype: of the result.

        Returns:
            ``[..., T, dim]``.
        """

    @abstractmethod
    def reference(self, position: int, length: int | None = None) -> list[float]:
        """The code of one position by a literal float64 loop: the oracle of tests and checks."""

    def shift_matrix(self, k: int) -> Tensor | None:
        """M_k with E(p + k) = M_k E(p) for every p, float64 ``[dim, dim]``; None if not known."""
        return None

    def forward(
        self,
        x: Tensor,
        positions: Tensor | None = None,
        *,
        offset: int | Tensor | None = None,
        length: int | Tensor | None = None,
    ) -> Tensor:
        """x + E(positions).

        Args:
            x: embeddings ``[..., T, dim]``.
            positions, offset: the position contract of :mod:`ropewalk.core`.
            length: as in :meth:`encode`.

        Returns:
            A tensor of the shape and dtype of x.
        """
        if x.dim() < 2 or x.shape[-1] != self.dim:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; this encoding adds [..., T, {self.dim}]"
            )
        if not x.dtype.is_floating_point:
            raise TypeError(f"x has dtype {x.dtype}; embeddings are real floating")
        where = token_positions(positions, offset, x, self.axes)
        wide = wide_dtype(x.dtype)
        codes = self.encode(where, length=length, dtype=wide)
        if codes.dim() < 2 or codes.shape[-2:] != x.shape[-2:] or codes.is_complex():
            raise ValueError(
                f"{type(self).__name__}.encode gave {codes.dtype} {tuple(codes.shape)} for x "
                f"{tuple(x.shape)}; it must be real [..., tokens, dim]"
            )
        rows, own = codes.shape[:-2], x.shape[:-2]
        if not fits(rows, own):
            raise ValueError(
                f"positions have shape {tuple(where.shape)}, whose batch dimensions do not fit x "
                f"{tuple(x.shape)}; use [tokens] or [batch, tokens]"
            )
        return (x.to(wide) + codes).to(x.dtype)


class Rotary(Encoding):
    """A transform of q and k; attention itself runs unchanged.

    A subclass gives ``head_dim``, :meth:`encode_q`, :meth:`encode_k` and :meth:`reference`.
    """

    family = "rotary"
    head_dim: int
    attention_factor: float = 1.0

    @property
    def encoded_dim(self) -> int:
        """Width of encoded q and k; head_dim unless they are widened."""
        return self.head_dim

    @abstractmethod
    def encode_q(
        self, q: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """q ``[..., H, T, head_dim]`` for its positions, ``[..., H, T, encoded_dim]``."""

    @abstractmethod
    def encode_k(
        self, k: Tensor, positions: Tensor | None = None, *, offset: int | Tensor | None = None
    ) -> Tensor:
        """k ``[..., kv_heads, T, head_dim]`` for its positions, ``[..., encoded_dim]``."""

    @abstractmethod
    def reference(self, x: Sequence[float], position: int | Sequence[int]) -> list[float]:
        """One head vector transformed (as q) by a literal float64 loop."""


class Bias(Encoding):
    """A number added to each logit that depends on positions only.

    A subclass gives ``heads``, :meth:`bias` and :meth:`reference`.
    """

    family = "bias"
    heads: int

    @abstractmethod
    def bias(
        self, q_positions: Tensor, kv_positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """The bias of queries at ``[..., q_tokens]`` against keys at ``[..., kv_tokens]``.

        Returns:
            ``[..., heads, q_tokens, kv_tokens]``.
        """

    @abstractmethod
    def reference(self, head: int, q_position: int, k_position: int) -> float:
        """One number of :meth:`bias` in float64."""

    def factors(
        self, q_positions: Tensor, kv_positions: Tensor, *, after: bool = False
    ) -> Factors | None:
        """The bias as an inner product, in float64; None (unless overridden) if it is none.

        It need hold only where the key stands at or before the query (``after=False``), or only
        where it stands at or after it (``after=True``). Channels should be small for the keys
        that matter most, so that few digits hold them: measure positions from where the nearest
        keys stand, and leave what is alike for all keys to :attr:`Factors.row`.

        Args:
            q_positions, kv_positions: int64 ``[..., q_tokens]`` and ``[..., kv_tokens]``.
            after: which side of the query the keys stand on.
        """
        return None

    def score(self, head: Tensor, q_position: Tensor, kv_position: Tensor) -> Tensor:
        """One number of :meth:`bias` for a 0-d head and 0-d positions, in float32.

        FlexAttention compiles it where it is written with pointwise operations and look-ups;
        this general form, overridden or not, is right wherever it runs.
        """
        one = self.bias(q_position.unsqueeze(0), kv_position.unsqueeze(0))
        return one.flatten().index_select(0, head.reshape(1)).squeeze(0)


@dataclass(frozen=True)
class Factors:
    """A bias as an inner product: b_h(i, j) = ⟨q_hi, k_hj⟩ + row_hi.

    Args:
        q: ``[..., heads, q_tokens, channels]``.
        k: ``[..., heads or 1, kv_tokens, channels]``; heads of its own only where q and k have as
            many heads.
        row: ``[..., heads, q_tokens]``, alike for all keys, so the softmax drops it; None for 0.
    """

    q: Tensor
    k: Tensor
    row: Tensor | None = None


@dataclass(frozen=True)
class Block:
    """A run of queries and all the keys, as a contextual encoding sees them.

    Args:
        q: ``[..., H, q_tokens, head_dim]`` in at least float32.
        k: ``[..., H, kv_tokens, head_dim]``, repeated to the query heads.
        q_positions, kv_positions: int64 ``[..., q_tokens]`` and ``[..., kv_tokens]``.
        allowed: boolean, broadcasting over the logits: the keys each query may see, so that
            cumulative sums can leave the others out; None if all.
        scale: by which q·k is multiplied to become a logit.
        first: index among the keys of the first query; query t stands at key ``first + t``.
        causal: whether ``allowed`` lets no query see a key after itself.
    """

    q: Tensor
    k: Tensor
    q_positions: Tensor
    kv_positions: Tensor
    allowed: Tensor | None
    scale: float = 1.0
    first: int = 0
    causal: bool = False

    @property
    def content(self) -> Tensor:
        """scale · q·k, the logits without position ``[..., H, q_tokens, kv_tokens]``."""
        return (self.q * self.scale) @ self.k.transpose(-1, -2)


class Contextual(Encoding):
    """Logits that read q and k too, or the hidden states they came from.

    A subclass gives :meth:`bias`, a number added to each logit, or :meth:`logits` as a whole. One
    that reads hidden states says how wide they are in ``content_dim`` and gives :meth:`read`. One
    whose logits are qᵀ T(i, j) k, where T may depend on hidden states, says so in ``bilinear``; its
    T is then measured by itself.
    """

    family = "contextual"
    bilinear: ClassVar[bool] = False
    content_dim: int | None = None

    def bias(self, block: Block) -> Tensor:
        """The bias of these queries against these keys, ``[..., H, q_tokens, kv_tokens]``."""
        raise NotImplementedError(f"{type(self).__name__} gives neither bias(block) nor logits")

    def logits(self, block: Block) -> Tensor:
        """scale · q·k + bias, unless overridden, ``[..., H, q_tokens, kv_tokens]``."""
        return block.content + self.bias(block)

    def values(self, weights: Tensor, block: Block) -> Tensor | None:
        """What position adds to the output, from attention weights; None for nothing.

        Args:
            weights: ``[..., H, q_tokens, kv_tokens]``, 0 where a key may not be seen.

        Returns:
            ``[..., H, q_tokens, value_dim]``, or None.
        """
        return None

    def read(self, content: Tensor) -> Contextual | Rotary:
        """This encoding for the hidden states ``[..., kv_tokens, content_dim]`` of all the keys.

        Raises:
            TypeError: this encoding reads q and k only.
        """
        raise TypeError(
            f"{type(self).__name__} reads q and k and no hidden states; give it to attend as it is"
        )


__all__ = [
    "Additive",
    "Bias",
    "Block",
    "Contextual",
    "Encoding",
    "Factors",
    "Rotary",
    "fits",
    "integer_positions",
    "token_positions",
    "wide_dtype",
]
