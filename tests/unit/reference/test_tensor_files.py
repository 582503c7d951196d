"""Sparse tensors in files: every variant of ``.tns``, ``.npz``, and damaged or foreign files."""

import gzip
import io
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.errors import DtypeError, FormatError, InputFileError, SchemeError, ShapeError
from reference.sparse import tns_lines, tns_reading
from reference.sparse.coordinates import coordinate_keys, count_distinct, first_repeated
from reference.sparse.files import read_tensor, write_tensor
from reference.sparse.tns import read_tns, write_tns
from reference.sparse.tns_lines import LineError, Lines, parse_lines, parse_plain
from reference.sparse.tns_reading import Reading
from reference.types import Coo, Csf
from support.offenders import every_case

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
THREE = "1 1 1 2.5\n2 3 4 -1e-3\n2 1 1 7\n"
THREE_COORDS = [[0, 1, 1], [0, 2, 0], [0, 3, 0]]


@pytest.fixture
def file(tmp_path):
    """Write a text or bytes to a file and return its path."""

    def write(text, name="x.tns"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture(params=["plain", "loadtxt", "in parts"])
def way(request, monkeypatch):
    """Parse with each of the two parsers, and in small chunks that split lines."""
    if request.param == "plain":
        monkeypatch.setattr(tns_reading, "parse_lines", parse_plain)
    if request.param == "in parts":
        monkeypatch.setattr(tns_reading, "_CHUNK", 64)


def same(first, second):
    """Assert equal nonzeros in equal order, bit for bit."""
    assert first.shape == second.shape
    assert first.values.dtype == second.values.dtype
    assert first.coords.tolist() == second.coords.tolist()
    assert first.values.tobytes() == second.values.tobytes()


def refusal(path, **options):
    with pytest.raises(InputFileError) as error:
        read_tns(path, **options)
    return str(error.value).removeprefix(str(path))


# --------------------------------------------------------------------------------------------------
# What is read
# --------------------------------------------------------------------------------------------------

SPELLINGS = {
    "as FROSTT has it": THREE,
    "tabs": THREE.replace(" ", "\t"),
    "from 0": "0 0 0 2.5\n1 2 3 -1e-3\n1 0 0 7\n",
    "CRLF": THREE.replace("\n", "\r\n"),
    "no newline at the end": THREE[:-1],
    "comments and blank lines": "# FROSTT\n\n" + THREE.replace("\n", "\n\t \n  # more\n") + "\n\n",
    "comments behind values": THREE.replace("\n", " # said\n").replace("7 #", "7#"),
    "spaces around": "  " + THREE.replace("\n", " \t\n  ").rstrip(" "),
    "a byte order mark": "\ufeff" + THREE,
    "a header": "3\n2 3 4\n" + THREE,
    "a header among comments": "# order\n3 # modes\n\n# dimensions\n2 3 4\n\n" + THREE,
    "a header, from 0": "3\r\n2 3 4\r\n0 0 0 2.5\r\n1 2 3 -1e-3\r\n1 0 0 7\r\n",
    "other spellings of numbers": "01 +1 1 +2.50\n2 003 4 -.1E-02\n2 1 1 0.7e+1\n",
}


@every_case("spelling", SPELLINGS)
@every_case("packed", [False, True])
def test_every_variant_of_the_text_gives_the_same_tensor(way, file, spelling, packed):
    text = SPELLINGS[spelling].encode()
    tensor = read_tns(file(gzip.compress(text) if packed else text))
    same(tensor, Coo(np.array(THREE_COORDS), np.array([2.5, -1e-3, 7.0]), (2, 3, 4)))
    assert tensor.coords.dtype == np.uint32


def test_the_index_base_is_detected_or_given(file):
    path = file("1 2 5\n3 1 6\n")
    assert read_tns(path).coords.tolist() == [[0, 2], [1, 0]]
    zero_based = read_tns(path, base=0)
    assert (zero_based.coords.tolist(), zero_based.shape) == ([[1, 3], [2, 1]], (4, 3))
    assert read_tns(path, base=1).shape == (3, 2)


def test_the_header_option_decides_the_first_lines(file):
    path = file("2\n9 9\n1 2 5\n")
    assert read_tns(path, header=True).shape == (9, 9)
    assert refusal(path, header=False).startswith(", line 1: 1 field\n")
    assert read_tns(file("9 9 5.0\n1 2 5\n"), header=False).values.tolist() == [5.0, 5.0]
    assert refusal(file(THREE), header=True).startswith(", line 1: 4 fields, expected 1\n")


def test_the_shape_option_sets_the_dimensions(file):
    path = file(f"3\n2 3 4\n{THREE}")
    assert read_tns(path, shape=(5, 6, 7)).shape == (5, 6, 7)
    with pytest.raises(ShapeError, match="has 2 modes"):
        read_tns(path, shape=(5, 6))
    assert ", line 4: the index 3 in mode 1, whose dimension is 2\n" in refusal(path, shape=(5, 2, 7))


def test_large_indices_are_int64(way, file):
    tensor = read_tns(file(f"{2**63 - 1} 1 5\n1 {2**32} 6\n"))
    assert tensor.shape == (2**63 - 1, 2**32)
    assert (tensor.coords.dtype, tensor.coords.tolist()) == (np.int64, [[2**63 - 2, 0], [0, 2**32 - 1]])
    small = read_tns(file(f"1 {2**32} 6\n"))
    assert (small.coords.dtype, small.coords.tolist()) == (np.uint32, [[0], [2**32 - 1]])


@pytest.mark.parametrize("order", [2, 3, 8])
def test_tensors_of_every_order_are_read(way, file, order):
    lines = [[n + mode for mode in range(order)] for n in (1, 2, 3)]
    tensor = read_tns(file("".join(f"{' '.join(map(str, line))} {line[0]}.5\n" for line in lines)))
    assert tensor.coords.T.tolist() == [[index - 1 for index in line] for line in lines]
    assert tensor.shape == tuple(3 + mode for mode in range(order))


def test_nonfinite_values_need_an_option(way, file):
    path = file("1 1 nan\n1 2 -inf\n1 3 Infinity\n2 1 1\n")
    values = read_tns(path, nonfinite=True).values
    assert np.isnan(values[0])
    assert values[1:].tolist() == [-np.inf, np.inf, 1.0]
    assert refusal(path).startswith(", line 1: the value is nan as float64\npass nonfinite=True")


def test_a_value_beyond_its_type_is_refused_as_infinite(way, file):
    path = file("# large\n1 1 1\n1 2 1e39\n")
    assert read_tns(path).values.tolist() == [1.0, 1e39]
    assert refusal(path, dtype=np.float32).startswith(", line 3: the value is inf as float32\n")
    assert refusal(file("1 1 1e999\n")).startswith(", line 1: the value is inf as float64\n")


def test_values_are_rounded_to_float64_and_then_to_float32(file):
    above = "1.0000000596046447753906250000010"  # above the tie of two floats; as a double, the tie
    assert float(above) == 1 + 2**-24
    assert read_tns(file(f"1 1 {above}\n"), dtype="float32").values.tolist() == [1.0]


def test_read_progress_ends_with_the_whole_file(monkeypatch, file):
    monkeypatch.setattr(tns_reading, "_CHUNK", 16)
    for text in (THREE.encode(), gzip.compress(THREE.encode())):
        calls: list[tuple[int, int]] = []
        read_tns(file(text), progress=lambda *call, calls=calls: calls.append(call))
        assert calls == sorted(calls)
        assert calls[-1] == (len(text), len(text))
        assert {total for _, total in calls} == {len(text)}
    assert len(calls) > 1


@pytest.mark.at_most(2)
@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n"], ids=["newlines", "blanks"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_blank_lines_take_no_memory(before, blank):
    """A few compressed bytes may expand to millions of blank lines."""
    texts = [blank * 10_000] * 20
    texts.insert(20 if before else 0, b"1 1 2.5\n")
    reading = Reading("x.tns", "auto", np.dtype(np.float64))
    tracemalloc.start()
    try:
        reading.take(texts)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50_000
    assert peak < 5_000_000
    with pytest.raises(InputFileError, match=r"^x\.tns, line 200003: "):
        reading.take([b"\n", b"2 3 x\n"])


def test_a_wrong_line_between_many_blank_ones_is_named(way, file):
    lines = [b"", b"# so", b"1 1 2"] + [b""] * 9000 + [b"2 2 3", b" "] + [b"1 9 4"] + [b"#"] * 30 + [b"2 1 5"]
    path = file(b"\n".join(lines) + b"\n")
    assert refusal(path, shape=(2, 2)).startswith(", line 9006: the index 9 in mode 1")


def test_a_wrong_line_after_many_short_ones_is_named(way, file):
    assert refusal(file("1 1 1\n" * 1000 + "1\n")).startswith(", line 1001: 1 fields, expected 3\n")


def test_a_small_file_needs_no_compiler(file):
    program = (
        "import sys; from reference.sparse.tns import read_tns; read_tns(sys.argv[1]); "
        "print('numba' in sys.modules)"
    )
    command = [sys.executable, "-P", "-c", program, file(THREE)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'w').write({THREE!r})"]):
        calls = []
        assert read_tns(pipe, progress=lambda *call: calls.append(call)).coords.tolist() == THREE_COORDS
    assert calls == [(0, 0)]


# --------------------------------------------------------------------------------------------------
# What is refused
# --------------------------------------------------------------------------------------------------

TENSOR = "1 1 1 2.5\n"
EMPTY = " has no nonzeros\nit has {} lines, all blank"
WRONG = {
    f"{TENSOR}2 3 4 5 6\n": ", line 2: 5 fields, expected 4\nthe tensor has 3 modes: a line has 3 indices",
    f"{TENSOR}\n# so\n2 3 4\n": ", line 4: 3 fields, expected 4\n",
    **{
        f"{TENSOR}2 3 4 {number}\n": f", line 2: {number!r} is not a number\n"
        for number in ("x", "1_0", "1e", "1e+", "0x1p3", ".", "-", "1.2.3", "5,", "--1", "nano", "1d5")
    },
    f"{TENSOR}2 1.0 4 5\n": ", line 2: '1.0' is not an integer\n",
    f"{TENSOR}2 -3 4 5\n": ", line 2: the index '-3' is negative\n",
    f"{TENSOR}2 {2**63} 4 5\n": f", line 2: the index '{2**63}' is too large\nindices go up to 2**63 - 1\n",
    f"{TENSOR}2 {'9' * 42} 4 5\n": f", line 2: the index '{'9' * 37}...' is too large\n",
    "1\n5\n1 2.5\n": ", line 1: the order is 1\na sparse tensor has 2 to 8 modes\n",
    "1 2.5\n": ", line 1: 2 fields\na nonzero has 2 to 8 indices and a value; a header",
    "1 2 3 4 5 6 7 8 9 1.5\n": ", line 1: 10 fields\na nonzero has 2 to 8",
    "9\n1 1 1 1 1 1 1 1 1\n": ", line 1: the order is 9\n",
    "3\n2 3\n1 1 1 5\n": ", line 2: 2 fields, expected 3\nthe header announces",
    "3\n2 0 3\n1 1 1 5\n": ", line 2: a dimension is 0\n",
    "3\n2 -3 3\n1 1 1 5\n": ", line 2: the index '-3' is negative\n",
    "2\n2 3\n1 1 5\n1 4 5\n": ", line 4: the index 4 in mode 1, whose dimension is 3\nindices count",
    "2\n2 3\n0 1 5\n# so\n1 3 5\n": ", line 5: the index 3 in mode 1, whose dimension is 3\nindices count",
    "": EMPTY.format(0),
    "# nothing\n\n": EMPTY.format(2),
    "3\n2 3 4\n": EMPTY.format(2),
    "3\n": EMPTY.format(1),
    "\x89PNG\r\n\x1a\n\0\0": ", line 1: '\\xc2\\x89PNG' is not an integer\n",
    "\0\1\2 \3 \4\n": ", line 1: '\\x04' is not a number\n",
}


@every_case("text", WRONG)
def test_a_wrong_line_is_named(way, file, text):
    printed = refusal(file(text))
    assert printed.startswith(WRONG[text])
    assert len(printed.splitlines()) == 3


@every_case("text", WRONG)
def test_a_wrong_line_is_named_in_gzip_too(file, text):
    assert refusal(file(gzip.compress(text.encode()))).startswith(WRONG[text])


def test_an_index_of_0_in_a_1_based_file_is_refused(way, file):
    assert refusal(file("1 1 5\n\n2 0 5\n"), base=1).startswith(", line 3: the index 0\n")


def test_a_line_without_end_is_refused(monkeypatch, file):
    monkeypatch.setattr(tns_reading, "_CHUNK", 64)
    assert refusal(file("1 1 5\n" + "1 " * 200)).startswith(", line 2: it has more than 64 bytes\n")


def test_a_damaged_gzip_file_is_refused(file):
    whole = gzip.compress(os.urandom(0) + (THREE * 1).encode() + b"# " + os.urandom(300).hex().encode())
    assert "is damaged after line 0: Compressed file ended" in refusal(file(whole[: len(whole) // 2]))
    assert "is damaged after line 0: " in refusal(file(whole[:12] + b"\xff\xff\xff" + whole[15:]))
    assert "is damaged after line" in refusal(file(whole[:-8] + bytes(4) + whole[-4:]))
    assert "is damaged after line" in refusal(file(whole + b"more"))


def test_unreadable_files_are_refused(tmp_path):
    assert refusal(tmp_path / "none.tns").startswith(" cannot be read: No such file or directory\n")
    assert refusal(tmp_path).startswith(" cannot be read: Is a directory\n")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"base": 2}, SchemeError),
        ({"base": "one"}, SchemeError),
        ({"header": "yes"}, SchemeError),
        ({"duplicates": "drop"}, SchemeError),
        ({"dtype": np.int32}, DtypeError),
        ({"dtype": "number"}, DtypeError),
        ({"shape": (2, 3, 0)}, InputFileError),
    ],
)
def test_unknown_options_are_refused(file, options, error):
    with pytest.raises(error):
        read_tns(file(THREE), **options)


