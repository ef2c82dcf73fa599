"""Trials as a table: one row for each trial and length, as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row for each trial and length; every row has every column.

    The columns: all fields of the configuration (a list or a mapping as JSON), then ``length``,
    ``score`` (None where the trial diverged), ``unit``, ``better``, ``parameters``, ``diverged``,
    ``key`` and what made the record (``made_…``).
    """
    found = [row for record in records for row in _rows(record)]
    columns = list(dict.fromkeys(key for row in found for key in row))
    config = list(dict.fromkeys(key for record in records for key in record["config"]))
    ordered = [*config, *(key for key in columns if key not in config)]
    return [{key: row.get(key) for key in ordered} for row in found]


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV, with a header; None is an empty cell."""
    table = rows(records)
    written = io.StringIO()
    writer = csv.DictWriter(written, table[0] if table else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return written.getvalue()


def parquet_bytes(records: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows as a Parquet file.

    Raises:
        ValueError: pyarrow is not installed.
    """
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(rows(records))
    types = [pyarrow.string() if pyarrow.types.is_null(t) else t for t in table.schema.types]
    typed = dict(zip(table.schema.names, types, strict=True))
    typed["score"] = pyarrow.float64()
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table.cast(pyarrow.schema(typed.items())), sink)
    return sink.getvalue().to_pybytes()


def require_pyarrow() -> None:
    """Raise ValueError, with the remedy, where pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise ValueError(
            "--parquet needs pyarrow, which is not installed: pip install 'ropewalk[tables]', "
            "or write --csv"
        ) from None


def _rows(record: Mapping[str, Any]) -> list[Row]:
    config = {key: _flat(value) for key, value in record["config"].items()}
    made = {f"made_{key}": _flat(value) for key, value in record["made"].items()}
    about = {
        key: _flat(record.get(key)) for key in ("unit", "better", "parameters", "diverged", "key")
    }
    return [
        {
            **config,
            "length": int(length),
            "score": None if score is None else float(score),
            **about,
            **made,
        }
        for length, score in record["scores"].items()
    ]


def _flat(value: Any) -> Any:
    """What a cell can hold: a list or a mapping as JSON, text as UTF-8 can hold it."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return json.dumps(value, sort_keys=True) if isinstance(value, (dict, list, tuple)) else value
