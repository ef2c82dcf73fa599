"""The store: records that outlast their writers, and a file that is refused rather than spoiled."""

from __future__ import annotations

import copy
import errno
import json
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_jobs import MADE, SEEN, record

from ropewalk.lab import locks, trial
from ropewalk.lab.record import check, key_of
from ropewalk.lab.store import HEADER, Differs, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "race.jsonl")


def filled(store: Store, count: int = 3) -> list[dict[str, Any]]:
    records = [record(seed) for seed in range(count)]
    for each in records:
        store.append(each)
    return records


def refused(store: Store, words: str) -> None:
    """Readers and writers refuse the file with ``words`` in one line, and nothing of it changes."""
    before = store.path.read_bytes() if store.path.is_file() else None
    for act in (store.records, store.origins, store.ready, lambda: store.append(record(77))):
        with pytest.raises(ValueError, match=words) as caught:
            act()
        assert "\n" not in str(caught.value)
        assert str(store.path) in str(caught.value)
    assert before is None or store.path.read_bytes() == before


def test_what_is_appended_is_read_back_bit_for_bit(store: Store) -> None:
    assert store.records() == {}
    assert not store.path.exists(), "reading makes no file"
    records = filled(store)
    found = Store(store.path).records()
    assert list(found) == [each["key"] for each in records]
    assert json.dumps(list(found.values())) == json.dumps(records)
    lines = store.path.read_bytes().splitlines(keepends=True)
    assert lines[0] == HEADER
    assert [json.loads(line) for line in lines[1:]] == records


def test_a_record_is_held_once_and_another_with_its_key_is_refused(store: Store) -> None:
    first, *_ = filled(store)
    before = store.path.read_bytes()
    store.append(copy.deepcopy(first))
    Store(store.path).append(copy.deepcopy(first))
    assert store.path.read_bytes() == before
    changed = record(0, loss=[1.0])
    for writer in (store, Store(store.path)):
        with pytest.raises(Differs, match=r"rope seed 0: on the same machine.*nothing was added"):
            writer.append(changed)
    elsewhere = record(0, loss=[1.0], made={**MADE, "machine": "arm64"})
    with pytest.raises(Differs, match="rope seed 0: its machine was x;") as caught:
        store.append(elsewhere)
    assert caught.value.stored == first
    assert store.path.read_bytes() == before


def test_records_of_other_machines_are_held_and_seen(store: Store) -> None:
    filled(store)
    assert store.origins() == [MADE]
    other = {**MADE, "machine": "arm64", "torch": "3"}
    store.append(record(9, made=other))
    assert store.origins() == [MADE, other]
    assert Store(store.path.with_name("none")).origins() == []


def test_the_key_is_the_trials() -> None:
    for each in trial.grid(["rope", "rope:base=500+none", "alibi"], seeds=2, steps=7):
        assert key_of(trial.config_of(each)) == trial.key(each)
    check(record())


def test_cut_anywhere_it_holds_its_whole_lines_and_is_completed(store: Store) -> None:
    records = filled(store, 2)
    whole = store.path.read_bytes()
    starts = [0, *(i + 1 for i, byte in enumerate(whole) if byte == ord("\n"))]
    near = {place + i for place in starts for i in range(-3, 4)}
    for cut in sorted(near & set(range(len(whole) + 1)) | set(range(0, len(whole), 17))):
        store.path.write_bytes(whole[:cut])
        kept = max(0, sum(start <= cut for start in starts) - 2)
        assert list(store.records().values()) == records[:kept], cut
        assert store.path.read_bytes() == whole[:cut], "reading changes nothing"
        writer = Store(store.path)
        for each in records:
            writer.append(each)
        assert store.path.read_bytes() == whole, cut


def test_a_new_store_is_made_ready_and_an_old_one_is_left(store: Store) -> None:
    assert store.ready() == {}
    assert store.path.read_bytes() == HEADER
    filled(store, 2)
    torn = store.path.read_bytes() + b'{"key": "'
    store.path.write_bytes(torn)
    assert list(store.ready()) == list(store.records())
    assert store.path.read_bytes() == torn


