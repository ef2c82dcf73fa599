"""What a tiny random model shows when it runs: which layers and lanes rotate, and how fast."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from probe_config import ALL, attempt, field, rope_of
from probe_models import ATTEMPTS, SMALL, base_model_class, tiny_config

ROTATES = re.compile(r"^_?(vision_)?apply_(rotary|multidim|rope)|^rotate_queries_or_keys$")
LARGEST = 20_000_000
"""Parameters of a model that is still run; larger ones did not take the small values."""


class Call:
    """One call of a function that rotates: by which layer, and which lanes pair."""

    def __init__(self, layer: int | None, width: int, pairs: list[list[int]], out: torch.Tensor):
        self.layer, self.width, self.pairs, self.out = layer, width, pairs, out
        self.offset: int | None = None
        self.head: int | None = None


def lanes_of(function: Callable[..., Any], args: tuple, kwargs: dict) -> list[list[int]]:
    """Pairs of lanes of the first argument, each lane sent alone through ``function``."""
    x = args[0]
    width = x.shape[-1]
    support: dict[tuple[int, ...], list[int]] = {}
    for lane in range(width):
        alone = torch.zeros_like(x)
        alone[..., lane] = 1
        out = function(alone, *args[1:], **kwargs)
        out = out[0] if isinstance(out, tuple) else out
        reached = out.abs().reshape(-1, out.shape[-1]).amax(0) > 1e-7
        support.setdefault(tuple(reached.nonzero().flatten().tolist()), []).append(lane)
    return [lanes for lanes in support.values() if len(lanes) == 2]


@contextmanager
def recorded(module: Any, model: torch.nn.Module, calls: list[Call]) -> Iterator[None]:
    """Within it, functions of ``module`` that rotate leave their calls in ``calls``."""
    names = {id(m): name for name, m in model.named_modules()}
    kept = {n: v for n, v in vars(module).items() if ROTATES.match(n) and inspect.isfunction(v)}

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            first = out[0] if isinstance(out, tuple) else out
            if args and isinstance(args[0], torch.Tensor):
                frame = inspect.currentframe()
                caller = frame.f_back.f_locals.get("self") if frame and frame.f_back else None
                number = re.search(r"\.(\d+)(\.|$)", "." + names.get(id(caller), ""))
                layer = int(number.group(1)) if number else None
                if "index" not in names.get(id(caller), ""):
                    pairs = lanes_of(function, args, kwargs)
                    calls.append(Call(layer, args[0].shape[-1], pairs, first))
            return out

        return wrapper

    attention = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    usual = attention["sdpa"]

    def look(query: torch.Tensor) -> None:
        for call in calls[-4:]:
            if call.head is None and call.out.dim() == query.dim():
                place(call, query)

    def sdpa(m: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        look(query)
        return usual(m, query, *args, **kwargs)

    eager = vars(module).get("eager_attention_forward")

    def slow(m: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        look(query)
        assert eager is not None
        return eager(m, query, *args, **kwargs)

    for name, function in kept.items():
        setattr(module, name, wrap(function))
    attention["sdpa"] = sdpa
    if eager is not None:
        module.eager_attention_forward = slow
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(module, name, function)
        attention["sdpa"] = usual
        if eager is not None:
            module.eager_attention_forward = eager


def place(call: Call, query: torch.Tensor) -> None:
    """Where in the attention's query the rotated values lie."""
    for shape in (call.out, call.out.transpose(1, 2) if call.out.dim() == 4 else call.out):
        if shape.shape[:-1] != query.shape[:-1]:
            continue
        for offset in range(query.shape[-1] - call.width + 1):
            if torch.allclose(query[..., offset : offset + call.width], shape, atol=1e-6):
                call.offset, call.head = offset, query.shape[-1]
                return


def run_facts(config_class: type, model_type: str, module: Any) -> dict[str, Any] | None:
    """Facts from a forward pass of a tiny model; None if none could be run."""
    for change in ATTEMPTS:
        run = attempt(lambda change=change: run_once(config_class, model_type, module, change))
        if run is not None:
            config, model, calls = run
            found = summary(config, model, calls)
            if not found:
                return None
            if hasattr(config, "rope_interleave"):
                other = attempt(
                    lambda change=change, config=config: run_once(
                        config_class,
                        model_type,
                        module,
                        {**change, "rope_interleave": not config.rope_interleave},
                    )
                )
                if other is not None and other[2]:
                    layouts = {config.rope_interleave: found.get("layout")}
                    layouts[not config.rope_interleave] = summary(*other).get("layout")
                    if layouts[True] != layouts[False]:
                        found["layout_key"] = "rope_interleave"
            return found
    return None


