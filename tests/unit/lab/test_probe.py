"""Probes of fragment maps, on synthetic chips with known maps and on the simulator."""

import json
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import simwarp
from reference.errors import NoGpuError
from simwarp.cli.probe import probe_command
from simwarp.fragments import FragmentError, Layout, all_opcodes, fragments_of
from simwarp.fragments.opcodes import confirmations
from simwarp.lab import recording as lab
from simwarp.lab.probe import forms_named, probe
from simwarp.lab.probe.bmma import bmma_maps, bmma_text
from simwarp.lab.probe.passes import NOWHERE, UNCLEAR, numbers, passes
from simwarp.lab.recording import Asking, Subject, recorded
from simwarp.lab.subjects import maps

ONE = {"f16": 0x3C00, "f32": 0x3F800000, "f64": 0x3FF0000000000000, "s32": 1}


class SyntheticArray:
    def __init__(self, host):
        self.host = host

    def download(self):
        return self.host

    def free(self):
        self.host = None


class SyntheticChip:
    """Executes an instruction by given maps, in plain loops and matrix products.

    ``damage`` changes the answers of products and of movements between registers: a faulty chip.
    """

    name, compute_capability = "synthetic", (9, 0)

    def __init__(self, fragments, damage=lambda answer: answer):
        self.fragments, self.damage = fragments, damage
        self.registers_of_a = slice(None)

    def load(self, text):
        return SimpleNamespace(kernel=lambda name: self.launch)

    def upload(self, host):
        return SyntheticArray(host.copy())

    def allocate(self, shape, dtype):
        return SyntheticArray(np.zeros(shape, dtype))

    def launch(self, grid, block, *arrays):
        opcode = self.fragments.opcode
        if opcode.startswith("wgmma"):
            self.warpgroup(*arrays)
        elif opcode.startswith(("mma", "wmma.mma")):
            self.product(grid, *arrays)
        else:
            self.move(*arrays)

    def move(self, source, target):
        bits = np.unpackbits(source.host, axis=1, bitorder="little")
        arrived = np.unpackbits(target.host, axis=1, bitorder="little")
        if self.fragments.opcode.startswith("movmatrix"):
            a = bits.copy().view(np.uint8)
            elements = self.fragments.operands["a"].layout.unpack(
                np.packbits(a, 1, "little").view("u4").reshape(-1, 32, 1)
            )
            registers = self.fragments.operands["d"].layout.pack(
                np.ascontiguousarray(elements.swapaxes(1, 2))
            )
            target.host[:] = self.damage(registers).reshape(len(bits), -1).view(np.uint8)
            return
        (operand,) = self.fragments.operands.values()
        layout, store = operand.layout, "store" in self.fragments.opcode or self.fragments.opcode[:2] == "st"
        for place in np.ndindex(layout.lanes, layout.registers, layout.register_bits):
            row, column, matrix = layout.element(*(int(i) for i in place))
            element = (matrix * layout.rows + row) * layout.columns + column
            if operand.memory == "col":
                element = column * layout.rows + row
            memory = element * layout.bits + place[2] % layout.bits
            register = (place[0] * layout.registers + place[1]) * layout.register_bits + place[2]
            if store:
                arrived[:, memory] = bits[:, register]
            else:
                arrived[:, register] = bits[:, memory]
        target.host[:] = np.packbits(arrived, axis=1, bitorder="little")

    def product(self, grid, factors, addends, sums, first):
        a, b, c, d = (self.fragments.operands[name] for name in "abcd")
        count = a.layout.lanes * a.layout.registers * a.layout.slots
        ones = np.zeros((grid[0], count + 1), bool)
        ones[np.arange(grid[0]), np.arange(grid[0]) + int(first)] = True
        shape = grid[0], a.layout.lanes, a.layout.registers, a.layout.slots
        shifts = np.arange(a.layout.slots, dtype=np.uint64) * np.uint64(a.layout.bits)
        words = (ones[:, :-1].reshape(shape).astype(np.uint64) << shifts).sum(axis=-1)
        words = words[..., self.registers_of_a]
        left = a.layout.unpack(words.astype(f"u{a.layout.register_bits // 8}")).astype(bool)[None].astype(int)
        right = b.layout.unpack(factors.host).astype(bool)[:, None].astype(int)
        start = c.layout.unpack(addends.host).astype(bool)[:, None].astype(int)
        total = left @ right + start
        if "xor" in self.fragments.opcode:
            total = left.sum(-1, keepdims=True) + right.sum(-2, keepdims=True) - 2 * (left @ right) + start
        words = (total * ONE[d.type]).astype(d.layout.unpack(sums.host).dtype)
        sums.host[:] = self.damage(d.layout.pack(words))

    def warpgroup(self, left, right, sums):
        """Tiles in shared memory: 8 rows of 16 bytes, the other half of k, then the next 8 rows."""
        a, d = (self.fragments.operands[name] for name in "ad")
        bits = a.layout.bits
        of_a = a.layout.unpack(left.host).astype(bool) if left.host.ndim == 3 else self.tile(left.host, bits)
        total = of_a.astype(int) @ self.tile(right.host, bits).astype(int).swapaxes(1, 2)
        words = (total * ONE[d.type]).astype(d.layout.unpack(sums.host).dtype)
        sums.host[:] = self.damage(d.layout.pack(words))

    @staticmethod
    def tile(octets, bits):
        rows = octets.shape[1] // 32
        row, byte = np.indices((rows, 32))
        dense = octets[:, row // 8 * 256 + byte // 16 * 128 + row % 8 * 16 + byte % 16]
        if bits == 1:
            return np.unpackbits(dense, axis=-1, bitorder="little").astype(bool)
        return dense.reshape(*dense.shape[:2], -1, bits // 8).any(axis=-1)


def planted(opcode, **lines):
    """The fragments of an instruction, with the maps of some operands replaced."""
    fragments = fragments_of(opcode)
    operands = dict(fragments.operands)
    for name, line in lines.items():
        layout = operands[name].layout
        operands[name] = replace(operands[name], layout=Layout.of(line, layout.bits, layout.register_bits))
    return replace(fragments, operands=MappingProxyType(operands))


MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SYNTHETIC = [
    "wmma.load.a.sync.aligned.row.m8n32k16.f16",
    "wmma.load.b.sync.aligned.row.m16n16k8.tf32",
    "wmma.load.b.sync.aligned.col.m8n8k128.b1",
    "wmma.load.c.sync.aligned.col.m8n32k16.f32",
    "wmma.load.c.sync.aligned.row.m8n8k4.f64",
    "wmma.store.d.sync.aligned.col.m32n8k16.f16",
    "ldmatrix.sync.aligned.m8n8.x2.trans.b16",
    "stmatrix.sync.aligned.m8n8.x4.b16",
    "movmatrix.sync.aligned.m8n8.trans.b16",
    MMA,
    "mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m8n8k32.row.col.s32.s4.u4.s32",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc",
    "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
    "wmma.mma.sync.aligned.row.col.m8n32k16.f16.f32",
    "wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32",
    "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc",
    "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e5m2",
]


def test_probe_passes_encode_numbers():
    for count in (1, 2, 3, 24, 8192):
        sent = passes(count)
        assert (numbers(sent) == (np.arange(count) if count > 1 else 0)).all()


def test_undecodable_passes_are_marked():
    sent = passes(8)
    backwards, stuck = ~sent[:, 3], np.ones(len(sent), bool)
    assert numbers(np.stack([backwards, stuck, ~stuck], axis=1)).tolist() == [UNCLEAR, NOWHERE, NOWHERE]


@pytest.mark.at_most(7)
@pytest.mark.parametrize("opcode", SYNTHETIC)
def test_the_maps_of_a_synthetic_chip_are_confirmed(opcode):
    finding = probe(opcode, SyntheticChip(fragments_of(opcode)))
    assert finding.executed
    assert finding.agreed, finding.differences
    assert len(finding.digest) == 64


@pytest.mark.parametrize(
    ("opcode", "lines", "expected"),
    [
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.bf16",
            {"a": "slot 2:c1  lane 4:c2 8:r1  register 2:c8 2:r8"},
            ["operand a, lane 0, register 1, bit 0: found row 8, column 0"],
        ),
        (
            "wmma.store.d.sync.aligned.row.m16n16k16.f32",
            {"d": "lane 4:c2 8:r1  register 2:c1 2:c8 2:r8"},
            ["operand d, lane 0, register 2, bit 0: found row 8, column 0"],
        ),
        (
            "stmatrix.sync.aligned.m8n8.x1.b16",
            {"r": "slot 2:r1  lane 4:r2 8:c1"},
            ["operand r, lane 0, register 0, bit 16: found row 0, column 1"],
        ),
        (
            "movmatrix.sync.aligned.m8n8.trans.b16",
            {"d": "slot 2:r1  lane 4:r2 8:c1"},
            ["operand d, lane 0, register 0, bit 16: found row 0, column 1"],
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
            {"a": "slot 2:c1  lane 4:c2 8:r1 4:r16  register 2:c8 2:r8"},
            ["operand a, lane 0, register 1, bit 0: found row 8, column 0"],
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16",
            {"d": "lane 4:c2 8:r1 4:r16  register 2:c1 2:c8 2:r8"},
            ["operand d, lane 0, register 2, bit 0: found row 8, column 0"],
        ),
    ],
)
def test_a_wrong_map_is_reported_at_its_first_difference(opcode, lines, expected):
    finding = probe(planted(opcode, **lines), SyntheticChip(fragments_of(opcode)))
    assert not finding.agreed
    assert [str(difference).partition(", simwarp")[0] for difference in finding.differences] == expected


def test_swapped_halves_of_k_are_reported_for_both_operands():
    """A product cannot distinguish which of its operands is permuted."""
    wrong = planted(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", b="slot 4:r1  lane 4:r8 8:c1  register 2:r4"
    )
    finding = probe(wrong, SyntheticChip(fragments_of(wrong.opcode)))
    assert [difference.operand for difference in finding.differences] == ["a", "b"]
    assert str(finding.differences[1]) == (
        "operand b, lane 0, register 1, bit 0: found row 16, column 0, simwarp.fragments has row 4, column 0"
    )


def test_only_the_scrambled_map_is_reported():
    wrong = planted(MMA, b="slot 2:r8  lane 4:r1 2:r4 4:c1  register 2:c4")
    finding = probe(wrong, SyntheticChip(fragments_of(MMA)))
    assert [str(difference) for difference in finding.differences] == [
        "operand b, lane 0, register 0, bit 16: found row 1, column 0, simwarp.fragments has row 8, column 0"
    ]


def test_exchanged_accumulator_rows_are_not_reported_for_b():
    wrong = planted(MMA, c="lane 4:c2 8:r1  register 2:r8 2:c1", d="lane 4:c2 8:r1  register 2:c1 2:r8")
    finding = probe(wrong, SyntheticChip(fragments_of(MMA)))
    (difference,) = finding.differences
    assert (difference.operand, difference.lane, difference.register, difference.bit) == ("c", 0, 1, 0)
    assert (difference.found, difference.expected) == ("row 0, column 1", "row 8, column 0")


def test_two_exchanged_registers_of_d_are_reported():
    def damage(registers):
        damaged = registers.copy()
        damaged[..., 3, 0], damaged[..., 7, 1] = registers[..., 7, 1], registers[..., 3, 0]
        return damaged

    finding = probe(MMA, SyntheticChip(fragments_of(MMA), damage))
    (difference,) = finding.differences
    assert (difference.operand, difference.lane, difference.register, difference.bit) == ("d", 3, 0, 0)
    assert difference.found == "row 1, column 7"  # what lane 7 holds in register 1
    assert difference.expected == "row 0, column 6"


def test_a_register_that_is_never_written_is_reported():
    def damage(registers):
        damaged = registers.copy()
        damaged[..., 9, 0] = 0
        return damaged

    finding = probe(MMA, SyntheticChip(fragments_of(MMA), damage))
    assert "operand d, lane 9, register 0, bit 0: found nothing" in str(finding.differences[0])


def test_a_sum_that_is_neither_0_nor_1_is_reported():
    """The majority confirms the maps, although one product is wrong."""
    opcode = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"

    def damage(registers):
        damaged = registers.copy()
        if registers.shape[1] > 1:
            damaged[:, 6, 1, 0] *= 2
        return damaged

    finding = probe(opcode, SyntheticChip(fragments_of(opcode), damage))
    (difference,) = finding.differences
    assert (difference.operand, difference.lane, difference.register) == ("d", 1, 0)
    assert difference.found == "bits that are not one element times A's row 0, column 6"
    assert difference.expected == "B's row 6, column 2 times A's row 0, column 6"


def test_a_chip_that_reads_the_second_copy_of_a_is_reported():
    """The maps describe a chip that reads the first copy of A's elements."""
    chip = SyntheticChip(fragments_of("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"))
    chip.registers_of_a = [4, 5, 6, 7, 0, 1, 2, 3]
    (difference,) = probe(chip.fragments, chip).differences
    assert (difference.operand, difference.lane, difference.register) == ("a", 0, 0)
    assert (difference.found, difference.expected) == ("nothing", "row 0, column 0")


@pytest.mark.parametrize(
    ("opcode", "lines", "operand", "register"),
    [
        ("ldmatrix.sync.aligned.m8n8.x4.b16", {"r": "slot 2:r1  lane 4:r2 8:c1  register 4:m1"}, "r", 0),
        (MMA, {"b": "slot 2:r1  lane 8:c1 4:r2  register 2:r8"}, "b", 0),
        (MMA, {"c": "lane 4:c2 8:r1  register 2:r8 2:c1"}, "c", 1),
        ("wmma.load.c.sync.aligned.row.m8n32k16.f32", {"c": "lane 4:c2 8:r1  register 2:c1 4:c8"}, "c", 1),
    ],
)
def test_a_planted_map_differs_from_the_simulator(opcode, lines, operand, register):
    finding = probe(planted(opcode, **lines), simwarp.Device())
    first = finding.differences[0]
    assert (first.operand, first.register) == (operand, register)
    assert probe(opcode, simwarp.Device()).agreed


def test_unsupported_forms_are_reported_as_not_executed():
    finding = probe("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", simwarp.Device(cc=(8, 0)))
    assert not finding.executed
    assert not finding.agreed
    assert finding.refusal.startswith("not executed by this device: ")


def test_an_exception_of_the_device_is_raised():
    chip = SyntheticChip(fragments_of(MMA))
    chip.load = lambda text: 1 / 0
    with pytest.raises(ZeroDivisionError):
        probe(MMA, chip)


def test_forms_are_found_by_part_of_their_name():
    assert forms_named([]) == list(all_opcodes())
    assert len(forms_named(["bmma"])) == 8
    assert forms_named(["wmma.load.a.sync.aligned.m8n8k128.row.global.b1"]) == [
        "wmma.load.a.sync.aligned.row.m8n8k128.b1"
    ]
    assert forms_named(["movmatrix", "movmatrix"]) == ["movmatrix.sync.aligned.m8n8.trans.b16"]
    assert set(forms_named(["mma.sync"])) == {form for form in all_opcodes() if form.startswith("mma.")}
    with pytest.raises(FragmentError, match=r"wmma\.lo"):
        forms_named(["wmma.lo"])


def test_maps_equal_section_4_of_the_paper():
    """Four lanes hold a row of 128 bits; each lane holds two neighbours of a row of D."""
    maps = bmma_maps(simwarp.Device())
    lanes = np.arange(32).reshape(8, 4)
    assert (maps.a == lanes).all()
    assert (maps.b == lanes).all()
    row, column = np.indices((8, 8))
    held = np.stack([4 * row + column // 2, column % 2], axis=-1)
    for accumulator in (maps.c, maps.d):
        assert (accumulator["row"] == held).all()
        assert (accumulator["col"] == held).all()
    for factors in maps.factors.values():
        assert (factors[..., 0] == lanes[:, None]).all()
        assert (factors[..., 1] == lanes[None]).all()
    text = bmma_text(maps)
    assert "E0 0.R0     E1 0.R1     E2 1.R0" in text
    assert "E0 0.R0     E1 4.R0     E2 8.R0" in text
    assert "?" not in text
    assert "others" not in text


def test_a_probe_golden_is_recorded_and_read_back(tmp_path):
    chip = SimpleNamespace(name="NVIDIA X", uuid="ab", driver_version="580", compute_capability=(9, 0))
    device = simwarp.Device()
    good, absent = (
        probe(MMA, device),
        probe("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", simwarp.Device(cc=(8, 0))),
    )
    bad = probe(planted(MMA, b="slot 2:r1  lane 8:c1 4:r2  register 2:r8"), device)
    observed = tmp_path / "observed.json"
    on_sm_80 = {MMA: {"sm_80": True}, "x": {"sm_80": True}}
    observed.write_text(json.dumps({"meta": {"sm_80": {}}, "forms": on_sm_80}))

    def record(findings):
        subject = Subject("probe", "", lambda asking: maps.answers(findings))
        return lab.record(subject, Asking(lambda: chip), tmp_path)

    assert record([good, absent]).paths == [tmp_path / "sm_90" / "probe.json", observed]
    meta = recorded("probe", tmp_path).meta
    assert meta["gpu"] == {"name": "NVIDIA X", "uuid": "ab"}
    assert meta["forms"] == {MMA: {"agreed": True, "digest": good.digest}}
    assert json.loads(observed.read_text())["forms"] == {**on_sm_80, MMA: {"sm_80": True, "sm_90": True}}
    assert confirmations(observed)[MMA] == ("sm_80", "sm_90")
    (difference,) = record([bad]).differences
    assert difference.startswith(f"{MMA}: ")
    assert json.loads(observed.read_text())["forms"] == on_sm_80
    assert set(json.loads(observed.read_text())["meta"]) == {"sm_80", "sm_90"}


# the command


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_command_prints_the_maps_of_a_few_forms(capsys):
    assert probe_command(["movmatrix", "ldmatrix"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "movmatrix.sync.aligned.m8n8.trans.b16: agrees"
    assert printed[1] == "  d b16  slot 2:c1  lane 4:c2 8:r1"
    assert printed[-1] == "on simwarp simulator (sm_90): 7 agreed"


def test_the_command_prints_a_table_of_many_forms(capsys):
    assert probe_command(["wmma.load.a"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["wmma.load.a", "31", "31", "0", "0"]


@pytest.mark.slow
def test_the_command_prints_json(capsys):
    assert probe_command(["bmma"], as_json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["agreed"], report["differ"], report["not_executed"]) == (8, 0, 0)
    assert report["bmma"]["a"][1] == [4, 5, 6, 7]
    assert report["forms"][0]["operands"][0]["map"] == "slot 32:c1  lane 4:c32 8:r1"


def test_the_command_fails_if_a_map_differs(capsys, monkeypatch):
    wrong = planted(MMA, b="slot 2:r1  lane 8:c1 4:r2  register 2:r8")
    monkeypatch.setattr("simwarp.lab.probe.probe", lambda form, device: probe(wrong, device))
    assert probe_command([MMA]) == 1
    printed = capsys.readouterr().out
    assert f"{MMA}: differs" in printed
    assert (
        "differs: operand b, lane 1, register 0, bit 0: found row 2, column 0, simwarp.fragments has"
        in printed
    )
    assert "1 differ" in printed


def test_the_command_lists_forms(capsys):
    assert probe_command(["movmatrix"], list_forms=True, as_json=True) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["forms"] == ["movmatrix.sync.aligned.m8n8.trans.b16"]
    assert {row["operand"] for row in listed["rows"]} == {"a", "d"}


def test_a_stopped_command_prints_nothing(capsys, monkeypatch):
    def stop(form, device):
        raise KeyboardInterrupt

    monkeypatch.setattr("simwarp.lab.probe.probe", stop)
    with pytest.raises(KeyboardInterrupt):
        probe_command(["movmatrix"])
    assert capsys.readouterr().out == ""


def test_the_command_reports_a_missing_gpu(monkeypatch):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    with pytest.raises(NoGpuError, match="--device sim"):
        probe_command(["movmatrix"], device="cuda")
