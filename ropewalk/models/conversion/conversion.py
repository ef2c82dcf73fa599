"""The whole of it: plan, write beside, read back, prove, move into place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ropewalk.configs import resolve
from ropewalk.models.conversion import adapters, from_gguf, verify
from ropewalk.models.conversion.checkpoint import Checkpoint, open_checkpoint
from ropewalk.models.conversion.consumers import consumers
from ropewalk.models.conversion.gguf_source import DTYPES, GgufCheckpoint, is_gguf, open_gguf
from ropewalk.models.conversion.plan import Plan, plan
from ropewalk.models.conversion.publish import beside, require_place
from ropewalk.models.conversion.real import through_modules
from ropewalk.models.conversion.record import recorded, text_path, usual_layout
from ropewalk.models.conversion.report import Converted
from ropewalk.models.conversion.turns import LAYOUTS
from ropewalk.models.conversion.writing import copy_beside, copy_turned, write_text

Progress = Callable[[int, int], None]


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: str,
    from_: str | None = None,
    base: Any = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> Converted:
    """Write a checkpoint whose rotated lanes are paired in another layout, and prove it.

    Scores are kept: lanes of q and k move alike, from pairs (i, i + n) to (2i, 2i + 1) or back, so
    a rotation that pairs them likewise gives the same q·k. Weights, biases and norms of q and k
    move; all other bytes are copied. One tensor at a time is in memory.

    Args:
        source: a model folder with safetensors; one safetensors file beside its config; a LoRA
            adapter's folder; or a GGUF file of a llama, qwen2 or qwen3.
        out: a folder that does not exist.
        to: ``"half"`` or ``"interleaved"``.
        from_: the layout of the source, where its config does not say it or is wrong.
        base: for an adapter: the config of the model it is for, as
            :func:`ropewalk.configs.resolve` takes it.
        dtype: for GGUF: ``"float32"``, ``"float16"`` or ``"bfloat16"`` for all tensors; None makes
            quantised ones float32, which is exact, and keeps the others.
        progress: called with how many MiB are done and how many there are.

    Returns:
        a :class:`Converted`, with what was proved and who reads the result rightly.

    Raises:
        TypeError: an argument of another kind.
        ValueError: unknown or damaged input, a place that is taken, or no space; nothing is left.
        OSError: a file cannot be read.
    """
    _require(to, from_, dtype)
    source, out = Path(source), Path(out)
    if is_gguf(source):
        if base is not None:
            raise ValueError("base is for adapters; a GGUF file has its config in it")
        return _convert_gguf(open_gguf(source, dtype), out, to, from_, progress)
    if dtype is not None:
        raise ValueError(f"dtype={dtype!r} is for GGUF; other checkpoints keep their dtypes")
    return _convert_files(open_checkpoint(source), source, out, to, from_, base, progress)


def _require(to: object, from_: object, dtype: object) -> None:
    for name, value, known in (("to", to, LAYOUTS), ("from_", from_, LAYOUTS)):
        if value not in known and not (name == "from_" and value is None):
            raise ValueError(f"{name}={value!r} is no layout; use {' or '.join(known)}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is not written; use one of {', '.join(DTYPES)}")


class _Bar:
    """Counts bytes and tells MiB."""

    def __init__(self, progress: Progress | None, of: int) -> None:
        self.progress, self.of, self.done = progress, of, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done >> 20, self.of >> 20)


def _convert_files(
    found: Checkpoint,
    source: Path,
    out: Path,
    to: str,
    from_: str | None,
    base: Any,
    progress: Progress | None,
) -> Converted:
    model = adapters.model_of(found, base)
    resolved = resolve(model.source)
    layout = from_ or adapters.recorded_layout(found)
    shapes = {name: entry.shape for name, entry in found.tensors.items()}
    part = _part(model.config, text_path(resolved))
    planned = plan(shapes, part, resolved, layout, complete=not found.is_adapter)
    if planned.layout == to:
        raise ValueError(
            f"{source} pairs its lanes {to} already, so there is nothing to convert; if its config "
            "is wrong about that, say so with --from"
        )
    require_place(out, source, found.size)
    written, key = (None, None) if found.is_adapter else recorded(model.config, to)
    bar = _Bar(progress, 2 * sum(entry.size for entry in found.tensors.values()))
    with beside(out) as folder:
        for header in found.headers:
            copy_turned(header, folder / header.path.name, planned.turns, to, bar)
        made = verify.require_round_trip(found.headers, folder, planned, bar)
        report = _report(found, planned, resolved.text().model_type, out, to)
        files = verify.paths(found.headers), verify.paths(made)
        report.scores = verify.require_scores(*files, planned, to)
        report.left += found.left
        for path in found.beside:
            if path.name != adapters.RECORD_FILE:
                copy_beside(path, folder)
        if found.index is not None:
            copy_beside(found.folder / found.index, folder)
        if written is None:
            copy_beside(found.folder / found.config_name, folder)
            report.recorded = adapters.record(folder, to, usual_layout(model.config))
            report.consumers = adapters.consumers(planned.layout, to)
            return report
        with ExitStack() as stack:
            before, after = (verify.reader(paths, stack) for paths in files)
            pair = model.config, written
            report.modules = through_modules(planned, pair, (before, after), to)
        _write_config(found, folder, written)
        _tell(report, model.config, to, key)
        return report


def _write_config(found: Checkpoint, folder: Path, written: dict[str, Any]) -> None:
    """The config: the source's own bytes if nothing in it changed."""
    if written == found.config:
        copy_beside(found.folder / found.config_name, folder)
    else:
        write_text(folder / found.config_name, _json(written))


