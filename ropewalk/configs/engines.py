"""What a program would read from a file, where its reading is known to differ.

Each engine is a list of rules. A rule looks at the resolved config and the file's keys, says what
the engine makes of it, and gives the keys as that engine understands them; resolving those shows
the frequencies that it would use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ropewalk.configs.architectures import facts
from ropewalk.configs.diff import diff
from ropewalk.configs.findings import Finding
from ropewalk.configs.findings.engines import READS_OTHERWISE, REFUSES
from ropewalk.configs.findings.finding import ORDER
from ropewalk.configs.readings import BLOCKS, RULES, Config
from ropewalk.configs.resolve import resolve
from ropewalk.configs.resolved import LayerGroup, Resolved, ranges

ENGINES = ("transformers4", "transformers5", "vllm", "llama.cpp", "mlx")


@dataclass(frozen=True)
class Reading:
    """What an engine does with a config."""

    engine: str
    resolved: Resolved
    findings: tuple[Finding, ...]

    @property
    def refused(self) -> bool:
        """Whether the engine cannot do it at all."""
        return any(finding.code == REFUSES.code for finding in self.findings)


def read_as(engine: str, config: Mapping[str, Any]) -> Reading:
    """What ``engine`` reads from a config in the keys of transformers.

    Raises:
        ValueError: unknown engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown; use one of {', '.join(ENGINES)}")
    ours = resolve(config)
    changed, findings = _read(engine, dict(config), ours)
    theirs = resolve(changed) if changed is not None else ours
    if changed is not None and not findings and not diff(ours, theirs).same:
        raise AssertionError("a reading changed without a finding")
    return Reading(engine, theirs, tuple(sorted(findings, key=lambda f: ORDER.index(f.severity))))


def with_engine(resolved: Resolved, reading: Reading) -> Resolved:
    """``resolved`` with the findings of a reading added."""
    findings = sorted(
        [*resolved.findings, *reading.findings], key=lambda f: ORDER.index(f.severity)
    )
    return replace(resolved, findings=tuple(findings))


def _read(
    engine: str, config: Config, ours: Resolved, prefix: str = ""
) -> tuple[Config | None, list[Finding]]:
    findings: list[Finding] = []
    for key, part in ours.parts.items():
        below, found = _read(engine, dict(config[key]), part, f"{prefix}{key}.")
        findings += found
        if below is None:
            return None, findings
        config[key] = below
    rotating = [group for group in ours.layers if group.kind == "rotary"]
    if not rotating:
        return config, findings
    name = ours.model_type
    if engine == "transformers4" and facts(name).newer:
        words = {"what": f"has no class for model_type {name}", "remedy": "use transformers 5"}
        finding = REFUSES.finding(f"{prefix}model_type", engine=engine, **words)
        return None, [*findings, finding]
    if engine == "transformers4":
        config, found = _old_keys(config, rotating, prefix)
        findings += found
        rotating = [g for g in resolve(config).layers if g.kind == "rotary"] or rotating
    for rule in RULES[engine]:
        group = next((g for g in rotating if rule.applies(g, g.parameters)), None)
        if group is None:
            continue
        changed = rule.change(group, config)
        words = {k: v.format(**_words(group)) for k, v in rule.words.items()}
        key = prefix + next((b for b in BLOCKS if config.get(b)), "rope_parameters")
        same = changed is not None and _same(changed, config)
        if rule.kind is READS_OTHERWISE and same:
            continue
        findings.append(rule.kind.finding(key, engine=engine, **words))
        if changed is None:
            return None, findings
        config = changed
    return config, findings


def _same(a: Config, b: Config) -> bool:
    return diff(resolve(a), resolve(b)).same


def _words(group: LayerGroup) -> dict[str, Any]:
    original = group.provenance.get("original")
    return {
        "rope_type": group.rope_type,
        "factor": group.parameters.get("factor"),
        "attention": f"{group.attention_factor:.7g}",
        "original": None if original is None else original.value,
    }


def _old_keys(
    config: Config, rotating: list[LayerGroup], prefix: str
) -> tuple[Config, list[Finding]]:
    """transformers 4 does not know rope_parameters."""
    block = config.get("rope_parameters")
    if not isinstance(block, Mapping) or not block:
        return config, []
    rest = {key: value for key, value in config.items() if key != "rope_parameters"}
    if _same(config, rest):
        return rest, []
    theirs = [g for g in resolve(rest).layers if g.kind == "rotary"]
    ours, other = _first_unlike(rotating, theirs or rotating)
    what = f"{_summary(other)} in place of {_summary(ours)}"
    if len(rotating) > 1:
        what += f" in layers {ranges(ours.layers)}"
    why = "it does not know rope_parameters and takes the class default"
    remedy = "write rope_theta and rope_scaling beside it (ropewalk emit --for transformers)"
    finding = READS_OTHERWISE.finding(
        f"{prefix}rope_parameters", engine="transformers4", what=what, why=why, remedy=remedy
    )
    return rest, [finding]


def _first_unlike(
    ours: list[LayerGroup], theirs: list[LayerGroup]
) -> tuple[LayerGroup, LayerGroup]:
    """The first two groups of the same layers that do not turn alike."""
    pairs = [(a, b) for a in ours for b in theirs if set(a.layers) & set(b.layers)]
    unlike = (pair for pair in pairs if pair[0].inv_freq != pair[1].inv_freq)
    return next(unlike, (pairs or [(ours[0], theirs[0])])[0])


def _summary(group: LayerGroup) -> str:
    theta = "none" if group.theta is None else f"{group.theta:g}"
    return f"theta={theta}, {group.rope_type}"
