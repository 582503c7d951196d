"""The campaign of copies through tensor maps: what it draws, and that it sees a difference."""

import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

import simwarp
from simwarp.lab.subjects import tensor_copies as copies


def test_enough_copies_of_every_kind_rank_and_swizzle_are_drawn():
    cases = [copies.drawn(number) for number in range(0, copies.COUNT, 3)]
    assert copies.COUNT * copies.COPIES >= 20_000
    assert {case.kind for case in cases} == {
        "load",
        "images",
        "store",
        "add",
        "min",
        "max",
        "and",
        "or",
        "xor",
    }
    ranks = Counter((case.kind, len(case.shape)) for case in cases)
    assert all(ranks["load", rank] and ranks["store", rank] for rank in range(1, 6))
    assert all(ranks["images", rank] for rank in range(3, 6))
    assert {case.options["swizzle"] for case in cases} == {0, 32, 64, 128}
    assert any(case.options.get("fill") == "nan" for case in cases)
    assert any(max(case.options["element_strides"]) > 1 for case in cases if case.kind == "load")
    assert any((case.coordinates < 0).any() for case in cases)
    for case in cases:
        item = copies.DATA_TYPES[case.options["data_type"]][0]
        assert not (case.coordinates[:, 0] * item % 16).any()
        assert case.loads or (case.coordinates >= 0).all()


def gathered(case, tensor, copy):
    """The rows of a tile without a swizzle, element by element; None outside."""
    item = copies.DATA_TYPES[case.options["data_type"]][0]
    at, steps = case.coordinates[copy][::-1].tolist(), case.options["element_strides"]
    tile = []
    counts = [-(-n // step) for n, step in zip(case.options["box"], steps, strict=True)]
    for place in np.ndindex(*counts):
        element = [a + i * step for a, i, step in zip(at, place, steps, strict=True)]
        inside = all(0 <= i < n for i, n in zip(element, case.shape, strict=True))
        start = sum(i * stride for i, stride in zip(element, (*case.strides, item), strict=True))
        tile.append(tensor[start : start + item].tolist() if inside else None)
    return tile


def test_the_simulators_tiles_are_those_of_a_loop_over_elements():
    compared = 0
    for number in range(40):
        case = copies.drawn(number)
        if case.kind != "load" or case.options["swizzle"] or case.options.get("fill") == "nan":
            continue
        item = copies.DATA_TYPES[case.options["data_type"]][0]
        tensor = copies._octets(copies.Draw(copies.SEED, "tensors", number), case.size)
        found = copies.simulated(case)[0].tolist()
        for i, element in enumerate(gathered(case, tensor, 0)):
            assert found[i * item : (i + 1) * item] == (element or [0] * item)
            compared += 1
    assert compared >= 500


def test_a_wrong_byte_is_described_with_its_case(monkeypatch):
    chip, right = simwarp.Device(), copies.answer

    def answer(device, case):
        found = right(device, case)
        if device is chip and case.number == 2:
            found.flat[5] ^= 1
        return found

    monkeypatch.setattr(copies, "answer", answer)
    rows, counts, (text,) = copies.compare(chip, range(4))
    assert len(rows) == 4
    assert sum(counts.values()) == 2 * 4 * copies.COPIES
    assert text.startswith("case 2: 1 bytes differ; byte 5: chip 0x")
    assert "Case(number=2, kind=" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
def test_ptxas_accepts_the_kernels(tmp_path):
    for kind, rank in (("load", 1), ("load", 5), ("images", 4), ("store", 3), ("xor", 2)):
        path = tmp_path / "module.ptx"
        path.write_text(copies.kernel(kind, rank))
        command = ["ptxas", "-arch=sm_90", "-o", str(tmp_path / "out"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