# --------------------------------------------------------------------------------------------------
# Duplicates
# --------------------------------------------------------------------------------------------------


def test_duplicate_coordinates_are_refused_with_both_lines(way, file):
    path = file("# so\n2 2 1\n1 1 2\n\n1 2 3\n# and\n1 1 4\n2 2 5\n")
    assert refusal(path).startswith(", line 7: line 3 has the same coordinates, (0, 0) from 0\n")
    assert read_tns(path, duplicates="keep").values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    summed = read_tns(path, duplicates="sum")
    assert (summed.coords.tolist(), summed.values.tolist()) == ([[0, 0, 1], [0, 1, 1]], [6.0, 3.0, 6.0])


def test_duplicates_are_found_in_the_largest_shapes(file):
    big = 2**63 - 1
    path = file(f"{big} {big} {big} 1\n1 {big} {big} 1\n{big} {big} 1 1\n{big} {big} {big} 1\n")
    assert refusal(path).startswith(", line 4: line 1 has the same coordinates")
    path = file(f"{big} {big} {big} 1\n1 {big} {big} 1\n{big} {big} 1 1\n")
    assert read_tns(path).shape == (big, big, big)


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=12),
    st.tuples(*[st.sampled_from([1, 2**21, 2**32, 2**62])] * 3),
)
def test_coordinate_keys_are_ordered_like_coordinates(places, scale):
    coords = (np.array(places, np.uint64).T * np.array([scale], np.uint64).T).copy()
    shape = tuple(4 * s for s in scale)
    keys = coordinate_keys(coords, shape).tolist()
    by_place = sorted(range(len(places)), key=lambda z: coords[:, z].tolist())
    assert [keys[z] for z in by_place] == sorted(keys)
    assert [[a == b for a in keys] for b in keys] == [[a == b for a in places] for b in places]
    assert count_distinct(coords, shape) == len(set(places))
    again = [z for z in range(len(places)) if places[z] in places[:z]]
    expected = (max(y for y in range(again[0]) if places[y] == places[again[0]]), again[0]) if again else None
    assert first_repeated(coords, shape) == expected