def _json(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _convert_gguf(
    found: GgufCheckpoint, out: Path, to: str, from_: str | None, progress: Progress | None
) -> Converted:
    shapes = {name: stored.shape for name, stored in found.tensors.items()}
    planned = plan(shapes, found.config, found.resolved, from_, complete=True)
    require_place(out, found.path, found.size)
    written, key = recorded(found.config, to)
    bar = _Bar(progress, 2 * found.size)
    with beside(out) as folder:
        from_gguf.write(found, folder, planned, to, bar)
        made = from_gguf.require_round_trip(found, folder, planned, to, bar)
        report = _report(found, planned, found.resolved.text().model_type, out, to)
        report.scores = verify.require_scores(
            from_gguf.GgufReader(found), verify.paths(made), planned, to
        )
        with ExitStack() as stack:
            readers = (from_gguf.GgufReader(found), verify.reader(verify.paths(made), stack))
            report.modules = through_modules(planned, (found.config, written), readers, to)
        report.notes += from_gguf.write_tokenizer(found, folder)
        write_text(folder / "config.json", _json(written))
    if found.quantised:
        kept = found.dtype or "float32, exactly what they stand for"
        report.notes.append(f"{found.quantised} quantised tensors were written as {kept}")
    _tell(report, found.config, to, key)
    return report


def _report(
    found: Checkpoint | GgufCheckpoint, planned: Plan, model_type: str | None, out: Path, to: str
) -> Converted:
    tensors = found.tensors
    changed = [tensors[name].dtype for name in planned.turns]
    return Converted(
        out=out,
        model_type=model_type,
        was=planned.layout,
        to=to,
        tensors=0 if planned.layout == to else len(planned.turns),
        of=len(tensors),
        layers=sum(bool(layer.turned) for layer in planned.layers),
        size=sum(entry.size for entry in tensors.values()),
        dtype=", ".join(sorted(set(changed))),
        round_trip=len(tensors),
    )


def _tell(report: Converted, config: dict[str, Any], to: str, key: str | None) -> None:
    report.recorded = key
    report.consumers = consumers(report.model_type, usual_layout(config), to, key)


def _part(config: dict[str, Any], path: str) -> dict[str, Any]:
    for name in filter(None, path.split(".")):
        config = config[name]
    return config
