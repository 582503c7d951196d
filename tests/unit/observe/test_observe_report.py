"""`Device(observe=…)` and `device.report`: requested sections are counted by line over all launches."""

import json

import pytest

import simwarp
from reference import SimwarpError
from reference.errors import SchemeError
from simwarp.faults import Trap
from simwarp.observe import Observer
from simwarp.observe.report import OBSERVERS, Report, ReportError
from support import small_kernels as small

BODY = ".shared .b32 s[64]; mov.u32 %r2, %lane; shl.b32 %r3, %r2, 3; st.shared.u32 [%r3], %r2; " + small.STORE
ASKED = {
    "coverage": "coverage",
    "fidelity": "fidelity",
    "banks": "bank_conflicts",
    "sectors": "sectors",
    "divergence": "divergence",
    "traffic": "traffic",
    "pipeline": "pipeline",
    "products": "products",
}


def test_section_names_equal_the_documented_interface():
    assert set(OBSERVERS) == set(ASKED)


@pytest.mark.parametrize(("name", "attribute"), ASKED.items())
def test_a_report_has_only_the_requested_sections(name, attribute):
    device = simwarp.Device(observe=name)
    small.run(BODY, device=device)
    assert list(device.report.to_json()) == [name]
    assert getattr(device.report, attribute) is device.report.observers[0]
    for other, requested in ASKED.items():
        if other != name:
            with pytest.raises(ReportError, match=rf'Device\(observe=\("{other}",\)\)'):
                getattr(device.report, requested)


def test_an_error_names_the_observed_sections():
    report = Report(("fidelity", "traffic"))
    with pytest.raises(SimwarpError) as caught:
        _ = report.bank_conflicts
    assert str(caught.value).splitlines() == [
        "bank_conflicts was not observed",
        "this device observed fidelity, traffic",
        'ask for it before the launch: Device(observe=("banks",))',
    ]
    with pytest.raises(ReportError, match="observed nothing"):
        _ = Report().fidelity
    with pytest.raises(ReportError, match=r'observe=\("traffic",\)'):
        Report("fidelity").roofline("H200")


def test_an_unknown_name_is_refused():
    with pytest.raises(SchemeError, match=r"nothing called 'bank'\nthere are coverage"):
        simwarp.Device(observe=("bank",))


def test_duplicate_names_are_observed_once():
    assert Report(("banks", "banks")).names == ("banks",)
    assert Report("all").names == OBSERVERS


def test_a_device_without_observe_has_an_empty_report():
    assert simwarp.Device().observers == []
    assert simwarp.Device().report.to_json() == {}
    assert "observe=" in simwarp.Device().report.to_text()


def test_a_users_observers_are_called_too():
    class Steps(Observer):
        steps = 0

        def on_step(self, chunk, step, mask):
            self.steps += 1

    mine = Steps()
    device = simwarp.Device(observe="fidelity", observers=[mine])
    small.run(BODY, device=device)
    assert mine.steps > 5
    assert device.report.fidelity.counts.total() == device.executed


def test_launches_add_up_until_the_report_is_cleared():
    device = simwarp.Device(observe="all")
    small.run(BODY, device=device)
    once = device.report.to_json()
    small.run(BODY, device=device)
    assert device.report.bank_conflicts.total == 2 * once["banks"]["total"]["conflicts"] == 2
    assert device.report.traffic.requested == 2 * once["traffic"]["requested"] == 2 * 128
    assert device.report.traffic.compulsory == 2 * 128
    assert device.report.fidelity.counts.total() == device.executed
    device.report.clear()
    assert device.report.traffic.compulsory == device.report.divergence.total.thread_instructions == 0
    small.run(BODY, device=device)
    assert device.report.to_json() == once


def test_counts_before_a_fault_are_kept():
    device = simwarp.Device(observe="all")
    with pytest.raises(Trap):
        small.run("trap;", device=device)
    assert device.report.fidelity.counts.total() == 32 * 9
    device.report.clear()
    small.run(BODY, device=device)
    assert device.report.traffic.stored["global"] == 128


def test_reports_convert_to_plain_json_data():
    device = simwarp.Device(observe="all")
    small.run(BODY, device=device)
    data = device.report.to_json()
    assert json.loads(json.dumps(data)) == data
    text = device.report.to_text()
    assert all(title in text for title in ("Bank conflicts", "Sectors", "Divergence", "Coverage", "Traffic"))


def test_report_lines_are_found_by_source_file():
    device = simwarp.Device(observe=("banks", "sectors"))
    body = ".shared .b32 s[64]; .loc 1 42 1\nshl.b32 %r3, %lane, 3; st.shared.u32 [%r3], %lane;\n"
    body += ".loc 1 43 1\nmov.u32 %r2, 1; " + small.STORE
    before = '.file 1 "bmm/bmm.cu"\n'
    small.run(body, device=device, before=before)
    assert device.report.bank_conflicts["bmm.cu:42"] == 1
    assert list(device.report.bank_conflicts) == ["bmm/bmm.cu:42"]
    assert device.report.sectors["bmm/bmm.cu:43"] == 4
    with pytest.raises(ReportError, match=r"at bmm\.cu:43\nthere were some at bmm/bmm\.cu:42"):
        device.report.bank_conflicts["bmm.cu:43"]