# --------------------------------------------------------------------------------------------------
# loadtxt against the definition
# --------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.floats(allow_nan=False, width=32).map(str),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,5})?", fullmatch=True),
    st.sampled_from(
        ["-0", "-0.0e-999", "9007199254740993", "9007199254740992", "1e22", "1e23", "1e-22", "nan"]
    ),
)
ODDS = st.text("0123456789+-.eE#xin_\"' \t\r\v\f\0\x1c\x1f\x85\xa0\u2003", max_size=12)
LINES = st.one_of(
    st.tuples(*[st.integers(0, 2**63 - 1).map(str)] * 2, NUMBERS).map(" ".join),
    st.tuples(*[st.integers(0, 99).map(str)] * 2, NUMBERS).map("\t".join),
    st.tuples(st.sampled_from(["1 2 3", "1  2 3.5 ", "", "#", "1 2 "]), ODDS).map("".join),
)


def outcome(parse, text):
    try:
        return parse(text, 2)
    except LineError as error:
        return error.line, str(error)


@pytest.mark.gate
@given(st.lists(LINES, max_size=8))
def test_the_loadtxt_parser_equals_the_plain_parser(lines):
    text = "".join(f"{line}\n" for line in lines).encode()
    plain, loaded = (outcome(parse, text) for parse in (parse_plain, parse_lines))
    if isinstance(plain, Lines):
        for first, second in zip(plain, loaded, strict=True):
            assert (first.shape, first.dtype, first.tobytes()) == (
                second.shape,
                second.dtype,
                second.tobytes(),
            )
    else:
        assert plain == loaded