def run_once(
    config_class: type, model_type: str, module: Any, change: dict[str, Any]
) -> tuple[Any, torch.nn.Module, list[Call]] | None:
    """Config, model and calls of one tiny model; None if it is not of text or too large."""
    config = tiny_config(config_class, **change)
    model_class = base_model_class(config_class, model_type)
    if model_class is None:
        return None
    if "input_ids" not in inspect.signature(model_class.forward).parameters:
        return None
    with torch.device("meta"):
        size = sum(p.numel() for p in model_class(config).parameters())
    if size > LARGEST:
        return None
    torch.manual_seed(0)
    model = model_class(config).eval()
    calls: list[Call] = []
    with recorded(module, model, calls), torch.no_grad():
        extra = (
            {"decoder_input_ids": torch.arange(6)[None] + 3} if config.is_encoder_decoder else {}
        )
        model(input_ids=torch.arange(6)[None] + 3, **extra)
    return config, model, calls


def summary(config: Any, model: torch.nn.Module, calls: list[Call]) -> dict[str, Any]:
    """The facts that the calls show."""
    found: dict[str, Any] = {"probed": "run"}
    turning = [c for c in calls if c.pairs]
    if not turning:
        other = other_kind(model)
        return {**found, **other} if other else {}
    found["kind"] = "rotary"
    layouts = {layout(c.pairs) for c in turning}
    if len(layouts) == 1:
        found["layout"] = layouts.pop()
    places = {"trailing" if c.offset else "leading" for c in turning if c.offset is not None}
    if len(places) == 1:
        found["lanes"] = places.pop()
    count = getattr(config, "num_hidden_layers", 0)
    layers = sorted({c.layer for c in turning if c.layer is not None})
    kinds = list(getattr(config, "layer_types", None) or [])
    flags = getattr(config, "no_rope_layers", None)
    if layers and layers != list(range(count)):
        if flags:
            found["rotates_where"] = "no_rope_layers"
        elif kinds:
            on = sorted({kinds[i] for i in layers if i < len(kinds)})
            off = sorted({k for i, k in enumerate(kinds) if i not in layers})
            found["rotates"] = on if not set(on) & set(off) else layers
        else:
            found["rotates"] = layers
    spans = {
        label: span
        for label, own in (rope_of(config) or {ALL: {}}).items()
        if (span := span_of(config, model, label, own)) is not None
    }
    if spans:
        found["span"] = spans
    axes = axes_of(config, model)
    if axes:
        found["axes"] = axes
    return found


def axes_of(config: Any, model: torch.nn.Module) -> str | None:
    """The axis of each pair, T, H or W, by moving along one axis of positions at a time."""
    for m in model.modules():
        if (
            not hasattr(m, "inv_freq")
            or "position_ids" not in inspect.signature(m.forward).parameters
        ):
            continue
        owner: dict[int, str] = {}
        for axis, letter in enumerate("THW"):
            positions = torch.zeros(3, 1, 2, dtype=torch.long)
            positions[axis] = 1
            out = attempt(lambda m=m, p=positions: m(torch.zeros(1, 2, 4), p))
            if not isinstance(out, tuple):
                return None
            turned = out[1].abs().reshape(-1, out[1].shape[-1]).amax(0) > 1e-6
            for lane in turned.nonzero().flatten().tolist():
                owner[lane] = owner.get(lane, "") + letter
        pairs = m.get_buffer("inv_freq").numel()
        return axes_string(owner, pairs)
    return None


def axes_string(owner: dict[int, str], pairs: int) -> str | None:
    """A letter a pair from the lanes of a table: (c, c + pairs) or (2c, 2c + 1)."""
    half = [owner.get(c, "") for c in range(pairs)]
    adjacent = [owner.get(2 * c, "") for c in range(pairs)]
    for found, twin in (
        (half, [owner.get(c + pairs, half[c]) for c in range(pairs)]),
        (adjacent, [owner.get(2 * c + 1, "") for c in range(pairs)]),
    ):
        if found == twin and all(len(letter) == 1 for letter in found):
            return "".join(found)
    return None


