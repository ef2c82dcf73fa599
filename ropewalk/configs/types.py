"""The rope_types: their names, and the keys that each reads."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ropewalk.configs.findings import spelling
from ropewalk.configs.parameters import Parameters
from ropewalk.configs.reader import Reader
from ropewalk.configs.value import Value, shown

ORIGINAL = "original_max_position_embeddings"

_YARN = (
    "factor attention_factor attn_factor beta_fast beta_slow mscale mscale_all_dim truncate "
    f"{ORIGINAL} yarn_coefficient"
)
KEYS: dict[str, frozenset[str]] = {
    "default": frozenset(),
    "axial": frozenset(),
    "linear": frozenset(["factor", ORIGINAL]),
    "ntk": frozenset(["factor", ORIGINAL]),
    "dynamic": frozenset(["factor"]),
    "alpha": frozenset(["alpha"]),
    "yarn": frozenset(_YARN.split()),
    "longrope": frozenset(
        f"short_factor long_factor factor attention_factor attn_factor {ORIGINAL} "
        "short_mscale long_mscale long_factor_len short_factor_len".split()
    ),
    "llama3": frozenset(f"factor low_freq_factor high_freq_factor {ORIGINAL}".split()),
    "proportional": frozenset(["factor"]),
}
"""rope_type → the keys it reads, beside those that every type may have."""

COMMON = frozenset(
    [
        "rope_type",
        "type",
        "rope_theta",
        "partial_rotary_factor",
        "mrope_section",
        "mrope_interleaved",
        "xdrope_section",
        "llama_4_scaling_beta",
        "finetuned",
        "max_position_embeddings",
        "rope_axes",
        "_name_or_path",
        "model_type",
    ]
)
"""Keys that say something else than scaling, or nothing."""

ALIASES = {
    "su": "longrope",
    "deepseek_yarn": "yarn",
    "telechat3-yarn": "yarn",
    "mrope": "default",
    "none": "default",
    "xdrope": "alpha",
    "ntk_alpha": "alpha",
    "phi3": "longrope",
    "llama3.1": "llama3",
    "llama-3": "llama3",
}
HOW = {"telechat3-yarn": " with 0.07 in place of 0.1 in the attention factor"}
TELECHAT = 0.07
SCALING_KEYS = frozenset().union(*KEYS.values())


def type_of(reader: Reader, own: Parameters) -> Value:
    """The canonical rope_type of a set of parameters; unknown ones become ``"default"``, told."""
    new, old = own.get("rope_type"), own.get("type")
    new = None if new is None or new.value is None else new
    old = None if old is None or old.value is None else old
    if new is not None and old is not None and new.value != old.value:
        reader.notes.add(spelling.TWO_TYPES, old, type=old.value, rope_type=new.value)
    given = new or old
    if given is None:
        return _untyped(own)
    name = str(given.value)[:60]
    meant = _meant(reader, name, own)
    if meant not in KEYS:
        close = difflib.get_close_matches(name.lower(), [*KEYS, *ALIASES], n=1, cutoff=0.6)
        hint = f" (did you mean {close[0]}?)" if close else ""
        reader.notes.add(spelling.UNKNOWN_TYPE, given, rope_type=name, hint=hint)
        return Value("default", given.source)
    if meant != name and name in ALIASES and name not in ("none", "mrope"):
        how = HOW.get(name, "")
        reader.notes.add(spelling.ALIAS, given, given=name, how=how, **_in_words(meant))
    if meant != name and name in ALIASES and not _takes(reader, name):
        model = reader.facts.model_type
        words = _in_words(meant)
        reader.notes.add(spelling.ALIAS_UNREAD, given, given=name, model_type=model, **words)
    if name == "telechat3-yarn":
        own.setdefault("yarn_coefficient", Value(TELECHAT, given.source))
    return Value(meant, given.source)


def _in_words(meant: str) -> dict[str, str]:
    """What an alias means, and what to write in place of it."""
    if meant == "alpha":
        grown = "rope_theta = theta·alpha^(d/(d − 2)) for d rotated lanes"
        return {"meant": "a fixed alpha", "right": f"rope_type=default and {grown}"}
    return {"meant": meant, "right": f"rope_type={meant}"}


def _untyped(own: Parameters) -> Value:
    alpha = own.get("alpha")
    if alpha is not None and alpha.value is not None:
        return Value("alpha", alpha.source)
    return Value("default", "class default")


def _reads_alpha(reader: Reader) -> bool:
    """Whether the class reads alpha: Hunyuan's do, and an unknown one may."""
    name = reader.facts.model_type or ""
    return not reader.facts.known or name.startswith(("hunyuan", "hy_"))


