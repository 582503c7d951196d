"""The runner of public kernels, on a planted folder of kernels that are right, wrong or unsupported."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

OF_STRANGERS = ("cases", "gpuverify", "hirace", "labels", "problems", "scor", "sources")
MODULES = ("strangers", "common", *(f"stranger_{name}" for name in OF_STRANGERS))


@pytest.fixture(scope="module")
def strangers():
    """The script as a module; other folders have a module ``common``, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path("benchmarks").absolute()))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield importlib.import_module("strangers")
        for name in MODULES:
            sys.modules.pop(name, None)


KERNELS = r"""#include <stdio.h>
#include <helper_cuda.h>
#include <cuda_pipeline.h>
#include "size.h"

template <class T>
T drawn(T below)
{
    return rand() % below;
}

template <int SHIFT> __global__ void
shifted(const int* __restrict__ x, int* y)
{
    __shared__ int tile[SIZE];
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[threadIdx.x] = tile[(threadIdx.x + SHIFT) % SIZE];
}

int main()
{
    shifted<1><<<1, SIZE>>>(nullptr, nullptr);
    printf("%d\n", drawn(3));
}
"""
WAIT, BARRIER, UNKNOWN = "__pipeline_wait_prior(0)", "__syncthreads()", "tcgen05.wait::ld.sync.aligned;"
INSTANCE = "template __global__ void shifted<1>(const int*, int*);"


@pytest.fixture
def folder(tmp_path):
    """A folder with one project: a kernel in four files, of which one is right."""
    home = tmp_path / "planted" / "kernels"
    home.mkdir(parents=True)
    (home / "size.h").write_text("#define SIZE 64\n")
    (home / "right.cu").write_text(KERNELS)
    (home / "no_wait.cu").write_text(KERNELS.replace(f"{WAIT};", f"{';' * 3} // {WAIT}"))
    (home / "no_barrier.cu").write_text(KERNELS.replace(BARRIER, "__syncwarp()"))
    (home / "unknown.cu").write_text(KERNELS.replace(BARRIER, f'{BARRIER}; asm volatile("{UNKNOWN}")'))
    (home / "broken.cu").write_text(KERNELS.replace("int* y", "itn* y"))
    return tmp_path


@pytest.fixture
def case(strangers):
    """Make a case of a file; by default it expects that the kernel moves elements by one."""
    problems, sources = map(importlib.import_module, ("stranger_problems", "stranger_sources"))

    def make(file, moves=1, **more):
        def problem(random):
            x = random.integers(0, 99, 64).astype(np.int32)
            return problems.Problem((1,), (64,), [x, problems.Out(np.roll(x, -moves))])

        path, options = f"kernels/{file}.cu", {"host": ["T drawn"], "after": INSTANCE} | more
        return sources.Case("someone/planted", path, "shifted", "cp.async", problem, **options)

    return make


@pytest.fixture
def bug():
    return importlib.import_module("stranger_sources").Bug


def test_a_right_kernel_runs_and_agrees_without_findings(strangers, folder, case):
    result = strangers.result_of(folder, case("right"))
    assert (result.ran, result.agrees, result.findings) == (True, True, [])
    assert (result.right, result.open) == (True, False)
    assert [run.schedule for run in result.published] == ["lowest pc", "stack", "random"]
    assert result.instructions == ["cp.async", "cp.async.commit_group", "cp.async.wait_group"]


def test_a_result_that_numpy_does_not_expect_is_open(strangers, folder, case):
    result = strangers.result_of(folder, case("right", moves=2))
    assert (result.ran, result.agrees, result.findings, result.open) == (True, False, [], True)


