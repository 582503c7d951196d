"""What an H200 answered to every form of every PTX row, held against the simulator."""

import json
from pathlib import Path

import numpy as np
import pytest

import simwarp
from oracles.scalar_ptx import BOUNDED
from reference.errors import InputFileError
from simwarp.lab.evidence import golden
from simwarp.lab.evidence.catalogue import operands_of, probe_of, probes
from simwarp.lab.evidence.judge import judge
from simwarp.lab.evidence.launch import ask
from simwarp.lab.evidence.record import record
from simwarp.lab.evidence.replay import against, replay
from simwarp.ptx.instructions import ROWS, TABLE

FOLDER = Path(__file__).parents[1] / "golden"
FAMILIES = sorted({golden.family(row) for row in ROWS.values()})


def of_family(family):
    return probes([row for row in ROWS.values() if golden.family(row) == family])


def first_of_rows(family):
    """The probe of one form of each row."""
    return [probes([row])[0] for row in ROWS.values() if golden.family(row) == family]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "choose",
    [first_of_rows, pytest.param(of_family, marks=pytest.mark.slow)],
    ids=["a form of each row", "all"],
)
def test_the_simulator_answers_as_the_hardware_did(choose, family):
    asked = choose(family)
    verdicts = list(replay(FOLDER / f"ptx-{family}.npz", asked, simwarp.Device()))
    assert [str(verdict) for verdict in verdicts if verdict.wrong] == []
    assert {verdict.form for verdict in verdicts} == {probe.form for probe in asked}


@pytest.mark.parametrize("name", BOUNDED)
def test_the_hardware_keeps_the_bounds_of_the_isa(name):
    asked = {probe.form: probe for probe in probes([ROWS[name]])}
    for answer in golden.read(FOLDER / f"ptx-{golden.family(ROWS[name])}.npz", asked):
        operands = operands_of(asked[answer.form]).tolist()
        results = answer.raw[:, 0].tolist()
        assert len(results) == len(operands)
        illegal = [
            [*map(hex, (*given, result))]
            for given, result in zip(operands, results, strict=True)
            if not BOUNDED[name](answer.form, given, result)
        ]
        assert illegal == [], answer.form


@pytest.fixture
def recorded():
    """The golden and the simulator's answer of one exact form."""
    probe = probe_of("mad.hi.u32")
    (answer,) = golden.read(FOLDER / "ptx-integer.npz", {probe.form: probe})
    (got,) = ask(simwarp.Device(), [probe])
    return probe, answer, got


def test_a_wrong_answer_is_noticed_in_every_set(recorded):
    probe, answer, got = recorded
    for k in range(0, len(got), 37):
        wrong = got.copy()
        wrong[k, 0] ^= np.uint64(1)
        assert against(probe, answer, wrong).wrong == 1


def test_a_golden_of_another_kernel_is_refused(recorded):
    probe, answer, got = recorded
    other = golden.Answer(answer.form, b"", answer.digest, answer.sets, answer.raw)
    with pytest.raises(InputFileError, match=r"the golden of mad\.hi\.u32 was recorded with another kernel"):
        against(probe, other, got)


def test_goldens_say_where_they_come_from():
    meta = golden.provenance(FOLDER)
    assert meta["gpu"]["name"].startswith("NVIDIA")
    assert len(meta["gpu"]["uuid"]) == 32
    assert all(meta[key] for key in ("driver", "date", "command", "arch"))
    assert set(meta["files"]) == {f"ptx-{family}.npz" for family in FAMILIES}
    assert all(len(facts["kernels"]) == 64 for facts in meta["files"].values())


def test_goldens_are_small():
    assert all(path.stat().st_size <= golden.LARGEST for path in FOLDER.glob("ptx*"))


def test_every_golden_form_has_a_row():
    for family in FAMILIES:
        with np.load(FOLDER / f"ptx-{family}.npz", allow_pickle=False) as stored:
            forms = [name.decode() for name in stored["forms"].tolist()]
        assert [form for form in forms if TABLE.find(form) is None] == []


# --------------------------------------------------------- the recorder, on something like hardware


class Witness(simwarp.Device):
    """A simulator that says it is hardware."""

    uuid, driver_version = "0" * 32, "580.0"


class Wrong(Witness):
    """One whose ``popc`` counts zeros."""

    def load(self, ptx):
        return super().load(ptx.replace("popc.b32 %d, %a;", "not.b32 %a, %a; popc.b32 %d, %a;"))


SOME = [ROWS[name] for name in ("popc", "div", "ex2.approx.f32", "activemask.b32", "trap", "ldu", "mma.s8")]
QUIET = [].append


def test_what_is_recorded_is_replayed(tmp_path):
    said = []
    report = record(Witness(), tmp_path, SOME, said.append)
    assert (report.wrong, report.failures) == ([], {})
    assert said[-1] == f"{len(report.verdicts)} forms agree, 0 differ, 0 were not answered by both"
    assert len(list(tmp_path.iterdir())) <= 8
    asked = probes(SOME)
    assert len(report.verdicts) == len(asked)
    for path in tmp_path.glob("*.npz"):
        assert all(not verdict.wrong for verdict in replay(path, asked, simwarp.Device()))
    evidence = json.loads((tmp_path / "evidence.json").read_text())
    assert set(evidence["forms"]) == {probe.form for probe in asked}
    assert evidence["forms"]["popc.b32"] == {"golden": "ptx-integer", "sets": 1024}
    assert evidence["forms"]["ex2.approx.f32"]["largest_error"] == 0
    assert golden.provenance(tmp_path)["gpu"] == {"name": Witness().name, "uuid": "0" * 32}


def test_a_simulator_that_differs_is_reported(tmp_path):
    report = record(Wrong(), tmp_path, [ROWS["popc"]], QUIET)
    assert [verdict.form for verdict in report.wrong] == ["popc.b32"]
    assert "a=0x0: expected d=0x20, got d=0x0" in (tmp_path / "report.txt").read_text()
    verdicts = {
        v.form: v for v in replay(tmp_path / "ptx-integer.npz", probes([ROWS["popc"]]), simwarp.Device())
    }
    assert verdicts["popc.b32"].wrong
    assert not verdicts["popc.b64"].wrong


def test_a_simulator_is_no_witness(tmp_path):
    with pytest.raises(InputFileError, match="goldens are recorded on hardware"):
        record(simwarp.Device(), tmp_path, SOME, QUIET)


def test_what_the_simulator_faults_on_is_not_run_on_hardware(tmp_path, monkeypatch):
    probe = probe_of("st.shared.b32")
    outside = probe.entry.replace("st.shared.b32 [%cell]", "st.shared.b32 [%cell+99999]")
    spoilt = type(probe)(probe.form, outside, probe.operands, probe.results, count=probe.count)
    monkeypatch.setattr("simwarp.lab.evidence.record.probes", lambda rows: [spoilt, probe_of("popc.b32")])
    report = record(Witness(), tmp_path, [ROWS["popc"]], QUIET)
    assert "the simulator faults" in report.failures["st.shared.b32"]
    assert [verdict.form for verdict in report.verdicts] == ["popc.b32"]


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
def test_what_the_judge_allows(form, changed, allowed):
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
