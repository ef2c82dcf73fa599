"""Run the kernel's tests on a kernel built with sanitizers.

    python scripts/sanitize.py [address] [undefined] [-- PYTEST ARGUMENT …]

AddressSanitizer sees reads and writes outside of what was allocated, UndefinedBehaviorSanitizer
overflow of signed indices, misaligned loads, bad shifts. Either ends the run at the first finding.
The sanitized library lies in build/sanitize and is never found by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ropewalk.kernels.build import build, compiler

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/test_kernel.py", "tests/test_rotate.py", "tests/test_phases.py")
FLAGS = {
    "address": ("-fsanitize=address",),
    "undefined": ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"),
}
RUNTIME = {"address": "libasan.so", "undefined": "libubsan.so"}
EXCEPTIONS = "libstdc++.so.6"
"""Preloaded too: AddressSanitizer looks for the real throw once, as the process starts."""


def sanitized(kind: str) -> dict[str, str]:
    """Build with a sanitizer; the environment in which Python can load the result."""
    folder = ROOT / "build" / "sanitize" / kind
    for old in folder.glob("rotate-*"):
        old.unlink()
    flags = ("-g1", "-fno-omit-frame-pointer", *FLAGS[kind])
    path = build(folder, flags)
    preloaded = [where(name) for name in (RUNTIME[kind], EXCEPTIONS)]
    return {
        **os.environ,
        "ROPEWALK_KERNEL": str(path),
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "OMP_NUM_THREADS": "2",
    }


def where(library: str) -> str:
    """A library's path, as the compiler knows it."""
    command = [*compiler(), f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Each sanitizer in turn; the status of the first that finds something."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    kinds, chosen = arguments[:cut] or list(FLAGS), arguments[cut + 1 :] or list(TESTS)
    for kind in kinds:
        if kind not in FLAGS:
            sys.exit(f"{kind!r} is no sanitizer; use {' or '.join(FLAGS)}")
        command = [sys.executable, "-m", "pytest", "--capture=sys", *chosen]
        print(f"{kind}: {' '.join(chosen)}", flush=True)
        result = subprocess.run(command, cwd=ROOT, env=sanitized(kind), check=False)
        if result.returncode:
            print(f"{kind}: failed", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