@pytest.mark.slow
@given(st.lists(NUMBERS.filter(lambda number: number != "nan"), min_size=1, max_size=20))
def test_parsed_values_equal_python_float(numbers):
    text = "".join(f"1 1 {number}\n" for number in numbers).encode()
    expected = np.array([float(number) for number in numbers])
    assert parse_lines(text, 2).values.tobytes() == expected.tobytes()
    assert parse_plain(text, 2).values.tobytes() == expected.tobytes()


def test_parsed_values_of_any_length_equal_python_float():
    numbers = [f"-{'1' * a}.{'3' * b}e-5" for a in range(36) for b in range(1, 36)]
    text = "".join(f"1 1 {number}\n" for number in numbers).encode()
    expected = np.array([float(number) for number in numbers])
    assert parse_lines(text, 2).values.tobytes() == expected.tobytes()


def test_a_long_file_is_parsed_by_loadtxt(monkeypatch, file):
    rng = np.random.default_rng(1)
    tensor = Coo(
        rng.permutation(120_000).reshape(1, -1) % [[1200], [100]] + 0, rng.random(120_000), (1200, 100)
    )
    path = file(b"")
    write_tns(path, tensor)
    path.write_bytes(b"# comments\xc3\xa9\n\n \t\r\n" + path.read_bytes())
    monkeypatch.setattr(tns_lines, "parse_plain", None)
    same(read_tns(path, duplicates="keep"), tensor)


