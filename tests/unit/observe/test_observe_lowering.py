"""Lowering of matrix instructions by ptxas: the table equals the recording and an installed ptxas."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import SchemeError
from simwarp.chips.lowering import lowering
from simwarp.fragments import FragmentError, all_opcodes, fragments_of
from simwarp.observe.matrix_counts import MatrixInstructions
from support import small_kernels as small
from support.offenders import every_case

TESTS = Path(__file__).parents[2]
CHIPS = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0))

# From ptxas 13.0.88 and cuobjdump: each opcode, then per range of chips the SASS instructions.
SEEN = """
mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc
    75-89: 1 BMMA.88128.XOR.POPC
    90: 2 BMMA.88128.AND.POPC 2 IADD3 2 LOP3
mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc
    75: -
    80-90: 1 BMMA.88128.AND.POPC
mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc
    75: -
    80-89: 1 BMMA.168128.XOR.POPC
    90: 2 BMMA.168128.AND.POPC 4 IADD3 3 LOP3
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc
    75: -
    80-89: 1 BMMA.168256.XOR.POPC
    90: 2 BMMA.168256.AND.POPC 4 IADD3 6 LOP3
mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc
    75: -
    80-90: 1 BMMA.168256.AND.POPC
wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
    75-89: 1 BMMA.88128.XOR.POPC
    90: 2 BMMA.88128.AND.POPC 2 IADD3 2 LOP3
wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32
    75: -
    80-90: 1 BMMA.88128.AND.POPC
mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32
    75-89: 1 IMMA.8832.S4.S4
    90: 2 IMMA.8816.S8.S8 2 IADD3 30 LOP3 30 SHF
mma.sync.aligned.m8n8k32.row.col.satfinite.s32.u4.u4.s32
    75-89: 1 IMMA.8832.U4.U4.SAT
    90: 2 IMMA.8816.U8.U8 4 IADD3 4 LOP3 4 PLOP3 4 SEL 2 SHF
mma.sync.aligned.m16n8k32.row.col.s32.s4.u4.s32
    75: -
    80-89: 1 IMMA.16832.S4.U4
    90: 2 IMMA.16816.S8.U8 4 IADD3 32 LOP3 31 SHF
mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u4.s4.s32
    75: -
    80-89: 1 IMMA.16832.U4.S4.SAT
    90: 2 IMMA.16816.U8.S8 8 IADD3 19 LOP3 8 PLOP3 8 SEL 17 SHF
mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32
    75: -
    80-89: 1 IMMA.16864.S4.S4
    90: 2 IMMA.16832.S8.S8 4 IADD3 90 LOP3 90 SHF
mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32
    75: -
    80-89: 1 IMMA.16864.U4.S4
    90: 2 IMMA.16832.U8.S8 4 IADD3 38 LOP3 34 SHF
mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32
    75: -
    80-89: 1 IMMA.16864.S4.S4.SAT
    90: 2 IMMA.16832.S8.S8 8 IADD3 90 LOP3 8 PLOP3 8 SEL 90 SHF
wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32.satfinite
    75-89: 1 IMMA.8832.S4.S4.SAT
    90: 2 IMMA.8816.S8.S8 4 IADD3 30 LOP3 4 PLOP3 4 SEL 30 SHF
mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16
    75-86: -
    89: 1 QMMA.16816.F16.E4M3.E5M2
    90: 2 HMMA.1688.F16 6 F2FP 2 HADD2
mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32
    75-86: -
    89: 1 QMMA.16832.F32.E4M3.E4M3
    90: 2 HMMA.16816.F32 12 F2FP 4 FADD
mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16
    75-86: -
    89: 1 QMMA.16832.F16.E5M2.E5M2
    90: 2 HMMA.16816.F16 12 F2FP 2 HADD2
mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16
    75: 2 HMMA.884.F16.F16.STEP
    80-90: 4 F2FP 16 FADD 16 FFMA 16 FMUL 44 HADD2 7 IADD3 1 LOP3 1 S2R 16 SHFL
mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16
    75: 4 HMMA.884.F32.F16.STEP
    80-90: 8 FADD 32 FFMA 32 HADD2 5 IADD3 1 ISETP 5 LOP3 2 S2R 4 SEL 1 SHF 16 SHFL
mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32
    75: 4 HMMA.884.F32.F32.STEP
    80-90: 8 FADD 32 FFMA 24 HADD2 5 IADD3 3 LOP3 1 S2R 12 SHFL
