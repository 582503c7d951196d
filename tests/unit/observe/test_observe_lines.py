"""Counts per source line: naming, lookup and listing of lines."""

import pytest

from reference import SimwarpError
from simwarp.observe.banks import BankCounts
from simwarp.observe.line_counts import LineCounts, LineTable, ReportError, line_of, sorted_lines
from simwarp.ptx.parse import parse

PTX = """.version 9.0 .target sm_90
.entry k() {
.reg .b32 %r;
mov.b32 %r, 1;
.loc 1 42 3
mov.b32 %r, 2;
ret;
}
.file 1 "bmm/bmm.cu"
"""


@pytest.fixture
def counts():
    counts = LineCounts("accesses")
    for line, number in (("a/x.cu:10", 3), ("a/x.cu:9", 0), ("b/x.cu:10", 5), ("b/x.cu:7", 1), ("ptx:3", 2)):
        counts.add(line, number)
    return counts


def test_a_line_is_named_by_source_or_else_by_ptx():
    lines = [line_of(instruction) for instruction in parse(PTX).entries["k"].instructions]
    assert lines == ["ptx:4", "bmm/bmm.cu:42", "bmm/bmm.cu:42"]


def test_a_file_is_found_by_any_suffix_of_its_path(counts):
    assert counts["a/x.cu:10"] == 3
    assert counts["x.cu:9"] == 0
    assert counts["x.cu:7"] == 1
    assert counts["ptx:3"] == 2


@pytest.mark.parametrize("part", ["u:7", ".cu:7", "cu:7", "x.cu:70", "x.cu:", ""])
def test_a_part_of_a_name_is_not_a_suffix(counts, part):
    assert part not in counts
    with pytest.raises(ReportError, match=f"no accesses at {part}\n"):
        counts[part]


def test_an_ambiguous_line_is_refused(counts):
    assert "x.cu:10" not in counts
    with pytest.raises(ReportError, match=r"is ambiguous\nit matches a/x.cu:10, b/x.cu:10\n"):
        counts["x.cu:10"]


def test_an_error_is_typed_and_names_the_lines(counts):
    with pytest.raises(SimwarpError) as caught:
        counts["x.cu:1"]
    assert str(caught.value).splitlines() == [
        "no accesses at x.cu:1",
        "there were some at a/x.cu:9, a/x.cu:10, b/x.cu:7, b/x.cu:10, ptx:3",
        "ask for one of these lines, or launch a kernel that executes x.cu:1",
    ]
    many = LineCounts("accesses")
    for number in range(40):
        many.add(f"m.cu:{number}")
    with pytest.raises(ReportError, match=r"m\.cu:11 and 28 more"):
        many["m.cu:40"]
    with pytest.raises(ReportError, match="there were some at no line"):
        LineCounts()["m.cu:40"]


def test_totals_add_up_and_lines_are_sorted(counts):
    counts.add("a/x.cu:10", 4)
    assert (counts.total, len(counts), counts["a/x.cu:10"]) == (15, 5, 7)
    assert list(counts) == ["a/x.cu:9", "a/x.cu:10", "b/x.cu:7", "b/x.cu:10", "ptx:3"]
    assert next(iter(counts.to_json().items())) == ("a/x.cu:9", 0)
    counts.clear()
    assert (counts.total, list(counts)) == (0, [])


def test_a_table_lists_the_lines_of_all_columns():
    table = LineTable(BankCounts, "accesses")
    table.add("a.cu:2", BankCounts(0, 5, 1))
    table.add("a.cu:1", BankCounts(1, 0, 0))
    assert table.to_json() == {
        "lines": {
            "a.cu:1": {"requests": 1, "wavefronts": 0, "conflicts": 0},
            "a.cu:2": {"requests": 0, "wavefronts": 5, "conflicts": 1},
        },
        "total": {"requests": 1, "wavefronts": 5, "conflicts": 1},
    }
    assert list(table.to_json()["lines"]) == ["a.cu:1", "a.cu:2"]
    assert table["a.cu:2"] == BankCounts(0, 5, 1)


def test_paths_may_contain_colons():
    assert sorted_lines(["C:/x.cu:10", "C:/x.cu:2"]) == ["C:/x.cu:2", "C:/x.cu:10"]
