"""The limits of a launch: of the chip, of the kernel's directives, and of what is resident together."""

import numpy as np
import pytest

import simwarp
from simwarp.chips.chips import chip_of
from simwarp.cli import main
from simwarp.device.limits import LimitError, registers_of_thread, resident
from simwarp.exec.codes import Error, error_of_launch
from simwarp.faults import LaunchError
from simwarp.run import Out, run

HEADER = ".version 9.0 .target sm_{} .address_size 64 .entry k() {} {{ {} ret; }}"
LIVE = ".reg .b32 %r<200>; " + " ".join(f"mov.u32 %r{i}, %tid.x;" for i in range(100))
LIVE += " ".join(f"add.u32 %r{i}, %r{i}, %r{99 - i};" for i in range(100))
SHARED = ".shared .b8 s[40000]; .reg .b64 %d; mov.u64 %d, s;"
TWICE = """\
#include <cooperative_groups.h>
__global__ void twice(int* x) {
    x[blockIdx.x] = 1;
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) x[blockIdx.x] += x[(blockIdx.x + 1) % gridDim.x] * 0;
}
"""


def kernel(directives="", body="", cc=(9, 0), **options):
    text = HEADER.format(f"{cc[0]}{cc[1]}", directives, body)
    return simwarp.Device(cc=cc, **options).load(text).kernel("k")


@pytest.mark.parametrize(
    ("directives", "launch", "limit", "part"),
    [
        ("", (1, (1, 1, 65)), "block", "a block of (1, 1, 65)\nits dimensions are at most (1024, 1024, 64)"),
        ("", (1, (1024, 2, 1)), "block", "has 2048 threads; it takes 1 to 1024"),
        ("", (1, 0), "block", "has 0 threads"),
        ("", ((1, 65536), 1), "grid", "give each dimension at least 1, at most (2147483647, 65535, 65535)"),
        ("", ((1, 1, 0), 1), "grid", "a grid of (1, 1, 0)"),
        (".maxntid 64", (1, 65), "block", "has 65 threads; it takes 1 to 64"),
        (".reqntid 64", (1, 32), "block", "a block of (32, 1, 1)\nthe kernel requires blocks of (64, 1, 1)"),
        (".reqntid 8, 8", (1, (64, 1)), "block", "the kernel requires blocks of (8, 8, 1)"),
        (".maxntid 8, 8", (1, (64, 1, 1)), "", ""),  # the product bounds, not each dimension
        (".reqntid 8, 8", (1, (8, 8)), "", ""),
        ("", ((2**31 - 1, 65535, 65535), (1024, 2)), "block", "2048 threads"),
    ],
)
def test_grids_and_blocks_have_limits(directives, launch, limit, part):
    if not limit:
        kernel(directives)(*launch)
        return
    with pytest.raises(LimitError) as caught:
        kernel(directives)(*launch)
    assert caught.value.limit == limit
    assert part in str(caught.value)


def test_shared_memory_and_clusters_have_limits():
    for options, limit, part in (
        ({"shared": 227 * 1024 - 39999}, "shared memory", f"it takes 0 to {227 * 1024 - 40000}"),
        ({"cluster": 17}, "cluster", "a cluster has at most 16 blocks here"),
        ({"cluster": (4, 1, 1)}, "cluster", "the grid is a multiple of the cluster"),
    ):
        with pytest.raises(LimitError) as caught:
            kernel("", SHARED)(34, 1, **options)
        assert caught.value.limit == limit
        assert part in str(caught.value)
    with pytest.raises(LimitError, match=r"clusters need compute capability 9\.0"):
        kernel(cc=(8, 0))(2, 1, cluster=2)


def test_registers_that_setmaxnreg_begins_with_have_to_fit():
    body = "setmaxnreg.dec.sync.aligned.u32 24;"
    text = HEADER.format("90a", ".maxnreg 128", body)
    load = simwarp.Device().load(text).kernel
    load("k")(1, 512)
    with pytest.raises(LimitError, match="640 threads begin with 128 registers each, 81920 in all") as caught:
        load("k")(1, 640)
    assert caught.value.limit == "registers"


# Cooperative launches


