"""The frequencies and factors that rotary modules hold, against those of the config."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.configs import LayerGroup, Resolved
from ropewalk.models.auditing.kinds import tables as kinds
from ropewalk.models.auditing.report import Check

CLOSE = 4e-6
"""By which frequencies computed in float32 miss those of the config, relatively."""
_NAME = re.compile(r"^(?:(?P<key>.+?)_)??(?P<what>original_|long_)?inv_freq$")
_TOWER = re.compile(r"vis(ion|ual)|image|audio|tower|video|(^|\.)encoder")
_NARROW = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Row:
    """One tensor of frequencies: of which module, for which kind of layers, of which use."""

    module: nn.Module
    path: str
    name: str
    key: str | None
    what: str
    values: Tensor

    @property
    def where(self) -> str:
        """Its full name."""
        return f"{self.path}.{self.name}" if self.path else self.name


def rows(model: nn.Module) -> Iterator[Row]:
    """Every tensor of frequencies that a module of ``model`` holds, as a buffer or otherwise."""
    for path, module in model.named_modules():
        held = {**vars(module), **module._buffers, **module._parameters}
        for name, value in held.items():
            match = _NAME.match(name)
            if match and isinstance(value, Tensor) and value.is_floating_point():
                yield Row(module, path, name, match["key"], match["what"] or "", value)


def check_tables(model: nn.Module, resolved: Resolved, last: int) -> Check:
    """Frequencies: finite, written, wide enough, and those of the config at every pair."""
    check = Check("frequencies")
    found = list(rows(model))
    if not found:
        return Check.skipped(check.name, "no module holds frequencies under the name inv_freq")
    compared, worst, apart = 0, 0.0, []
    for row in found:
        if row.values.is_meta:
            check.find(kinds.ON_META, row.where, name=row.name)
            continue
        values = row.values.detach().to("cpu", torch.float64).flatten()
        count = int((~values.isfinite()).sum())
        if count:
            check.find(kinds.NOT_FINITE, row.where, name=row.name, count=count, pairs=len(values))
            continue
        groups = _groups(row, model, resolved)
        wanted = _nearest(row, values, groups)
        if wanted is None:
            narrow = row.values.dtype in _NARROW
            if narrow or bool((values < 0).any() or (values > 1e3).any()):
                _judge(check, row, values, values.float().double(), None, last)
            apart.append(row.where)
            continue
        compared += 1
        target = torch.tensor(wanted[1], dtype=torch.float64)
        worst = max(worst, _relative(values, target)[0])
        _judge(check, row, values, target, wanted[0], last)
    check.figures = {"compared": compared, "largest": worst}
    if apart:
        check.figures["only_looked_at"] = ", ".join(apart[:3])
    return check


def check_factors(model: nn.Module, resolved: Resolved) -> Check:
    """The factors that modules multiply cos and sin with."""
    check = Check("attention factor")
    compared = 0
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            match = re.fullmatch(r"(?:(?P<key>.+)_)?attention_scaling", name)
            if not match or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            row = Row(module, path, name, match["key"], "", torch.empty(0))
            groups = _groups(row, model, resolved)
            allowed = {g.attention_factor for g in groups}
            allowed |= {v.attention_factor for g in groups for v in g.variants}
            if not allowed:
                continue
            compared += 1
            if min(abs(value - a) / abs(a or 1) for a in allowed) > CLOSE:
                shown = sorted(allowed)[0]
                check.find(kinds.OTHER_FACTOR, row.where, name=name, live=value, wanted=shown)
    if not compared:
        return Check.skipped(check.name, "no rotary module of the text part names its factor")
    check.figures = {"compared": compared}
    return check


def _groups(row: Row, model: nn.Module, resolved: Resolved) -> list[LayerGroup]:
    """The groups of layers that a row may be for: of its kind of layers where it names one."""
    part = _part(row, model, resolved)
    if part is None:
        return []
    groups = [g for g in part.layers if g.kind == "rotary" and g.inv_freq]
    if row.key is not None and any(g.label is not None for g in groups):
        return [g for g in groups if g.label in (row.key, None)]
    return groups


def _part(row: Row, model: nn.Module, resolved: Resolved) -> Resolved | None:
    """The text part of the config, if the module belongs to it; None if to another tower."""
    text = resolved.text()
    own = _model_type(row, model)
    if own is not None and own in {part.model_type for _, part in resolved.everything()}:
        return text if own == text.model_type else None
    if own is not None and own != resolved.model_type and own != text.model_type:
        return None
    return None if _TOWER.search(row.path) and resolved.parts else text


def _model_type(row: Row, model: nn.Module) -> str | None:
    """The model_type of the nearest module above that has a config."""
    path = row.path.split(".")
    for end in range(len(path), -1, -1):
        owner = model.get_submodule(".".join(path[:end]))
        config: Any = getattr(owner, "config", None)
        if config is not None:
            return getattr(config, "model_type", None)
    return None


def _nearest(
    row: Row, values: Tensor, groups: list[LayerGroup]
) -> tuple[LayerGroup, tuple[float, ...]] | None:
    """The frequencies of the config that this row is meant for: the nearest of as many pairs."""
    choices = []
    for group in groups:
        usual = [group.inv_freq] if row.what != "long_" else []
        later = [v.inv_freq for v in group.variants] if row.what != "original_" else []
        choices += [(group, freqs) for freqs in (*usual, *later) if len(freqs) == len(values)]
        if row.what == "" and group.rope_type == "dynamic" and later:
            grown = _grown(values, group)
            choices += [(group, grown)] if grown else []
    if not choices:
        return None
    return min(choices, key=lambda c: _relative(values, torch.tensor(c[1]).double())[0])


def _grown(values: Tensor, group: LayerGroup) -> tuple[float, ...] | None:
    """Frequencies of a larger theta, as dynamic NTK has after a long call."""
    theta, pairs = _theta(values), len(values)
    if theta is None or group.theta is None or theta <= group.theta:
        return None
    return tuple(theta ** (-i / pairs) for i in range(pairs))


def _theta(values: Tensor) -> float | None:
    """The theta whose geometric frequencies these are, if they are."""
    pairs = len(values)
    if pairs < 2 or not bool((values > 0).all()) or abs(values[0].item() - 1) > CLOSE:
        return None
    theta = values[-1].item() ** (-pairs / (pairs - 1))
    again = theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    return theta if _relative(values, again)[0] < 1e-4 else None


def _relative(live: Tensor, wanted: Tensor) -> tuple[float, int]:
    """The largest relative difference, and its pair."""
    apart = (live - wanted).abs() / torch.where(wanted == 0, 1.0, wanted.abs())
    pair = int(apart.argmax())
    return apart[pair].item(), pair


def _judge(
    check: Check, row: Row, live: Tensor, wanted: Tensor, group: LayerGroup | None, last: int
) -> None:
    """The finding about one row, if there is one."""
    relative, pair = _relative(live, wanted)
    turned = int(((live - wanted).abs() * last).argmax())
    angle = ((live - wanted).abs()[turned] * last).item()
    shown: dict[str, Any] = {
        "name": row.name,
        "dtype": _short(row.values.dtype),
        "relative": f"{relative:.2g}",
        "angle": f"{angle:.3g}",
        "position": last,
    }
    if row.values.dtype in _NARROW:
        check.find(kinds.STORED_NARROW, row.where, **shown)
        return
    if relative <= CLOSE and group is not None:
        return
    if _relative(live.sort().values, wanted.sort().values)[0] <= CLOSE and group is not None:
        return  # held in another order, which the rotation of keys shows
    if _unwritten(live, wanted):
        ends = {"live": _ends(live), "wanted": _ends(wanted)}
        check.find(kinds.GARBAGE, row.where, name=row.name, **ends)
        return
    for narrow in _NARROW:
        if torch.equal(wanted.to(narrow).double(), live):
            check.find(kinds.ROUNDED, row.where, **shown, through=_short(narrow))
            return
    if row.what:
        check.find(kinds.OTHER_ORIGINAL, row.where, name=row.name, relative=f"{relative:.2g}")
        return
    check.find(
        kinds.OTHER_FREQUENCIES,
        row.where,
        **{**shown, "live": _ends(live), "wanted": _ends(wanted), "pair": pair},
        hint=_hint(live, group),
    )


def _unwritten(live: Tensor, wanted: Tensor) -> bool:
    """Whether these numbers are nobody's frequencies: zeros, huge, or rising where they fall."""
    rising = bool((live.diff() > 0).any()) and not bool((wanted.diff() > 0).any())
    outside = bool((live < 0).any()) or live.max().item() > 4 * max(wanted.max().item(), 1.0)
    return rising or outside or not bool(live.any())


def _hint(live: Tensor, group: LayerGroup | None) -> str:
    theta = _theta(live)
    if theta is None:
        return ""
    if group is not None and group.theta and abs(theta / group.theta - 1) < 1e-3:
        scaled = group.rope_type not in (None, "default")
        return " (as without the scaling)" if scaled else ""
    return f" (as theta {theta:.6g} gives)"


def _ends(values: Tensor) -> str:
    first = ", ".join(f"{v:.4g}" for v in values[:2].tolist())
    return f"{first}, … {values[-1].item():.4g}" if len(values) > 2 else first


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
