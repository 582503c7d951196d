"""How much memory `simwarp run` takes for large arrays, and what it says when there is no more."""

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import HostMemoryError
from simwarp.allocation import Allocation
from simwarp.cli import main
from simwarp.faults import Race
from simwarp.memory import Memory
from simwarp.races.shadow import Shadow
from simwarp.run import Out, run
from simwarp.run.kernel import differ

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
ROWS = """.version 8.3
.target sm_90
.address_size 64
.visible .entry rows(.param .u64 p, .param .u32 stride)
{
    .reg .u32 %r<6>;
    .reg .u64 %rd<4>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [stride];
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r2, %r1, 0;
    cvt.u64.u32 %rd2, %r3;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u8 %r4, [%rd3];
    add.u32 %r5, %r4, 1;
    st.global.u8 [%rd3], %r5;
    ret;
}
"""


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.ptx").write_text(ROWS)
    return "rows.ptx"


def command(arrays, limit, *more):
    """`simwarp run` of a kernel that adds 1 to every millionth byte, with so many bytes of address space."""
    bounded = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))"
    start = f"{bounded}; from simwarp.cli import main; raise SystemExit(main())"
    words = ["run", "rows.ptx", "--grid", "1", "--block", "32", *arrays, "--arg", "stride=1000000", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", start, *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_an_array_of_64_mib_needs_less_than_a_gibibyte_of_address_space(rows):
    np.save("x.npy", np.ones(64 * MIB, np.int8))
    done = command(["--arg", "x.npy:inout"], 1 << 30, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert np.load("out/x.npy", mmap_mode="r")[:2_000_001:1_000_000].tolist() == [2, 2, 2]


@pytest.mark.slow
def test_memory_that_ends_is_an_error_of_two_lines(rows):
    np.lib.format.open_memmap("x.npy", "w+", np.int8, (200 * MIB,))
    done = command(["--arg", "x.npy"], 500 * MIB)
    assert done.returncode == 2
    assert done.stderr.startswith("rows: the memory of this machine ended (Unable to allocate 200. MiB")
    assert len(done.stderr.splitlines()) == 2


def test_memory_that_ends_in_a_launch_is_typed(rows, monkeypatch, capsys):
    def end(*_):
        raise MemoryError

    for place, text in (
        ("simwarp.run.work.convert", "rows: the memory of this machine ended"),
        ("simwarp.engine.launch.Launch.run", r"machine has left \(arrays have 32 bytes, "),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, end)
            with pytest.raises(HostMemoryError, match=text):
                run(rows, grid=1, block=32, args=[np.ones(32, np.int8), 1])
    monkeypatch.setattr("simwarp.run.kernel.run_on", end)
    np.save("x.npy", np.ones(32, np.int8))
    assert main(["run", rows, "--grid", "1", "--block", "32", "--arg", "x.npy", "--arg", "1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_results_are_written_when_memory_ends_in_another_schedule(rows, monkeypatch):
    def end(*_):
        raise MemoryError

    monkeypatch.setattr("simwarp.cli.run.compare", end)
    np.save("x.npy", np.ones(32, np.int8))
    options = ["--grid", "1", "--block", "32", "--arg", "x.npy:inout", "--arg", "1", "--schedules", "2"]
    assert main(["run", rows, *options, "-o", "out"]) == 2
    assert np.load("out/x.npy").tolist() == [2] * 32


def test_an_array_that_the_kernel_does_not_change_has_no_file(rows, capsys):
    np.save("x.npy", np.ones(32, np.int8))
    np.save("spare.npy", np.ones(4, np.int8))
    text = ROWS.replace(".param .u64 p,", ".param .u64 p, .param .u64 q,")
    Path("rows.ptx").write_text(text)
    words = ["--arg", "x.npy:inout", "--arg", "spare.npy:inout", "--arg", "1"]
    assert main(["run", rows, "--grid", "1", "--block", "32", *words, "-o", "out"]) == 0
    assert [path.name for path in Path("out").iterdir()] == ["x.npy"]
    assert "spare is unchanged, and not written" in capsys.readouterr().err


def peak_of(work):
    """The most bytes that Python and NumPy hold at once during some work, beyond those before it."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_launch_keeps_one_copy_of_an_array_and_one_mark_of_a_byte_to_fill(rows):
    size = 32 * MIB
    x = np.ones(size, np.int8)

    def launch(array):
        result = run(rows, grid=1, block=32, args=[array, 1_000_000])
        assert len(result.changed) == 1
        return result.outputs[0]

    assert peak_of(lambda: launch(x)) < 2.1 * size  # its bytes, and marks that nobody touches
    with pytest.raises(simwarp.faults.UninitialisedRead):
        launch(Out("int8", size))
    before = x.copy()
    assert launch(x)[0] == 2
    np.testing.assert_array_equal(x, before)  # what was passed in is not changed


def test_arrays_are_compared_without_copies():
    x = np.zeros((8, MIB), np.int8)
    y = x.copy()
    assert peak_of(lambda: differ(x, y)) < 4 * MIB
    assert not differ(x, y)
    y[-1, -1] = 1
    assert differ(x, y)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (3, 4), (2, 3, 4)])
def test_comparison_sees_every_byte_in_every_layout(shape, monkeypatch):
    monkeypatch.setattr("simwarp.run.kernel._BLOCK", 8)
    after = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    for before in (
        after.copy(),
        np.asfortranarray(after),
        np.repeat(after, 2, -1)[..., ::2] if shape else after,
    ):
        assert not differ(before, after)
        for index in np.ndindex(shape):
            changed = after.copy()
            changed[index] = -changed[index]
            assert differ(before, changed)
    assert differ(np.array([0.0]), np.array([-0.0]))
    assert not differ(np.array([np.nan]), np.array([np.nan]))


def test_marks_of_a_whole_upload_are_not_kept():
    memory = Memory()
    size = 16 * MIB
    data = np.zeros(size, np.uint8)
    assert peak_of(lambda: memory.allocate(size).fill(data)) < 2.3 * size
    allocation = Allocation(0, 64, "x")
    allocation.fill(np.zeros(64, np.uint8))
    assert allocation.written.all()
    allocation.forget(np.array([8], np.uint64), np.array([[3]], np.uint8))
    assert allocation.written_bits[7:10].tolist() == [0xFF, 0xFC, 0xFF]
    assert not allocation.complete
    allocation.fill(np.zeros(4, np.uint8), 6)
    assert allocation.complete


def test_the_shadow_of_a_large_allocation_has_pages():
    """Each unit keeps its entry while pages are added and units are split."""
    allocation = Allocation(0, 64 * MIB, "x")
    shadow, small = Shadow(allocation, 8), Shadow(Allocation(0, 1 << 16, "y"), 8)
    draw = np.random.default_rng(1)
    expected = {}
    assert shadow.written.size == 0
    for width in (8, 4, 1):
        for time in range(1, 5):
            offsets = draw.integers(0, 64 * MIB // width, 20).astype(np.uint64) * np.uint64(width)
            units = shadow.units(offsets, width)
            shadow.write(units, np.full(units.size, time), time)
            expected |= {
                int(at): time for offset in offsets for at in range(int(offset), int(offset) + width)
            }
    assert shadow.unit == 1
    at = np.array(sorted(expected), np.uint64)
    assert shadow.written.take(shadow.units(at, 1)).tolist() == [expected[int(i)] for i in at]
    np.testing.assert_array_equal(shadow.numbers(shadow.units(at, 1)), at)
    assert np.count_nonzero(shadow.written) == len(expected)
    assert shadow.written.size < 8 * 12 * 20 * 4096
    assert small.numbers(small.units(np.array([8], np.uint64), 8)).tolist() == [1]


@pytest.mark.parametrize(
    ("schedule", "seed"), [("lowest pc", 0), ("stack", 0), *(("random", i) for i in range(3))]
)
def test_races_in_a_large_array_are_found_and_none_that_is_not_there(rows, schedule, seed):
    x = np.zeros(16 * MIB, np.int8)
    assert not run(rows, grid=1, block=32, args=[x, 500_000], schedule=schedule, seed=seed).faults
    with pytest.raises(Race, match=r"p\[\d+\]") as caught:
        run(rows, grid=2, block=32, args=[x, 500_000], schedule=schedule, seed=seed)
    assert caught.value.offset % 500_000 == 0