mma.sync.aligned.m8n8k4.col.col.f16.f16.f16.f16
    75: 2 HMMA.884.F16.F16.STEP
    80-90: 4 F2FP 16 FADD 16 FFMA 16 FMUL 44 HADD2 7 IADD3 2 ISETP 5 LOP3 6 PRMT 2 S2R 8 SEL 1 SHF 24 SHFL
mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f16
    75: 4 HMMA.884.F32.F16.STEP
    80-90: 8 FADD 32 FFMA 32 HADD2 5 IADD3 3 ISETP 9 LOP3 6 PRMT 3 S2R 12 SEL 2 SHF 24 SHFL
mma.sync.aligned.m8n8k4.col.row.f32.f16.f16.f32
    75: 4 HMMA.884.F32.F32.STEP
    80-90: 8 FADD 32 FFMA 24 HADD2 5 IADD3 2 ISETP 7 LOP3 6 PRMT 2 S2R 8 SEL 1 SHF 20 SHFL
mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16
    75-90: 1 HMMA.1688.F16
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    75: -
    80-90: 1 HMMA.16816.F32
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
    75: -
    80-90: 1 HMMA.16816.F32.BF16
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32
    75: -
    80-90: 1 HMMA.1684.F32.TF32
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64
    75: -
    80-89: 1 DMMA.884
    90: 1 DMMA.8x8x4
mma.sync.aligned.m16n8k16.row.col.rz.f64.f64.f64.f64
    75-89: -
    90: 1 DMMA.16x8x16.RZ
mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32
    75-90: 1 IMMA.8816.S8.U8
mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32
    75: -
    80-90: 1 IMMA.16832.U8.S8.SAT
wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16
    75: 4 HMMA.1688.F16
    80-90: 2 HMMA.16816.F16
wmma.mma.sync.aligned.row.col.m32n8k16.f16.f32
    75: 4 HMMA.1688.F32 8 F2F 4 PRMT
    80-90: 2 HMMA.16816.F32 4 F2FP
wmma.mma.sync.aligned.col.col.m8n32k16.f32.f16
    75: 4 HMMA.1688.F32 8 HADD2
    80-90: 2 HMMA.16816.F32 8 HADD2
wmma.mma.sync.aligned.col.row.m16n16k16.f32.f32
    75: 4 HMMA.1688.F32
    80-90: 2 HMMA.16816.F32
wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32.satfinite
    75: 4 IMMA.8816.U8.U8.SAT
    80-90: 2 IMMA.16816.U8.U8.SAT
wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32
    75: -
    80-90: 2 HMMA.16816.F32.BF16
wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32
    75: -
    80-90: 4 HMMA.1684.F32.TF32
wmma.mma.sync.aligned.row.col.m8n8k4.rz.f64.f64.f64.f64
    75: -
    80-89: 1 DMMA.884.RZ
    90: 1 DMMA.8x8x4.RZ
