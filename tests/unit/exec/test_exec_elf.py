"""What is read of an ELF file, and which files are refused."""

import struct
import sys
from pathlib import Path

import pytest

from reference.errors import InputFileError
from simwarp.exec.elf import read_elf
from simwarp.exec.program import check_program

PYTHON = Path(sys.executable).resolve()


def test_libraries_and_symbols_of_a_program_are_found() -> None:
    elf = read_elf(PYTHON)
    assert any(name.startswith("libc.so") for name in elf.needed)
    assert elf.defines("main") or elf.defines("_start") or elf.defines("Py_BytesMain")
    assert not elf.defines("__cudaRegisterFatBinary")
    assert elf.section(".text")
    assert elf.section(".nv_fatbin") == b""


def test_a_program_without_device_code_is_not_refused() -> None:
    check_program(PYTHON, (9, 0))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "No such file"),
        (b"#!/bin/sh\n", "not a 64-bit ELF file"),
        (b"", "not a 64-bit ELF file"),
        (b"\x7fELF\x01" + bytes(100), "not a 64-bit ELF file"),
        (b"\x7fELF\x02\x01\x01" + bytes(20), "not a whole ELF file"),
    ],
)
def test_files_that_are_not_programs_are_refused(tmp_path: Path, data: bytes | None, reason: str) -> None:
    path = tmp_path / "program"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputFileError, match=reason) as found:
        check_program(path, (9, 0))
    assert len(str(found.value).splitlines()) >= 2


def test_a_program_of_another_machine_is_refused(tmp_path: Path) -> None:
    data = bytearray(PYTHON.read_bytes()[:64])
    data[18:20] = struct.pack("<H", 243)
    (tmp_path / "program").write_bytes(data)
    with pytest.raises(InputFileError, match="is for machine 243"):
        check_program(tmp_path / "program", (9, 0))


def test_a_program_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    data = PYTHON.read_bytes()
    (tmp_path / "program").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputFileError, match="not a whole ELF file"):
        check_program(tmp_path / "program", (9, 0))
