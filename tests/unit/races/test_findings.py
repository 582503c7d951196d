"""Findings: one shape, and its forms for people, code hosts and editors."""

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

import simwarp
from reference.errors import InputFileError
from reference.files import check_output
from simwarp.checks import KINDS, Checks
from simwarp.cli import main
from simwarp.cli.output import _Uncut, cuttable, table
from simwarp.exec.report import Report
from simwarp.faults import OutOfBounds, Race, Trap
from simwarp.findings import Finding, annotation, to_sarif
from simwarp.findings.rules import RULES
from simwarp.places import Caller, Place
from simwarp.run import Out, run

PLACE = Place("k", (1, 0, 0), 0, 3, (3, 0, 0), 25, "st", "k.cu", 5, 7, "    x[i] = 1;")
RACE = "__global__ void race(int* x) {\n    if (threadIdx.x == 0)\n        x[0] = x[0] + 1;\n}\n"
SCHEDULES = [{}, {"schedule": "stack"}, *({"schedule": "random", "seed": seed} for seed in range(3))]


def a_note():
    fault = Race("write of x[0], which another block read", "byte 0 of x", "order them", PLACE, other=PLACE)
    fault.severity = "note"
    fault.note("read here by", Place("k", (0, 0, 0), 0, 0, (0, 0, 0), source_file="k.cu", source_line=4))
    return fault


# ---- one shape ----


def test_a_finding_has_what_its_fault_has():
    found = Finding.of(a_note())
    assert (found.kind, found.rule, found.severity, found.place) == ("race", "races", "note", PLACE)
    assert found.fields["other"] == PLACE
    data = json.loads(json.dumps(found.to_json()))
    assert data["class"] == "Race"
    assert data["other"]["source_line"] == 5
    assert data["message"] == str(found) == str(a_note())


def test_a_note_says_that_it_is_one():
    assert str(a_note()).startswith("k.cu:5: note: race: write of x[0]")
    fault = a_note()
    fault.severity = "error"
    assert str(fault).startswith("k.cu:5: race: write of x[0]")


def test_each_check_has_a_rule():
    assert set(KINDS) <= set(RULES)
    assert all(rule.summary and rule.help for rule in RULES.values())


# ---- SARIF ----


