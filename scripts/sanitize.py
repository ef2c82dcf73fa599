"""Run the kernel's tests on a kernel built with sanitizers, or for narrower processors.

    python scripts/sanitize.py [VARIANT …] [-- PYTEST ARGUMENT …]

A variant is one of address, undefined, 128, 256 and quick, or several joined by +: address+128.
AddressSanitizer sees reads and writes outside of what was allocated, UndefinedBehaviorSanitizer
overflow of signed indices, misaligned loads, bad shifts; either ends the run at the first finding.
128 and 256 leave out the loops for wider vectors; quick compiles faster and runs slower. The
libraries lie in build/sanitize, are kept while the sources stay, and are never found by themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ropewalk.kernels.build import build, compiler
from ropewalk.kernels.library import built, is_whole

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("kernel", "kernel_places", "rotate", "phases", "pages", "normed")
TESTS = tuple(f"tests/test_{name}.py" for name in NAMES)
FLAGS = {
    "address": ("-fsanitize=address",),
    "undefined": ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
    "128": ("-DROPEWALK_WIDEST=128",),
    "256": ("-DROPEWALK_WIDEST=256",),
    "quick": ("-O1",),
}
USUAL = ("undefined", "undefined+256", "undefined+128", "address", "address+128")
RUNTIME = {"address": "libasan.so", "undefined": "libubsan.so"}
EXCEPTIONS = "libstdc++.so.6"
"""Preloaded too: AddressSanitizer looks for the real throw once, as the process starts."""


def variant(name: str) -> dict[str, str]:
    """Build a variant; the environment in which Python can load the result."""
    parts = name.split("+")
    folder = ROOT / "build" / "sanitize" / name
    flags = [flag for part in parts for flag in FLAGS[part]]
    path = next(filter(is_whole, built([folder])), None)
    if path is None:
        path = build(folder, ("-g1", "-fno-omit-frame-pointer", *flags))
    preloaded = [where(RUNTIME[part]) for part in parts if part in RUNTIME]
    if preloaded:
        preloaded.append(where(EXCEPTIONS))
    return {
        **os.environ,
        "ROPEWALK_KERNEL": str(path),
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_NUM_THREADS": "2",
    }


def where(library: str) -> str:
    """A library's path, as the compiler knows it."""
    command = [*compiler(), f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Each variant in turn; the status of the first that finds something."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, chosen = arguments[:cut] or list(USUAL), arguments[cut + 1 :] or list(TESTS)
    for name in names:
        unknown = set(name.split("+")) - set(FLAGS)
        if unknown:
            sys.exit(f"{', '.join(unknown)} is no variant; use {', '.join(FLAGS)}")
        print(f"{name}: {' '.join(chosen)}", flush=True)
        command = [sys.executable, "-m", "pytest", "--capture=sys", *chosen]
        if subprocess.run(command, cwd=ROOT, env=variant(name), check=False).returncode:
            print(f"{name}: failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