"""
XOR = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc"
AND = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc"


def seen():
    """(opcode, chip, counts) of the recording; counts are None if the chip lacks the instruction."""
    opcode = ""
    for line in SEEN.strip().splitlines():
        if not line.startswith(" "):
            opcode = line
            continue
        chips, _, words = line.strip().partition(": ")
        first, _, last = chips.partition("-")
        parts = words.split()
        counts = (
            {name: int(count) for count, name in zip(parts[::2], parts[1::2], strict=True)}
            if (words != "-")
            else None
        )
        for cc in CHIPS:
            if int(first) <= 10 * cc[0] + cc[1] <= int(last or first):
                yield opcode, cc, counts


@every_case(("opcode", "cc", "counts"), seen)
def test_the_table_equals_the_recording(opcode, cc, counts):
    if counts is None:
        with pytest.raises(SchemeError, match=f"unknown lowering of .* on sm_{cc[0]}{cc[1]}\n"):
            lowering(opcode, cc)
    else:
        assert lowering(opcode, cc).instructions == counts


def test_every_opcode_was_seen_on_every_chip():
    chips = {opcode: 0 for opcode, _, _ in seen()}
    for opcode, _, _ in seen():
        chips[opcode] += 1
    assert set(chips.values()) == {len(CHIPS)}


def products():
    return [opcode for opcode in all_opcodes() if opcode.startswith(("mma", "wmma.mma", "movmatrix"))]


@every_case("opcode", products)
def test_hopper_supports_every_product(opcode):
    found = lowering(opcode, (9, 0))
    multiplies = [name for name in found.instructions if re.match("[BIHD]MMA|MOVM", name)]
    assert len(multiplies) == (found.family != "m8n8k4 f16")
    assert all(count > 0 for count in found.instructions.values())
    assert found.native or found.note


def test_hopper_emulates_exactly_these_families():
    found = {lowering(opcode, (9, 0)).family for opcode in products() if not lowering(opcode, (9, 0)).native}
    assert found == {"b1 xor", "s4 and u4", "e4m3 and e5m2", "m8n8k4 f16"}
    assert all(lowering(opcode, (7, 5)).native for opcode in (XOR, "movmatrix.sync.aligned.m8n8.trans.b16"))


def test_other_spellings_have_the_same_lowering():
    assert lowering("mma.m8n8k128.sync.aligned.row.col.s32.b1.b1.s32.popc.xor", (9, 0)) == lowering(
        XOR, (9, 0)
    )


@pytest.mark.parametrize("cc", [(7, 0), (10, 0), (12, 0)])
def test_lowering_on_unrecorded_chips_is_unknown(cc):
    with pytest.raises(SchemeError, match=r"examined for sm_75, sm_80, sm_86, sm_87, sm_89, sm_90;"):
        lowering(AND, cc)


def test_instructions_without_a_product_are_refused():
    for opcode in ("ldmatrix.sync.aligned.m8n8.x4.b16", "wmma.load.a.sync.aligned.row.m8n8k128.b1"):
        with pytest.raises(SchemeError, match=r"give an opcode of mma, wmma\.mma or movmatrix"):
            lowering(opcode, (9, 0))
    with pytest.raises(FragmentError):
        lowering("mma.sync.aligned.m8n8k129.row.col.s32.b1.b1.s32.xor.popc", (9, 0))


# --------------------------------------------------------------------------------------------------
# A ptxas at hand
# --------------------------------------------------------------------------------------------------

MOVED = {"MOV", "HFMA2", "UIADD3", "UMOV", "CALL", "RET", "NOP", "ULDC", "IMAD.MOV", "HFMA2.MMA"}
RENAMED = {"IMAD.IADD": "IADD3", "IMAD.SHL": "SHF", "IMAD.U32": "SHF"}
TENSOR = re.compile("([BIHDQ]MMA|MOVM)[.]")


START = """.visible .entry {name}(.param .u64 q) {{
.reg .b64 %p, %lane; .reg .b32 %thread;
ld.param.u64 %p, [q]; mov.u32 %thread, %tid.x; mul.wide.u32 %lane, %thread, 4096; add.u64 %p, %p, %lane;"""


def entry(name, opcode, multiplies):
    """A kernel that loads fragments and stores D, or C if it omits the product."""
    declared, body, at = [], [], 0
    counts = {one.name: one.layout.registers for one in fragments_of(opcode).operands.values()}
    kinds = {
        one.name: "f64" if one.layout.register_bits == 64 else "f32" if one.type == "f32" else "b32"
        for one in fragments_of(opcode).operands.values()
    }
    vectors = {n: "{" + ", ".join(f"%{n}_{i}" for i in range(count)) + "}" for n, count in counts.items()}
    for operand, count in counts.items():
        declared.append(f".reg .{kinds[operand]} %{operand}_<{count}>;")
        for i in range(count if operand != "d" else 0):
            at += 8
            body.append(f"ld.volatile.global.{kinds[operand]} %{operand}_{i}, [%p+{at}];")
    if multiplies:
        body.append(f"{opcode} {', '.join(vectors[name] for name in 'dabc')};")
    stored = "d" if multiplies else "c"
    for i in range(counts["d"]):
        at += 8
        register = min(i, counts[stored] - 1)
        body.append(f"st.volatile.global.{kinds[stored]} [%p+{at}], %{stored}_{register};")
    return "\n".join([START.format(name=name), *declared, *body, "ret; }"])


def counted(listing):
    """For each kernel of a disassembly, its instructions under the names of the table."""
    kernels = {}
    for line in listing.splitlines():
        if found := re.match(r"\s+Function : (\w+)", line):
            kernels[found[1]] = Counter()
        elif found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            name = re.sub(r"STEP\d", "STEP", found[1])
            if not TENSOR.match(name):
                two = ".".join(name.split(".")[:2])
                name = RENAMED.get(two, two if two in MOVED else name.split(".")[0])
            kernels[list(kernels)[-1]][name] += 1
    return kernels


@pytest.mark.at_most(3)
@pytest.mark.skipif(
    not shutil.which("ptxas") or not shutil.which("cuobjdump"), reason="needs ptxas and cuobjdump 13.0"
)
@pytest.mark.parametrize("cc", CHIPS)
def test_the_table_equals_the_output_of_ptxas(cc, tmp_path):
    chip = f"sm_{cc[0]}{cc[1]}"
    known = [opcode for opcode in products() if "movmatrix" not in opcode and has(opcode, cc)]
    kernels = [
        entry(f"{name}{i}", opcode, name == "with")
        for i, opcode in enumerate(known)
        for name in ("with", "without")
    ]
    source, binary = tmp_path / "all.ptx", tmp_path / "all.cubin"
    source.write_text("\n".join([f".version 9.0\n.target {chip}\n.address_size 64", *kernels]))
    subprocess.run(["ptxas", f"-arch={chip}", str(source), "-o", str(binary)], check=True)
    listing = subprocess.run(["cuobjdump", "-sass", binary], check=True, capture_output=True, text=True)
    found = counted(listing.stdout)
    assert len(known) > 100
    for i, opcode in enumerate(known):
        difference = found[f"with{i}"] - found[f"without{i}"]
        made = {name: count for name, count in difference.items() if name not in MOVED}
        assert (opcode, made) == (opcode, dict(lowering(opcode, cc).instructions))


def has(opcode, cc):
    try:
        return bool(lowering(opcode, cc))
    except SchemeError:
        return False


# --------------------------------------------------------------------------------------------------
# Counted in a run
# --------------------------------------------------------------------------------------------------


def test_warps_are_counted_by_line_and_family():
    found = MatrixInstructions()
    for warps, line in ((1000, "bmm.cu:42"), (24, "bmm.cu:43")):
        found.add(XOR, (9, 0), warps, line)
    found.add(XOR.replace("m8n8k128", "m16n8k256"), (9, 0), 1, "bmm.cu:44")
    found.add(AND, (9, 0), 7, "bmm.cu:45")
    assert str(found).startswith(
        "1,025 b1 xor products on sm_90 (bmm.cu:42, bmm.cu:43, bmm.cu:44): two AND each"
    )
    xor, and_ = found.to_json()
    assert xor["instructions"] == {
        "BMMA.88128.AND.POPC": 2048,
        "BMMA.168256.AND.POPC": 2,
        "LOP3": 2 * 1024 + 6,
        "IADD3": 2 * 1024 + 4,
    }
    assert (xor["native"], and_["native"], and_["count"], and_["note"]) == (False, True, 7, "")


def test_many_lines_are_abbreviated():
    found = MatrixInstructions()
    found.add(XOR, (9, 0), 1, "ptx:7")
    assert str(found).startswith("1 b1 xor product on sm_90 (ptx:7): ")
    for line in range(8, 14):
        found.add(XOR, (9, 0), 1, f"ptx:{line}")
    assert "(ptx:7, ptx:8, ptx:9, ptx:10 and 3 more): " in str(found)


def test_a_report_for_an_unknown_chip_has_no_lowering():
    found = MatrixInstructions()
    found.add(XOR, (12, 0), 3, "ptx:7")
    assert str(found) == ""
    (only,) = found.to_json()
    assert (only["native"], only["count"], only["chip"], only["instructions"]) == (None, 3, "sm_120", {})


BODY = f"""
mov.b32 %r0, %lane; mov.b32 %r1, 1; mov.b32 %r2, 0; mov.b32 %r3, 0;
{XOR} {{%r2, %r3}}, {{%r0}}, {{%r1}}, {{%r2, %r3}};
{AND} {{%r2, %r3}}, {{%r0}}, {{%r1}}, {{%r2, %r3}};
movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r2; """


@pytest.mark.parametrize(("cc", "native"), [((9, 0), [False, True, True]), ((8, 0), [True, True, True])])
def test_the_report_on_fidelity_counts_warps(cc, native):
    device = simwarp.Device(cc=cc, observe="fidelity")
    text = small.text(BODY + small.STORE).replace(".target sm_90a", ".target sm_80")
    out = device.upload(np.zeros(3 * 64, np.uint32))
    device.load(text).kernel("k")((3, 1, 1), (64, 1, 1), out, out)
    found = device.report.fidelity
    report = found.to_json()["matrix"]
    assert [one["family"] for one in report] == ["b1 xor", "b1 and", "transposition"]
    assert [one["native"] for one in report] == native
    assert [one["count"] for one in report] == [6, 6, 6]
    assert ("; 6 b1 xor products on sm_90 (ptx:" in str(found)) == (cc == (9, 0))
    assert found.to_json()["text"] == str(found)
    device.report.clear()
    assert found.to_json()["matrix"] == []
