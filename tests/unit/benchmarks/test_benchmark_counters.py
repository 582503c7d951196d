"""The benchmark of the chip's counters: what ncu prints becomes rows."""

import pytest

import simwarp
from benchmark_scripts import scripts

counters, bits_cases = scripts("counters", "bits_cases")


def printed(*launches):
    """What ncu prints for launches, given by their time in nanoseconds."""
    stalls = [
        f"smsp__average_warps_issue_stalled_{stall}_per_issue_active.ratio" for stall in counters.STALLS
    ]
    names = ["ID", "Kernel Name", counters.TIME, counters.CYCLES, *counters.BUSY.values(), *stalls]
    units = ["", "", "ns", "cycle", *("%" for _ in counters.BUSY), *("" for _ in stalls)]
    busy, ratios = (
        [f"{10.04 * i}" for i in range(len(counters.BUSY))],
        [f"{i / 4}" for i in range(len(stalls))],
    )
    lines = [names, units, *([str(i), "wgmma", x, "1,234.5", *busy, *ratios] for i, x in enumerate(launches))]
    return "\n".join(
        ["==PROF== Connected", *(",".join(f'"{value}"' for value in line) for line in lines), "==PROF== done"]
    )


def test_the_last_launch_of_each_case_is_a_row():
    names = ["bmm-bits/2048", "bconv-int32/128"]
    rows = counters.rows_of(names, printed("9,000", "6,144", "20,000", "15,488"))
    assert [(row.case, row.ours, row.unit) for row in rows] == [
        (names[0], 6.144, "us"),
        (names[1], 15.488, "us"),
    ]
    assert rows[0].params["cycles"] == 1234
    assert rows[0].params["busy"]["L2"] == 10.0
    assert rows[0].params["stalls"] == {
        "lg_throttle": 2.25,
        "branch_resolve": 2.0,
        "sleeping": 1.75,
        "gmma": 1.5,
    }


def test_a_launch_too_few_ends_the_run():
    with pytest.raises(SystemExit, match="3 launches were counted: 2 of each"):
        counters.rows_of(["bmm-bits/2048", "bmm-bits/4096"], printed("1", "2", "3"))


def test_without_ncu_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(counters.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="ncu is not on the path"):
        counters.counted(["bmm-bits/2048"])


def test_cases_are_those_of_the_speeds(monkeypatch):
    names = counters.cases(["bmm-int16", "bconv-bits"])
    assert names[:3] == ["bmm-int16/8192", "bmm-int16/4096", "bmm-int16/2048"]
    assert names[3:] == ["bconv-bits/128", "bconv-bits/256", "bconv-bits/512", "bconv-bits/1024"]
    made = []
    for kind in ("Product", "Convolution"):
        monkeypatch.setattr(counters, kind, lambda *args: made.append(args[1:]))
    for name in (names[0], names[3]):
        counters.case_of(simwarp.Device((9, 0)), name)
    assert made == [((8192,) * 3, "int16"), (128, "bits")]
