"""`reference.files`: files are written completely or not at all, without leftovers."""

import errno
import fcntl
import os
import socket
import stat
import sys
import time
from pathlib import Path

import pytest

from reference.errors import InputFileError
from reference.files import write_whole

OLD, NEW = b"precious", b"all of it"
HEX = "0123456789abcdef"


def write(path, content=NEW):
    write_whole(path, lambda file: file.write(content), durable=False)


def names(folder):
    return {path.name for path in folder.iterdir()}


# Stopped at any moment


class Interrupt:
    """Raises KeyboardInterrupt at the k-th bytecode executed below `write_whole`."""

    def __init__(self, at):
        self.at, self.count = at, 0

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            if self.count == self.at:
                raise KeyboardInterrupt
        return self


def interrupted(path, at, write):
    """Whether the k-th bytecode was reached, and the raised exception."""
    interrupt, before = Interrupt(at), sys.gettrace()
    sys.settrace(interrupt)
    try:
        write_whole(path, write, durable=False)
    except (KeyboardInterrupt, OSError) as error:
        return interrupt.count >= at, type(error)
    finally:
        sys.settrace(before)
    return interrupt.count >= at, None


def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_an_interrupt_at_any_moment_leaves_no_partial_file(tmp_path, ends):
    path, at, reached, raised = tmp_path / "x", 0, True, []
    path.write_bytes(OLD)
    content = lambda file: file.write(NEW)  # noqa: E731
    interrupted(path, 0, content)  # Python 3.12 reports bytecodes only from the next `settrace` on
    path.write_bytes(OLD)
    while reached:
        at += 1
        reached, error = interrupted(path, at, content if ends == "well" else full)
        raised.append(error)
        assert names(tmp_path) == {"x"}, at
        assert path.read_bytes() in ((OLD, NEW) if ends == "well" else (OLD,))
        path.write_bytes(OLD)
    assert at > 200  # number of interrupted positions
    assert raised[0] is KeyboardInterrupt
    assert raised.pop() is (None if ends == "well" else OSError)
    assert raised.count(KeyboardInterrupt) > 200


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), MemoryError()])
def test_a_failed_write_keeps_the_old_file(tmp_path, error):
    (tmp_path / "x").write_bytes(OLD)

    def half(file):
        file.write(b"half of it")
        file.flush()
        raise error

    with pytest.raises(type(error)):
        write_whole(tmp_path / "x", half)
    assert names(tmp_path) == {"x"}
    assert (tmp_path / "x").read_bytes() == OLD


# Leftovers of killed programs


def leave(folder, name="x", age=3600.0):
    """Create a temporary file as a killed writer leaves it."""
    found = []

    def look(file):
        found.append(next(path for path in folder.iterdir() if path.name.startswith(f".{name}.")))
        file.write(b"half of it")

    write_whole(folder / name, look)
    left = found[0]
    left.write_bytes(b"half of it")
    os.utime(left, (time.time() - age,) * 2)
    return left


def test_temporary_files_of_a_killed_writer_are_removed(tmp_path):
    left, other = leave(tmp_path), leave(tmp_path, "y")
    write(tmp_path / "x")
    assert names(tmp_path) == {"x", "y", other.name}
    assert not left.exists()


@pytest.mark.parametrize("alive", ["locked", "young"])
def test_a_temporary_file_in_use_is_kept(tmp_path, alive):
    left = leave(tmp_path, age=3600 if alive == "locked" else 0)
    with left.open("rb") as file:
        if alive == "locked":
            fcntl.flock(file, fcntl.LOCK_EX)
        write(tmp_path / "x")
        assert left.exists()


def test_a_writer_locks_its_file(tmp_path):
    def look(file):
        (temporary,) = tmp_path.iterdir()
        with temporary.open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.utime(temporary, (0, 0))
        write(tmp_path / "x", OLD)  # a second writer, which removes stale files
        file.write(NEW)

    write_whole(tmp_path / "x", look)
    assert (tmp_path / "x").read_bytes() == NEW
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize(
    "name", [".x.tmp", ".x.mine.tmp", f".xy.{HEX}.tmp", f".x.{HEX}", f"x.{HEX}.tmp", f".x.y.{HEX}.tmp"]
)
def test_files_of_other_names_are_kept(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(OLD)
    os.utime(path, (0, 0))
    (tmp_path / f".x.{HEX}.tmp").mkdir()
    write(tmp_path / "x")
    assert names(tmp_path) == {"x", name, f".x.{HEX}.tmp"}


# Existing targets: links, folders, devices


def test_writing_to_a_link_writes_its_target(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "target").write_bytes(OLD)
    (tmp_path / "link").symlink_to("sub/target")
    (tmp_path / "new").symlink_to("sub/not-yet")
    for link, target in (("link", "target"), ("new", "not-yet")):
        write(tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / "sub" / target).read_bytes() == NEW
    assert names(tmp_path) == {"link", "new", "sub"}
    assert names(tmp_path / "sub") == {"target", "not-yet"}


def test_cyclic_links_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a")
    assert names(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("kind", ["FIFO", "link to a device", "socket"])
def test_sockets_and_pipes_are_refused(tmp_path, kind):
    path = tmp_path / "x"
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "socket":
            server.bind(str(path))
        else:
            path.symlink_to("/dev/null")
        with pytest.raises(
            InputFileError, match=r"x is a FIFO, a device or a socket[\s\S]*name a regular file"
        ):
            write(path)
    assert names(tmp_path) == {"x"}
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(IsADirectoryError):
        write(tmp_path / "x")
    assert names(tmp_path) == {"x"}


@pytest.mark.parametrize("letter", ["n", "é", "名"])
def test_a_file_name_of_maximal_length_is_written(tmp_path, letter):
    name = letter * (255 // len(letter.encode()))
    for content in (OLD, NEW):
        write(tmp_path / name, content)
    assert names(tmp_path) == {name}
    assert (tmp_path / name).read_bytes() == NEW
    left = leave_long(tmp_path, name)
    write(tmp_path / name)
    assert not left.exists()


def leave_long(folder, name):
    found = []
    write_whole(folder / name, lambda _: found.extend(path for path in folder.iterdir() if path.name != name))
    found[0].write_bytes(b"half of it")
    os.utime(found[0], (0, 0))
    return found[0]


def test_permissions_equal_those_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "x")
        (tmp_path / "any").touch()
    finally:
        os.umask(before)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("x", "any")}
    assert modes == {0o640}