REPLACED = {
    "su": frozenset(["phi3", "phi4_multimodal"]),
    "mrope": frozenset(["qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"]),
    "xdrope": frozenset(["hunyuan_vl", "hunyuan_vl_text"]),
    "ntk_alpha": frozenset(["hunyuan_vl", "hunyuan_vl_text", "hunyuan_v1_dense", "hunyuan_v1_moe"]),
}
"""alias → the classes of transformers 5.24 that replace it; others stop with a KeyError."""


def _takes(reader: Reader, name: str) -> bool:
    """Whether the class replaces this alias; one of another library may."""
    if "probed" not in reader.facts.row or "@dialect" in reader.store:
        return True
    return reader.facts.model_type in REPLACED.get(name, frozenset())


def _meant(reader: Reader, name: str, own: Parameters) -> str:
    alpha = own.get("alpha")
    if name == "xdrope" or (name == "dynamic" and alpha is not None and alpha.value):
        return "alpha" if name == "xdrope" or _reads_alpha(reader) else name
    if name in ("yarn", "su") and "short_factor" in own and "long_factor" in own:
        return "longrope"
    return ALIASES.get(name, name)


def tell_unread(reader: Reader, kind: Value, own: Mapping[str, Value]) -> None:
    """Tell of keys that this rope_type does not read."""
    given = {k: v for k, v in own.items() if v.key and v.value is not None and k not in COMMON}
    given = {k: v for k, v in given.items() if k in SCALING_KEYS or _in_block(v)}
    unread = {k: v for k, v in given.items() if k not in KEYS[kind.value]}
    if kind.value == "alpha":
        return
    scaling = {k: v for k, v in unread.items() if k in SCALING_KEYS}
    if kind.value == "default" and _unknown(own):
        return  # told already: nothing can be said of keys of an unknown type
    if kind.value in ("default", "axial") and _scales(scaling):
        reader.notes.add(
            spelling.CONTRADICTS,
            next(iter(scaling.values())),
            rope_type=kind.value,
            keys=", ".join(f"{k}={shown(v)}" for k, v in scaling.items()),
            meant=_likely(scaling),
        )
        unread = {k: v for k, v in unread.items() if k not in scaling}
    for key, value in unread.items():
        known = () if key in SCALING_KEYS else sorted(KEYS[kind.value] | COMMON)
        close = difflib.get_close_matches(key[:60], known, 1, 0.75)
        reader.notes.add(
            spelling.IGNORED,
            value,
            key=key,
            value=value.value,
            rope_type=kind.value,
            hint=f" (did you mean {close[0]}?)" if close else "",
        )


def _unknown(own: Mapping[str, Value]) -> bool:
    given = own.get("rope_type") or own.get("type")
    if given is None or given.value is None:
        return False
    name = str(given.value)[:60]
    return name not in KEYS and name not in ALIASES


def _in_block(value: Value) -> bool:
    return "." in value.source


def _scales(given: Mapping[str, Value]) -> bool:
    inert = {ORIGINAL}
    return any(k not in inert and not (k == "factor" and v.value == 1) for k, v in given.items())


def _likely(given: Mapping[str, Value]) -> str:
    if "low_freq_factor" in given or "high_freq_factor" in given:
        return "llama3"
    if "short_factor" in given or "long_factor" in given:
        return "longrope"
    return "yarn" if "beta_fast" in given or "attention_factor" in given else "the type it is for"
