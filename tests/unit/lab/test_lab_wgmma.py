"""The campaign of wgmma: what it draws, that ptxas takes its kernels, and that it sees a difference."""

import shutil
import subprocess
from collections import Counter

import numpy as np
import pytest

import simwarp
from simwarp.fragments.descriptors import Descriptors
from simwarp.lab.recording import Asking
from simwarp.lab.subjects import wgmma
from simwarp.lab.subjects import wgmma_by_chance as by_chance
from simwarp.lab.subjects.wgmma_by_chance import Form
from simwarp.verify.draw import Draw

MMA = "wgmma.mma_async.sync.aligned"


def test_the_forms_and_tiles_of_a_whole_recording_are_enough():
    tiles, whole = Counter(), 0
    for opcode in wgmma.OPCODES:
        form = Form(opcode)
        styles = 4 if form.types["c"] == "s32" else 19
        count = wgmma.CHUNKS * styles * wgmma.EACH["whole" if styles == 4 else "floats"]
        assert wgmma.CHUNKS % len(form.variants) == 0
        tiles[*form.types.values(), "satfinite" in opcode] += count
        whole += count
    assert whole >= 1_000_000
    assert min(tiles.values()) >= 50_000
    assert len(tiles) == 21


@pytest.mark.parametrize(
    ("types", "many"), [("16.f32.f16.f16", 6), ("16.f32.bf16.bf16", 6), ("8.f32.tf32.tf32", 4)]
)
def test_variants_have_both_places_of_a_all_majors_and_all_signs(types, many):
    variants = [v for n in (8, 16, 24, 32) for v in Form(f"{MMA}.m64n{n}k{types}").variants]
    assert len(variants) == 4 * many
    majors = {(v.shared, v.k_major) for v in variants}
    assert len(majors) == (6 if many == 6 else 2)
    assert {(v.shared, v.signs) for v in variants} == {
        (shared, (a, b)) for shared in (True, False) for a in (1, -1) for b in (1, -1)
    }


@pytest.mark.parametrize("opcode", [f"{MMA}.m64n256k16.f16.f16.f16", f"{MMA}.m64n24k16.f32.bf16.bf16"])
def test_layouts_fit_have_no_overlaps_and_all_pairs_of_swizzles(opcode):
    form = Form(opcode)
    for number, variant in enumerate(form.variants):
        tiles = by_chance.drawn(form, variant, Draw(1, opcode, number), 2)
        assert int(tiles.places.max()) + 16 <= form.size <= 48 << 10
        assert all(len(set(row)) == len(row) for row in tiles.places.tolist())
        found = [Descriptors.of(words) for words in tiles.descriptors.T]
        assert not any(side.reserved.any() for side in found)
        assert len(set(zip(found[0].span.tolist(), found[1].span.tolist(), strict=True))) == 16
        assert any((side.start % 1024 != 0).any() for side in found)
        assert 0 < tiles.keeps.sum() < len(tiles.keeps)


@pytest.mark.at_most(2)
@pytest.mark.parametrize("types", ["16.f32.f16.f16", "8.f32.tf32.tf32", "32.f16.e4m3.e5m2", "32.s32.u8.s8"])
def test_the_simulator_runs_the_kernels_and_multiplies_as_its_products_do(types):
    row, differences = wgmma.compare(simwarp.Device(), f"{MMA}.m64n16k{types}", small=True)
    assert differences == []
    assert row["tiles"] > row["executed"] > 0


def test_a_wrong_bit_is_described_with_what_entered_the_sum(monkeypatch):
    chip, right = simwarp.Device(), by_chance.answers

    def answers(device, form, number, tiles):
        sums = right(device, form, number, tiles)
        if device is chip and number == 1:
            sums[3, 40, 1] ^= 1 << 7
        return sums

    monkeypatch.setattr(by_chance, "answers", answers)
    row, (text,) = wgmma.compare(chip, f"{MMA}.m64n8k32.s32.s8.u8", small=True)
    assert row["mismatches"] == 1
    first, second, third, *_ = text.splitlines()
    variant = "A in registers, K and K-major, signs (1, 1)"
    found = "tile 3, style 3, 1 elements differ"
    assert first == f"{MMA}.m64n8k32.s32.s8.u8 ({variant}), chunk 1: {found}"
    assert second.startswith("descriptors 0x")
    assert third.startswith("row 18, column 1: chip 0x")


class Broken(simwarp.Device):
    """A device on which one size is an illegal instruction."""

    def load(self, text, *rest, **options):
        if "m64n8k32.s32" in text:
            raise RuntimeError("cuModuleLoadData failed: illegal instruction")
        return super().load(text, *rest, **options)


@pytest.mark.gate
def test_a_form_that_a_device_cannot_execute_loses_no_other(monkeypatch):
    opcodes = [f"{MMA}.m64n{n}k32.s32.u8.u8" for n in (8, 16)]
    monkeypatch.setattr(wgmma, "OPCODES", opcodes)
    monkeypatch.setattr(Asking, "number", lambda self, full, small: 1)
    found = wgmma.ask(Asking(Broken, small=True))
    assert list(found.facts["forms"]) == opcodes[1:]
    assert found.facts["lost"] == 1
    (text,) = found.differences
    assert text.startswith(f"{opcodes[0]}: no answer")
    assert "illegal instruction\n" in text
    assert text.rstrip().endswith("(A in shared memory, K and K-major, signs (1, 1)), chunk 0")


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas of the CUDA toolkit")
@pytest.mark.slow
def test_ptxas_accepts_the_kernels(tmp_path):
    for opcode in wgmma.OPCODES[Draw(0, "ptxas", 0).integer(0, 30) :: 31]:
        path = tmp_path / "module.ptx"
        path.write_text(by_chance.module(Form(opcode)))
        command = ["ptxas", "-arch=sm_90a", "-o", str(tmp_path / "out"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), opcode


def test_bits_are_drawn_as_words():
    tiles = wgmma.drawn(Form(f"{MMA}.m64n8k256.s32.b1.b1.and.popc"), 0)
    assert {name: (words.shape[1:], words.dtype) for name, words in tiles.words.items()} == {
        "a": ((64, 8), np.uint32),
        "b": ((8, 8), np.uint32),
        "c": ((64, 8), np.uint32),
    }
