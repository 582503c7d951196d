"""The bugs of `examples/bugs` are found, named by file, line and lane, and their corrected twins are clean.

Expected blocks, warps and lanes are computed from the launch sizes, not taken from the reports.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError
from simwarp import faults
from simwarp.faults import Deadlock, Race
from simwarp.lab.recording import Asking, examples, record, recorded
from simwarp.lab.subjects import bugs as recorder
from simwarp.memory import POISON
from simwarp.ptx.parse import parse

ROOT = Path(__file__).resolve().parents[3]
FOLDER = examples("bugs")
BUGS, TOOLS = recorder.bugs(), recorder.TOOLS
ASYNCHRONOUS = recorder.asynchronous()
NAMES = list(BUGS)
RACES = [name for name in NAMES if BUGS[name].fault == "Race"]


@dataclass(frozen=True)
class Found:
    """The expected report of a bug.

    ``at`` is block, warp and lane; ``count`` is the number of faulting lanes, and ``wrong`` the number of
    wrong output elements, on a device that reports without raising.
    """

    at: tuple[int, int, int]
    allocation: str = ""
    count: int | None = 1
    wrong: int = 0


def shared(name):
    return f"shared memory of kernel {name}"


FOUND = {
    # Lane 0 reads its own word, lane 1 a word of the second warp.
    "missing_barrier": Found((0, 0, 1), shared("missing_barrier"), count=None),
    # Lane 0 reads the words 0 to 3, of which lane 1 wrote word 1.
    "missing_syncwarp": Found((0, 0, 0), shared("missing_syncwarp"), count=None),
    # 301 = 3 blocks of 96 and 13 more; 83 of 384 lanes have no element.
    "wrong_mask": Found((3, 0, 13), count=384 - 301),
    # The second row starts at byte 148: 33 of 45 rows are misaligned, 9 vectors each.
    "misaligned_vector": Found((0, 0, 1), "x", count=33 * 9, wrong=33),
    # 1002 = 2 * 3 * 128 + 128 + 3 * 32 + 10: the second block in its third round.
    "off_by_one": Found((1, 3, 10), "x", wrong=1),
    "use_after_free": Found((0, 0, 0), "malloc(148) (freed)", count=5 * 37, wrong=5 * 37),
    "uninitialised_shared": Found((0, 0, 0), shared("uninitialised_shared"), wrong=1),
    "divergent_barrier": Found((0, 0, 0), wrong=11),
    # All counts are 1, since all threads add to the initial 0.
    "lost_atomic": Found((0, 0, 0), "counts", count=None, wrong=16),
    # The last block sums the partial results, starting with that of the first block.
    "race_between_blocks": Found((6, 0, 0), "sums", count=None),
    # After the last of 13 elements, the next lane has exited.
    "stale_shuffle": Found((3, 0, 12)),
    # The first block updates and unlocks, the second exits with the lock, the third waits.
    "livelock": Found((2, 0, int(BUGS["livelock"].arguments["x"][64:96].argmax())), wrong=1),
}


def fault_of(name, **options):
    with pytest.raises(faults.KernelFault) as caught:
        BUGS[name].run(simwarp.Device(**options))
    return caught.value


def check(name):
    return getattr(faults, BUGS[name].fault).check


def where(place):
    """The reported place of the fault, and the expected one from the table above."""
    assert place.block[1:] == (0, 0)
    assert place.thread == (32 * place.warp + place.lane, 0, 0)
    return place.block[0], place.warp, place.lane


def is_as_expected(name, fault):
    bug, found = BUGS[name], FOUND[name]
    assert type(fault).__name__ == bug.fault
    assert (fault.place.kernel, fault.place.source_file) == (name, f"bugs/{name}.cu")
    assert fault.place.source_line == bug.line
    assert where(fault.place) == found.at
    assert getattr(fault, "allocation", "") == found.allocation
    first, quoted, *_ = str(fault).splitlines()
    assert first.startswith(f"{bug.file}:{bug.line}: ")
    assert quoted == f"{bug.line:5} | {bug.source.splitlines()[bug.line - 1]}"


# ---- each bug ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_and_named(name):
    is_as_expected(name, fault_of(name))


@pytest.mark.at_most(6)
@pytest.mark.parametrize("name", NAMES)
def test_the_corrected_twin_is_clean_and_right(name):
    bug = BUGS[name]
    for checks in ("raise", "report"):
        device = simwarp.Device(checks=checks)
        assert bug.is_right(bug.run(device, fixed=True))
        assert device.faults == []


@pytest.mark.parametrize("name", NAMES)
def test_a_reporting_device_continues_the_launch(name):
    bug, found, device = BUGS[name], FOUND[name], simwarp.Device(checks="report")
    outputs = bug.run(device)
    is_as_expected(name, device.faults[0])
    assert {type(fault).__name__ for fault in device.faults} == {bug.fault}
    assert {fault.place.source_line for fault in device.faults} == {bug.line}
    assert found.count in (None, sum(fault.count for fault in device.faults))
    assert wrong(bug, outputs) == found.wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_device_without_checks_finds_nothing(name):
    device = simwarp.Device(checks={check(name): "off"})
    outputs = BUGS[name].run(device)
    assert device.faults == []
    assert wrong(BUGS[name], outputs) == FOUND[name].wrong


def wrong(bug, outputs):
    """The number of elements that differ from the expected output."""
    return sum(int((outputs[name] != right).sum()) for name, right in bug.right.items())


@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_with_only_its_own_check(name):
    others = dict.fromkeys(simwarp.checks.KINDS, "off") | {check(name): "raise"}
    is_as_expected(name, fault_of(name, checks=others))


@pytest.mark.parametrize("lanes", [32, 256])
@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_for_any_number_of_concurrent_blocks(name, lanes):
    is_as_expected(name, fault_of(name, chunk_lanes=lanes))


@pytest.mark.at_most(9)
@pytest.mark.slow_cases("livelock-random-0")
@pytest.mark.gate_cases("livelock-random-1")
@pytest.mark.parametrize(("schedule", "seed"), [("stack", 0), ("random", 0), ("random", 1)])
@pytest.mark.parametrize("name", NAMES)
def test_another_schedule_names_the_same_lines_and_clean_twins(name, schedule, seed):
    bug = BUGS[name]
    assert bug.is_right(bug.run(simwarp.Device(schedule=schedule, seed=seed), fixed=True))
    fault = fault_of(name, schedule=schedule, seed=seed, instruction_budget=10**6)
    assert fault.place.source_line in (bug.line, bug.other_line)


# ---- what the faults say beyond the place --------------------------------------------------------------


@pytest.mark.parametrize("name", RACES)
def test_a_race_names_both_accesses(name):
    bug, fault = BUGS[name], fault_of(name)
    assert isinstance(fault, Race)
    assert (fault.other.kernel, fault.other.source_file) == (name, bug.file)
    assert fault.other.source_line == bug.other_line
    assert fault.other.text != fault.place.text
    assert fault.space == ("shared" if fault.allocation == shared(name) else "global")
    assert f"{bug.name}.cu:{bug.other_line}" in str(fault)


@pytest.mark.parametrize(
    ("name", "other"),
    [("missing_barrier", (0, 1, 0)), ("missing_syncwarp", (0, 0, 1)), ("race_between_blocks", (0, 0, 0))],
)
def test_an_early_read_is_reported(name, other):
    fault = fault_of(name)
    assert (fault.earlier, fault.later) == ("write", "read")
    assert where(fault.other) == other


def test_lost_additions_are_reported():
    fault, x = fault_of("lost_atomic"), BUGS["lost_atomic"].arguments["x"]
    block, warp, lane = where(fault.other)
    assert (fault.earlier, fault.later) == ("read", "write")
    bins = np.minimum(x * 16, 15).astype(int)
    other = 128 * block + 32 * warp + lane
    assert other > 0
    assert bins[other] == bins[0] == fault.offset // 4


@pytest.mark.parametrize(
    ("name", "width", "offset"),
    [
        ("misaligned_vector", 16, 37 * 4),
        ("off_by_one", 4, 1003 * 4),
        ("use_after_free", 4, 0),
        ("uninitialised_shared", 4, 0),
        ("missing_barrier", 4, 4),
        ("missing_syncwarp", 4, 4),
        ("race_between_blocks", 4, 0),
    ],
)
def test_the_fault_names_the_bytes(name, width, offset):
    fault = fault_of(name)
    assert (fault.width, fault.offset) == (width, offset)


def test_a_deadlock_names_its_waiting_warps():
    bug, fault = BUGS["divergent_barrier"], fault_of("divergent_barrier")
    assert isinstance(fault, Deadlock)
    assert [place.source_line for place in fault.waiting] == [bug.line, bug.other_line]
    assert [where(place) for place in fault.waiting] == [(0, 0, 0), (0, 0, 16)]
    assert [note.place for note in fault.notes] == [*fault.waiting]
    assert fault.notes[0].label.startswith("528 lanes wait")  # of 11 blocks with 3 warps each, one half


def test_uninitialised_memory_reads_as_poison():
    device = simwarp.Device(checks="off")
    x = BUGS["uninitialised_shared"].arguments["x"].tolist()
    got = BUGS["uninitialised_shared"].run(device)["y"].tolist()
    poison = int.from_bytes([POISON] * 4, "little")
    assert got[0] == (poison + 2 * x[0] + x[1]) % 2**32


# ---- the folder ----------------------------------------------------------------------------------------


def test_five_bugs_give_right_results_on_silicon():
    assert sum(found.wrong == 0 for found in FOUND.values()) == 5


def test_each_of_the_twelve_bugs_has_a_file():
    assert len(NAMES) == len(FOUND) == 12
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(NAMES)
    assert len({bug.title for bug in BUGS.values()}) == 12


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_small_and_marks_the_bug(name):
    text = BUGS[name].source
    lines = text.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 110
    assert text.startswith("// ")
    assert len(re.findall(r"// BUG$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"// BUG: ", text)) <= 1
    assert text.count("FIXED") >= 1
    for fixed in (False, True):
        assert list(parse(BUGS[name].ptx(fixed=fixed).text).entries) == [name]


def run_script(monkeypatch, *arguments):
    """Exit status of ``bugs.py``, run in this process."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr("sys.argv", ["bugs.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(FOLDER / "bugs.py"), run_name="__main__")
    return stopped.value.code