# --------------------------------------------------------------------------------------------------
# There and back
# --------------------------------------------------------------------------------------------------


@st.composite
def tensors(draw, largest=2**40):
    """Tensors of every order, type and size, some with duplicate coordinates."""
    shape = tuple(draw(st.lists(st.integers(1, largest) | st.integers(1, 4), min_size=2, max_size=8)))
    count = draw(st.integers(1, 7))
    coords = [[draw(st.integers(0, n - 1)) for _ in range(count)] for n in shape]
    width = draw(st.sampled_from([32, 64]))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)
    values = [draw(finite) for _ in range(count)]
    fits = [t for t in "bBhHiIqQ" if max(shape) - 1 <= np.iinfo(t).max]
    return Coo(np.array(coords, draw(st.sampled_from(fits))), np.array(values, f"f{width // 8}"), shape)


@pytest.mark.slow
@given(tensors(), st.sampled_from([0, 1]), st.booleans(), st.sampled_from(["x.tns", "x.tns.gz"]))
def test_text_files_round_trip(tmp_path_factory, tensor, base, header, name):
    path = tmp_path_factory.getbasetemp() / name
    write_tns(path, tensor, base=base, header=header)
    shape = None if header else tensor.shape
    back = read_tns(path, base=base, shape=shape, duplicates="keep", dtype=tensor.values.dtype)
    same(back, tensor)
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith("gz")


SINGLES = [363742205, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x80000000, 0x3F800001, 0x3DCCCCCD]


def test_every_kind_of_float32_round_trips(file):
    """The first is 7.038531e-26, whose double is a tie between two floats."""
    rng = np.random.default_rng(2)
    bits = np.concatenate([SINGLES, rng.integers(0, 2**32, 20_000)]).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    tensor = Coo(np.array([np.arange(values.size), np.zeros(values.size, int)]), values, (values.size, 1))
    path = file(b"")
    write_tns(path, tensor)
    same(read_tns(path, dtype=np.float32), tensor)
    assert b"\n8 1 0.1\n" in path.read_bytes()


