"""The fatbin reader, on fatbins written here byte by byte."""

import struct

import pytest

from reference.errors import FormatError, MissingExtraError
from simwarp.exec.fatbin import PTX, SASS, choose_ptx, read_fatbins
from simwarp.exec.link import link_texts
from simwarp.exec.lz4 import decompress_block
from support.fatbins import LZ4, ZSTD, entry, fatbin

TEXT = ".version 9.0\n.target sm_{arch}{suffix}\n.address_size 64\n"


def text(arch: int, suffix: str = "") -> bytes:
    return TEXT.format(arch=arch, suffix=suffix).encode()


def test_entries_of_several_fatbins_with_padding_between_them_are_read() -> None:
    data = fatbin() + bytes(8) + fatbin(entry(text(80), arch=80), entry(b"\x7fELF", SASS)) + bytes(16)
    found = [[(one.kind, one.arch) for one in entries] for entries in read_fatbins(data)]
    assert found == [[], [(PTX, 80), (SASS, 90)]]


def test_the_newest_ptx_that_the_chip_runs_is_chosen() -> None:
    (entries,) = read_fatbins(fatbin(*(entry(text(arch), arch=arch) for arch in (75, 90, 80, 100))))
    for cc, expected in (((9, 0), 90), ((8, 9), 80), ((7, 5), 75), ((12, 0), 100)):
        assert f"sm_{expected}\n" in choose_ptx(entries, cc)


def test_ptx_of_one_architecture_alone_is_not_chosen_for_another() -> None:
    (entries,) = read_fatbins(fatbin(entry(text(90, "a")), entry(text(80), arch=80)))
    assert "sm_90a" in choose_ptx(entries, (9, 0))
    assert "sm_80" in choose_ptx(entries, (10, 0))


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "no PTX"),
        ([entry(b"\x7fELF", SASS, 86)], r"machine code \(sm_86\)"),
        ([entry(text(100), arch=100)], "compute_100, the device is sm_90"),
    ],
)
def test_a_program_without_code_for_the_chip_is_refused_with_the_flags(
    entries: list[bytes], reason: str
) -> None:
    with pytest.raises(FormatError, match=reason) as found:
        choose_ptx(*read_fatbins(fatbin(*entries)), (9, 0))
    assert str(found.value).endswith("nvcc -cudart shared -gencode arch=compute_90,code=compute_90")


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF" + bytes(60),
        fatbin(entry(text(90)))[:-8],
        fatbin(entry(text(90))[:-8]),
        fatbin(struct.pack("<HHIQ", PTX, 0x101, 16, 0) + bytes(48)),
    ],
    ids=["not a fatbin", "short fatbin", "short entry", "short head"],
)
def test_bytes_that_are_not_whole_fatbins_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        read_fatbins(data)


def test_lz4_payload_is_decompressed() -> None:
    plain = text(90) + b"// " + b"ab" * 30
    literals = len(plain) - 58
    packed = bytes([0xFF, literals - 15]) + plain[:literals] + bytes([2, 0, 58 - 4 - 15])
    ((found,),) = read_fatbins(fatbin(entry(packed, flags=LZ4 | 0x11, whole=len(plain))))
    assert found.text == plain.decode() + "\n"


@pytest.mark.parametrize(
    "block",
    [b"", b"\x35ab", b"\x35abc\x04\x00", b"\x35abc\x00\x00", b"\xf0", b"\x30abc"],
    ids=["empty", "short literals", "offset before the start", "offset 0", "no length", "no match"],
)
def test_an_lz4_block_that_is_not_whole_is_refused(block: bytes) -> None:
    with pytest.raises(FormatError):
        decompress_block(block, 12)


def test_zstandard_payload_is_decompressed_or_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = text(90)
    frame = bytes.fromhex("28b52ffd20") + bytes([len(plain)])
    frame += (len(plain) << 3 | 1).to_bytes(3, "little") + plain  # one raw block, the last
    ((found,),) = read_fatbins(fatbin(entry(frame, flags=ZSTD | 0x11, whole=len(plain))))
    try:
        import zstandard  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"simwarp\[nvcc\]"):
            _ = found.text
    else:
        assert found.text == plain.decode()


def test_texts_are_linked_by_their_definitions() -> None:
    head = TEXT.format(arch=90, suffix="")
    first = head + (
        '.file 1 "a.cu"\n'
        ".extern .func (.param .b32 r) twice (.param .b32 p);\n"
        ".extern .global .align 4 .u32 total;\n"
        ".extern .shared .align 4 .b8 part[];\n"
        ".weak .func shared_one() { .loc 1 5 3\n ret; }\n"
        ".visible .entry f() { .loc 1 6 1, function_name $L__info_string0, inlined_at 1 2 3\n ret; }\n"
        ".section .debug_str { $L__info_string0: .b8 1 }\n"
    )
    second = head + (
        '.file 1 "b.cu"\n'
        ".visible .global .align 4 .u32 total = 1;\n"
        ".global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
        ".extern .shared .align 4 .b8 part[];\n"
        ".weak .func shared_one() { .loc 1 5 3\n ret; }\n"
        ".visible .func (.param .b32 r) twice (.param .b32 p) { .loc 1 9 1\n { ret; } }\n"
    )
    linked = link_texts([first, second])
    assert linked.count(".version") == 1
    assert linked.count(".extern") == 1
    assert linked.count(".func shared_one") == 1
    assert linked.count(".func (.param .b32 r) twice") == 1
    assert linked.count("u32 total") == 1
    assert ".loc 1001 9 1" in linked
    assert ".loc 1 6 1, inlined_at 1 2 3" in linked
    assert '.file 1001 "b.cu"' in linked
    assert "table[8] = {1, 2, 3, 4, 5, 6, 7, 8};" in linked
    assert "debug_str" not in linked