def check_log(log):
    """Structural rules of SARIF 2.1.0, sections 3.13 to 3.52."""
    assert (log["version"], "sarif-2.1.0" in log["$schema"]) == ("2.1.0", True)
    (ran,) = log["runs"]
    driver, roots = ran["tool"]["driver"], ran["originalUriBaseIds"]
    assert driver["name"] == "simwarp"
    assert driver["version"] == simwarp.__version__
    names = [rule["id"] for rule in driver["rules"]]
    assert len(set(names)) == len(names)
    assert all(rule["shortDescription"]["text"] and rule["help"]["text"] for rule in driver["rules"])
    assert all(root["uri"].startswith("file:///") and root["uri"].endswith("/") for root in roots.values())
    for result in ran["results"]:
        assert names[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
        related = result.get("relatedLocations", [])
        assert [location["id"] for location in related] == list(range(len(related)))
        for location in (*result.get("locations", []), *related):
            physical = location.get("physicalLocation")
            if physical:
                artifact = physical["artifactLocation"]
                assert artifact.get("uriBaseId", "SRCROOT") in roots
                assert ("uriBaseId" in artifact) != artifact["uri"].startswith("file:///")
                assert " " not in artifact["uri"]
                assert all(number >= 1 for number in physical["region"].values())


def test_a_log_has_places_rules_and_properties(tmp_path):
    bounds = OutOfBounds("read of x[9]", place=PLACE, element="x[9]", count=3)
    findings = [Finding.of(fault) for fault in (a_note(), bounds, Trap("the kernel executed trap"), bounds)]
    log = to_sarif(findings, {"k.cu": "a b/k.cu"}, root=tmp_path)
    check_log(log)
    note, error, trap, _ = log["runs"][0]["results"]
    assert [r["ruleId"] for r in (note, error, trap)] == ["races", "bounds", "trap"]
    assert (note["level"], error["level"]) == ("note", "error")
    where = note["locations"][0]["physicalLocation"]
    assert where["artifactLocation"] == {"uri": "a%20b/k.cu", "uriBaseId": "SRCROOT"}
    assert where["region"] == {"startLine": 5, "startColumn": 7}
    assert note["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 4}
    assert note["relatedLocations"][0]["message"]["text"].startswith("read here by")
    facts = error["properties"]
    assert [facts[name] for name in ("block", "thread", "warp", "lane", "element", "count")] == [
        (1, 0, 0),
        (3, 0, 0),
        0,
        3,
        "x[9]",
        3,
    ]
    assert "locations" not in trap


def test_a_file_elsewhere_has_its_whole_address_and_a_call_is_a_related_place(tmp_path):
    place = Place(
        "k", source_file="/usr/k.cuh", source_line=2, callers=(Caller("f", True, "k.cu", 9, 3, "f();"),)
    )
    log = to_sarif([Finding.of(OutOfBounds("read", place=place))], root=tmp_path)
    check_log(log)
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///usr/k.cuh"}
    assert result["relatedLocations"][0]["message"]["text"] == "f() is inlined here"


def test_a_fingerprint_does_not_depend_on_the_line_number():
    def of(line, text):
        place = Place("k", source_file="k.cu", source_line=line, source_text=text)
        log = to_sarif([Finding.of(OutOfBounds("read", place=place))])
        return log["runs"][0]["results"][0]["partialFingerprints"]

    assert of(5, "x[i] = 1;") == of(9, "x[i] = 1;")
    assert of(5, "x[i] = 1;") != of(5, "x[j] = 1;")


# ---- annotations ----


def test_an_annotation_escapes_what_a_workflow_command_would_take_apart():
    place = Place(source_file="a:b,c%.cu", source_line=3, source_column=2)
    found = Finding("50% of x:y\nare, wrong\r", "Race", severity="note", place=place, advice="wait")
    assert annotation(found) == (
        "::notice file=a%3Ab%2Cc%25.cu,line=3,col=2,title=simwarp%3A race::"
        "50%25 of x:y%0Aare, wrong%0D%0Ahelp: wait"
    )


# ---- simwarp run ----


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "race.cu").write_text(RACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_race(*options, block="32", grid="4"):
    return main(["run", "race.cu", "--grid", grid, "--block", block, "--arg", "x=zeros:int32:1", *options])


@pytest.mark.usefixtures("folder")
def test_a_run_writes_sarif_and_prints_annotations(capsys):
    assert run_race("--checks", "report", "--sarif", "r.sarif", "--github") == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("::error file=race.cu,line=3,col=9,title=simwarp%3A race::write of x[0]")
    assert printed.err.splitlines()[-2].endswith(
        ": 1 finding: results on hardware may differ; 652 thread-instructions"
    ), printed.err
    assert "the launch ended here" not in printed.err
    log = json.loads(Path("r.sarif").read_text())
    check_log(log)
    assert log["runs"][0]["results"][0]["ruleId"] == "races"


@pytest.mark.usefixtures("folder")
def test_a_clean_run_writes_an_empty_log(capsys):
    assert run_race("--sarif", "r.sarif", "--github", grid="1") == 0
    assert capsys.readouterr().out == ""
    assert json.loads(Path("r.sarif").read_text())["runs"][0]["results"] == []


def test_a_log_that_cannot_be_written_is_refused_before_the_kernel_runs(folder, capsys):
    assert run_race("--sarif", "no/r.sarif") == 2
    assert "choose another file with --sarif" in capsys.readouterr().err
    assert not (folder / "x.npy").exists()
    with pytest.raises(InputFileError, match="cannot be written"):
        check_output(folder)
    assert run_race("--github", "--json") == 2


@pytest.mark.usefixtures("folder")
def test_a_raised_fault_says_that_the_launch_ended(capsys):
    assert run_race() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2] == "the launch ended here; --checks report shows what else"
    assert ": stopped by this fault after " in lines[-1]
    assert "hardware gives" not in lines[-1]


def test_a_raised_fault_says_in_python_how_to_see_more(folder):
    launch = {"grid": 4, "block": 32, "args": [np.zeros(1, np.int32)]}
    with pytest.raises(Race) as raised:
        run(folder / "race.cu", **launch)
    assert raised.value.__notes__ == ['the launch ended here; checks="report" shows what else']
    (collected,) = run(folder / "race.cu", **launch, checks="report").faults
    assert collected.more == ""


# ---- what a run says of hardware ----

TAKEN = "__global__ void k(int* x) { x[threadIdx.x] = %s; }"
CLAIM = "all exact: hardware gives the same bits"


def said(value, checks="raise", size=4):
    x = np.zeros(size, np.int32)
    result = run(TAKEN % value, grid=1, block=4, args=[x], observe="fidelity", checks=checks)
    return str(result.report.fidelity)


def test_exactness_is_claimed_only_where_nothing_speaks_against_it():
    assert CLAIM in said("threadIdx.x")
    assert CLAIM not in said("threadIdx.x", "report", size=3)
    assert "faults were found: results on hardware may differ" in said("threadIdx.x", "report", size=3)
    assert "all exact, but unchecked: races" in said("threadIdx.x", {"races": "off"})


@pytest.mark.parametrize("value", ["clock()", "atomicAdd(x + 4, 1)"])
def test_what_only_a_chip_knows_is_open(value):
    told = said(value, size=5)
    assert CLAIM not in told
    assert " open (the PTX ISA leaves the result open" in told


def test_a_stopped_launch_is_told_by_the_report():
    device = simwarp.Device(observe="fidelity")
    with pytest.raises(OutOfBounds):
        run(TAKEN % 1, grid=1, block=4, args=[Out("int32", 3)], device=device)
    assert str(device.report.fidelity).startswith("stopped by a fault after ")


def test_values_that_are_not_expected_and_unwritten_ones_are_findings(folder, capsys):
    np.save("want.npy", np.ones(2, np.int32))
    (folder / "k.cu").write_text(TAKEN % "threadIdx.x")
    launch = ["run", "k.cu", "--grid", "1", "--block", "2", "--json"]
    assert main([*launch, "--arg", "x=out:int32:2", "--expect", "x=want.npy"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [found["check"] for found in data["findings"]] == ["expected"]
    assert "values differ from the expected ones" in data["summary"]
    assert main([*launch, "--arg", "x=out:int32:3"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [(found["check"], found["element"]) for found in data["findings"]] == [("unwritten", "x[2]")]
    assert CLAIM not in data["summary"]


# ---- exec ----


def test_notes_of_a_program_are_counted_apart_from_errors():
    report = Report(quiet=True, connected=True, returncode=0, failed=Counter({("cudaFree", "cudaError"): 2}))
    report.add(OutOfBounds("read of x[9]", place=PLACE))
    report.add(a_note())
    assert "1 finding (bounds 1), 1 note, exit code 0" in report.summary
    assert [(one.check, one.severity, one.count) for one in report.all_findings] == [
        ("bounds", "error", 1),
        ("races", "note", 1),
        ("calls", "note", 2),
    ]
    check_log(to_sarif(report.all_findings))


# ---- tables ----


@pytest.mark.parametrize("width", [100, 60, 30])
def test_a_narrow_terminal_cuts_the_source_and_no_key(width):
    text = io.StringIO()
    shown = table("line", "source", numbers=("sectors", "%"), cut=("source",))
    shown.add_row(Text("transpose_ok.cu:12"), cuttable("out[x] = tile[y][x]; " * 9), "1,234,567", "96.2")
    _Uncut(file=text, width=width, force_terminal=True, color_system=None).print(shown)
    row = text.getvalue().splitlines()[1]
    assert row.startswith("transpose_ok.cu:12 ")
    assert row.rstrip().endswith("1,234,567    96.2")
    assert row.count("…") == 1


def test_a_pipe_gets_whole_lines(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert "extras: compile" in printed


# ---- messages ----

PRODUCT = """
#include <mma.h>
using namespace nvcuda;
__global__ void k(const half* a, float* out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::load_matrix_sync(x, a, 16);
    wmma::load_matrix_sync(y, a, 16);
    %s
    wmma::mma_sync(c, x, y, c);
    wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major);
}"""


@pytest.mark.at_most(2)
@pytest.mark.parametrize("options", SCHEDULES)
def test_an_accumulator_that_nothing_filled_is_called_that(options):
    launch = {"grid": 1, "block": 32, "args": [np.ones((16, 16), np.float16), Out("float32", 256)]}
    with pytest.raises(simwarp.faults.UninitialisedRegister) as raised:
        run(PRODUCT % "", **launch, **options)
    assert "accumulator fragment that nothing filled" in raised.value.what
    assert "wmma::fill_fragment(c, 0)" in raised.value.advice
    assert max(map(len, str(raised.value).splitlines())) < 150
    assert not run(PRODUCT % "wmma::fill_fragment(c, 0.0f);", **launch, **options).faults


CONSTANT = (
    "__constant__ int c[4];\n__global__ void k(int* out) {\n    out[0] = c[0];\n    ((int*)c)[0] = 5;\n}\n"
)
OWN = "__global__ void k(int* out) {\n    if (out)\n        __trap();\n}\n"


def test_a_trap_of_the_compiler_is_explained():
    launch = {"grid": 1, "block": 1, "args": [Out("int32", 1)]}
    with pytest.raises(Trap) as raised:
        run(CONSTANT, **launch)
    assert "store to __constant__ memory" in raised.value.advice
    assert raised.value.place.source_line in (3, 4, 5)
    with pytest.raises(Trap) as raised:
        run(OWN, **launch)
    assert "__constant__" not in str(raised.value)


def test_a_program_says_that_a_fault_ended_the_launch(capsys):
    ended, collected = OutOfBounds("read of x[9]", place=PLACE), OutOfBounds("read of x[9]", place=PLACE)
    with pytest.raises(OutOfBounds):
        Checks().found(ended)
    Report().add(ended)
    assert "\nthe launch ended here; --checks report shows what else\n" in capsys.readouterr().err
    Report().add(collected)
    assert "ended" not in capsys.readouterr().err
