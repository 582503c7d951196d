"""Results of every form of every PTX row, recorded on an H200, are compared with the simulator."""

import json

import numpy as np
import pytest

import simwarp
from oracles.scalar_ptx import BOUNDED
from reference.errors import InputFileError
from simwarp.lab.evidence.catalogue import operands_of, probe_of, probes
from simwarp.lab.evidence.forms import unwitnessed
from simwarp.lab.evidence.judge import judge
from simwarp.lab.evidence.launch import ask
from simwarp.lab.recording import GOLDEN, Asking, Subject, record, recorded
from simwarp.lab.subjects import form_answers as golden
from simwarp.lab.subjects.form_answers import against, replay
from simwarp.lab.subjects.forms import FAMILIES, answers, family
from simwarp.ptx.instructions import ROWS, TABLE


def of_family(name):
    return probes([row for row in ROWS.values() if family(row) == name])


def first_of_rows(name, part):
    """A probe of one form of each row, of every fourth row."""
    rows = [row for row in ROWS.values() if family(row) == name]
    return [probes([row])[0] for row in rows[part::4]]


def arrays_of(name):
    return recorded(f"ptx-{name}").arrays


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1, 2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_simulator_reproduces_hardware_outputs_of_a_form_of_each_row(name, part):
    compare_with_goldens(name, first_of_rows(name, part))


@pytest.mark.at_most(3)
@pytest.mark.slow
@pytest.mark.gate_cases("memory", "control")
@pytest.mark.parametrize("name", FAMILIES)
def test_the_simulator_reproduces_hardware_outputs_of_every_fourth_form(name):
    compare_with_goldens(name, of_family(name)[3::4])


@pytest.mark.gate
@pytest.mark.parametrize("name", FAMILIES)
def test_the_simulator_reproduces_hardware_outputs(name):
    compare_with_goldens(name, of_family(name))


def compare_with_goldens(name, wanted):
    verdicts = list(replay(arrays_of(name), wanted, simwarp.Device()))
    assert [str(verdict) for verdict in verdicts if verdict.wrong] == []
    missing = {probe.form for probe in wanted} - {verdict.form for verdict in verdicts}
    assert missing <= set(unwitnessed())


@pytest.mark.parametrize("name", BOUNDED)
def test_hardware_results_are_within_the_bounds_of_the_isa(name):
    wanted = {probe.form: probe for probe in probes([ROWS[name]])}
    for answer in golden.unpack(arrays_of(family(ROWS[name])), wanted):
        operands = operands_of(wanted[answer.form]).tolist()
        results = answer.raw[:, 0].tolist()
        assert len(results) == len(operands)
        illegal = [
            [*map(hex, (*given, result))]
            for given, result in zip(operands, results, strict=True)
            if not BOUNDED[name](answer.form, given, result)
        ]
        assert illegal == [], answer.form


@pytest.fixture
def known():
    """The golden and the simulator's results of one exact form."""
    probe = probe_of("mad.hi.u32")
    (answer,) = golden.unpack(arrays_of("integer"), {probe.form: probe})
    (got,) = ask(simwarp.Device(), [probe])
    return probe, answer, got


def test_a_wrong_output_in_any_operand_set_is_reported(known):
    probe, answer, got = known
    for k in range(0, len(got), 37):
        wrong = got.copy()
        wrong[k, 0] ^= np.uint64(1)
        assert against(probe, answer, wrong).wrong == 1


def test_a_golden_of_another_kernel_is_refused(known):
    probe, answer, got = known
    other = golden.Answer(answer.form, b"", answer.digest, answer.sets, answer.raw)
    with pytest.raises(InputFileError, match=r"the golden of mad\.hi\.u32 was recorded with another kernel"):
        against(probe, other, got)


@pytest.mark.parametrize("name", FAMILIES)
def test_goldens_name_gpu_driver_and_date(name):
    recording = recorded(f"ptx-{name}")
    meta = recording.meta
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert len(meta["gpu"]["uuid"]) == 32
    assert all(meta[key] for key in ("driver", "date", "command", "arch"))
    assert len(meta["ptx"]["kernels"]) == 64
    assert meta["forms"] == len(recording.arrays["forms"])


def test_every_family_has_a_golden():
    names = {path.stem for path in (GOLDEN / "sm_90").glob("ptx*.npz")}
    assert names == {f"ptx-{name}" for name in FAMILIES}


def test_goldens_are_small():
    assert all(path.stat().st_size <= golden.LARGEST for path in (GOLDEN / "sm_90").glob("ptx*"))


def test_every_golden_form_has_a_row():
    for name in FAMILIES:
        forms = [form.decode() for form in arrays_of(name)["forms"].tolist()]
        assert [form for form in forms if TABLE.find(form) is None] == []


# --------------------------------------------------------- the recorder, on something like hardware


