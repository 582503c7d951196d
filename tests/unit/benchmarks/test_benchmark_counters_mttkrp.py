"""The benchmark of the chip's counters for MTTKRP: its calls, and what ncu prints becomes rows."""

import json

import pytest

import simwarp
from benchmark_scripts import scripts
from gpu.mttkrp import formats
from reference import sparse

(counters,) = scripts("counters_mttkrp")
CASE = "counters-mm-csf/small3/r32-f32"


def printed(*launches):
    """What ncu prints for launches: kernel, nanoseconds, occupancy, loaded sectors, bytes read from DRAM."""
    names = ["ID", "Kernel Name", *counters.METRICS]
    units = dict.fromkeys(counters.METRICS, "") | {
        counters.TIME: "ns",
        **dict.fromkeys(counters.MEANS.values(), "%"),
        **dict.fromkeys(counters.BYTES.values(), "byte"),
    }
    lines = [names, ["", "", *units.values()]]
    for number, (kernel, time, occupancy, loads, read) in enumerate(launches):
        found = dict.fromkeys(counters.METRICS, "1") | {
            counters.TIME: time,
            counters.MEANS["occupancy"]: occupancy,
            counters.SECTORS["ld"]: loads,
            counters.BYTES["dram_read"]: read,
        }
        lines.append([str(number), kernel, *found.values()])
    return "\n".join(["==PROF== Connected", *(",".join(f'"{one}"' for one in line) for line in lines)])


def test_launches_are_summed_by_mode_and_by_format():
    calls = [("small3", "mm-csf", 0, 2), ("small3", "mm-csf", 1, 1)]
    text = printed(
        ("clear", "1,000", "10", "0", "0"),
        ("fibers", "3,000", "90", "2,097,152", "1,073,741,824"),
        ("fibers", "4,000", "50", "1,048,576", "0"),
    )
    (row,) = counters.rows_of(calls, text)
    assert (row.case, row.unit, row.ours) == (CASE, "ms", pytest.approx(8e-3))
    first, second = row.params["modes"]
    assert (first["kernels"], first["occupancy"]) == (["clear", "fibers"], pytest.approx(70))
    assert (second["mode"], second["loads_gib"]) == (1, pytest.approx(1 / 32))
    assert row.params["occupancy"] == pytest.approx(60)
    assert row.params["loads_gib"] == pytest.approx(3 / 32)
    assert row.params["dram_read_gib"] == pytest.approx(1)
    assert row.params["red_sectors"] == 3


def test_larger_units_are_the_same_numbers():
    text = printed(("fibers", "3", "90", "2", "2"))
    for unit, scale in (("ms", 1e6), ("ns", 1)):
        (row,) = counters.rows_of([("small3", "coo", 0, 1)], text.replace('"ns"', f'"{unit}"'))
        assert row.ours == pytest.approx(3e-6 * scale)


def test_a_launch_too_many_ends_the_run():
    with pytest.raises(SystemExit, match="2 launches were counted"):
        counters.rows_of([("small3", "coo", 0, 1)], printed(*2 * [("a", "1", "1", "1", "1")]))


@pytest.fixture
def marks(monkeypatch):
    """The marks that ncu looks for, with the launches until then: on the simulator, with plain builders."""
    driver = pytest.importorskip("cuda.bindings.driver", reason="compiling needs simwarp[compile]")
    found, device = [], simwarp.Device((9, 0))
    for name in ("cuProfilerStart", "cuProfilerStop"):
        monkeypatch.setattr(driver, name, lambda name=name: found.append((name, device.launches)))
    monkeypatch.setattr(counters.gpu, "CudaDevice", lambda: device)
    monkeypatch.setattr(counters.formats, "FORMATS", {"mm-csf": sparse.mm_csf})
    monkeypatch.setattr(counters, "RANK", 4)
    return found


def test_the_second_call_of_each_mode_is_between_marks(marks, tmp_path):
    counters.launch_all(["small3"], ["mm-csf"], 0.002, tmp_path / "calls.json")
    calls = json.loads((tmp_path / "calls.json").read_text())
    assert [call[:3] for call in calls] == [["small3", "mm-csf", mode] for mode in range(3)]
    assert [name for name, _ in marks] == 3 * ["cuProfilerStart", "cuProfilerStop"]
    between = [stop - start for (_, start), (_, stop) in zip(marks[::2], marks[1::2], strict=True)]
    assert between == [call[3] for call in calls]
    assert min(between) > 0


def test_the_table_s_formats_are_known():
    assert {*counters.FORMATS} <= {*formats.FORMATS}
    assert {*counters.NAMES} <= {*counters.TENSORS}