def test_the_script_prints_each_fault(monkeypatch, capsys):
    assert run_script(monkeypatch, "off_by_one", "stale_shuffle") == 0
    printed = capsys.readouterr().out
    assert "off_by_one: OutOfBounds\n" in printed
    assert f"\nbugs/stale_shuffle.cu:{BUGS['stale_shuffle'].line}: " in printed
    assert printed.count("corrected: right") == 2


def test_the_script_fails_if_a_bug_is_missed(monkeypatch, capsys):
    class Blind(simwarp.Device):
        def __init__(self):
            super().__init__(checks="off")

    monkeypatch.setattr(simwarp, "Device", Blind)
    assert run_script(monkeypatch, "off_by_one") == 1
    assert "off_by_one: nothing found\n" in capsys.readouterr().out


def test_the_script_refuses_an_unknown_name(monkeypatch, capsys):
    assert run_script(monkeypatch, "of_by_one") == 2
    assert "no bug 'of_by_one'" in capsys.readouterr().err


# ---- compute-sanitizer ---------------------------------------------------------------------------------

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at off_by_one+0x150 in /a/folder/off_by_one.cu:14
=========     by thread (106,0,0) in block (1,0,0)
=========     Host Frame: main [0x7a3] in off_by_one_buggy
=========
error: unspecified launch failure
========= ERROR SUMMARY: 1 error
"""
HAZARD = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at missing_barrier+0x1b0 in missing_barrier.cu:14
=========     and Read access at missing_barrier+0x1d0 in missing_barrier.cu:19 [28 hazards]
=========
right
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\nright\n========= ERROR SUMMARY: 0 errors\n"


def test_compute_sanitizer_output_is_parsed():
    assert recorder.findings(OUT_OF_BOUNDS, "off_by_one") == {
        "found": True,
        "message": "Invalid __global__ read of size 4 bytes",
        "lines": [14],
    }
    hazard = recorder.findings(HAZARD, "missing_barrier")
    assert (hazard["found"], hazard["lines"]) == (True, [14, 19])
    assert recorder.findings(CLEAN, "off_by_one") == {"found": False, "message": "", "lines": []}
    killed = OUT_OF_BOUNDS.partition("error")[0] + "never\n"
    assert recorder.findings(killed, "off_by_one")["found"]
    assert [recorder.ending(text) for text in (OUT_OF_BOUNDS, HAZARD, CLEAN, killed)] == [
        "error",
        "right",
        "right",
        "never",
    ]


def test_a_hanging_program_is_stopped_with_its_children():
    began = time.perf_counter()
    output = recorder.limited(["sh", "-c", "echo begun; sleep 60 & sleep 60"], seconds=2)
    assert output.split() == ["begun", "never"]
    assert time.perf_counter() - began < 50  # the remaining time of both minutes is not awaited


def test_a_program_contains_the_launch_and_the_expected_result():
    bug = BUGS["livelock"]
    text = recorder.program(bug)
    assert '#include "livelock.cu"' in text
    assert "livelock<<<10, 32>>>(x, lock, best, 301u);" in text
    assert "best_right[] = {0x12d, 0x5};" in text  # 301, at index 5
    assert len(re.findall("cudaMalloc", text)) == 3


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc of the CUDA toolkit")
@pytest.mark.parametrize(("name", "variant"), [("misaligned_vector", "buggy"), ("wrong_mask", "fixed")])
def test_a_program_compiles(name, variant, tmp_path):
    assert recorder.build(BUGS[name], variant, tmp_path).stat().st_mode & 0o100


@pytest.mark.at_most(1)
@pytest.mark.gate
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc of the CUDA toolkit")
@pytest.mark.gate_cases(but=("few_releases", "large_box"))
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_program_of_an_asynchronous_bug_compiles(name, tmp_path):
    for variant in recorder.VARIANTS:
        assert recorder.build(ASYNCHRONOUS[name], variant, tmp_path).stat().st_mode & 0o100


def test_the_page_matches_the_recording():
    page = (ROOT / "docs" / "bugs.md").read_text()
    (written,) = recorder.TABLE.findall(page)
    right = recorder.table(recorded("sanitizer").meta)
    assert written == right, "run python -m simwarp.lab.subjects.bugs"


def test_the_page_lists_the_asynchronous_bugs():
    page = (ROOT / "docs" / "bugs.md").read_text()
    (written,) = recorder.ASYNCHRONOUS.findall(page)
    right = recorder.asynchronous_table(recorded("sanitizer").meta)
    assert written == right, "run python -m simwarp.lab.subjects.bugs"


@pytest.mark.gate_cases(but=("few_releases", "large_box"))
@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_program_of_an_asynchronous_bug_launches_it(name):
    bug, text = ASYNCHRONOUS[name], recorder.program(ASYNCHRONOUS[name])
    assert text.startswith(f'#include "{name}.cu"\n')
    assert f"    {bug.before or name}<<<{bug.blocks}, {bug.threads}>>>(" in text
    assert (f"cudaLaunchKernelEx(&config, {name}, " in text) == bool(bug.before)
    assert ("{8, 32}" in text, "{32, 8}" in text) == (False, name == "unaligned_box")  # innermost first


def result(found, *lines, ends="right"):
    return {"ends": ends, "found": found, "message": "", "lines": list(lines)}


def test_the_table_shows_found_bugs_their_lines_and_hangs():
    bug = BUGS["missing_barrier"]
    cells = [
        recorder.cell(bug, result(True, bug.other_line)),
        recorder.cell(bug, result(True, 3)),
        recorder.cell(bug, result(False, ends="never")),
        recorder.cell(bug, result(False)),
    ]
    assert cells == ["found", "found, line not named", "never ends", "–"]
    clean = {tool: result(False) for tool in TOOLS} | {"alone": {"ends": "wrong"}}
    assert recorder.row(bug, clean).endswith("| `Race` | – | – | – | – | wrong |")
    bugs = {name: {"buggy": clean, "fixed": clean | {"memcheck": result(True)}} for name in NAMES}
    meta = {
        "gpu": {"name": "NVIDIA Test"},
        "driver": "580.0",
        "sanitizer": "Version 2025.3",
        "date": "2026-01-02",
    }
    text = recorder.table({**meta, "bugs": bugs})
    assert text.count("\n| ") == 13
    alarms = ", ".join(f"`{name}` (memcheck)" for name in NAMES)
    where = "NVIDIA Test, driver 580.0, Version 2025.3, 2026-01-02"
    assert f"{where}. Findings in the corrected twins: {alarms}." in " ".join(text.split())
    assert max(map(len, text.splitlines()[-4:])) <= 140
    text = recorder.table({**meta, "bugs": {name: {"buggy": clean, "fixed": clean} for name in NAMES}})
    assert f"{where}. Findings in the corrected twins: none." in " ".join(text.split())


@pytest.fixture(scope="module")
def recording():
    return recorded("sanitizer").meta


def test_the_recording_is_of_the_current_asynchronous_programs(recording):
    assert recording["asynchronous"]["sources"] == recorder.digests(ASYNCHRONOUS)


def test_the_recording_is_of_the_current_programs(recording):
    meta = recording
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert all(meta[key] for key in ("driver", "sanitizer", "nvcc", "date", "command"))
    assert meta["sources"] == recorder.digests(), (
        "the kernels or their launches are not what was recorded: record them again on a GPU with\n"
        "simwarp record sanitizer"
    )


@pytest.mark.parametrize("name", NAMES)
def test_corrected_twins_are_right_on_silicon_and_clean_in_the_tools(recording, name):
    twin = recording["bugs"][name]["fixed"]
    assert twin["alone"]["ends"] == "right"
    assert {tool: twin[tool]["found"] for tool in TOOLS} == dict.fromkeys(TOOLS, False)


ALARMS = {
    # initcheck does not see what a bulk copy stores.
    **dict.fromkeys(("missing_proxy_fence", "reused_tile", "unread_exit"), "initcheck"),
    # racecheck does not see that a warp's barrier comes before one lane's arrival, or a cluster's barrier
    # before a store of another block.
    **dict.fromkeys(("few_releases", "cluster_exit"), "racecheck"),
}
"""Corrected asynchronous kernels that a tool finds fault with."""


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_corrected_asynchronous_twins_are_right_on_silicon(recording, name):
    twin = recording["asynchronous"]["bugs"][name]["fixed"]
    assert {twin[tool]["ends"] for tool in ("alone", *TOOLS)} == {"right"}
    assert [tool for tool in TOOLS if twin[tool]["found"]] == ([ALARMS[name]] if name in ALARMS else [])


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("misaligned_vector", "memcheck"),
        ("off_by_one", "memcheck"),
        ("missing_barrier", "racecheck"),
        ("missing_syncwarp", "racecheck"),
    ],
)
def test_compute_sanitizer_agrees_on_the_bugs_it_detects(recording, name, tool):
    bug, seen = BUGS[name], recording["bugs"][name]["buggy"][tool]
    assert seen["found"]
    assert {bug.line, bug.other_line} & set(seen["lines"])


class StandIn(simwarp.Device):
    """A simulator that reports a GPU's name."""

    name, uuid, driver_version = "NVIDIA Test", "0" * 32, "580.0"