class Witness(simwarp.Device):
    """A simulator that claims to be hardware."""

    uuid, driver_version = "0" * 32, "580.0"


class Wrong(Witness):
    """A simulator whose ``popc`` counts zeros."""

    def load(self, ptx):
        return super().load(ptx.replace("popc.b32 %d, %a;", "not.b32 %a, %a; popc.b32 %d, %a;"))


SOME = [ROWS[name] for name in ("popc", "div", "ex2.approx.f32", "activemask.b32", "trap", "ldu", "mma.s8")]


def recorded_on(make, folder, rows):
    """Record a device's results for rows of any family as one subject."""
    subject = Subject("ptx-some", "", lambda asking: answers("some", probes(rows), asking))
    outcome = record(subject, Asking(make), folder)
    return outcome, recorded("ptx-some", folder)


@pytest.mark.slow
def test_a_recording_of_a_stand_in_is_replayed(tmp_path):
    outcome, recording = recorded_on(Witness, tmp_path, SOME)
    assert outcome.differences == []
    assert {path.name for path in tmp_path.rglob("*.*")} == {"ptx-some.json", "ptx-some.npz", "evidence.json"}
    wanted = probes(SOME)
    verdicts = list(replay(recording.arrays, wanted, simwarp.Device()))
    assert len(verdicts) == len(wanted) == recording.meta["forms"]
    assert all(not verdict.wrong for verdict in verdicts)
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert set(evidence["forms"]) == {probe.form for probe in wanted}
    assert evidence["forms"]["popc.b32"] == {"sm_90": {"golden": "ptx-some", "sets": 1024}}
    assert evidence["forms"]["ex2.approx.f32"]["sm_90"]["largest_error"] == 0
    assert recording.meta["gpu"] == {"name": Witness().name, "uuid": "0" * 32}
    assert evidence["meta"]["sm_90"]["gpu"] == recording.meta["gpu"]


def test_a_simulator_that_differs_is_reported(tmp_path):
    outcome, recording = recorded_on(Wrong, tmp_path, [ROWS["popc"]])
    (difference,) = outcome.differences
    assert difference.startswith("popc.b32: ")
    assert "a=0x0: expected d=0x20, got d=0x0" in (tmp_path / "sm_90/ptx-some-differences.txt").read_text()
    verdicts = {v.form: v for v in replay(recording.arrays, probes([ROWS["popc"]]), simwarp.Device())}
    assert verdicts["popc.b32"].wrong
    assert not verdicts["popc.b64"].wrong


def test_a_recording_of_the_simulator_is_refused(tmp_path):
    with pytest.raises(InputFileError, match="is a trial on simwarp simulator"):
        recorded_on(simwarp.Device, tmp_path, [ROWS["popc"]])


def test_forms_that_fault_in_the_simulator_are_not_run_on_hardware():
    probe = probe_of("st.shared.b32")
    outside = probe.entry.replace("st.shared.b32 [%cell]", "st.shared.b32 [%cell+99999]")
    spoilt = type(probe)(probe.form, outside, probe.operands, probe.results, count=probe.count)
    got = answers("some", [spoilt, probe_of("popc.b32")], Asking(Witness))
    (difference,) = got.differences
    assert difference.startswith("st.shared.b32: the simulator faults")
    assert set(got.forms) == {"popc.b32"}


@pytest.mark.parametrize(
    ("form", "changed", "allowed"),
    [
        ("popc.b32", lambda words: words + np.uint64(1), False),
        ("rcp.approx.f32", lambda words: words ^ np.uint64(1), True),
        ("rcp.approx.f32", lambda words: words ^ np.uint64(4), False),
        ("activemask.b32", lambda words: np.where(words != 0, words & ~np.uint64(1), words), False),
        ("elect.sync", lambda words: words ^ np.uint64(1), False),
    ],
)
def test_only_errors_within_the_stated_bound_are_accepted(form, changed, allowed):
    probe = probe_of(form)
    operands = operands_of(probe)
    (answer,) = ask(simwarp.Device(), [probe])
    finite = answer.copy()
    finite[:] = changed(answer)
    keep = (answer & np.uint64(0x7F800000) != 0x7F800000)[:, 0] & (answer != 0)[:, 0] | (
        form != "rcp.approx.f32"
    )
    assert bool(judge(probe, operands[keep], answer[keep], answer[keep]).wrong) is False
    assert bool(judge(probe, operands[keep], answer[keep], finite[keep]).wrong) is not allowed


def test_division_by_zero_is_not_compared():
    probe = probe_of("div.u32")
    operands = operands_of(probe)
    (answer,) = ask(simwarp.Device(), [probe])
    other = np.where(operands[:, 1:2] == 0, np.uint64(7), answer)
    assert not judge(probe, operands, answer, other).wrong
    assert golden.digest(probe, other) == golden.digest(probe, answer)
