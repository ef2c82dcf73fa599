"""What a race found, for readers: words, tables in files, and one self-contained page."""

from ropewalk.report.race.page import render
from ropewalk.report.race.tables import csv_text, parquet_bytes, rows

__all__ = ["csv_text", "parquet_bytes", "render", "rows"]
