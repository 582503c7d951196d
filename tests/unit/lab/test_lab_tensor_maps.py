"""The campaign of tensor maps: what it draws, that ptxas takes its kernels, and that it sees a difference."""

import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

import simwarp
from reference.devices.tensor_map import FILLS, TensorMap
from reference.errors import ShapeError
from simwarp.lab.recording import Asking
from simwarp.lab.subjects import tensor_maps
from simwarp.lab.subjects import tensor_maps_by_chance as by_chance
from simwarp.lab.subjects.tensor_maps_by_chance import KERNELS, Copy, Kernel
from simwarp.tensormaps import check_coordinates, tile_bytes

LOAD = KERNELS[2]


def copies_of(kernels, count):
    return [(kernel, by_chance.drawn(kernel, number)) for kernel in kernels for number in range(count)]


def test_a_whole_recording_has_enough_copies_of_every_kind():
    assert sum(kernel.copies for kernel in KERNELS) >= 20_000
    assert sum(min(kernel.copies, tensor_maps.EXECUTED) for kernel in KERNELS) >= 2_000
    assert {(k.operation, k.images, k.rank) for k in KERNELS} == {
        (operation, images, rank)
        for operation in ("load", "store", "add", "min", "max", "inc", "dec", "and", "or", "xor")
        for images in (False, True)
        for rank in range(3 if images else 1, 6)
    }


def test_copies_are_what_a_chip_takes_and_lie_everywhere():
    places, seen = Counter(), Counter()
    for kernel, copy in copies_of(KERNELS[::3], 20):
        tensor = copy.tensor
        tensor.check()
        check_coordinates(tensor, copy.coordinates, copy.offsets, stores=kernel.operation != "load")
        assert copy.start % 128 == 0
        assert copy.start + tile_bytes(tensor)[1] + 128 <= by_chance.ROOM
        places[tensor_maps._sort(copy)] += 1
        seen["gaps"] += tensor.strides[:1] > (tensor.shape[0] * tensor.itemsize + 15,)
        seen["steps"] += max(tensor.element_strides[1:], default=1) > 1
        seen["negative"] += min(copy.coordinates) < 0
        seen["nan"] += tensor.fill == FILLS[1]
        seen["short rows"] += 0 < tensor.inner * tensor.itemsize < tensor.swizzle
        seen[f"swizzle {tensor.swizzle}"] += 1
        seen["inside the pattern"] += copy.start > 0
    assert len(seen) == 10
    assert min(seen.values()) >= 10
    assert min(places[name] for name in ("inside", "across an edge", "outside")) >= 40


@pytest.mark.parametrize("first", range(10))
def test_the_simulator_runs_the_kernels_and_copies_as_its_boxes_say(first):
    for kernel in KERNELS[first::20]:
        digests, counted, differences = tensor_maps.compare(simwarp.Device(), kernel, range(100, 103))
        assert differences == []
        assert len(set(digests)) == counted["counts"]["copies"] == 3


def test_expected_bytes_of_a_load_follow_from_its_definition():
    tensor = TensorMap("float16", 0, (20, 3), (48,), (16, 4), (1, 2), swizzle=32, fill="nan")
    memory = np.arange(72, dtype="<u2")
    shared = np.full(by_chance.ROOM, 0xEE, np.uint8)
    copy = Copy(tensor, (8, 1), (), 256, memory.view(np.uint8), shared)
    found = tensor_maps.expected(Kernel("load", False, 2, 1), copy).view("<u2")
    right = shared.view("<u2").copy()
    right[128:136], right[136:144] = memory[24 + 8 : 24 + 16], [*memory[24 + 16 : 24 + 20], *[0x7FF7] * 4]
    right[144:160] = 0x7FF7
    assert found.tolist() == right.tolist()


def test_a_wrong_byte_and_a_refused_map_are_described(monkeypatch):
    chip, right = simwarp.Device(), by_chance.answers

    def answers(device, kernel, copies):
        found = right(device, kernel, copies)
        if device is chip:
            found[1][77] ^= 3
        return found

    class Refusing(simwarp.Device):
        def tensor_map(self, array, box, **options):
            if options["strides"] == by_chance.drawn(LOAD, 0).tensor.strides[::-1]:
                raise ShapeError("the driver refuses it")
            return super().tensor_map(array, box, **options)

    _, counted, (text,) = tensor_maps.compare(Refusing(), LOAD, range(3))
    assert text.startswith(f"{LOAD.name}, copy 0: the driver refuses it\nTensorMap(")
    monkeypatch.setattr(by_chance, "answers", answers)
    _, counted, (text,) = tensor_maps.compare(chip, LOAD, range(3))
    assert counted["counts"]["mismatches"] == 1
    assert text.startswith(f"{LOAD.name}, copy 1: 1 bytes differ, first 77: chip ")


def test_bytes_that_are_not_counted_end_the_wait(monkeypatch):
    module = by_chance.module
    monkeypatch.setattr(by_chance, "module", lambda kernel: module(kernel).replace("100000", "20"))
    monkeypatch.setattr(by_chance, "tile_bytes", lambda tensor: (tile_bytes(tensor)[0] + 16, 0))
    device = simwarp.Device(checks={"copies": "off"})
    found = by_chance.answers(device, LOAD, [by_chance.drawn(LOAD, 0)])
    assert found == ["the bytes of the copy were not counted as expected"]


class Broken(simwarp.Device):
    """A device that one map stops."""

    def tensor_map(self, array, box, **options):
        if options["shape"] == by_chance.drawn(LOAD, 1).tensor.shape[::-1]:
            raise RuntimeError("an illegal instruction was encountered")
        return super().tensor_map(array, box, **options)


@pytest.mark.gate
def test_a_copy_that_a_device_cannot_execute_loses_no_other(monkeypatch):
    monkeypatch.setattr(tensor_maps, "KERNELS", [LOAD])
    monkeypatch.setattr(Asking, "number", lambda self, full, small: small if full != 1 else 1)
    found = tensor_maps.ask(Asking(Broken, small=True))
    assert (found.facts["lost"], found.facts["copies"]) == (1, 7)
    (text,) = found.differences
    assert text.startswith(f"{LOAD.name}, copy 1: no answer")
    assert "an illegal instruction was encountered" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
@pytest.mark.parametrize("kernel", KERNELS[::7], ids=lambda kernel: kernel.name)
def test_ptxas_accepts_the_kernels(kernel, tmp_path):
    path = tmp_path / "module.ptx"
    path.write_text(by_chance.module(kernel))
    command = ["ptxas", "-arch=sm_90a", "-o", str(tmp_path / "out"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