def test_nonfinite_values_round_trip(file):
    tensor = Coo([[0, 1, 2], [0, 0, 0]], np.array([np.nan, np.inf, -np.inf], np.float32), (3, 1), True)
    path = file(b"")
    write_tns(path, tensor)
    assert path.read_text() == "1 1 nan\n2 1 inf\n3 1 -inf\n"
    np.testing.assert_array_equal(read_tns(path, nonfinite=True, dtype="f4").values, tensor.values)
    write_tensor(path, tensor)
    assert read_tensor(path).nonfinite
    assert read_tensor(path).values.tobytes() == tensor.values.tobytes()


def test_equal_tensors_make_equal_files(tmp_path):
    tensor = Coo(THREE_COORDS, [2.5, -1e-3, 7], (2, 3, 4))
    for name, write in (("a.tns.gz", write_tns), ("a.npz", write_tensor)):
        write(tmp_path / name, tensor)
        first = (tmp_path / name).read_bytes()
        write(tmp_path / name, tensor)
        assert (tmp_path / name).read_bytes() == first


def test_write_progress_ends_with_the_whole_tensor(file):
    count = 150_000
    tensor = Coo(np.array([np.arange(count)] * 2, np.uint32), np.ones(count), (count, count))
    calls = []
    write_tns(file(b""), tensor, progress=lambda *call: calls.append(call))
    assert len(calls) == 3
    assert calls == sorted(calls)
    assert calls[-1] == (16 * count, 16 * count)


@pytest.mark.parametrize("write", [write_tns, write_tensor])
def test_unwritable_tensors_and_paths_are_refused(tmp_path, write):
    small = Coo([[0], [0]], [1.0], (1, 1))
    with pytest.raises(InputFileError, match="cannot be written: No such file"):
        write(tmp_path / "no" / "x", small)
    with pytest.raises(InputFileError, match="cannot be written: Is a directory"):
        write(tmp_path, small)
    with pytest.raises(DtypeError, match="coo is a Csf"):
        write(tmp_path / "x", Csf((0, 1), (), (), None, (1, 1)))
    with pytest.raises(ShapeError, match="the largest dimension is 1000000000"):
        write(tmp_path / "x", Coo([[0], [0]], [1.0], (10**30, 1)))
    device = type("Array", (), {"pointer": 0})()
    with pytest.raises(FormatError, match="device"):
        write(tmp_path / "x", Coo(device, device, (1, 1)))
    assert list(tmp_path.iterdir()) == []


def test_the_largest_dimensions_round_trip_and_larger_are_refused(tmp_path):
    for base in (0, 1):
        largest = Coo([[2**63 - 1 - base], [0]], [1.0], (2**63 - base, 1))
        write_tns(tmp_path / "x", largest, base=base)
        same(read_tns(tmp_path / "x", base=base), largest)
    with pytest.raises(ShapeError):
        write_tns(tmp_path / "x", largest := Coo([[0], [0]], [1.0], (2**63, 1)))
    with pytest.raises(ShapeError):
        write_tns(tmp_path / "x", largest, base=0, header=True)
    write_tensor(tmp_path / "x", largest)
    assert read_tensor(tmp_path / "x").shape == (2**63, 1)


# --------------------------------------------------------------------------------------------------
# NumPy's arrays
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(tensors())
def test_npz_files_round_trip(tmp_path_factory, tensor):
    path = tmp_path_factory.getbasetemp() / "x.npz"
    write_tensor(path, tensor)
    back = read_tensor(path)
    same(back, tensor)
    assert back.coords.dtype == tensor.coords.dtype
    assert back.coords.flags.writeable
    assert back.values.flags.writeable


def test_the_arrays_of_an_npz_file_are_as_documented(file):
    path = file(b"", "x.npz")
    write_tensor(path, Coo(np.array(THREE_COORDS, ">i2"), [2.5, -1e-3, 7], (2, 3, 4)))
    with np.load(path, allow_pickle=False) as held:
        assert {name: (held[name].dtype, held[name].tolist()) for name in held.files} == {
            "coords": (np.int16, THREE_COORDS),
            "values": (np.float64, [2.5, -1e-3, 7.0]),
            "shape": (np.uint64, [2, 3, 4]),
            "nonfinite": (np.bool_, False),
        }


