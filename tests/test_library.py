"""The kernel's library as a file: whatever is wrong with it, rotations go on and say why.

A broken library could end the process that loads it, so each is tried in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.cli import main
from ropewalk.kernels import build, library, native

ROOT = Path(__file__).resolve().parent.parent
BUILT = next(library.built(), None)
needs_library = pytest.mark.skipif(BUILT is None, reason="no C++ kernel is built here")

LOOK = """
import json, os, sys
from pathlib import Path
import torch, ropewalk
from ropewalk.kernels import library, native
x = torch.linspace(-3, 3, 2 * 5 * 8).reshape(1, 2, 5, 8)
at_start = torch.zeros(5, dtype=torch.int64), ropewalk.spectra.geometric(8)
for folders, wanted in json.loads(sys.argv[1]):
    library.folders = lambda: [Path(folder) for folder in folders]
    os.environ["ROPEWALK_KERNEL"] = wanted
    native.kernel.cache_clear()
    try:
        assert torch.equal(x, ropewalk.rotate(x, *at_start))
        print(ropewalk.kernels.active(), flush=True)
    except ValueError as error:
        print("ValueError:", error, flush=True)
"""


def kernels_of(*cases: tuple[list[Path], str]) -> list[str]:
    """The kernel that a fresh process finds in folders with a ROPEWALK_KERNEL, or its error."""
    written = json.dumps([([str(folder) for folder in folders], how) for folders, how in cases])
    result = subprocess.run(
        [sys.executable, "-c", LOOK, written],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
    )
    told = result.stdout.splitlines()
    assert result.returncode == 0, f"{result.returncode} in case {len(told)}: {result.stderr}"
    return told


def whole() -> bytes:
    assert BUILT is not None
    return BUILT.read_bytes()


def put(folder: Path, content: bytes) -> Path:
    """A library with its proper name."""
    path = folder / library.name_of(content)
    path.write_bytes(content)
    return path


def replaced(old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    content = whole()
    assert old in content
    return content.replace(old, new)


def truncated(folder: Path) -> None:
    """Mapped, its missing pages would end the process with a bus error."""
    put(folder, whole()).write_bytes(whole()[:5000])


def damaged(folder: Path) -> None:
    content = bytearray(whole())
    content[len(content) // 2] ^= 1
    put(folder, whole()).write_bytes(content)


def empty(folder: Path) -> None:
    put(folder, whole()).write_bytes(b"")


def a_directory(folder: Path) -> None:
    (folder / library.name_of(b"")).mkdir()


def dangling(folder: Path) -> None:
    (folder / library.name_of(b"")).symlink_to(folder / "gone")


def no_library(folder: Path) -> None:
    put(folder, b"not a library")


def of_another_processor(folder: Path) -> None:
    """ELF's e_machine says AArch64, or x86-64 where that is the machine's own."""
    content = bytearray(whole())
    if content[:4] != b"\x7fELF":
        pytest.skip("not ELF")
    content[18:20] = b"\x3e\x00" if library.machine() == "aarch64" else b"\xb7\x00"
    put(folder, bytes(content))


def of_a_newer_pytorch(folder: Path) -> None:
    """It asks for a function that this PyTorch does not have."""
    put(folder, replaced(b"torch_parallel_for\0", b"torch_parallel_fox\0"))


BROKEN = {
    truncated: "is damaged",
    damaged: "is damaged",
    empty: "is damaged",
    a_directory: "Is a directory",
    dangling: "No such file",
    no_library: "too short|not a mach-o|header",
    of_another_processor: "ELF|No such file",
    of_a_newer_pytorch: "torch_parallel_fox",
}


@needs_library
def test_a_broken_library_is_left_alone_and_the_reason_told(tmp_path):
    folders = [tmp_path / make.__name__ for make in BROKEN]
    for make, folder in zip(BROKEN, folders, strict=True):
        folder.mkdir()
        make(folder)
    told = kernels_of(*(([folder], "") for folder in folders))
    for name, words, folder in zip(told, BROKEN.values(), folders, strict=True):
        assert name.startswith("PyTorch; the C++ kernel does not load: "), name
        assert re.search(words, name), folder
        assert name.endswith("`ropewalk build-kernel` builds it")


@needs_library
def test_a_kernel_that_is_insisted_on_must_load(tmp_path):
    truncated(tmp_path)
    told = kernels_of(
        ([tmp_path], "cpu"),
        ([tmp_path / "none"], "cpu"),
        ([], str(tmp_path / "gone.so")),
        ([], "gpu"),
        ([tmp_path], "reference"),
        ([tmp_path], str(BUILT)),
    )
    words = ("is damaged", "no C++ kernel is built", "gone.so", "'gpu' is unknown")
    for line, expected in zip(told, words, strict=False):
        assert line.startswith("ValueError: ROPEWALK_KERNEL=")
        assert expected in line
    assert told[4] == "reference (PyTorch), as ROPEWALK_KERNEL asks"
    assert told[5].startswith("cpu (C++, ")


@needs_library
def test_a_good_library_behind_a_broken_one_is_used(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    truncated(first)
    put(second, whole())
    assert kernels_of(([first, second], ""))[0].startswith("cpu (C++, ")


def test_libraries_of_other_sources_or_machines_are_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "folders", lambda: [tmp_path])
    right = put(tmp_path, b"content")
    stem, sources, _ = right.name.rsplit("-", 2)
    (tmp_path / right.name.replace(sources, "0" * len(sources))).touch()
    (tmp_path / right.name.replace(library.machine(), "pdp11")).touch()
    (tmp_path / (right.name + ".part")).touch()
    assert list(library.built()) == [right]
    assert stem == f"rotate-{library.machine()}"
    library.remove_outdated(tmp_path)
    assert right.exists()
    assert not list(tmp_path.glob(f"*{'0' * len(sources)}*"))


def test_a_user_without_a_home_has_no_cache(monkeypatch, tmp_path):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(library.Path, "home", homeless)
    assert library.folders() == [library.SOURCES]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library.folders() == [library.SOURCES, tmp_path / "ropewalk"]


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def test_without_a_compiler_the_build_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"^CXX='no-such-compiler': .*unset it.*PyTorch"):
        build.build()
    monkeypatch.setenv("CXX", "/nonexistent/c++ -m64")
    with pytest.raises(ValueError, match=r"^CXX='.*': there is no program '/nonexistent/c\+\+'"):
        build.build()
    monkeypatch.setenv("CXX", "c++ 'unclosed")
    with pytest.raises(ValueError, match=r"^CXX=\"c\+\+ 'unclosed\" is no command line: "):
        build.build()
    monkeypatch.setenv("CXX", " ")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ValueError, match=r"no C\+\+ compiler found .*set CXX.*PyTorch"):
        build.build()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("echo 'x.cpp:1: error: no such thing' >&2", "exit 1"), "failed: .*no such thing"),
        (("exit 3",), "failed: status 3, and no message"),
        (("exit 0",), "failed: status 0, and no message"),  # and no output
        (("kill -9 $$",), "failed: status -9, and no message"),
    ],
)
def test_a_compiler_that_fails_is_told_in_one_line(lines, words, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", script(tmp_path / "c++", *lines))
    with pytest.raises(ValueError, match=rf"^the C\+\+ compiler {words}$"):
        build.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["c++"], "nothing is left behind"


def test_a_compiler_that_does_not_start_is_told_too(monkeypatch, tmp_path):
    (tmp_path / "c++").write_bytes(b"\x7fELF")
    (tmp_path / "c++").chmod(0o755)
    monkeypatch.setenv("CXX", str(tmp_path / "c++"))
    with pytest.raises(ValueError, match="c\\+\\+ does not start: "):
        build.build(tmp_path)


def test_the_compiler_may_have_arguments(monkeypatch, tmp_path):
    launcher = script(tmp_path / "launcher", 'exec "$@"')
    compiler = script(tmp_path / "c++", 'echo "error: called with $1" >&2', "exit 1")
    monkeypatch.setenv("CXX", f"{launcher} {compiler} -m64")
    with pytest.raises(ValueError, match="called with -m64"):
        build.build(tmp_path)


def test_build_kernel_says_no_where_the_result_does_not_load(monkeypatch, tmp_path, capsys):
    """A compiler for another system, say: built, but of no use here."""
    made = script(
        tmp_path / "c++",
        'while [ "$1" != -o ]; do shift; done',
        'echo "not a library" > "$2"',
    )
    monkeypatch.setenv("CXX", made)
    monkeypatch.setattr(library, "folders", lambda: [tmp_path])
    native.kernel.cache_clear()
    try:
        assert main(["build-kernel"]) == 1
        out, err = capsys.readouterr()
        assert "does not load" in out
        assert err == f"compiling with {made}: up to a minute or two\n"
        assert main(["build-kernel"]) == 1, "what does not load is compiled again"
        assert capsys.readouterr().err == err
    finally:
        native.kernel.cache_clear()


@needs_library
def test_build_kernel_compiles_what_is_not_there_and_else_says_so(monkeypatch, tmp_path, capsys):
    """In place of a compiler, one that takes no time: what it links is the library built here."""
    (tmp_path / "ready.so").write_bytes(whole())
    made = script(
        tmp_path / "c++",
        f"echo called >> {tmp_path / 'calls'}",
        'while [ "$1" != -o ]; do shift; done',
        f'cp {tmp_path / "ready.so"} "$2"',
    )
    monkeypatch.setenv("CXX", made)
    monkeypatch.setenv("ROPEWALK_KERNEL", "pytorch")  # this process has a library already
    monkeypatch.setattr(library, "folders", lambda: [tmp_path / "there"])

    def calls(*arguments: str) -> tuple[int, str, str]:
        (tmp_path / "calls").write_text("")
        assert main(["build-kernel", *arguments]) == 0
        return (tmp_path / "calls").read_text().count("called"), *capsys.readouterr()

    native.kernel.cache_clear()
    try:
        often, first, err = calls()
        assert often > 1
        assert err == f"compiling with {made}: up to a minute or two\n"
        assert Path(first.splitlines()[0]) == tmp_path / "there" / library.name_of(whole())
        often, again, err = calls()
        assert (often, again) == (0, first)
        assert err == "built already, of the same sources; --force compiles it again\n"
        often, again, err = calls("--json")
        assert (often, json.loads(again)["compiled"], err) == (0, False, "")
        often, again, err = calls("--force", "--json")
        assert (often > 1, json.loads(again)["compiled"], err) == (True, True, "")
        Path(first.splitlines()[0]).write_bytes(whole()[:-1])
        often, again, err = calls()
        assert (often > 1, again) == (True, first), "a damaged one is no reason to leave it"
    finally:
        native.kernel.cache_clear()
