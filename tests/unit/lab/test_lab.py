"""`simwarp.lab`: every recorder runs on the simulator, as a trial."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError
from simwarp.lab.recording import GOLDEN, TABLES, Answers, Asking, Subject, record, recorded
from simwarp.lab.subjects import SUBJECTS, tiles
from simwarp.testing.golden import read
from support.unrecorded import UNRECORDED

HEADER = [
    *("version", "subject", "gpu", "driver", "nvrtc", "arch", "date", "command", "commit", "trial", "ptx"),
]


def small(**options):
    return Asking(simwarp.Device, small=True, **options)


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(
    *(
        "bconv2d*",
        "bmm*",
        "bnn*",
        "pack-column",
        "mttkrp-tensors",
        "kernels",
        "probe",
        "tiles",
        "ptx-*",
        "fuzz",
        "wgmma",
        "mbarriers",
        "tensor-maps",
        "products",
        "textures",
    ),
)
@pytest.mark.gate_cases(
    "bnn*",
    "mttkrp-tensors",
    "bconv2d-wgmma",
    "wgmma",
    "ptx-memory",
    "ptx-control",
    "mbarriers",
    "bconv2d-wgmma-geometries",
    "bconv2d-windows*",
)
@pytest.mark.parametrize("name", [name for name, subject in SUBJECTS.items() if not subject.needs])
def test_a_trial_is_recorded_read_back_and_replayed(name, tmp_path):
    subject, seen = SUBJECTS[name], []
    outcome = record(subject, small(progress=lambda done, total: seen.append(done <= total)), tmp_path)
    assert outcome.differences == []
    assert all(seen)
    with pytest.raises(InputFileError, match=rf"{name}\.json is a trial on simwarp simulator \(sm_90\)"):
        recorded(name, tmp_path)
    recording = recorded(name, tmp_path, trial=True)
    assert list(recording.meta)[: len(HEADER)] == HEADER
    assert recording.meta["command"] == f"simwarp record {name} --small"
    again = subject.ask(small())
    assert {key: recording.meta[key] for key in again.facts} == json.loads(json.dumps(again.facts))
    assert recording.meta["ptx"] == again.ptx
    assert recording.arrays.keys() == again.arrays.keys()
    for key, array in again.arrays.items():
        assert array.dtype == recording.arrays[key].dtype
        np.testing.assert_array_equal(array, recording.arrays[key])


@pytest.mark.parametrize("name", sorted(SUBJECTS.keys() - UNRECORDED))
def test_every_subject_has_a_recording_of_hardware(name):
    meta = recorded(name).meta
    assert list(meta)[: len(HEADER)] == HEADER
    assert meta["subject"] == name
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert len(meta["gpu"]["uuid"].replace("-", "").removeprefix("GPU")) == 32
    assert meta["arch"] == [9, 0]


def test_every_recording_has_a_subject():
    found = {path.stem for path in (GOLDEN / "sm_90").glob("*.*")}
    assert found == SUBJECTS.keys() - UNRECORDED
    for path in (GOLDEN / "sm_90" / "counterexamples").glob("*.json"):
        assert read(path).meta["ptx"].keys() <= {"program"}


SUM = Subject("sum", "a sum", lambda asking: Answers({"sum": 3}, {"terms": np.arange(3)}))


class Turing(simwarp.Device):
    """A stand-in for hardware of another architecture."""

    name, uuid, driver_version = "NVIDIA Test", "0" * 32, "580.0"


def test_recordings_of_two_architectures_lie_side_by_side(tmp_path):
    tables = tmp_path / "evidence.json"
    with_table = replace(
        SUM, ask=lambda asking: Answers({}, table="evidence.json", forms={"popc.b32": {"sets": 1}})
    )
    for chip in ((7, 5), (9, 0)):
        record(SUM, Asking(lambda chip=chip: Turing(cc=chip)), tmp_path)
        record(with_table, Asking(lambda chip=chip: Turing(cc=chip)), tmp_path / "other")
    assert recorded("sum", tmp_path, "sm_75").meta["arch"] == [7, 5]
    assert recorded("sum", tmp_path, "sm_90").meta["arch"] == [9, 0]
    assert not tables.exists()
    table = json.loads((tmp_path / "other" / "evidence.json").read_text())
    assert table["forms"] == {"popc.b32": {"sm_75": {"sets": 1}, "sm_90": {"sets": 1}}}
    assert table["meta"].keys() == {"sm_75", "sm_90"}


def test_the_package_ships_the_tables_it_reads():
    from simwarp.fragments import opcodes
    from simwarp.lab.evidence import forms as evidence

    assert TABLES == {"evidence.json": evidence.RECORD, "observed.json": opcodes.RECORD}


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), RuntimeError("lost")])
def test_a_stopped_subject_keeps_the_old_recording(tmp_path, stop):
    record(SUM, Asking(Turing), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}

    def ask(asking):
        for _ in asking.each(range(3)):
            raise stop

    with pytest.raises(type(stop)):
        record(replace(SUM, ask=ask), Asking(Turing), tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_differences_are_written_beside_the_recording(tmp_path):
    differ = replace(SUM, ask=lambda asking: Answers({}, differences=["popc.b32: 1 of 2", "bfind: 2 of 2"]))
    outcome = record(differ, Asking(Turing), tmp_path)
    assert outcome.differences == ["popc.b32: 1 of 2", "bfind: 2 of 2"]
    (report,) = tmp_path.rglob("*.txt")
    assert report in outcome.paths
    assert report.read_text() == "popc.b32: 1 of 2\n\nbfind: 2 of 2\n"


@pytest.mark.gate
def test_several_processes_give_the_results_of_one():
    tasks = [(opcode, True) for opcode in tiles.OPCODES[:3]]
    one, two = (list(small(processes=n).map(tiles.compare, tasks)) for n in (1, 2))
    assert [row for row, *_ in one] == [row for row, *_ in two]


def test_only_one_function_writes_recording_headers():
    """The name and the UUID of a GPU occur together only in that function."""
    packages = [Path(simwarp.__file__).parent, Path(simwarp.__file__).parents[1] / "gpu"]
    writers = [
        path.name
        for package in packages
        for path in package.rglob("*.py")
        if '"uuid":' in path.read_text() and "device.name" in path.read_text()
    ]
    assert writers == ["golden.py"]
