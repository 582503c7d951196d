"""The bar of blocks of ``simwarp run``."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import simwarp
from gpu.compile import compile
from simwarp.cli import main, run_progress
from simwarp.cli.run_progress import BlocksDone, block_bar

# Warps of a few lanes go round a long loop, so that the engine also runs them by themselves, on copies.
LOOP = """extern "C" __global__ void f(int* x) {
    int n = threadIdx.x == 3 && blockIdx.x % 2 ? 200 : 2;
    for (int i = 0; i < n; i++) atomicAdd(x, 1);
}"""


@pytest.mark.parametrize("schedule", ["lowest pc", "random"])
def test_blocks_are_counted_chunk_by_chunk(monkeypatch, schedule):
    monkeypatch.setattr(run_progress, "_INTERVAL", 0.0)
    shown = []
    observer = BlocksDone(lambda done, total: shown.append((done, total)))
    device = simwarp.Device(observers=[observer], chunk_lanes=128, schedule=schedule)
    kernel = device.load(compile(LOOP, "f.cu").text).kernel("f")
    for _ in range(2):
        shown.clear()
        kernel((5, 1, 1), (64, 1, 1), device.upload(np.zeros(1, np.int32)))
        assert list(dict.fromkeys(done for done, _ in shown)) in ([0, 2, 4, 5], [0, 1, 3, 5], [0, 2, 3, 5])
        assert {total for _, total in shown} == {5}


def test_there_is_no_bar_without_a_terminal():
    with block_bar("f.cu", Console(file=io.StringIO())) as observers:
        assert observers == ()
    with block_bar("f.cu", Console(file=io.StringIO(), force_terminal=True, quiet=True)) as observers:
        assert observers == ()


@pytest.mark.parametrize(("patience", "bar"), [(0.0, True), (1e9, False)])
def test_a_bar_appears_only_for_a_long_run(monkeypatch, patience, bar):
    monkeypatch.setattr(run_progress, "_SHORT", patience)
    monkeypatch.setattr(run_progress, "_INTERVAL", 0.0)
    file = io.StringIO()
    with block_bar("f.cu", Console(file=file, force_terminal=True, width=100)) as (observer,):
        device = simwarp.Device(observers=[observer], chunk_lanes=128)
        kernel = device.load(compile(LOOP, "f.cu").text).kernel("f")
        kernel((5, 1, 1), (64, 1, 1), device.upload(np.zeros(1, np.int32)))
    assert ("5/5" in file.getvalue()) is bar


def test_ctrl_c_removes_the_bar_and_says_stopped(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(BlocksDone, "on_step", stop)
    Path("f.cu").write_text(LOOP)
    arguments = ["--grid", "1", "--block", "32", "--arg", "x=zeros:int32:1"]
    assert main(["run", "f.cu", *arguments]) == 130
    assert capsys.readouterr().err.endswith("stopped\n")
    assert [path.name for path in tmp_path.iterdir()] == ["f.cu"]