def test_a_read_tensor_outlives_its_file(tmp_path):
    path = tmp_path / "x.npz"
    write_tensor(path, Coo(THREE_COORDS, [2.5, -1e-3, 7], (2, 3, 4)))
    tensor = read_tensor(path)
    write_tensor(path, Coo([[0], [0]], [1.0], (1, 1)))
    path.unlink()
    assert tensor.values.tolist() == [2.5, -1e-3, 7.0]


def npz(tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "hostile.npz"
    tensor = Coo(np.array(THREE_COORDS, np.uint16), [2.5, -1e-3, 7], (2, 3, 4))
    write_tensor(path, tensor)
    return path, tensor


@given(st.dictionaries(st.integers(0, 1068), st.integers(1, 255), min_size=1, max_size=6))
def test_a_flipped_byte_is_refused_or_harmless(tmp_path_factory, flips):
    """Each array has a CRC-32; the remaining bytes, such as time stamps, are not read."""
    path, tensor = npz(tmp_path_factory)
    data = bytearray(path.read_bytes())
    assert max(flips) < len(data)
    for at, flip in flips.items():
        data[at] ^= flip
    path.write_bytes(data)
    with suppress(InputFileError):
        read = read_tensor(path)
        same(read, tensor)
        assert read.nonfinite == tensor.nonfinite


WHOLE = {
    "coords": np.array(THREE_COORDS, np.uint16),
    "values": np.array([2.5, -1e-3, 7]),
    "shape": np.array([2, 3, 4]),
    "nonfinite": np.array(False),
}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"shape": np.array([3])}, "shape (3,) has 1 modes"),
        ({"shape": np.array([2, 3])}, "coords (3, 3) and values (3,) do not fit shape (2, 3)"),
        ({"shape": np.array([1] * 9)}, "shape (1, 1, 1, 1, 1, 1, 1, 1, 1) has 9 modes"),
        ({"shape": np.array(3)}, "shape is 3"),
        ({"shape": np.array([[2], [3], [4]])}, "shape is [[2], [3], [4]]"),
        ({"shape": np.array([2, 3, 4.5])}, "shape is [2.0, 3.0, 4.5]"),
        ({"shape": np.array([1, 3, 4])}, "nonzero 1 has index 1 in mode 0, whose dimension is 1"),
        ({"shape": np.array([0, 3, 4])}, "shape (0, 3, 4) has a dimension below 1"),
        ({"coords": np.array(THREE_COORDS, np.float32)}, "coords is float32"),
        ({"coords": np.zeros((3, 0), int)}, "coords (3, 0) and values (3,) do not fit"),
        ({"coords": np.zeros(9, int)}, "coords (9,) and values (3,) do not fit"),
        ({"coords": np.array(THREE_COORDS, object)}, "Object arrays cannot be loaded"),
        ({"values": np.array(["a", "b", "c"])}, "values is <U1"),
        ({"values": np.ones(3, np.float16)}, "values is float16"),
        ({"values": np.ones(2)}, "coords (3, 3) and values (2,) do not fit"),
        ({"values": np.array([1, np.nan, 1])}, "nonzero 1, at (1, 2, 3), is nan"),
        ({"nonfinite": np.array([0, 1])}, "The truth value of an array"),
        ({"more": np.ones(3)}, "it has the arrays ['coords', 'more', 'nonfinite', 'shape', 'values'], not"),
        ({"values": None}, "it has the arrays ['coords', 'nonfinite', 'shape'], not"),
    ],
    ids=str,
)
def test_an_npz_file_without_a_tensor_is_refused(file, arrays, message):
    path = file(b"", "x.npz")
    held = {name: array for name, array in (WHOLE | arrays).items() if array is not None}
    np.savez(path, **held)
    with pytest.raises(InputFileError, match=rf"does not hold a sparse tensor: {re.escape(message)}.*\ngive"):
        read_tensor(path)


def test_an_array_of_impossible_size_is_refused(file):
    """The array header claims more memory than there is, in a valid archive."""
    path = file(b"", "x.npz")
    whole = io.BytesIO()
    np.savez(whole, **WHOLE)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"(3, 3), }", b"(3,9" + b"9" * 10 + b"), }")[: len(data) + 9])
    with pytest.raises(InputFileError, match="does not hold a sparse tensor"):
        read_tensor(path)