@pytest.mark.parametrize(("file", "kind"), [("no_wait", "CopyInFlight"), ("no_barrier", "Race")])
def test_a_finding_is_open_and_names_the_lines_of_the_file(strangers, folder, case, file, kind):
    result = strangers.result_of(folder, case(file))
    assert result.open
    line = 1 + KERNELS.splitlines().index("    y[threadIdx.x] = tile[(threadIdx.x + SHIFT) % SIZE];")
    found = next(finding for finding in result.findings if finding.startswith(kind))
    assert f"({file}.cu:{line}, {file}.cu:{line - 4})" in found


def test_a_declared_bug_is_closed_by_its_correction(strangers, folder, case, bug):
    declared = bug("nothing waits", (r";;; // (.*)$", r"\1;"))
    result = strangers.result_of(folder, case("no_wait", bugs=[declared]))
    assert result.findings
    assert (result.right, result.open) == (True, False)


def test_a_correction_that_does_not_help_leaves_the_kernel_open(strangers, folder, case, bug):
    declared = bug("a comment", (r";;; // (.*)$", ";"))
    assert strangers.result_of(folder, case("no_wait", bugs=[declared])).open


@pytest.mark.parametrize("waits", ["", "tcgen05"])
def test_an_unsupported_instruction_is_open_unless_the_table_names_it(strangers, folder, case, waits):
    result = strangers.result_of(folder, case("unknown", waits=waits))
    assert (result.ran, result.waits, result.open) == (False, bool(waits), not waits)
    assert "tcgen05" in result.to_text()


def test_a_kernel_that_waits_no_more_is_judged(strangers, folder, case):
    assert strangers.result_of(folder, case("no_barrier", waits="tcgen05")).open
    assert strangers.result_of(folder, case("right", waits="tcgen05")).right


def test_a_file_that_does_not_compile_is_open(strangers, folder, case):
    result = strangers.result_of(folder, case("broken"))
    assert (result.ran, result.open) == (False, True)
    assert "itn" in result.to_text()


@pytest.mark.parametrize(
    ("file", "more", "said"),
    [
        ("missing", {}, "check out github.com/someone/planted"),
        ("right", {"host": ["U drawn"]}, "nothing matches"),
        ("right", {"edits": [("SHIFTED", "1")]}, "nothing matches"),
    ],
)
def test_a_file_that_is_not_the_one_of_the_table_is_refused(strangers, folder, case, file, more, said):
    with pytest.raises(importlib.import_module("stranger_sources").StrangerError, match=said):
        strangers.result_of(folder, case(file, **more))


def test_the_script_shows_and_writes_all_results(strangers, folder, case, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [strangers.__file__])
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("SIMWARP_COMMIT", "0" * 40)
    cases, path = [case("right"), case("no_barrier")], tmp_path / "results.json"
    assert strangers.main(cases, ["--artifact", str(folder), "--json", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "shifted (OPEN)" in printed
    assert "Race: read of 4 bytes" in printed
    (row,) = json.loads(path.read_text())["rows"]
    assert (row["case"], row["ours"], row["target"]) == ("strangers/someone/planted", 1, 2)
    right, wrong = row["params"]["kernels"]
    assert (right["agrees"], right["right_when_corrected"]) == (True, True)
    assert (wrong["findings"] != [], wrong["right_when_corrected"]) == (True, False)
    assert strangers.main(cases, ["--artifact", str(folder), "--only", "nothing"]) == 0


def test_the_table_has_kernels_of_many_projects(strangers):
    names = [(case.project, case.name) for case in strangers.CASES]
    assert len(set(names)) == len(names) >= 8
    assert len({project for project, _ in names}) >= 4


# The page of the benchmarks shows what benchmarks/strangers.py has found.


def test_stored_results_are_those_of_the_table(strangers):
    rows = json.loads(Path("benchmarks/results/cpu/strangers.json").read_text())["rows"]
    stored = {
        (row["case"].removeprefix("strangers/"), kernel["kernel"])
        for row in rows
        for kernel in row["params"]["kernels"]
    }
    assert stored == {(case.project, case.name) for case in strangers.CASES}
    assert all(len(row["params"]["commit"]) == 40 for row in rows)
