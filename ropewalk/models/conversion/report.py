"""What a conversion did, and what was proved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Converted:
    """The result of :func:`ropewalk.models.convert`.

    ``tensors`` of ``of`` changed, in ``layers`` layers, of these ``dtype``. ``round_trip`` counts
    those that were read back, turned back and found equal byte for byte; ``scores`` is the largest
    relative difference of q·k on random inputs; ``modules`` says for one layer of each kind by how
    much the outputs of transformers' attention differ, or why it did not run. ``recorded`` is the
    config key that names the layout, None if the class has it anyway; ``consumers`` who reads the
    result rightly, and who does not; ``left`` what was not copied.
    """

    out: Path
    model_type: str | None
    was: str
    to: str
    tensors: int
    of: int
    layers: int
    size: int
    dtype: str
    round_trip: int = 0
    scores: float = 0.0
    modules: dict[str, Any] = field(default_factory=dict)
    recorded: str | None = None
    consumers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As ``ropewalk convert --json`` prints it."""
        return {**asdict(self), "out": str(self.out)}
