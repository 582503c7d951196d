"""The cache of compiled PTX: its size limit, and `simwarp cache`."""

import base64
import json
import os
import random

import pytest

import gpu.compiler.cache
from gpu.compiler.cache import Entry, cache_folder, read, usage, write
from reference.errors import SchemeError
from simwarp.cli import main

KEYS = [f"{number:064x}" for number in range(8)]
TEXT = base64.b85encode(random.Random(1).randbytes(2**18)).decode()  # four of these exceed 1 MiB, compressed


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path))
    monkeypatch.delenv("SIMWARP_CACHE_MIB", raising=False)
    return tmp_path / "ptx"


def age(*keys):
    """Set the time stamps of entries before all others, in the given order."""
    for order, key in enumerate(keys):
        os.utime(cache_folder() / f"{key}.ptx", (order, order))


def kept():
    return {path.stem for path in cache_folder().iterdir()}


def test_entries_are_read_back_unchanged():
    entry = Entry("ret;\n", "a warning\n\n", ("vector", "nvtx3/nvtx3.hpp"))
    write(KEYS[0], entry)
    assert read(KEYS[0]) == entry
    assert read(KEYS[1]) is None


def test_the_least_recently_used_entry_is_evicted(monkeypatch):
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "1")
    for key in KEYS[:3]:
        write(key, Entry(TEXT))
    assert kept() == set(KEYS[:3])
    age(KEYS[0], KEYS[1], KEYS[2])
    assert read(KEYS[0])  # used now
    write(KEYS[3], Entry(TEXT))
    assert kept() == {KEYS[0], KEYS[2], KEYS[3]}
    assert usage()[1] <= 2**20


def test_a_smaller_limit_applies_from_the_next_entry(monkeypatch):
    for key in KEYS:
        write(key, Entry(TEXT))
    age(*KEYS)
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "1")
    write("f" * 64, Entry("ret;"))
    assert kept() == {*KEYS[-3:], "f" * 64}


def test_the_folder_is_scanned_only_near_the_limit(monkeypatch):
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "1")
    looks, look = [], gpu.compiler.cache._entries
    monkeypatch.setattr("gpu.compiler.cache._entries", lambda: looks.append(1) or look())
    for count, key in zip((1, 1, 1, 2), KEYS, strict=False):
        write(key, Entry(TEXT))
        assert len(looks) == count
    assert usage()[1] <= 2**20


def test_room_is_made_for_many_entries_at_a_time(monkeypatch):
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "1")
    looks, look = [], gpu.compiler.cache._entries
    monkeypatch.setattr("gpu.compiler.cache._entries", lambda: looks.append(1) or look())
    for number in range(120):  # the limit is passed after some 80
        write(f"{number:064x}", Entry(TEXT[: 2**14]))
    assert len(looks) <= 8
    assert usage()[1] <= 2**20


def test_a_limit_of_0_keeps_nothing(monkeypatch, cache):
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "0")
    write(KEYS[0], Entry("ret;"))
    assert kept() == set()


def test_files_of_other_names_are_kept(monkeypatch, cache):
    cache.mkdir()
    for name in ("notes.txt", "0.ptx", ".hidden"):
        (cache / name).write_bytes(b"x" * 2**21)
    monkeypatch.setenv("SIMWARP_CACHE_MIB", "1")
    write(KEYS[0], Entry("ret;"))
    assert read(KEYS[0])
    assert gpu.compiler.cache.clear()[0] == 1
    assert {path.name for path in cache.iterdir()} == {"notes.txt", "0.ptx", ".hidden"}


@pytest.mark.parametrize("limit", ["-1", "1.5", "many", "٣"])
def test_a_limit_that_is_not_a_number_is_refused(monkeypatch, capsys, limit):
    monkeypatch.setenv("SIMWARP_CACHE_MIB", limit)
    with pytest.raises(
        SchemeError, match=r"SIMWARP_CACHE_MIB is .*\na whole number of mebibytes is needed\nset 0"
    ):
        write(KEYS[0], Entry("ret;"))
    assert main(["cache", "info"]) == 2
    assert "SIMWARP_CACHE_MIB" in capsys.readouterr().err


def test_temporary_files_of_a_killed_writer_are_counted_and_cleared(cache):
    write(KEYS[0], Entry("ret;"))
    (cache / f".{KEYS[1]}.ptx.0123456789abcdef.tmp").write_bytes(b"half of it")
    assert usage()[0] == gpu.compiler.cache.clear()[0] == 2
    assert kept() == set()


def test_info_counts_and_clear_removes_entries(capsys, cache):
    for key in KEYS[:3]:
        write(key, Entry("ret;"))
    (cache / f"{KEYS[4]}.ptx").mkdir()
    size = usage()[1]
    assert main(["cache", "info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    of_exec = {"runtimes": 0, "runtime_bytes": 0}
    assert facts == {"folder": str(cache), "entries": 4, "bytes": size, "limit": 256 * 2**20, **of_exec}
    assert main(["cache", "info"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["folder", str(cache)]
    assert "entries  4\nsize     0.0 MiB of 256.0 MiB (SIMWARP_CACHE_MIB)\n" in printed
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(cache),
        "removed": 4,
        "bytes": size,
        "left": 0,
    }
    assert usage() == (0, 0)
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"removed 0 entries, 0.0 MiB, from {cache}\n"


def test_an_entry_that_cannot_be_removed_is_reported(capsys, monkeypatch, cache):
    write(KEYS[0], Entry("ret;"))
    monkeypatch.setattr("gpu.compiler.cache._remove", lambda path: False)
    assert main(["cache", "clear"]) == 1
    assert "removed 0 entries" in (printed := capsys.readouterr().out)
    assert "1 cannot be removed" in printed


def test_a_missing_cache_is_empty(capsys):
    assert main(["cache", "info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 0
    assert main(["cache", "clear"]) == 0


def test_runtimes_of_exec_are_counted_and_cleared(capsys):
    folder = cache_folder("exec") / "abc"
    folder.mkdir(parents=True)
    (folder / "libcudart.so.13").write_bytes(b"x" * 1000)
    (folder / "libcuda.so.1").symlink_to("libcudart.so.13")
    assert main(["cache", "info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["runtimes"], facts["runtime_bytes"]) == (1, 1000)
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 1
    assert not folder.exists()