def test_damaged_and_foreign_files_are_refused(tmp_path_factory, tmp_path):
    path, _ = npz(tmp_path_factory)
    whole = path.read_bytes()
    for length in (0, 1, 127, 128, 150, 200, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(InputFileError, match="does not hold a sparse tensor: "):
            read_tensor(path)
    np.save(path.with_suffix(".npy"), np.ones(3))
    with pytest.raises(InputFileError, match=r"sparse tensor: it begins with b'\\x93NUMPY"):
        read_tensor(path.with_suffix(".npy"))
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        read_tensor(tmp_path / "none.npz")


def test_the_former_binary_form_is_refused_with_advice(file):
    with pytest.raises(InputFileError, match=r"x\.swt is a \.swt file\n.*\nconvert the \.tns file again: "):
        read_tensor(file(b"\x93SWT\r\n\x1a\n" + bytes(200), "x.swt"))


@given(
    st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\0", b"\x93SWT\r\n\x1a\n", b"PK\3\4", b"1 1 "]),
    st.binary(max_size=300),
)
def test_arbitrary_bytes_are_a_tensor_or_refused(tmp_path_factory, start, content):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(start + content)
    for read in (read_tns, read_tensor):
        with suppress(InputFileError):
            assert read(path).values.size


# --------------------------------------------------------------------------------------------------
# Stopped at any moment
# --------------------------------------------------------------------------------------------------

WRITING = """
import sys
from pathlib import Path
from reference.sparse.files import read_tensor
from reference.sparse.tns import write_tns
ready = lambda done, total: done < total and print("ready", flush=True)
try:
    write_tns(Path("x.tns.gz"), read_tensor("x.npz"), progress=ready)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.at_most(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_conversion_keeps_the_old_file(tmp_path, number):
    count = 400_000
    indices = np.arange(count, dtype=np.uint32)
    write_tensor(tmp_path / "x.npz", Coo(np.array([indices] * 3), np.sqrt(indices), (count,) * 3))
    (tmp_path / "x.tns.gz").write_bytes(b"precious")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", WRITING],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert (tmp_path / "x.tns.gz").read_bytes() == b"precious"
    names = {path.name for path in tmp_path.iterdir()} - {"x.npz", "x.tns.gz"}
    assert all(name.startswith(".x.tns.gz.") for name in names)
    assert not names or number == signal.SIGKILL


SPTENSOR = "sptensor\n3\n3 3 2\n3\n1 1 1 1\n1 3 2 22\n2 2 2 3\n"


def test_files_of_the_tensor_toolbox_are_read(tmp_path):
    path = tmp_path / "a.tns"
    path.write_text(SPTENSOR)
    tensor = read_tns(path)
    assert tensor.shape == (3, 3, 2)
    assert tensor.coords.tolist() == [[0, 0, 1], [0, 2, 1], [0, 1, 1]]
    assert tensor.values.tolist() == [1, 22, 3]
    path.write_text(SPTENSOR.replace("1 1 1 1\n", "2 2 1 1\n").replace("1 3 2 22", "2 3 2 22"))
    assert read_tns(path).coords.min(axis=1).tolist() == [1, 1, 0]  # the base is 1, whatever the least index


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("3 3 2\n", "3 3 1\n", "line 6: the index 2 in mode 2, whose dimension is 1"),
        ("3 3 2\n3\n", "3 3 2\n4\n", "line 4: 4 nonzeros are announced, 3 follow"),
        ("3 3 2\n3\n", "3 3 2\n", "line 4: 4 fields, expected 1\nthis line has the number of nonzeros"),
        ("1 1 1 1", "0 1 1 1", "line 5: the index 0\nwith base=1"),
        ("sptensor", "ktensor", "line 1: a ktensor of the Tensor Toolbox or pyttb"),
        ("sptensor", "matrix", "read this one with pyttb.import_data"),
    ],
)
def test_wrong_files_of_the_tensor_toolbox_are_named(tmp_path, before, after, text):
    path = tmp_path / "a.tns"
    path.write_text(SPTENSOR.replace(before, after, 1))
    with pytest.raises(InputFileError) as caught:
        read_tns(path)
    assert text in str(caught.value)
