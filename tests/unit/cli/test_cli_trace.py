"""The command line of stored traces: display, comparison, and exit codes."""

import json
import re

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError
from simwarp.cli.trace import trace_app
from simwarp.observe.trace import Trace, TraceError

PTX = """.version 9.0
.target sm_90
.visible .entry k(.param .u64 out) {
.reg .b32 %r<4>;
.reg .b64 %a<3>;
.loc 1 4 1
ld.param.u64 %a1, [out];
mov.u32 %r1, %tid.x;
.loc 1 5 1
mad.lo.u32 %r2, %r1, FACTOR, 1;
.loc 1 6 1
mul.wide.u32 %a2, %r1, 4;
add.u64 %a1, %a1, %a2;
st.global.u32 [%a1], %r2;
ret;
}
.file 1 "/somewhere/k.cu"
"""


def command(*arguments):
    return trace_app([str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture
def files(tmp_path):
    """Traces of two kernels; in the second, threads from 1 on use another factor."""
    paths = [tmp_path / "first.npz", tmp_path / "second.npz"]
    for path, factor in zip(paths, "35", strict=True):
        trace = Trace()
        device = simwarp.Device(observers=[trace])
        out = device.upload(np.zeros(40, np.uint32), "out")
        device.load(PTX.replace("FACTOR", factor)).kernel("k")((2, 1, 1), (40, 1, 1), out)
        trace.save(path)
    return paths


def test_without_a_warp_the_launches_are_listed(files, capsys):
    assert command("show", files[0]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "launch 0: kernel k, grid (2, 1, 1), block (40, 1, 1), 4 warps traced",
        "  block (0, 0, 0), warp 0: 8 events",
    ]
    assert command("show", files[0], "--json") == 0
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    assert launch["kernel"] == "k"
    assert launch["warps"][3] == {"block": [1, 0, 0], "warp": 1, "rows": 8}


@pytest.mark.parametrize("block", ["1", "1,0,0", "(1, 0, 0)"])
def test_a_warp_is_shown_as_a_table(files, capsys, block):
    assert command("show", files[0], "--block", block, "--warp", 1, "--lane", 2, "--line", "k.cu:5") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "kernel k, launch 0, block (1, 0, 0), warp 1, values of lanes 2"
    assert re.split(r" {2,}", shown[2].strip()) == [
        "2",
        "10",
        "k.cu:5",
        "000000ff",
        "mad.lo.u32 %r2, %r1, 3, 1;",
        "%r2 = 103",
    ]
    assert len(shown) == 3


def test_a_warp_is_printed_as_json(files, capsys):
    assert command("show", files[0], "--warp", 1, "--line", 14, "--json") == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert (step["number"], step["source"], step["mask"]) == (5, "k.cu:6", 0xFF)
    assert step["written"][0]["words"] == [f"0x{3 * n + 1:08x}" for n in range(32, 40)]
    assert np.diff(step["accesses"][0]["addresses"]).tolist() == [4] * 7


def test_equal_traces_exit_with_0(files, capsys):
    assert command("diff", files[0], files[0]) == 0
    assert capsys.readouterr().out == "the traces are equal\n"
    assert command("diff", files[0], files[0], "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"equal": True, "warps": 0, "differences": []}


@pytest.mark.parametrize("by", ["ptx", "source", "lane"])
def test_different_traces_exit_with_1(files, capsys, by):
    assert command("diff", *files, "--by", by) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == (
        "register %r2 differs in step 2: kernel k, block (0, 0, 0), warp 0, lane 1, "
        "line 10 `mad.lo.u32 %r2, %r1, 3, 1;`, (/somewhere/k.cu:5)"
    )
    assert shown[1].startswith("first 0x00000004 (4), second 0x00000006 (6); in ")
    assert shown[-1] == "3 more warps differ: --all shows them"


def test_all_differences_are_printed_as_json(files, capsys):
    assert command("diff", *files, "--all", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["equal"], report["warps"]) == (False, 4)
    assert [(d["place"]["block"], d["place"]["warp"]) for d in report["differences"]] == [
        ([block, 0, 0], warp) for block in (0, 1) for warp in (0, 1)
    ]
    assert [d["first"] for d in report["differences"]] == [4, 97, 4, 97]


def test_unsuitable_requests_are_refused(files, tmp_path):
    with pytest.raises(TraceError, match=r"launch 0, block 7, warp 0"):
        command("show", files[0], "--block", 7)
    with pytest.raises(TraceError, match=r"--block 1,2 is not a block"):
        command("show", files[0], "--block", "1,2")
    with pytest.raises(InputFileError, match="holds no trace"):
        command("diff", files[0], tmp_path / "none.npz")


def test_faults_are_listed_with_their_counts(tmp_path, capsys):
    trace = Trace()
    device = simwarp.Device(observers=[trace], checks="report")
    kernel = device.load(PTX.replace("FACTOR", "3")).kernel("k")
    for _ in range(2):
        kernel((1, 1, 1), (2, 1, 1), np.uint64(64))
    trace.save(tmp_path / "trace.npz")
    assert command("show", tmp_path / "trace.npz") == 0
    shown = capsys.readouterr().out
    assert ": out of bounds: " in shown
    assert "\n  PTX line 14: " in shown
    assert "kernel k, block (0, 0, 0), thread (0, 0, 0), warp 0, lane 0" in shown
    assert shown.endswith("2 times\n")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_line_without_a_step_is_refused(files, options):
    where = ("--block", "0", "--warp", "0")
    with pytest.raises(
        TraceError, match=r"--line foo:3: this warp executed no step there\nit executed steps at k\.cu:4"
    ):
        command("show", files[0], *where, "--line", "foo:3", *options)
    command("show", files[0], *where, "--line", "foo:3", "--line", "k.cu:5", *options)
