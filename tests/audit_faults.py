"""Faults planted into tiny models, one a function: what people met (buffers, lanes, positions …).

Each takes a healthy model and spoils it; its row in ``FAULTS`` says which model it needs and which
finding must name it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "long_factor": [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0],
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}


def tiny(kind: str, **changes: Any) -> Any:
    """A small random language model whose attention is far from uniform."""
    import transformers

    sizes: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if kind == "GPT2":
        sizes = {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
        sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    name = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, name)(**{**sizes, **changes})
    torch.manual_seed(0)
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(transformers, kind + head)(config).float().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            parameter.data.normal_(0, parameter[0].numel() ** -0.5, generator=generator)
    return model


def rotary(model: Any) -> Any:
    """The module that makes cos and sin."""
    return model.model.rotary_emb


def modeling(model: Any) -> Any:
    """The file that a model's class stands in."""
    return sys.modules[type(model).__module__]


def wrap_tables(model: Any, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    """Change what the rotary module returns."""
    usual = rotary(model).forward
    rotary(model).forward = lambda *a, **k: change(*usual(*a, **k))


def wrap_positions(model: Any, change: Callable[[Tensor], Tensor]) -> None:
    """Change the positions that the rotary module is given."""
    usual = rotary(model).forward
    rotary(model).forward = lambda x, position_ids: usual(x, change(position_ids))


def wrap_model(model: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the arguments of the model's body."""
    usual = model.model.forward
    model.model.forward = lambda **given: usual(**change(given))


# --- F: buffers, dtype, initialisation ----------------------------------------------------------


def wrong_theta(model: Any) -> None:
    rotary(model).inv_freq.copy_(5e5 ** (-torch.arange(8) / 8))


def config_set_later(model: Any) -> None:
    model.config.rope_parameters = LLAMA3


def one_pair_off(model: Any) -> None:
    rotary(model).inv_freq[5] *= 1.0001


def cast_to_bfloat16(model: Any) -> None:
    rotary(model).to(torch.bfloat16)


def cast_to_half(model: Any) -> None:
    rotary(model).half()


def through_bfloat16(model: Any) -> None:
    rotary(model).to(torch.bfloat16).float()


def through_half(model: Any) -> None:
    rotary(model).half().float()


def a_nan(model: Any) -> None:
    rotary(model).inv_freq[3] = float("nan")


def an_infinity(model: Any) -> None:
    rotary(model).inv_freq[0] = float("inf")


def garbage(model: Any) -> None:
    rotary(model).inv_freq.copy_(torch.tensor([7.99e16, 3.1e-41, 0.0, 4.6e-41] * 2))


def small_garbage(model: Any) -> None:
    rotary(model).inv_freq.copy_(torch.tensor([0.0, 3.1e-41, 0.7, 4.6e-41] * 2))


def zeros(model: Any) -> None:
    rotary(model).inv_freq.zero_()


def left_on_meta(model: Any) -> None:
    rotary(model).to("meta")


def original_lost(model: Any) -> None:
    rotary(model).original_inv_freq.mul_(1.5)


def factor_forgotten(model: Any) -> None:
    rotary(model).attention_scaling = 1.0


def factor_in_tables_forgotten(model: Any) -> None:
    factor = rotary(model).attention_scaling
    wrap_tables(model, lambda cos, sin: (cos / factor, sin / factor))


def tables_in_bfloat16(model: Any) -> None:
    wrap_tables(model, lambda c, s: (c.bfloat16().float(), s.bfloat16().float()))


def positions_in_bfloat16(model: Any) -> None:
    wrap_positions(model, lambda p: p.bfloat16())


def angles_in_half(model: Any) -> None:
    def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angle = (position_ids[..., None].half() * rotary(model).inv_freq.half()).repeat(1, 1, 2)
        return angle.float().cos().to(x.dtype), angle.float().sin().to(x.dtype)

    rotary(model).forward = forward


def wider_results(model: Any) -> None:
    usual = modeling(model).apply_rotary_pos_emb

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        return tuple(t.double() for t in usual(q, k, cos, sin, unsqueeze_dim))

    swap_function(model, apply_rotary_pos_emb)
    swap_attention(model)


def swap_attention(model: Any) -> None:
    """Attention that takes keys of a dtype other than the values'."""
    home = modeling(model)
    usual = home.eager_attention_forward

    def eager_attention_forward(module, query, key, value, *rest, **more):
        return usual(module, query.to(value), key.to(value), value, *rest, **more)

    home.eager_attention_forward = eager_attention_forward
    model.set_attn_implementation("eager")


# --- C, E: lanes, pairs, layers -----------------------------------------------------------------


def swap_function(model: Any, function: Callable[..., Any]) -> None:
    """Let the model's file rotate by ``function``; :func:`planted` puts the old one back."""
    modeling(model).apply_rotary_pos_emb = function


def interleaved(model: Any) -> None:
    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        c, s = (t.unsqueeze(unsqueeze_dim)[..., : t.shape[-1] // 2] for t in (cos, sin))

        def turn(x):
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)

        return turn(q), turn(k)

    swap_function(model, apply_rotary_pos_emb)


def half_split(model: Any) -> None:
    """Half layout in a model whose checkpoint is interleaved: tables are [c0 c0 c1 c1 …]."""

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        c, s = (t.unsqueeze(unsqueeze_dim)[..., 0::2].repeat(1, 1, 1, 2) for t in (cos, sin))

        def turn(x):
            a, b = x.chunk(2, -1)
            return x * c + torch.cat([-b, a], -1) * s

        return turn(q), turn(k)

    swap_function(model, apply_rotary_pos_emb)


def all_lanes(model: Any) -> None:
    """The whole head rotates, where the config says half of it."""
    rotary(model).inv_freq = 1e4 ** (-torch.arange(8) / 8)
    for layer in model.model.layers:
        layer.self_attn.rotary_ndims = 16


def quarter_of_lanes(model: Any) -> None:
    """The partial factor counts twice."""
    rotary(model).inv_freq = 1e4 ** (-torch.arange(2) / 2)
    for layer in model.model.layers:
        layer.self_attn.rotary_ndims = 4


def last_lanes(model: Any) -> None:
    """The last lanes rotate in place of the first."""

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        c, s = (t.unsqueeze(unsqueeze_dim)[..., : t.shape[-1] // 2] for t in (cos, sin))

        def turn(x):
            keep, x = x[..., :8], x[..., 8:]
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.cat(
                [keep, torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)], -1
            )

        return turn(q), turn(k)

    swap_function(model, apply_rotary_pos_emb)


def backwards(model: Any) -> None:
    wrap_tables(model, lambda cos, sin: (cos, -sin))


def k_backwards(model: Any) -> None:
    usual = modeling(model).apply_rotary_pos_emb

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        return (
            usual(q, q, cos, sin, unsqueeze_dim)[0],
            usual(k, k, cos, -sin, unsqueeze_dim)[1],
        )

    swap_function(model, apply_rotary_pos_emb)


def k_unrotated(model: Any) -> None:
    usual = modeling(model).apply_rotary_pos_emb

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        return usual(q, k, cos, sin, unsqueeze_dim)[0], k

    swap_function(model, apply_rotary_pos_emb)


def one_layer_still(model: Any) -> None:
    layer = model.model.layers[1].self_attn
    usual = layer.forward

    def forward(*a: Any, position_embeddings: Any = None, **k: Any) -> Any:
        cos, sin = position_embeddings
        still = torch.ones_like(cos), torch.zeros_like(sin)
        return usual(*a, position_embeddings=still, **k)

    layer.forward = forward


def nope_layer_turns(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.use_rope = 1


def theta_of_other_layers(model: Any) -> None:
    """Global layers with the theta of the sliding ones."""
    module = rotary(model)
    module.full_attention_inv_freq.copy_(module.sliding_attention_inv_freq)


# --- B: lengths ---------------------------------------------------------------------------------


def always_long(model: Any) -> None:
    module = rotary(model)
    long = module.original_inv_freq * torch.tensor(LONG["short_factor"])
    long = long / torch.tensor(LONG["long_factor"])

    def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angle = (position_ids[..., None].float() * long).repeat(1, 1, 2)
        return angle.cos() * module.attention_scaling, angle.sin() * module.attention_scaling

    module.forward = forward


def switch_one_early(model: Any) -> None:
    """At the original length, not after it."""
    module = rotary(model)
    usual = module.forward

    def forward(x: Tensor, position_ids: Tensor) -> Any:
        if int(position_ids.max()) != 63:
            return usual(x, position_ids)
        longer = torch.cat([position_ids, torch.full_like(position_ids[:, :1], 64)], -1)
        return tuple(t[:, :-1] for t in usual(x, longer))

    module.forward = forward


def table_of(model: Any, rows: int, row: Callable[[Tensor], Tensor]) -> None:
    """cos and sin looked up in a table of ``rows``; ``row`` says where."""
    module = rotary(model)
    angle = (torch.arange(rows)[:, None].float() * module.inv_freq).repeat(1, 2)
    cos, sin = angle.cos(), angle.sin()
    module.forward = lambda x, position_ids: (cos[row(position_ids)], sin[row(position_ids)])


def table_clamped(model: Any) -> None:
    table_of(model, 128, lambda p: p.clamp(max=127))


def table_wrapped(model: Any) -> None:
    table_of(model, 128, lambda p: p % 128)


def table_too_short(model: Any) -> None:
    table_of(model, 64, lambda p: p)


def unrotated_past_the_end(model: Any) -> None:
    def change(p: Tensor) -> Tensor:
        return torch.where(p < 128, p, 0)

    wrap_positions(model, change)


def by_longest_row(model: Any) -> None:
    """Frequencies scaled by the longest row of a batch, and nothing in the config says so."""
    module = rotary(model)
    usual = module.forward

    def forward(x: Tensor, position_ids: Tensor) -> Any:
        return usual(x, position_ids * (0.5 if int(position_ids.max()) >= 128 else 1.0))

    module.forward = forward


def grown_for_ever(model: Any) -> None:
    """Tables scaled by the longest call so far."""
    module = rotary(model)
    module.longest = 128
    usual = module.forward

    def forward(x: Tensor, position_ids: Tensor) -> Any:
        module.longest = max(module.longest, int(position_ids.max()) + 1)
        return usual(x, position_ids * (128 / module.longest))

    module.forward = forward


def poisoned_by_a_cast(model: Any) -> None:
    """A table kept in the dtype of the first call that was in another one."""
    module = rotary(model)
    module.kept = torch.float32
    usual = module.forward

    def forward(x: Tensor, position_ids: Tensor) -> Any:
        if torch.is_autocast_enabled("cpu"):
            module.kept = torch.bfloat16
        return tuple(t.to(module.kept).to(t.dtype) for t in usual(x, position_ids))

    module.forward = forward


# --- G: positions, padding, packing, caches -----------------------------------------------------


def ignored_positions(model: Any) -> None:
    wrap_model(model, lambda given: {**given, "position_ids": None})


def ignored_padding(model: Any) -> None:
    """Learned positions from arange, whatever the mask says."""
    usual = model.transformer.forward
    model.transformer.forward = lambda *a, **given: usual(*a, **{**given, "position_ids": None})


def padding_seen(model: Any) -> None:
    def change(given: dict[str, Any]) -> dict[str, Any]:
        mask = given.get("attention_mask")
        return {**given, "attention_mask": None if mask is None else torch.ones_like(mask)}

    wrap_model(model, change)


def off_by_one_with_a_cache(model: Any) -> None:
    def change(given: dict[str, Any]) -> dict[str, Any]:
        cache, ids = given.get("cache"), given["input_ids"]
        seen = 0 if cache is None else cache.get_seq_length()
        where = given.get("position_ids")
        if where is None:
            where = torch.arange(ids.shape[1])[None] + seen
        return {**given, "position_ids": where + (seen > 0)}

    wrap_model(model, change)


def restarted_with_a_cache(model: Any) -> None:
    def change(given: dict[str, Any]) -> dict[str, Any]:
        return {**given, "position_ids": torch.arange(given["input_ids"].shape[1])[None]}

    wrap_model(model, change)


def packed_unmasked(model: Any) -> None:
    """Block masks are dropped, and restarted positions are no sign of a new sample."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        ids, mask = given["input_ids"], given.get("attention_mask")
        if mask is None or mask.dim() == 4:
            given = {**given, "attention_mask": torch.ones_like(ids)}
        return given

    wrap_model(model, change)


def packed_not_restarted(model: Any) -> None:
    """One row: positions are counted on, and the mask made from them."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        where = given.get("position_ids")
        if where is not None and len(where) == 1 and bool((where.diff() < 0).any()):
            where = torch.arange(where.shape[1])[None]
            given = {**given, "position_ids": where, "attention_mask": None}
        return given

    wrap_model(model, change)


def first_row_for_all(model: Any) -> None:
    """Positions of the first row, for every row."""
    wrap_positions(model, lambda p: p[:1].expand_as(p))


def shifted_queries(model: Any) -> None:
    """q counts its positions from the start of the call."""
    usual = modeling(model).apply_rotary_pos_emb

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        angle = (torch.arange(q.shape[2])[:, None] * rotary(model).inv_freq).repeat(1, 2)
        own = angle.cos()[None], angle.sin()[None]
        return usual(q, q, *own, unsqueeze_dim)[0], usual(k, k, cos, sin, unsqueeze_dim)[1]

    swap_function(model, apply_rotary_pos_emb)


@dataclass(frozen=True)
class Fault:
    """A fault, the model that it is planted in, and the finding that must name it."""

    kind: str
    plant: Callable[[Any], None]
    code: str
    model: str = "Llama"
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.plant.__name__}"


_YARN = {"rope_parameters": YARN}
_LONG = {"rope_parameters": LONG, "original_max_position_embeddings": 64}
_NEOX = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
}
_SMOL = {"no_rope_layers": [1, 0]}
_GEMMA = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16}

FAULTS = (
    Fault("B", always_long, "RW214", "Phi3", _LONG),
    Fault("B", switch_one_early, "RW218", "Phi3", _LONG),
    Fault("B", table_clamped, "RW219"),
    Fault("B", table_wrapped, "RW219"),
    Fault("B", unrotated_past_the_end, "RW219"),
    Fault("B", table_too_short, "RW239"),
    Fault("B", by_longest_row, "RW233"),
    Fault("B", grown_for_ever, "RW235"),
    Fault("C", all_lanes, "RW213", "StableLm", _NEOX),
    Fault("C", quarter_of_lanes, "RW213", "StableLm", _NEOX),
    Fault("C", last_lanes, "RW213", "Glm", _NEOX),
    Fault("C", factor_forgotten, "RW206", "Llama", _YARN),
    Fault("C", factor_in_tables_forgotten, "RW221", "Llama", _YARN),
    Fault("D", one_layer_still, "RW210"),
    Fault("D", nope_layer_turns, "RW211", "SmolLM3", _SMOL),
    Fault("D", theta_of_other_layers, "RW205", "Gemma3", _GEMMA),
    Fault("E", interleaved, "RW212"),
    Fault("E", interleaved, "RW220"),
    Fault("E", half_split, "RW212", "Cohere"),
    Fault("E", half_split, "RW220", "Cohere"),
    Fault("E", backwards, "RW216"),
    Fault("E", k_backwards, "RW223"),
    Fault("E", k_unrotated, "RW210"),
    Fault("F", wrong_theta, "RW205"),
    Fault("F", wrong_theta, "RW214"),
    Fault("F", config_set_later, "RW205"),
    Fault("F", one_pair_off, "RW205"),
    Fault("F", cast_to_bfloat16, "RW203"),
    Fault("F", cast_to_half, "RW203"),
    Fault("F", through_bfloat16, "RW204"),
    Fault("F", through_half, "RW204"),
    Fault("F", a_nan, "RW201"),
    Fault("F", an_infinity, "RW201"),
    Fault("F", garbage, "RW202"),
    Fault("F", small_garbage, "RW202"),
    Fault("F", zeros, "RW202"),
    Fault("F", left_on_meta, "RW200"),
    Fault("F", original_lost, "RW207"),
    Fault("F", tables_in_bfloat16, "RW215"),
    Fault("F", positions_in_bfloat16, "RW215", config={"max_position_embeddings": 1024}),
    Fault("F", angles_in_half, "RW215"),
    Fault("F", wider_results, "RW222"),
    Fault("F", poisoned_by_a_cast, "RW235"),
    Fault("G", ignored_positions, "RW217"),
    Fault("G", ignored_padding, "RW231", "GPT2"),
    Fault("G", padding_seen, "RW231"),
    Fault("G", off_by_one_with_a_cache, "RW230"),
    Fault("G", restarted_with_a_cache, "RW230"),
    Fault("G", packed_unmasked, "RW232"),
    Fault("G", packed_not_restarted, "RW232"),
    Fault("G", first_row_for_all, "RW226"),
    Fault("G", shifted_queries, "RW234"),
)
