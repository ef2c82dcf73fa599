"""Wheels, built and installed as users do: with the kernel, without it, with it added later.

Nothing is downloaded. An environment is a fresh venv that sees this one's packages behind its own.
"""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import setuptools
import torch

ROOT = Path(__file__).resolve().parent.parent
SITE = Path(torch.__file__).parent.parent
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
NOWHERE = "/nonexistent"
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def run(
    *command: str | Path, cwd: Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run with a bare environment: no PATH, no PYTHONPATH, and a home of its own."""
    bare = {"PATH": NOWHERE, "HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache")}
    if "TMPDIR" in os.environ:
        bare["TMPDIR"] = os.environ["TMPDIR"]
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**bare, **environment},
        check=False,
        timeout=300,
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


def environment(folder: Path, behind: Path) -> Path:
    """A fresh virtual environment that also finds what is in ``behind``; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "behind.pth").write_text(f"{behind}\n", encoding="utf-8")
    return folder / "bin" / "python"


def install(wheel: Path, folder: Path) -> Path:
    python = environment(folder, SITE)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", "--disable-pip-version-check", wheel, cwd=folder)
    return python


def make_wheel(
    python: str | Path, source: Path, to: Path, status: int = 0, **environment: str
) -> tuple[Path | None, str]:
    """A wheel as pip has the backend make it; (path or None, what it said)."""
    code = f"import setuptools.build_meta as b; b.build_wheel({str(to)!r})"
    said = run(python, "-c", code, cwd=source, status=status, **environment).stderr
    return next(iter(to.glob("*.whl")), None) if status == 0 else None, said


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The sources as a source distribution holds them."""
    folder = tmp_path_factory.mktemp("source")
    copy = folder / "checkout"
    shutil.copytree(ROOT / "ropewalk", copy / "ropewalk")  # a kernel built there comes along
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    code = f"import setuptools.build_meta as b; b.build_sdist({str(folder)!r})"
    run(sys.executable, "-c", code, cwd=copy)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # later Pythons demand one
        tar.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    """The wheel of ``make wheel``."""
    path, _ = make_wheel(
        sys.executable,
        source,
        tmp_path_factory.mktemp("wheel"),
        PATH=os.environ["PATH"],
        ROPEWALK_BUILD_KERNEL="1",
    )
    assert path is not None
    return path


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """The Python of an isolated build: setuptools and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    site = Path(setuptools.__file__).parent.parent
    (folder / "only").mkdir()
    for path in (*site.glob("setuptools*"), site / "_distutils_hack"):
        (folder / "only" / path.name).symlink_to(path)
    return environment(folder / "venv", folder / "only")


@pytest.fixture(scope="module")
def pure_wheel(source, bare, tmp_path_factory) -> Path:
    path, said = make_wheel(bare, source, tmp_path_factory.mktemp("pure"))
    assert "without the C++ kernel: PyTorch is not there while building" in said
    assert path is not None
    return path


@pytest.fixture
def pure_python(pure_wheel, tmp_path) -> Path:
    return install(pure_wheel, tmp_path / "venv")


@pytest.fixture(scope="module")
def copying_compiler(wheel, tmp_path_factory) -> str:
    """A compiler that takes no time: what it links is the library of the wheel."""
    folder = tmp_path_factory.mktemp("compiler")
    library = folder / "ready.so"
    library.write_bytes(kernel_in(wheel))
    path = folder / "c++"
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys, shutil\n"
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        f"shutil.copy({str(library)!r}, out)\n"
    )
    path.chmod(0o755)
    return str(path)


def kernel_in(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith((".so", ".dylib"))]
        return archive.read(name)


def version(python: Path, cache: str = NOWHERE) -> str:
    command = (python.parent / "ropewalk", "--version")
    told = run(*command, cwd=python.parent.parent, XDG_CACHE_HOME=cache)
    return told.stdout.partition("kernel: ")[2].strip()


