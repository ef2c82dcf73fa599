"""Wheels with the C++ kernel in them; everything else is said in pyproject.toml.

Where PyTorch and a C++ compiler are at hand while a wheel is built, the kernel is compiled into it
and the wheel is for one platform and any Python. Elsewhere, as in pip's isolated builds, the wheel
is a pure one and ``ropewalk build-kernel`` can add the kernel later. ``ROPEWALK_BUILD_KERNEL=1``
makes a missing kernel an error, ``0`` leaves it out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
KERNEL = "ropewalk/kernels/cpu"
MANYLINUX = "manylinux_2_28"
"""What PyTorch's own wheels need."""
NEWEST = {b"GLIBC": (2, 28), b"GLIBCXX": (3, 4, 24), b"CXXABI": (1, 3, 11), b"GCC": (7, 0, 0)}
"""The newest symbol versions that MANYLINUX promises."""


class BuildKernel(build_py):
    """Copies the Python files, as ever, and compiles the kernel beside them."""

    def run(self) -> None:
        """Copy and compile; never fail for want of a kernel, unless told to."""
        super().run()
        wanted = os.environ.get("ROPEWALK_BUILD_KERNEL", "")
        if wanted not in ("", "0", "1"):
            raise SystemExit(f"ROPEWALK_BUILD_KERNEL={wanted!r} is unknown; use 0 or 1")
        where = (ROOT if self.editable_mode else Path(self.build_lib)) / KERNEL
        if not self.editable_mode:
            for old in libraries(where):
                old.unlink()
        problem = "ROPEWALK_BUILD_KERNEL=0" if wanted == "0" else compiled(where)
        if problem and wanted == "1":
            raise SystemExit(f"the C++ kernel was not built: {problem}")
        if problem:
            print(f"without the C++ kernel: {problem}", file=sys.stderr)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The kernel too, which the list of package data does not name."""
        found = [str(path) for path in libraries(Path(self.build_lib) / KERNEL)]
        return [*super().get_outputs(include_bytecode), *found]


class TaggedWheel(bdist_wheel):
    """py3-none-any, or py3-none-<platform> with the kernel, which uses Python's stable ABI."""

    portable = False

    def run(self) -> None:
        """Build first: only then is it known what kind of wheel it is."""
        self.run_command("build")
        build_lib = str(getattr(self.get_finalized_command("build_py"), "build_lib"))  # noqa: B009
        made = libraries(Path(build_lib) / KERNEL)
        if made:
            self.root_is_pure = False
            setattr(self.distribution, "has_ext_modules", lambda: True)  # noqa: B010
            self.portable = all(is_manylinux(path.read_bytes()) for path in made)
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """manylinux only where the kernel keeps that promise."""
        tag = super().get_tag()
        if self.root_is_pure:
            return tag
        wide = self.portable and not self.plat_name_supplied
        return "py3", "none", re.sub("^linux", MANYLINUX, tag[2]) if wide else tag[2]


def libraries(folder: Path) -> list[Path]:
    """Built kernels in a folder."""
    return sorted(path for path in folder.glob("rotate-*") if path.suffix in (".so", ".dylib"))


def compiled(folder: Path) -> str:
    """Compile the kernel into ``folder``; returns why it could not be done, or nothing."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not there while building (pip install --no-build-isolation finds it)"
    command = [sys.executable, "-m", "ropewalk.kernels.build", str(folder.absolute())]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "\n".join(result.stderr.splitlines()[-1:]) if result.returncode else ""


def is_manylinux(library: bytes) -> bool:
    """Whether the symbol versions that a library asks for are all in MANYLINUX."""
    needs = re.findall(rb"\0(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)(?=\0)", library)
    versions = [(name, tuple(int(n) for n in number.split(b"."))) for name, number in needs]
    return any(name == b"GLIBC" for name, _ in versions) and all(
        version <= NEWEST[name] for name, version in versions
    )


setup(cmdclass={"build_py": BuildKernel, "bdist_wheel": TaggedWheel})
