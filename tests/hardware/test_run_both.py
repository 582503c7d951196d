"""The simulator against a GPU: planted differences, kernels that agree, races, and a kernel that hangs."""

import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from simwarp.device.device import Device
from simwarp.run import Both, ChipTimeoutError, NotComparedError, Out, run
from simwarp.run.both.compare import hold
from simwarp.run.both.devices import Apart, first_gpu
from simwarp.run.kernel import run_on
from simwarp.run.work import Work
from support.planted_differences import (
    AGREE,
    COUNTS,
    ENDLESS,
    FLOATS,
    INTEGERS,
    PLANTED,
    RACES,
    THREADS,
    Planted,
    check,
    held,
    source_of,
)
from support.recorded_launches import NAMES, assert_not_parted, recorded

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def chip():
    """The GPU, in a process of its own."""
    with closing(Apart(first_gpu, 60.0)) as chip:
        chip.start()
        yield chip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named_to_the_element_and_the_instruction(name, chip):
    check(PLANTED[name], held(PLANTED[name], chip))


@pytest.mark.parametrize("name", AGREE)
def test_the_devices_agree_and_do_not_part(name, chip):
    source = source_of(Planted(AGREE[name], "", "", "", "", args=FLOATS).code)
    work = Work(source, source.kernel(), (1, 1, 1), (THREADS, 1, 1), FLOATS)
    compared = hold(work, run_on(Device(), work), Both(), chip, Device)
    assert compared.equal, str(compared)
    assert_not_parted(work, chip)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_launches_agree(name, chip):
    for work in recorded(name):
        compared = hold(work, run_on(Device(), work), Both(), chip, Device)
        assert compared.equal, f"{work.kernel.name}\n{compared}"


@pytest.mark.parametrize("name", ["gemm", "reduce", "softmax", "transpose", "layer_norm", "btc1"])
def test_recorded_launches_do_not_part(name, chip):
    for work in recorded(name):
        assert_not_parted(work, chip)


@pytest.mark.parametrize("name", RACES)
def test_a_kernel_with_a_race_is_refused_first(name):
    args = {**INTEGERS, "y": np.zeros(THREADS, np.int32)}
    code = Planted(RACES[name], "", "", "", "", args=args).code
    with pytest.raises(NotComparedError, match="is not compared: the simulator has"):
        run(source_of(code), grid=1, block=THREADS, args=args, device="both")


def test_variables_have_their_values_in_each_launch(chip):
    source, c = source_of(COUNTS), np.array([5, 6], np.int32)
    work = Work(source, source.kernel(), (1, 1, 1), (4, 1, 1), {"y": Out("int32", 4)}, variables={"c": c})
    for _ in range(2):
        compared = hold(work, run_on(Device(), work), Both(), chip, Device)
        assert compared.equal, str(compared)


def test_a_kernel_that_hangs_is_ended_and_the_gpu_answers_again():
    with closing(Apart(first_gpu, 2.0)) as chip:
        chip.start()
        with pytest.raises(ChipTimeoutError, match="did not end on"):
            held(ENDLESS, chip)
        assert chip._process.poll() is not None
    result = run(
        source_of(PLANTED["a rounding"].code), grid=1, block=THREADS, args=FLOATS, device=Both(bisect=True)
    )
    assert result.both.equal, str(result.both)


def test_the_command_holds_a_file_against_the_gpu(tmp_path):
    (tmp_path / "k.cu").write_text(PLANTED["another warp"].code)
    np.save(tmp_path / "x.npy", INTEGERS["x"])
    command = [sys.executable, "-m", "simwarp", "run", "k.cu", "--grid", "1", "--block", "64", "--arg"]
    command += ["y=out:int32:64", "--arg", "x.npy", "--device", "both", "--bisect", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    both = json.loads(done.stdout)["both"]
    assert (both["compared"], both["equal"], both["parting"]) == (True, True, None)