def first_row(table: torch.Tensor, out: torch.Tensor) -> int:
    """The row of ``table`` that the first position was given."""
    first = out.reshape(-1, out.shape[-1])[0]
    return int((table - first).abs().sum(-1).argmin())


def other_kind(model: torch.nn.Module) -> dict[str, Any]:
    """Learned tables with the row of the first position; sinusoids; T5's buckets; ALiBi."""
    rows: list[tuple[int, int]] = []
    for name, m in model.named_modules():
        if isinstance(m, torch.nn.Embedding) and re.search(r"(^|[._])(pos|wpe)", name):
            m.register_forward_hook(
                lambda m, args, out: rows.append((first_row(m.weight, out), m.num_embeddings))  # pyright: ignore
            )
    kinds = {type(m).__name__ for m in model.modules()}
    with torch.no_grad():
        attempt(lambda: model(input_ids=torch.arange(6)[None] + 3))
    if any("Sinusoidal" in k for k in kinds):
        return {"kind": "sinusoidal"}
    if rows:
        spare = rows[0][1] - field(model.config, "max_position_embeddings", rows[0][1])
        return {"kind": "learned", "row_of_first": rows[0][0], "spare_rows": spare}
    if any(n.endswith("relative_attention_bias") for n, _ in model.named_modules()):
        return {"kind": "t5"}
    module = sys.modules[type(model).__module__]
    if any("build_alibi" in n or "build_mpt_alibi" in n for n in vars(module)):
        return {"kind": "alibi"}
    return {}


def layout(pairs: list[list[int]]) -> str:
    """interleaved if each pair is adjacent, else half."""
    return "interleaved" if all(b == a + 1 and a % 2 == 0 for a, b in pairs) else "half"


def span_of(config: Any, model: torch.nn.Module, label: str, own: dict[str, Any]) -> str | None:
    """Which field of the config the frequencies run over: base^(−2c/field), c < field/2."""
    theta = own.get("rope_theta")
    if not isinstance(theta, (int, float)):
        return None
    wanted = f"{label}_inv_freq" if label else "inv_freq"
    rows = [b.float() for name, b in model.named_buffers() if name.split(".")[-1] == wanted]
    row = next((r for r in rows if r.dim() == 1), None)
    if row is None:
        return None
    partial = own.get("partial_rotary_factor") or 1.0
    usual = field(config, "head_dim") or (
        field(config, "hidden_size", 0) // field(config, "num_attention_heads", 1)
    )
    global_dim = field(config, "global_head_dim", 0)
    if label == "full_attention" and not global_dim and hasattr(config, "per_layer_config"):
        global_dim = SMALL["global_head_dim"]
    candidates: dict[str, float | None] = {
        "qk_rope_head_dim": field(config, "qk_rope_head_dim"),
        "rotary_dim": field(config, "rotary_dim"),
        "head_dim·partial": usual * partial,
        "head_dim": usual,
        "global_head_dim·partial": global_dim * partial,
        "global_head_dim": global_dim,
        "attention_head_dim": field(config, "attention_head_dim"),
    }
    for name, dim in candidates.items():
        if not dim:
            continue
        dim = int(dim)
        turning = row[row != 0]
        expected = theta ** (-torch.arange(0, dim, 2).float() / dim)
        if len(row) == len(expected) and torch.allclose(row, expected, rtol=1e-5):
            return name
        if len(turning) < len(row) == len(expected) and torch.allclose(
            turning, expected[: len(turning)], rtol=1e-5
        ):
            return f"{name} proportional"
    return None


def function_facts(module: Any, functions: list[str]) -> dict[str, Any]:
    """The layout of the functions of a file, where all of them agree."""
    found = set()
    for name in functions:
        function = getattr(module, name)
        cos = torch.full((1, 6, 16), 0.6)
        sin = torch.full((1, 6, 16), 0.8)
        q = torch.zeros(1, 2, 6, 16)
        for shape in ((1, 2, 6, 16), (1, 6, 2, 16), (6, 2, 16)):
            q = torch.zeros(shape)
            tables = (cos[0], sin[0]) if len(shape) == 3 else (cos, sin)
            pairs = attempt(lambda: lanes_of(function, (q, q, *tables), {}))  # noqa: B023
            if pairs:
                found.add(layout(pairs))
                break
    return {"probed": "function", **({"layout": found.pop()} if len(found) == 1 else {})}
