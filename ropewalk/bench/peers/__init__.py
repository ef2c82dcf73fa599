"""Every way to rotate that is compared, one file each, in the order of the table."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

from ropewalk.bench.rotor import Rotor

OURS = "ropewalk"


@dataclass(frozen=True)
class Peer:
    """A way to rotate, and what it needs.

    Args:
        name: as in the table.
        where: ``module:class``, the module below this package.
        packages: that must be installed, by the names of their modules; the first is the peer.
        own_angles: it makes its own angles; else it is given exact tables.
        far: the class that tells its error at a far position, if another has the same numerics.
    """

    name: str
    where: str
    packages: tuple[str, ...] = ("torch",)
    own_angles: bool = False
    far: str | None = None

    def missing(self) -> str | None:
        """Why it is not here, or None."""
        lacks = [name for name in self.packages if find_spec(name) is None]
        return f"not installed ({', '.join(lacks)})" if lacks else None

    def rotor(self) -> type[Rotor]:
        """The class; importing it may raise whatever its library raises."""
        return _load(self.where)

    def far_rotor(self) -> type[Rotor]:
        """The class that tells its error at a far position."""
        return _load(self.far or self.where)

    def version(self) -> str | None:
        """Of its package."""
        try:
            return metadata.version(self.packages[0].replace("_", "-"))
        except metadata.PackageNotFoundError:
            return None


def _load(where: str) -> type[Rotor]:
    module, name = where.split(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("transformers", "hugging_face:Eager", ("transformers",), own_angles=True),
        Peer(
            "transformers-compiled",
            "hugging_face:Compiled",
            ("transformers",),
            own_angles=True,
            far="hugging_face:Eager",
        ),
        Peer("complex", "complex_multiply:ComplexMultiply"),
        Peer("addcmul", "addcmul:Addcmul"),
        Peer("onnxruntime", "onnx_node:OnnxNode", ("onnxruntime", "onnx")),
        Peer("mlx", "mlx_fast:MlxFast", ("mlx",), own_angles=True),
        Peer("jax", "jax_jit:JaxJit", ("jax",)),
        Peer(
            "rotary-embedding-torch",
            "lucidrains:RotaryEmbeddingTorch",
            ("rotary_embedding_torch",),
            own_angles=True,
        ),
        Peer("torchtune", "tune:Torchtune", ("torchtune",), own_angles=True),
    )
}


def present(names: list[str]) -> tuple[dict[str, type[Rotor]], dict[str, str]]:
    """The peers of these names that load, and of the others why not."""
    found: dict[str, type[Rotor]] = {}
    absent: dict[str, str] = {}
    for name in names:
        reason = PEERS[name].missing()
        if reason is None:
            reason = _loads(PEERS[name].rotor, found, name)
        if reason is not None:
            absent[name] = reason
    return found, absent


def _loads(load: Callable[[], type[Rotor]], found: dict[str, type[Rotor]], name: str) -> str | None:
    try:
        found[name] = load()
    except Exception as error:  # whatever a broken installation raises
        return f"does not load ({type(error).__name__}: {str(error).strip().splitlines()[-1:]})"
    return None
