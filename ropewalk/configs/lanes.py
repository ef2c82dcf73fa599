"""Which lanes of a head rotate, how they pair, and over which width the frequencies run."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.configs.findings import lanes as findings
from ropewalk.configs.findings import numbers
from ropewalk.configs.layouts import layout_of
from ropewalk.configs.parameters import ALL, PARTIAL, Parameters
from ropewalk.configs.reader import WIDEST_HEAD, Reader, number, whole
from ropewalk.configs.value import ASSUMED, CLASS_DEFAULT, Value

ASSUMED_HEAD = 128
"""The commonest width, taken where a fragment of a config says nothing; it is told."""


@dataclass(frozen=True)
class Lanes:
    """Rotated lanes of one set of layers.

    ``latent``: a rotating part stands beside another of the same head (MLA). ``span``: what the
    exponents run over, base^(−2c/span); rotary_dim but for odd ones.
    """

    head_dim: Value
    rotary_dim: Value
    layout: Value
    lane_offset: int
    proportional: bool
    latent: bool
    span: int = 0

    def __post_init__(self) -> None:
        if not self.span:
            object.__setattr__(self, "span", self.rotary_dim.value)

    @property
    def widths(self) -> tuple[int, int, int]:
        """Lanes of a head, those that rotate, and where they begin."""
        return self.head_dim.value, self.rotary_dim.value, self.lane_offset

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.rotary_dim.value // 2


def lanes_of(reader: Reader, label: str, own: Parameters) -> Lanes:
    """The lanes of the layers with ``label``."""
    span = _span(reader, label)
    layout = layout_of(reader)
    rope = reader.size("qk_rope_head_dim")
    stated = rope is not None and rope.key is not None
    if rope is not None and (span == "qk_rope_head_dim" or (stated and not span)):
        return _latent(reader, own, rope, layout)
    if span == "hidden_size" and (row := reader.size("hidden_size")) is not None:
        width = Value(_even(reader, row, row.value), row.source)
        return Lanes(width, width, layout, 0, False, False)
    head = _head(reader, span, own)
    proportional = span.endswith("proportional") or _type(own) == "proportional"
    if proportional:
        width = head.value - head.value % 2
        return Lanes(head, Value(width, head.source), layout, 0, True, False)
    rotary, span_of = _rotary(reader, own, head)
    _tell_unread(reader, own, head, rotary)
    offset = 0
    if reader.facts.row.get("lanes") == "trailing":
        offset = head.value - rotary.value
    return Lanes(head, rotary, _assumed(reader, layout, rotary), offset, False, False, span_of)


def _type(own: Parameters) -> str | None:
    value = own.get("rope_type") or own.get("type")
    return value.value if value is not None and isinstance(value.value, str) else None


def _span(reader: Reader, label: str) -> str:
    spans = reader.facts.row.get("span") or {}
    return spans.get(label) or spans.get(ALL) or ""


def _latent(reader: Reader, own: Parameters, rope: Value, layout: Value) -> Lanes:
    """Multi-head latent attention: the rotating lanes stand behind those without position."""
    beside = reader.size("qk_nope_head_dim")
    width = rope.value + (0 if beside is None else beside.value)
    source = rope.source
    if beside is not None and beside.source != source:
        source = f"{beside.source} + {rope.source_key}"
    head = reader.raw("head_dim")
    if head is not None and head.value not in (width, rope.value):
        reader.notes.add(
            findings.HEAD_DIM_ASIDE,
            head,
            head_dim=head.value,
            rope_dim=rope.value,
            width=width,
        )
    partial = own.get(PARTIAL)
    if partial is not None and partial.key and partial.value != 1:
        reader.notes.add(
            findings.PARTIAL_ASIDE,
            partial,
            key=partial.key,
            value=partial.value,
            rope_dim=rope.value,
        )
    leading = reader.facts.row.get("lanes") == "leading"
    offset = 0 if leading or beside is None else beside.value
    even = Value(_even(reader, rope, rope.value), rope.source)
    return Lanes(Value(width, source), even, _assumed(reader, layout, even), offset, False, True)


def _head(reader: Reader, span: str, own: Parameters) -> Value:
    """The width of a head."""
    if span.startswith("attention_head_dim"):
        found = reader.size("attention_head_dim")
        if found is not None:
            return found
    stated = reader.size("head_dim")
    if stated is not None:
        return stated
    hidden, heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    if hidden is not None and heads is not None and 1 <= hidden.value // heads.value <= WIDEST_HEAD:
        source = hidden.source if hidden.source == heads.source else _quotient(hidden, heads)
        return Value(hidden.value // heads.value, source)
    value = _implied(own)
    if value is not None:
        return value
    reader.notes.add(findings.ASSUMED_SIZE, None, what="the width of a head", value=ASSUMED_HEAD)
    return Value(ASSUMED_HEAD, ASSUMED)


def _quotient(hidden: Value, heads: Value) -> str:
    if hidden.key or heads.key:
        return f"file:{hidden.source_key} / {heads.source_key}"
    return CLASS_DEFAULT


def _implied(own: Parameters) -> Value | None:
    """Twice the pairs that sections or divisors name."""
    for key in ("mrope_section", "xdrope_section", "short_factor", "long_factor"):
        value = own.get(key)
        if value is None or not isinstance(value.value, (list, tuple)):
            continue
        items = value.value
        if "section" in key:
            if not all(type(item) is int and 0 <= item <= WIDEST_HEAD for item in items):
                continue
            pairs = sum(items)
        else:
            pairs = len(items)
        if 0 < pairs <= WIDEST_HEAD // 2:
            return Value(2 * pairs, value.source)
    return None


def _rotary(reader: Reader, own: Parameters, head: Value) -> tuple[Value, int]:
    """How many lanes rotate (rotary_dim, or a share of the head), and what exponents run over."""
    given = reader.raw("rotary_dim", "rope_dim")
    explicit = None if given is None else whole(given, reader.notes, at_most=WIDEST_HEAD)
    partial = own.get(PARTIAL)
    share = None if partial is None else number(partial, reader.notes)
    if share is not None and not 0 < share.value <= 1:
        reader.notes.add(
            numbers.OUT_OF_RANGE,
            share,
            key=share.source_key,
            value=share.value,
            expected="a share above 0, at most 1",
        )
        share = None
    by_share = None if share is None else int(head.value * share.value)
    if explicit is None and (default := reader.facts.default("rotary_dim")) and share is None:
        explicit = Value(default, CLASS_DEFAULT)
    if explicit is not None and explicit.value > head.value:
        reader.notes.add(
            numbers.OUT_OF_RANGE,
            explicit,
            key=explicit.source_key,
            value=explicit.value,
            expected=f"at most head_dim={head.value}",
        )
        explicit = None
    if explicit is not None:
        if share is not None and share.key:
            _twice(reader, head, explicit, share, int(head.value * share.value))
        lanes = _even(reader, explicit, explicit.value)
        return Value(lanes, explicit.source), lanes
    if share is not None and by_share is not None:
        _tell_default(reader, head, share, by_share)
        if by_share % 2 and by_share < head.value:
            reader.notes.add(
                numbers.ODD_SPAN, share, key=share.source_key, value=by_share, used=by_share + 1
            )
            return Value(by_share + 1, share.source), by_share
        lanes = _even(reader, share, by_share)
        return Value(lanes, share.source), lanes
    lanes = _even(reader, head, head.value)
    return Value(lanes, head.source), lanes


def _even(reader: Reader, origin: Value, lanes: int) -> int:
    if lanes % 2 or lanes < 2:
        used = max(2, lanes - lanes % 2)
        if origin.source == CLASS_DEFAULT:  # no mistake of the file: it leaves its sizes out
            what = f"an even number of rotated lanes ({lanes} by the class)"
            reader.notes.add(findings.ASSUMED_SIZE, None, what=what, value=used)
            return used
        reader.notes.add(numbers.ODD, origin, key=origin.source_key, value=lanes, used=used)
        return used
    return lanes


def _twice(reader: Reader, head: Value, explicit: Value, share: Value, by_share: int) -> None:
    if explicit.key is None or share.value == 1:
        return
    words = {
        "first_key": explicit.key,
        "first": explicit.value,
        "second_key": share.key,
        "second": share.value,
        "head_dim": head.value,
    }
    if explicit.value == by_share:
        wrong = int(explicit.value * share.value)
        reader.notes.add(findings.PARTIAL_TWICE, explicit, lanes=by_share, wrong=wrong, **words)
    else:
        reader.notes.add(
            findings.PARTIAL_DISAGREES,
            explicit,
            first_lanes=explicit.value,
            second_lanes=by_share,
            used=explicit.value,
            **words,
        )


def _tell_unread(reader: Reader, own: Parameters, head: Value, rotary: Value) -> None:
    """Tell of a share that the class of this model ignores."""
    scaled = _type(own) not in (None, "default", "mrope")
    if scaled or rotary.key is None or rotary.value == head.value or reader.facts.reads_share:
        return
    stated = next((v for v in (own.get(PARTIAL), reader.raw("rotary_dim")) if v and v.key), None)
    if stated is not None:
        reader.notes.add(
            findings.SHARE_UNREAD,
            stated,
            key=stated.source_key,
            value=stated.value,
            model_type=reader.facts.model_type,
            head_dim=head.value,
            lanes=rotary.value,
        )


def _tell_default(reader: Reader, head: Value, share: Value, lanes: int) -> None:
    if share.source == CLASS_DEFAULT and share.value != 1:
        reader.notes.add(
            findings.PARTIAL_DEFAULT,
            None,
            model_type=reader.facts.model_type or "this class",
            lanes=lanes,
            head_dim=head.value,
            value=share.value,
        )


def _assumed(reader: Reader, layout: Value, rotary: Value) -> Value:
    """The layout, told if it is assumed."""
    if layout.source == ASSUMED:
        reader.notes.add(findings.ASSUMED_LAYOUT, None, pairs=rotary.value // 2)
    return layout