def test_a_source_distribution_holds_what_a_build_needs(source):
    found = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    kernel = {str(p.relative_to(ROOT)) for p in (ROOT / "ropewalk/kernels/cpu").glob("*.[ch]*")}
    assert {"setup.py", "pyproject.toml", "LICENSE", *kernel} <= found
    assert len(kernel) >= 3
    assert not [name for name in found if name.endswith((".so", ".dylib", ".pyc"))]


STABLE = {
    "PyCMethod_New",
    "PyCapsule_GetPointer",
    "PyDict_New",
    "PyDict_SetItemString",
    "PyErr_Clear",
    "PyErr_Format",
    "PyErr_Occurred",
    "PyErr_SetString",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyExc_RuntimeError",
    "PyExc_TypeError",
    "PyFloat_AsDouble",
    "PyLong_AsLongLong",
    "PyType_IsSubtype",
    "Py_DecRef",
    "Py_IncRef",
    "_Py_NoneStruct",
}
"""What the kernel may use of Python, all in the stable ABI of 3.10 as "Contents of Limited
API" in Python's documentation says, where ``Py_None`` is ``_Py_NoneStruct``."""


@needs_compiler
def test_one_wheel_serves_every_python(wheel):
    assert re.fullmatch(r"ropewalk-[\d.]+\w*-py3-none-(?!any)\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        told = email.message_from_bytes(archive.read(name))
    assert told["Root-Is-Purelib"] == "false"
    assert wheel.stem.endswith(told["Tag"])
    of_python = {
        name.decode() for name in re.findall(rb"(?<=\0)_?Py[A-Z_]\w*(?=\0)", kernel_in(wheel))
    }
    assert of_python, "built beside Python's headers"
    assert of_python <= STABLE, "a symbol that Python may drop or change"


@needs_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="manylinux is Linux")
def test_the_wheel_promises_an_old_glibc_only_where_it_keeps_it(wheel, source, tmp_path):
    """Versions of symbols as the linker tells them, not as setup.py finds them."""
    if shutil.which("objdump") is None or "GLIBC_" not in str(kernel_in(wheel)):
        pytest.skip("needs objdump and glibc")
    library = tmp_path / "kernel.so"
    library.write_bytes(kernel_in(wheel))
    told = subprocess.run(["objdump", "-T", library], capture_output=True, text=True).stdout
    promised = {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"}
    newer = [
        (name, version)
        for name, version in re.findall(rf"\b({'|'.join(promised)})_([\d.]+)", told)
        if [int(n) for n in version.split(".")] > [int(n) for n in promised[name].split(".")]
    ]
    assert "GLIBC_" in told
    assert ("manylinux_2_28" in wheel.name) == (not newer), newer


ROTATIONS = """
import hashlib, json, torch, ropewalk
from ropewalk.spectra import geometric
bits, sums = [], []
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
    x = torch.linspace(-3, 3, 8 * 70 * 64, dtype=torch.float64).reshape(1, 8, 70, 64).to(dtype)
    y = ropewalk.rotate(x, None, geometric(64), offset=2**40)
    bits.append(hashlib.sha256(y.view(torch.uint8).numpy().tobytes()).hexdigest())
    sums.append(y.double().sum().item())
"""


def rotations(python: Path, cwd: Path) -> dict[str, Any]:
    """What the ropewalk of another environment is and gives."""
    report = (
        "print(json.dumps({'bits': bits, 'sums': sums, 'home': ropewalk.__file__,"
        " 'kernel': ropewalk.kernels.active()}))"
    )
    return json.loads(run(python, "-c", ROTATIONS + report, cwd=cwd).stdout)


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """The bits of this process."""
    scope: dict[str, Any] = {}
    exec(ROTATIONS, scope)
    return scope


@needs_compiler
def test_an_installed_wheel_rotates_with_its_own_kernel(wheel, here, tmp_path):
    """From another folder, and with no compiler to be found."""
    python = install(wheel, tmp_path / "venv")
    found = rotations(python, tmp_path)
    assert found["kernel"].startswith("cpu (C++, ")
    assert Path(found["home"]).is_relative_to(tmp_path / "venv")
    assert found["bits"] == here["bits"]
    assert version(python) == found["kernel"]


def test_a_pure_wheel_works_and_says_what_runs(pure_wheel, pure_python, here, tmp_path):
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    found = rotations(pure_python, tmp_path)
    assert Path(found["home"]).is_relative_to(tmp_path / "venv")
    assert found["sums"] == pytest.approx(here["sums"], rel=1e-3)
    assert found["kernel"] == "PyTorch; `ropewalk build-kernel` builds the C++ one"
    assert version(pure_python) == found["kernel"]


def test_a_build_without_a_compiler_gives_a_pure_wheel_and_says_so(source, tmp_path):
    earlier = source / "build/lib/ropewalk/kernels/cpu/rotate-of-an-earlier-build.so"
    earlier.parent.mkdir(parents=True, exist_ok=True)
    earlier.write_bytes(b"")
    path, said = make_wheel(sys.executable, source, tmp_path)
    assert path is not None
    assert path.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(path).namelist() if name.endswith(".so")]
    assert "without the C++ kernel: no C++ compiler found" in said


