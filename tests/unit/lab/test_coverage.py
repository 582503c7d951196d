"""`simwarp coverage`: supported forms with their evidence, and unsupported instructions of a file."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from simwarp.cli import coverage, main
from simwarp.lab.evidence.forms import Evidence, census, evidence, required, unwitnessed
from simwarp.ptx.instructions import ROWS
from support import run_ptx_rows as kernels

ROOT = Path(__file__).parents[3]
HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
RUNS = HEAD + ".visible .entry runs() {\n\tret;\n}\n"
LACKS = (
    HEAD
    + """.func helper() {
	.reg .b32 %r<3>;
	sust.p.1d.b32.trap [%r1, {%r2}], {%r2};
	ret;
}
.visible .entry fine() {
	ret;
}
.visible .entry lacking() {
	.reg .b32 %r<3>;
	mov.u32 %r1, 1;
	frobnicate.u32 %r2, %r1;
	frobnicate.u32 %r2, %r1;
	call helper;
	ret;
}
"""
)


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "kernels.ptx"
        path.write_text(text)
        return str(path)

    return write


def report(capsys, *arguments):
    code = main(["coverage", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.gate
def test_json_has_one_entry_for_each_form(capsys):
    code, printed = report(capsys)
    assert code == 0
    forms = [entry["form"] for entry in printed["rows"]]
    assert len(forms) == len(set(forms))
    assert {form for row in ROWS.values() for form in required(row)} <= set(forms)
    assert [entry["form"] for entry in printed["rows"] if entry["census"]] == [
        form for form in forms if form in set(census())
    ]
    assert set(census()) <= set(forms)
    for entry in printed["rows"]:
        assert set(entry) == {
            *("form", "row", "section", "fidelity", "bound", "min_sm"),
            *("golden", "sets", "largest_error", "census", "invariant"),
        }
        found = evidence().get(entry["form"])
        assert (entry["golden"], entry["sets"]) == ((found.golden, found.sets) if found else (None, 0))


def test_open_forms_state_their_invariant(capsys):
    _, printed = report(capsys)
    rows = {entry["form"]: entry for entry in printed["rows"]}
    assert rows["activemask.b32"]["invariant"] == "the mask names the own lane and only executing ones"
    assert {entry["fidelity"] for entry in printed["rows"] if entry["invariant"]} == {"open"}


@pytest.fixture
def recorded(monkeypatch):
    """Evidence of all forms, those of rows included that still await their recording; a dict to change."""
    every = evidence() | dict.fromkeys(unwitnessed(), Evidence("planted", 1))
    monkeypatch.setattr("simwarp.lab.evidence.forms.evidence", lambda: every)
    return every


@pytest.fixture
def without_popc(recorded):
    """Evidence of all forms except ``popc.b32``, as for a new row."""
    del recorded["popc.b32"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_popc")
def test_a_form_without_a_recording_has_no_evidence(capsys):
    assert unwitnessed() == ["popc.b32"]
    code, data = report(capsys)
    assert (code, data["unwitnessed"]) == (0, ["popc.b32"])
    assert {entry["form"]: entry["golden"] for entry in data["rows"]}["popc.b32"] is None
    assert main(["coverage"]) == 0
    printed = capsys.readouterr().out
    assert "popc.b32 is unwitnessed: record it on a GPU with simwarp record 'ptx-*'" in printed
    assert ", 1 unwitnessed;" in printed
    (line,) = (line for line in printed.splitlines() if line.startswith("popc "))
    assert line.split()[-4:] == ["2", "1", "1", "2"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_popc")
def test_the_release_gate_refuses_an_unrecorded_form(capsys):
    assert main(["coverage", "--strict"]) == 1
    gate = (ROOT / "Makefile").read_text().partition("\ngate:")[2].partition("\n\n")[0]
    assert "simwarp coverage --strict" in gate


@pytest.mark.slow
@pytest.mark.usefixtures("recorded")
def test_the_release_gate_passes_recorded_forms():
    assert unwitnessed() == []
    assert main(["coverage", "--strict"]) == 0


@pytest.mark.slow
def test_the_table_has_a_line_for_each_row(capsys):
    assert main(["coverage"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, row in ROWS.items():
        assert any(line.startswith(name) and row.section in line for line in lines), name
    assert any(f"of {len(census())} forms that nvcc emits" in line for line in lines)


def test_forms_are_listed(capsys, monkeypatch):
    facts = coverage.all_forms()
    monkeypatch.setattr(coverage, "all_forms", lambda: facts[::100])  # a table of all takes 10 seconds
    assert main(["coverage", "--forms"]) == 0
    listed = capsys.readouterr().out.split()
    assert {fact.form for fact in facts[::100]} <= set(listed)


def test_a_supported_file_is_reported_as_runnable(capsys, written):
    code, printed = report(capsys, written(RUNS))
    assert code == 0
    assert printed["kernels"] == [{"name": "runs", "entry": "runs", "runs": True, "lacks": [], "error": ""}]


def test_unsupported_instructions_are_listed(capsys, written):
    code, printed = report(capsys, written(LACKS))
    assert code == 1
    fine, lacking = printed["kernels"]
    assert fine["runs"]
    assert not lacking["runs"]
    assert lacking["lacks"] == [
        {"opcode": "frobnicate.u32", "line": 15, "count": 2},
        {"opcode": "sust.p.1d.b32.trap", "line": 6, "count": 1},
    ]


def test_unsupported_instructions_are_printed(capsys, written):
    assert main(["coverage", written(LACKS)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["fine: runs", "lacking: does not run", "  line 15: frobnicate.u32, and 1 more"]
    assert lines[-1] == "1 of 2 kernels run"


def test_a_link_error_is_reported(capsys, written):
    code, printed = report(capsys, written(HEAD + ".entry k() {\n\tmov.u32 %r1, 1;\n\tret;\n}\n"))
    assert code == 1
    (kernel,) = printed["kernels"]
    assert kernel["lacks"] == []
    assert "%r1" in kernel["error"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(".version nonsense", "line 1"), (None, "No such file"), (b"\xff\xfe", "which is ASCII text")],
)
def test_a_file_that_is_not_ptx_is_a_usage_error(capsys, tmp_path, content, message):
    path = tmp_path / "kernels.ptx"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["coverage", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_kernels_of_the_tests_are_supported(capsys, written):
    text = kernels.module([kernels.probe_of("shfl.sync.up.b32"), kernels.probe_of("call.uni")])
    code, printed = report(capsys, written(text))
    assert (code, [kernel["runs"] for kernel in printed["kernels"]]) == (0, [True, True])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc of the CUDA toolkit")
def test_ptx_from_nvcc_is_supported(capsys, tmp_path):
    source = tmp_path / "saxpy.cu"
    source.write_text(
        "__global__ void saxpy(int n, float a, const float* x, float* y) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i]; }\n"
    )
    path = tmp_path / "saxpy.ptx"
    subprocess.run(["nvcc", "-ptx", "-arch=sm_90", "-o", path, source], check=True)
    code, printed = report(capsys, str(path))
    assert (code, printed["kernels"][0]["name"]) == (0, "saxpy")


def test_kernels_have_their_names_in_the_source(tmp_path, capsys):
    path = tmp_path / "k.cu"
    path.write_text("__global__ void f(int* x) {}\n__global__ void f(float* x) {}\n__global__ void g() {}\n")
    assert main(["coverage", str(path)]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "3 of 3 kernels run",
        "f(float*): runs",
        "f(int*): runs",
        "g: runs",
    ]
    assert main(["coverage", str(path), "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert {kernel["name"]: kernel["entry"] for kernel in kernels}["g"] == "_Z1gv"


@pytest.mark.parametrize(
    "text", ["", "__device__ int f() { return 1; }", "template <class T> __global__ void f(T* x);"]
)
def test_a_file_without_kernels_is_refused(tmp_path, capsys, text):
    path = tmp_path / "k.cu"
    path.write_text(text)
    assert main(["coverage", str(path)]) == 2
    assert "k.cu has no kernel\n" in capsys.readouterr().err