@pytest.mark.parametrize(
    ("directives", "body", "threads", "shared", "cc", "each", "limits"),
    [
        ("", "", 1024, 0, (9, 0), 2, "warps"),
        ("", "", 1024, 0, (8, 6), 1, "warps"),
        ("", "", 32, 0, (9, 0), 32, "blocks"),
        ("", "", 32, 0, (7, 5), 16, "blocks"),
        ("", SHARED, 32, 60000, (9, 0), 2, "shared memory"),
        ("", LIVE, 256, 0, (9, 0), 2, "registers"),
        (".maxntid 256 .minnctapersm 4", LIVE, 256, 0, (9, 0), 4, "registers"),
        (".maxnreg 32", LIVE, 256, 0, (9, 0), 8, "warps and registers"),
        (".maxntid 1024", LIVE, 1024, 0, (9, 0), 1, "registers"),
    ],
)
def test_a_cooperative_launch_has_the_blocks_that_are_resident(
    directives, body, threads, shared, cc, each, limits
):
    k = kernel(directives, body, cc, multiprocessors=3)
    k(3 * each, threads, shared=shared, cooperative=True)
    with pytest.raises(LimitError) as caught:
        k(3 * each + 1, threads, shared=shared, cooperative=True)
    assert caught.value.limit == "cooperative"
    assert f"a cooperative launch of {3 * each + 1} blocks of {threads} threads\n" in str(caught.value)
    sum_of = f"{3 * each} are resident together: {each} on each of 3 multiprocessors, limited by {limits}\n"
    assert sum_of in str(caught.value)
    assert resident(k.program, chip_of(cc), threads, shared).blocks == each
    k(3 * each + 1, threads, shared=shared)


def test_a_bound_of_registers_is_no_more_than_what_the_chip_has():
    many = "".join(f"mov.u32 %r{i}, %tid.x;" for i in range(400))
    many += "".join(f"add.u32 %r{i}, %r{i}, %r{399 - i};" for i in range(400))
    k = kernel("", f".reg .b32 %r<400>; {many}")
    assert registers_of_thread(k.program, chip_of((9, 0))) == 255
    k(132, 256, cooperative=True)
    assert registers_of_thread(kernel(".maxntid 1024", LIVE).program, chip_of((9, 0))) == 64


@pytest.mark.slow
def test_run_and_the_command_refuse_what_exec_refuses(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coop.cu").write_text(TWICE)
    sum_of = "264 are resident together: 2 on each of 132 multiprocessors, limited by warps"
    with pytest.raises(LimitError, match=sum_of) as caught:
        run("coop.cu", grid=265, block=1024, cooperative=True, args=[Out("int32", 265)])
    assert error_of_launch(caught.value) is Error.CooperativeLaunchTooLarge
    options = ["--grid", "5000", "--block", "1024", "--cooperative", "--arg", "x=out:int32:5000"]
    assert main(["run", "coop.cu", *options]) == 2
    assert "a cooperative launch of 5000 blocks of 1024 threads\n" + sum_of in capsys.readouterr().err
    assert main(["run", "coop.cu", "--cc", "8.0", *options]) == 2  # the sum of exec on an A100
    assert "216 are resident together: 2 on each of 108 multiprocessors" in capsys.readouterr().err
    result = run("coop.cu", grid=6, block=64, cooperative=True, args=[Out("int32", 6)], multiprocessors=1)
    assert result.outputs[0].tolist() == [1] * 6


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("cooperative", Error.CooperativeLaunchTooLarge),
        ("cluster", Error.InvalidClusterSize),
        ("registers", Error.LaunchOutOfResources),
        ("block", Error.InvalidConfiguration),
    ],
)
def test_exec_tells_of_a_limit_by_its_code(limit, code):
    assert error_of_launch(LimitError("", limit)) is code
    assert error_of_launch(LaunchError("")) is Error.InvalidConfiguration


def test_an_integer_is_needed_for_shared():
    with pytest.raises(LaunchError, match=r"shared=1\.5\ngive a number of bytes"):
        kernel()(1, 1, shared=1.5)
    kernel()(1, 1, shared=np.int64(4))