def test_a_kernel_can_be_demanded(source, bare, tmp_path):
    _, said = make_wheel(bare, source, tmp_path, status=1, ROPEWALK_BUILD_KERNEL="1")
    assert "the C++ kernel was not built: PyTorch is not there" in said
    _, said = make_wheel(bare, source, tmp_path, status=1, ROPEWALK_BUILD_KERNEL="yes")
    assert "ROPEWALK_BUILD_KERNEL='yes' is unknown; use 0 or 1" in said


@needs_compiler
def test_the_kernel_can_be_added_to_an_installed_package(
    pure_python, copying_compiler, here, tmp_path
):
    command = (pure_python.parent / "ropewalk", "build-kernel", "--json")
    made = json.loads(run(*command, cwd=tmp_path, CXX=copying_compiler).stdout)
    assert Path(made["library"]).is_relative_to(tmp_path / "venv")
    found = rotations(pure_python, tmp_path)
    assert found["kernel"] == made["kernel"]
    assert found["kernel"].startswith("cpu (C++, ")
    assert found["bits"] == here["bits"]


BOUND = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if os.geteuid() == 0 and libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
        sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command for which permissions hold, whoever runs it."""


@needs_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="root obeys permissions on Linux")
def test_a_package_that_cannot_be_written_leaves_it_to_the_cache(
    pure_python, copying_compiler, tmp_path
):
    (folder,) = (tmp_path / "venv").glob("lib/python*/site-packages/ropewalk/kernels/cpu")
    bound = (sys.executable, "-c", BOUND)
    build = (*bound, pure_python.parent / "ropewalk", "build-kernel", "--json", "--force")
    folder.chmod(0o555)
    cache = tmp_path / "cache"
    try:
        told = run(*build, cwd=tmp_path, CXX=copying_compiler)
        made = json.loads(told.stdout)
        assert Path(made["library"]).parent == cache / "ropewalk"
        assert made["kernel"].startswith("cpu (C++, ")
        assert version(pure_python, str(cache)) == made["kernel"]
        cache.chmod(0o555)
        (cache / "ropewalk").chmod(0o555)
        refused = run(*build, cwd=tmp_path, status=2, CXX=copying_compiler)
    finally:
        for path in (folder, cache, cache / "ropewalk"):
            path.chmod(0o755)
    assert refused.stderr.count("\n") == 1
    assert "no place to write the kernel to" in refused.stderr
    assert "Permission denied" in refused.stderr


def test_build_kernel_without_a_working_compiler_is_one_line(pure_python, tmp_path):
    command = (pure_python.parent / "ropewalk", "build-kernel")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for compiler, words in (
        ("", "no C++ compiler found"),
        (str(broken), "the C++ compiler failed: status 1"),
    ):
        told = run(*command, cwd=tmp_path, status=2, CXX=compiler)
        assert told.stdout == ""
        *progress, said = told.stderr.splitlines()
        assert len(progress) == (1 if compiler else 0), told.stderr
        assert words in said
