"""Build the C++ kernel: one shared library on PyTorch's stable ABI, good for any torch ≥ 2.10.

The library's name holds a hash of its sources and flags, so a stale one is never loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "cpu"
_COMMON = ("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno")
_EXACT = ("-ffp-contract=off", "-fno-tree-slp-vectorize")
"""No fused multiply-add: turned lanes then agree bit for bit with plain tensor arithmetic.

GCC 12 forms vfmaddsub from straight-line code in spite of the first flag; the second stops that.
"""
_FUSED = ("-ffp-contract=fast",)
"""For cos and sin, which are rounded at their end and which plain arithmetic takes from here."""
_STABLE = "-DTORCH_TARGET_VERSION=0x020a000000000000"
_AVX2 = ("-mavx2", "-mf16c", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_X86: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
}
_OTHER: dict[str, tuple[str, ...]] = {"baseline": ()}


@cache
def library_name() -> str:
    """``rotate-<hash of the sources>.so`` for this platform."""
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(SOURCES.iterdir())):
        if path.suffix in (".py", ".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"rotate-{digest.hexdigest()[:12]}.{'dylib' if sys.platform == 'darwin' else 'so'}"


def cache_folder() -> Path:
    """Where a built library lies when the package's own folder cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ropewalk"


def places() -> tuple[Path, Path]:
    """Where a built library is looked for, in order."""
    return SOURCES / library_name(), cache_folder() / library_name()


def compiler() -> str:
    """The C++ compiler: ``$CXX``, or the first of c++, g++, clang++ that is found.

    Raises:
        ValueError: there is none.
    """
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found:
            return found
    raise ValueError(
        f"no C++ compiler found (looked for {wanted or 'c++, g++, clang++'}); install one, such as "
        "Debian's g++, or set CXX. Without the kernel, rotations run on PyTorch"
    )


def _torch() -> Path:
    import torch

    return Path(torch.__file__).parent


def _linked() -> list[str]:
    """PyTorch's library is named and not located: the process that loads ours has it already."""
    if sys.platform == "darwin":
        return ["-Wl,-undefined,dynamic_lookup"]
    return [f"-L{_torch() / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu"]


def _units() -> list[tuple[str, tuple[str, ...]]]:
    """(source, flags) of each object: the operators, and the loops once per instruction set."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    always = ("-DROPEWALK_X86",) if x86 else ()
    units: list[tuple[str, tuple[str, ...]]] = [("op.cpp", always)]
    for isa, flags in (_X86 if x86 else _OTHER).items():
        chosen = (*always, f"-DROPEWALK_ISA={isa}", *flags)
        units += [("tables.cpp", (*chosen, *_FUSED)), ("rows.cpp", (*chosen, *_EXACT))]
    return units


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if "error" in line]
        first = (lines or result.stderr.splitlines() or ["no message"])[0]
        raise ValueError(f"the C++ compiler failed: {first.strip()}")


def build(extra: tuple[str, ...] = ()) -> Path:
    """Compile the kernel and put it in the package's folder, or in the user's cache.

    Args:
        extra: further compiler flags, such as sanitizers.

    Returns:
        The library's path.

    Raises:
        ValueError: no compiler, a compiler error, or no place to write.
    """
    tool = compiler()
    home = next((p.parent for p in places() if _writable(p.parent)), None)
    if home is None:
        raise ValueError(f"neither {places()[0].parent} nor {places()[1].parent} can be written")
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        objects = []
        for i, (source, flags) in enumerate(_units()):
            objects.append(str(Path(scratch) / f"{i}.o"))
            common = [*_COMMON, _STABLE, f"-I{_torch() / 'include'}", *extra]
            _run([tool, *common, *flags, "-c", str(SOURCES / source), "-o", objects[-1]])
        made = Path(scratch) / library_name()
        _run([tool, "-shared", *extra, *objects, "-o", str(made), *_linked()])
        os.replace(made, home / library_name())
    return home / library_name()


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


if __name__ == "__main__":
    print(build())