def test_a_recording_without_its_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda program: None if program == "nvcc" else program)
    with pytest.raises(InputFileError, match=r"^sanitizer needs nvcc\nrecord it on "):
        record(recorder.SUBJECTS[0], Asking(StandIn), tmp_path)


def test_a_recording_is_plain_json_data(tmp_path, monkeypatch):
    """The real programs are replaced by scripts that print the output of the tools."""

    def build(bug, variant, folder):
        script = folder / f"{bug.name}_{variant}"
        script.write_text(f"#!/bin/sh\necho {'right' if variant == 'fixed' else 'wrong'}\n")
        script.chmod(0o700)
        return script

    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text(
        '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\n"$1"\necho "===== ERROR SUMMARY: 0 errors"\n'
    )
    sanitizer.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(recorder, "build", build)
    monkeypatch.setattr(recorder, "bugs", lambda: {name: BUGS[name] for name in NAMES[:2]})
    monkeypatch.setattr(recorder, "asynchronous", lambda: {"few_releases": ASYNCHRONOUS["few_releases"]})
    monkeypatch.setattr(recorder, "_version", lambda program: f"{program} 1")
    monkeypatch.setattr("shutil.which", lambda program: program)
    (subject,) = recorder.SUBJECTS
    (path,) = record(subject, Asking(StandIn, processes=2), tmp_path / "new").paths
    stored = json.loads(path.read_text())
    assert stored["gpu"] == {"name": "NVIDIA Test", "uuid": "0" * 32}
    assert (stored["sanitizer"], stored["nvcc"]) == ("compute-sanitizer 1", "nvcc 1")
    assert list(stored["bugs"]) == NAMES[:2]
    assert list(stored["asynchronous"]["bugs"]) == list(stored["asynchronous"]["sources"]) == ["few_releases"]
    assert stored["bugs"][NAMES[0]]["buggy"]["alone"] == {"ends": "wrong"}
    assert stored["bugs"][NAMES[1]]["fixed"]["synccheck"] == result(False)
