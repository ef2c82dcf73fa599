"""Build the C++ kernel: one shared library on PyTorch's stable ABI, good for any torch ≥ 2.10.

``python -m ropewalk.kernels.build [FOLDER [FLAG …]]`` does it without the command line's packages.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ropewalk.kernels import library

_COMPILERS = ("c++", "g++", "clang++")
_COMMON = ("-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno")
_EXACT = ("-ffp-contract=off", "-fno-tree-slp-vectorize")
"""No fused multiply-add: turned lanes then agree bit for bit with plain tensor arithmetic.

GCC 12 forms vfmaddsub from straight-line code in spite of the first flag; the second stops that.
"""
_FUSED = ("-ffp-contract=fast",)
"""For cos and sin, which are rounded at their end and which plain arithmetic takes from here."""
_STABLE = "-DTORCH_TARGET_VERSION=0x020a000000000000"
"""Nothing newer than torch 2.10; not where DLPack's header is read, which then refuses."""
_AVX2 = ("-mavx2", "-mf16c", "-mfma")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
_X86: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "avx2": _AVX2,
    "avx512": _AVX512,
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
}
_OTHER: dict[str, tuple[str, ...]] = {"baseline": ()}


def compiler() -> list[str]:
    """The C++ compiler: ``$CXX`` and its arguments, or the first of c++, g++, clang++ there is.

    Raises:
        ValueError: there is none, or CXX names no program.
    """
    wanted = os.environ.get("CXX", "").strip()
    if wanted:
        return _chosen(wanted)
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise ValueError(
        f"no C++ compiler found (looked for {', '.join(_COMPILERS)}); install one, such as "
        "Debian's g++, or set CXX. Without the kernel, rotations run on PyTorch"
    )


def _chosen(wanted: str) -> list[str]:
    """The command that CXX gives."""
    try:
        name, *arguments = shlex.split(wanted)
    except ValueError as error:
        raise ValueError(f"CXX={wanted!r} is no command line: {error}") from error
    found = shutil.which(name)
    if found is None:
        raise ValueError(
            f"CXX={wanted!r}: there is no program {name!r}; set CXX to a C++ compiler, or unset it "
            f"to look for {', '.join(_COMPILERS)}. Without the kernel, rotations run on PyTorch"
        )
    return [found, *arguments]


def _torch() -> Path:
    import torch

    return Path(torch.__file__).parent


def _linked(scratch: Path) -> list[str]:
    """PyTorch's library is named and not located: the process that loads ours has it already.

    Loading registers the operators, so one symbol is exported, by which Python gets its functions;
    a symbol of the standard library that two libraries define could otherwise be taken from the
    wrong one.
    """
    if sys.platform == "darwin":
        return ["-Wl,-undefined,dynamic_lookup"]
    exports = scratch / "exports.map"
    exports.write_text("{ global: ropewalk_direct; local: *; };\n")
    return [
        f"-Wl,--version-script={exports}",
        f"-L{_torch() / 'lib'}",
        "-Wl,--no-as-needed",
        "-ltorch_cpu",
    ]


def _units() -> list[tuple[str, tuple[str, ...]]]:
    """(source, flags) of each object: the operators, and the loops once per instruction set."""
    x86 = library.machine() == "x86_64"
    always = ("-DROPEWALK_X86",) if x86 else ()
    units: list[tuple[str, tuple[str, ...]]] = [
        ("portable.cpp", ()),
        ("functions.cpp", (*always, _STABLE)),
        ("op.cpp", (_STABLE,)),
        ("direct.cpp", (f"-I{sysconfig.get_path('include')}",)),
    ]
    for isa, flags in (_X86 if x86 else _OTHER).items():
        chosen = (*always, f"-DROPEWALK_ISA={isa}", *flags)
        units += [("tables.cpp", (*chosen, *_FUSED)), ("rows.cpp", (*chosen, *_EXACT))]
    return units


def build(folder: Path | None = None, extra: tuple[str, ...] = ()) -> Path:
    """Compile the kernel.

    Args:
        folder: where to put it; by default where it is looked for: the package's own folder, or
            the user's cache where that cannot be written.
        extra: further flags for the compiler and the linker, such as sanitizers.

    Returns:
        The library's path.

    Raises:
        ValueError: no compiler, a compiler error, or no place to write.
    """
    tool = compiler()
    with _scratch([folder] if folder else library.folders()) as name:
        scratch = Path(name)
        made = _compile(tool, scratch, extra)
        home = scratch.parent
        result = home / library.name_of(made.read_bytes())
        os.replace(made, result)
        if home == library.SOURCES:
            library.remove_outdated(home)
    return result


def _compile(tool: list[str], scratch: Path, extra: tuple[str, ...]) -> Path:
    paths = [f"-I{_torch() / 'include'}", f"-ffile-prefix-map={library.SOURCES}=ropewalk"]
    common = [*tool, *_COMMON, *paths, *extra]
    objects = [str(scratch / f"{i}.o") for i in range(len(_units()))]
    commands = [
        [*common, *flags, "-c", str(library.SOURCES / source), "-o", made]
        for (source, flags), made in zip(_units(), objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    result = scratch / "rotate.so"
    names = [] if extra else ["-s"]  # sanitizers name functions
    _run([*tool, "-shared", *names, *extra, *objects, "-o", str(result), *_linked(scratch)])
    return result


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"the C++ compiler {command[0]} does not start: {error}") from error
    if result.returncode or not Path(command[command.index("-o") + 1]).is_file():
        lines = [line for line in result.stderr.splitlines() if "error" in line]
        told = lines or result.stderr.splitlines()
        first = told[0].strip() if told else f"status {result.returncode}, and no message"
        raise ValueError(f"the C++ compiler failed: {first}")


def _scratch(folders: list[Path]) -> tempfile.TemporaryDirectory[str]:
    """A folder for objects in the first of ``folders`` that can be written."""
    reasons = []
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryDirectory(prefix="build-", dir=folder)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
    raise ValueError(f"there is no place to write the kernel to ({'; '.join(reasons)})")


def _main(arguments: list[str]) -> None:
    folder = Path(arguments[0]).absolute() if arguments else None
    try:
        print(build(folder, tuple(arguments[1:])))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