def spoil(line: int, change: Any) -> Any:
    """The bytes of a store with one record changed, as JSON."""

    def spoiled(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        found = json.loads(lines[line - 1])
        change(found)
        lines[line - 1] = json.dumps(found).encode() + b"\n"
        return b"".join(lines)

    return spoiled


def config(number: int, **changes: Any) -> Callable[[bytes], bytes]:
    """A store's bytes with a changed config in a line, under the key that goes with it."""

    def change(record: dict[str, Any]) -> None:
        record["config"].update(changes)
        record["key"] = key_of(record["config"])

    return spoil(number, change)


SPOILED = {
    "prose": (lambda c: b"Dear diary,\n", "no store of records: name another file"),
    "prose without an end": (lambda c: b"Dear diary", "no store of records"),
    "another JSON": (lambda c: b"[1, 2]\n", "no store of records"),
    "an empty line": (lambda c: b"\n", "no store of records"),
    "records without a header": (lambda c: c[len(HEADER) :], "no store of records"),
    "another layout": (
        lambda c: c.replace(b'"format": 1}', b'"format": 2}', 1),
        "line 1 says .*reads format 1; name another file",
    ),
    "half a line": (lambda c: c[:-40] + b"\n" + c[-40:], "line 4 is not JSON: delete that line"),
    "a line of zeros": (lambda c: c + bytes(50) + b"\n", "line 5 is not JSON"),
    "no UTF-8": (lambda c: c.replace(b"share", b"sh\xffre", 1), "line 2 is not JSON"),
    "NaN": (lambda c: c.replace(b"null", b"NaN", 1), "line 2 is not JSON"),
    "infinite": (lambda c: c.replace(b"null", b"1e999", 1), "line 2: 'scores' of this record"),
    "a number": (lambda c: c + b"3\n", "line 5: this is no record"),
    "deep": (lambda c: c + b"[" * 100_000 + b"\n", "line 5 is not JSON"),
    "two stores in a row": (lambda c: c + c, "line 5: this is no record"),
    "a changed seed": (spoil(3, lambda r: r["config"].update(seed=5)), "line 3: the key"),
    "a changed key": (spoil(3, lambda r: r.update(key="0" * 64)), "line 3: the key"),
    "no key": (spoil(3, lambda r: r.pop("key")), "line 3: this record has no 'key'"),
    "no lengths": (config(2, lengths=None), "line 2: 'lengths' in the config .* cannot be None"),
    "no steps": (spoil(2, lambda r: r["config"].pop("steps")), "line 2: the config .* no 'steps'"),
    "lengths that fall": (config(3, lengths=[16, 8]), "line 3: 'lengths' in the config"),
    "lengths twice": (config(3, lengths=[8, 8]), "line 3: 'lengths' in the config"),
    "a word for the steps": (config(3, steps="x"), "line 3: 'steps' in the config"),
    "steps beyond 64 bits": (config(3, steps=10**30), "line 3: 'steps' in the config"),
    "no rate": (config(3, rate=0), "line 3: 'rate' in the config"),
    "options in options": (config(3, task_options={"a": {}}), "line 3: 'task_options' in the"),
    "more than a trial has": (config(3, speed=1), "line 3: the config .* has 'speed', which no"),
    "a score beyond any float": (
        spoil(2, lambda r: r["scores"].update({"8": 10**400})),
        "line 2: 'scores'",
    ),
    "a loss beyond any float": (spoil(2, lambda r: r.update(loss=[10**400])), "line 2: 'loss'"),
    "made with a list": (spoil(2, lambda r: r["made"].update(torch=[2])), "line 2: 'made'"),
    "a curve of no length": (
        spoil(2, lambda r: r["curves"].update({"99": []})),
        "line 2: .*curves at",
    ),
    "a word for a score": (spoil(2, lambda r: r["scores"].update({"8": "x"})), "line 2: 'scores'"),
    "true for a score": (spoil(2, lambda r: r["scores"].update({"8": True})), "line 2: 'scores'"),
    "a score missing": (spoil(4, lambda r: r["scores"].pop("8")), r"line 4: .*scores at \['16'\]"),
    "unmade": (spoil(2, lambda r: r.pop("made")), "line 2: this is no record"),
    "another format": (
        spoil(4, lambda r: r["made"].update(format=2)),
        "line 4: this record is of format 2, and this ropewalk reads 1; name another",
    ),
    "another version": (
        spoil(4, lambda r: r["made"].update(ropewalk="9.1")),
        "line 4: this record is of ropewalk '9.1'.*name another file, or install",
    ),
    "two numbers for one trial": (
        lambda c: c + json.dumps(record(1, parameters=13)).encode() + b"\n",
        "lines 3 and 5 are two records of one trial: delete the wrong one",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_file_is_refused_and_stays(store: Store, name: str) -> None:
    filled(store)
    change, words = SPOILED[name]
    store.path.write_bytes(change(store.path.read_bytes()))
    refused(store, words)
    refused(Store(store.path), words)


def test_the_same_record_twice_is_no_harm(store: Store) -> None:
    records = filled(store)
    store.path.write_bytes(store.path.read_bytes() + json.dumps(records[1]).encode() + b"\n")
    assert list(store.records().values()) == records


def test_lines_that_end_as_on_windows_are_read(store: Store) -> None:
    records = filled(store)
    store.path.write_bytes(store.path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(store.records().values()) == records
    store.append(record(8))
    assert len(store.records()) == 4


def read(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The records, or what the ValueError says; any other exception passes."""
    try:
        return list(Store(path).records().values()), ""
    except ValueError as error:
        words = str(error)
    assert words.startswith(f"store {path}: ")
    return [], words


@settings(max_examples=300)
@given(content=st.binary(max_size=200), after=st.booleans())
def test_no_bytes_give_anything_but_a_value_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, after: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.jsonl"
    content = HEADER + content if after else content
    path.write_bytes(content)
    found, error = read(path)
    if error:
        with pytest.raises(ValueError, match="store "):
            Store(path).append(record())
        assert path.read_bytes() == content
    else:
        assert found == []
        Store(path).append(record())
        assert read(path) == ([record()], "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=200)
@given(place=st.sampled_from([*record(), *(f"config.{k}" for k in record()["config"])]), value=JSON)
def test_any_value_anywhere_in_a_record_is_right_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.jsonl"
    changed = record()
    at: Any = changed
    *outer, last = place.split(".")
    for name in outer:
        at = at[name]
    at[last] = value
    path.write_bytes(HEADER + json.dumps(changed).encode() + b"\n")
    found, error = read(path)
    if error:
        assert "line 2" in error
        assert error.isprintable()
    else:
        assert json.dumps(found) == json.dumps([changed])
        assert last in ("parameters", "loss", "scores", "unit", "better", "diverged", "curves") or (
            value == record()["config"].get(last, MADE)
        )


@settings(max_examples=200)
@given(seed=st.integers(0, 1 << 32))
def test_a_changed_byte_is_seen_or_changes_a_number_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "byte.jsonl"
    lines = [json.dumps(record(i)).encode() + b"\n" for i in range(2)]
    content = bytearray(HEADER + b"".join(lines))
    chance = random.Random(seed)
    content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content)
    found, _ = read(path)
    assert {each["key"] for each in found} <= {record(0)["key"], record(1)["key"]}


@pytest.mark.parametrize(
    "junk",
    [
        None,
        [],
        {"made": 3},
        record(parameters=True),
        record(loss=[float("nan")]),
        record(unit={1}),
        record(better="faster"),
        record(scores={"8": 1.0}),
        record(key="a"),
    ],
    ids=str,
)
def test_what_is_no_record_is_not_appended(store: Store, junk: Any) -> None:
    filled(store, 1)
    before = store.path.read_bytes()
    with pytest.raises(ValueError, match="nothing was added to store"):
        store.append(junk)
    assert store.path.read_bytes() == before


# --- the disk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("trouble", ["short", "nothing", "none left", "no sync"])
def test_a_full_disk_leaves_the_file_as_it_was(
    store: Store, held: int, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, held)
    before = store.path.read_bytes() if held else b""
    write, full = os.write, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def short(descriptor: int, content: bytes) -> int:
        if trouble == "none left":
            write(descriptor, content[:9])
            raise full
        return write(descriptor, content[: 0 if trouble == "nothing" else len(content) // 2])

    def no_sync(descriptor: int) -> None:
        raise full

    with monkeypatch.context() as patch:
        if trouble == "no sync":
            patch.setattr(os, "fsync", no_sync)
        else:
            patch.setattr(os, "write", short)
        with pytest.raises(ValueError, match=r"No space left.*as it was; make room") as caught:
            store.append(record(9))
        assert str(store.path) in str(caught.value)
        assert store.path.read_bytes() == before
    store.append(record(9))
    assert list(store.records())[-1] == record(9)["key"]
    assert len(store.records()) == held + 1


def test_a_limit_of_the_system_is_told_like_a_full_disk(store: Store) -> None:
    filled(store, 2)
    before = store.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(ValueError, match="nothing was added, and the file is as it was"):
            store.append(record(9))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.path.read_bytes() == before


def test_the_record_is_on_the_disk_before_append_returns(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *a: (acts.append("write"), write(*a))[1])
    monkeypatch.setattr(os, "fsync", lambda *a: (acts.append("sync"), sync(*a))[1])
    store.append(record(0))
    assert acts == ["write", "sync", "sync"]  # the file, and its name in the folder
    acts.clear()
    store.append(record(1))
    assert acts == ["write", "sync"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_file_that_may_not_be_written_is_told_before_the_work(
    store: Store, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, 1)
    opened = os.open

    def read_only(path: Any, flags: int, *args: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(code, os.strerror(code))
        return opened(path, flags, *args)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(ValueError, match=os.strerror(code)):
        store.ready()
    assert len(store.records()) == 1


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    refused(Store(tmp_path), "ordinary file|Is a directory")
    refused(Store(tmp_path / "pipe"), "no ordinary file")
    refused(Store("/dev/null"), "no ordinary file")
    refused(Store(tmp_path / "file" / "race.jsonl"), "Not a directory")
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere: make it first"):
        Store(tmp_path / "nowhere" / "race.jsonl").ready()


# --- several writers -----------------------------------------------------------------------------

WRITER = """
import random, sys
from lab_jobs import record
from ropewalk.lab.store import Store
store, order = Store(sys.argv[1]), list(range(40))
random.Random(int(sys.argv[2])).shuffle(order)
for seed in order:
    store.append(record(seed))
    assert record(seed)["key"] in store.records()
"""


def test_processes_that_write_at_once_lose_nothing_and_double_nothing(store: Store) -> None:
    command = [sys.executable, "-c", WRITER, str(store.path)]
    children = [
        subprocess.Popen([*command, str(i)], env={**os.environ, "PYTHONPATH": SEEN})
        for i in range(3)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    lines = store.path.read_bytes().splitlines()
    assert len(lines) == 41
    assert store.records() == {record(i)["key"]: record(i) for i in range(40)}


def test_threads_that_write_at_once_lose_nothing(store: Store) -> None:
    def write(start: int) -> None:
        for i in range(20):
            Store(store.path).append(record((start + i) % 25))

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 5, 10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(store.path.read_bytes().splitlines()) == 26
    assert len(store.records()) == 25


def test_a_lock_that_is_never_given_back_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, 1)
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    holder = os.open(store.path, os.O_RDWR)
    try:
        locks.take(holder)
        for act in (store.records, lambda: store.append(record(3))):
            with pytest.raises(ValueError, match=r"kept its lock for 0\.05 s: wait for it, or end"):
                act()
    finally:
        os.close(holder)
    assert len(store.records()) == 1


def test_without_locks_a_store_is_read_and_not_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, 1)
    before = store.path.read_bytes()

    def none(descriptor: int, *, shared: bool = False) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks, "take", none)
    assert len(store.records()) == 1
    with pytest.raises(ValueError, match="No locks available: put the store on a file system"):
        store.append(record(3))
    assert store.path.read_bytes() == before
