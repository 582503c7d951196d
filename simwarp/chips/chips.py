"""The table of chips: launch limits, instruction rates, tensor core sums, lowering and recordings.

To add a chip, add its entry to `CAPABILITIES`; to add a product, add one to `CHIPS`.

Sources: CUDA C++ Programming Guide 13.0, "Compute Capabilities" (technical specifications) and "Arithmetic
Instructions" (results per clock and multiprocessor); clocks, multiprocessors and bandwidth from NVIDIA's
data sheets of the H200, H100, A100 and L40S and the Ada architecture's whitepaper; granularities from the
CUDA occupancy calculator; products of bits from the A100's whitepaper, on sm_90 measured with wgmma;
limits of ``.shared``, ``.const`` and parameters from ptxas 13.0. `Sums` are those
of MMA-Sim, arXiv 2511.10909; ``lowering`` is ptxas 13.0.88's, see `simwarp.chips.lowering`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reference.errors import SchemeError
from simwarp.faults import PtxSyntaxError

KIB = 1024
Capability = tuple[int, int]


@dataclass(frozen=True)
class Sums:
    """The rule by which tensor cores sum products of floats; see `simwarp.products.rules.Rule`."""

    fraction_bits: int  # fraction bits that a sum keeps below the largest exponent of its terms
    sum_bytes: int  # bytes of a row of A whose products enter one sum
    eight_bits: int = 0  # ``fraction_bits`` for e4m3 and e5m2; 0 on a chip without these types
    eight_as_f16: bool = False  # mma.sync, unlike wgmma, converts e4m3 and e5m2 to f16 first
    confirmed: bool = False  # whether the rule was verified on the chip


@dataclass(frozen=True)
class Chip:
    """A compute capability, or a product with a number of multiprocessors, a clock and a bandwidth.

    ``rates`` are results per clock and multiprocessor: "f16", "bf16" (of pairs, each half counts), "f32",
    "f64", "integer" (32-bit add, multiply-add, logic and shift), "approximate" (reciprocal, roots, sine,
    exponential …), "b1" (products of bits that tensor cores add up; not of every chip). ``lowering`` has the
    matrix instructions that ptxas lowers differently than for the previous entry, in the notation of
    `simwarp.chips.lowering`; None where ptxas was not examined.
    """

    cc: Capability
    shared_per_multiprocessor: int  # bytes
    shared_per_block: int  # bytes, at most
    warps: int  # most resident warps per multiprocessor
    blocks: int  # most resident blocks per multiprocessor
    rates: Mapping[str, int] = field(default_factory=dict[str, int])
    sums: Sums | None = None  # None for a chip without tensor cores
    lowering: str | None = None
    evidence: str = ""  # the folder of recordings made on this chip; "" without any
    shared_granularity: int = 128  # a block's shared memory is allocated in multiples of these bytes
    shared_reserved: int = KIB  # bytes of shared memory that the system reserves in each block
    registers: int = 64 * KIB  # 32-bit registers per multiprocessor
    registers_per_block: int = 64 * KIB  # at most
    registers_per_thread: int = 255  # at most
    register_granularity: int = 256  # a warp's registers are allocated in multiples of this number
    warp_granularity: int = 4  # warps are allocated in multiples of this
    threads_per_block: int = 1024  # at most
    blocks_per_cluster: int = 0  # at most; 0 for a chip without clusters; CUDA needs an opt-in above 8
    name: str = ""  # the product's name, or for a compute capability the compiler's: "sm_90"
    multiprocessors: int = 0  # 0 for a compute capability
    clock: float = 0.0  # boost clock in Hz
    bandwidth: float = 0.0  # bytes per second of device memory, from the data sheet
    # measured bytes per second of a copy, reads plus writes; None if not measured
    copy_bandwidth: float | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", chip_name(self.cc))

    @property
    def sm(self) -> int:
        """The compute capability times ten: 90 for "sm_90"."""
        return 10 * self.cc[0] + self.cc[1]

    def peak(self, kind: str) -> float:
        """Peak operations per second of one of the ``rates``; a multiply-add counts as two."""
        each = 1 if kind == "approximate" else 2
        return float(each * self.rates[kind] * self.multiprocessors * self.clock)


def chip_name(cc: Capability) -> str:
    """The compiler's name of a compute capability, such as "sm_90"."""
    return f"sm_{cc[0]}{cc[1]}"


def _rates(f16: int, bf16: int, f32: int, f64: int, b1: int = 0) -> dict[str, int]:
    """The rates of a chip; those of "integer" and "approximate" are equal on all chips here."""
    own = {"f16": f16, "bf16": bf16, "f32": f32, "f64": f64} | ({"b1": b1} if b1 else {})
    return {**own, "integer": 64, "approximate": 16}


SM_80 = Chip(
    (8, 0),
    164 * KIB,
    163 * KIB,
    warps=64,
    blocks=32,
    rates=_rates(f16=256, bf16=128, f32=64, f64=32, b1=16384),
    sums=Sums(24, 16),
    lowering="""
b1 and          | 1 BMMA.{shape}.AND.POPC
wmma s8 and u8  | 2 IMMA.16816.{a}.{b}{sat}
bf16            | 1 HMMA.{shape}.F32.BF16
tf32            | 1 HMMA.{shape}.F32.TF32
f64             | 1 DMMA.{shape}{rounding}
wmma f16        | 2 HMMA.16816.{d}
wmma bf16       | 2 HMMA.16816.F32.BF16
wmma tf32       | 4 HMMA.1684.F32.TF32

the sum is f32, and rounded to f16 in the end
wmma f16, c f32 | 2 HMMA.16816.F32, 4 F2FP

c is widened to f32 first
wmma f16, d f32 | 2 HMMA.16816.F32, 8 HADD2

! no tensor core: shuffles and fused multiply-adds in f32; m16n8k8 is native
m8n8k4 f16: f16 f16 row.col | 4 F2FP, 16 FADD, 16 FFMA, 16 FMUL, 44 HADD2, 7 IADD3, 1 LOP3, 1 S2R, 16 SHFL
m8n8k4 f16: f32 f16 row.col | 8 FADD, 32 FFMA, 32 HADD2, 5 IADD3, 1 ISETP, 5 LOP3, 2 S2R, 4 SEL, 1 SHF,
    16 SHFL
m8n8k4 f16: f32 f32 row.col | 8 FADD, 32 FFMA, 24 HADD2, 5 IADD3, 3 LOP3, 1 S2R, 12 SHFL
m8n8k4 f16: f16 f16 | 4 F2FP, 16 FADD, 16 FFMA, 16 FMUL, 44 HADD2, 7 IADD3, 2 ISETP, 5 LOP3, 6 PRMT,
    2 S2R, 8 SEL, 1 SHF, 24 SHFL
m8n8k4 f16: f32 f16 | 8 FADD, 32 FFMA, 32 HADD2, 5 IADD3, 3 ISETP, 9 LOP3, 6 PRMT, 3 S2R, 12 SEL,
    2 SHF, 24 SHFL
m8n8k4 f16: f32 f32 | 8 FADD, 32 FFMA, 24 HADD2, 5 IADD3, 2 ISETP, 7 LOP3, 6 PRMT, 2 S2R, 8 SEL,
    1 SHF, 20 SHFL
""",
)
SM_89 = Chip(
    (8, 9),
    100 * KIB,
    99 * KIB,
    warps=48,
    blocks=24,
    rates=_rates(f16=128, bf16=128, f32=128, f64=2),
    sums=Sums(24, 16, 13),
    lowering="e4m3 and e5m2 | 1 QMMA.{shape}.{d}.{a}.{b}",
)
SM_90 = Chip(
    (9, 0),
    228 * KIB,
    227 * KIB,
    warps=64,
    blocks=32,
    rates=_rates(f16=256, bf16=256, f32=128, f64=64, b1=32768),
    sums=Sums(25, 32, 13, eight_as_f16=True, confirmed=True),
    evidence="sm_90",
    blocks_per_cluster=16,
    lowering="""
f64 | 1 DMMA.{m}x{n}x{k}{rounding}

! two AND each; one would do: popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)
b1 xor        | 2 BMMA.{shape}.AND.POPC, 1 LOP3 per operand, 1 IADD3 per accumulator

! unpacked to 8 bits, and two IMMA each; s8 and u8 are native
s4 and u4     | 2 IMMA.{half}.{a8}.{b8}, 15 LOP3 per s4, 15 SHF per s4, 2 LOP3 per u4, 1 SHF per u4,
    1 IADD3 per wrapping accumulator, 2 IADD3 per saturating accumulator, 2 PLOP3 per saturating accumulator,
    2 SEL per saturating accumulator

! unpacked to f16, two HMMA each, and the sum is added to c; wgmma is native
e4m3 and e5m2 | 2 HMMA.{half}.{d}, 2 F2FP per operand, 1 FADD per f32 accumulator,
    1 HADD2 per f16 accumulator
""",
)
CAPABILITIES: dict[Capability, Chip] = {
    chip.cc: chip
    for chip in (
        Chip((5, 0), 64 * KIB, 48 * KIB, warps=64, blocks=32, shared_reserved=0),
        Chip((7, 0), 96 * KIB, 96 * KIB, warps=64, blocks=32, shared_reserved=0, sums=Sums(23, 8)),
        Chip(
            (7, 5),
            64 * KIB,
            64 * KIB,
            warps=32,
            blocks=16,
            shared_reserved=0,
            sums=Sums(24, 16),
            lowering="""
b1 xor          | 1 BMMA.{shape}.XOR.POPC
s4 and u4       | 1 IMMA.{shape}.{a}.{b}{sat}
s8 and u8       | 1 IMMA.{shape}.{a}.{b}{sat}
wmma s8 and u8  | 4 IMMA.8816.{a}.{b}{sat}
f16             | 1 HMMA.{shape}.{d}
wmma f16        | 4 HMMA.1688.{d}
transposition   | 1 MOVM.16.MT88
m8n8k4 f16      | 1 HMMA.884.{d}.{c}.STEP per pair of accumulators

the sum is f32, and rounded to f16 in the end
wmma f16, c f32 | 4 HMMA.1688.F32, 8 F2F, 4 PRMT

c is widened to f32 first
wmma f16, d f32 | 4 HMMA.1688.F32, 8 HADD2
""",
        ),
        SM_80,
        Chip((8, 6), 100 * KIB, 99 * KIB, warps=48, blocks=16, sums=SM_80.sums, lowering=""),
        Chip((8, 7), 164 * KIB, 163 * KIB, warps=48, blocks=16, sums=SM_80.sums, lowering=""),
        SM_89,
        SM_90,
        Chip(
            (10, 0),
            228 * KIB,
            227 * KIB,
            warps=64,
            blocks=32,
            sums=Sums(25, 32, 25, eight_as_f16=True),
            blocks_per_cluster=16,
        ),
        Chip((12, 0), 100 * KIB, 99 * KIB, warps=48, blocks=24, sums=Sums(25, 32, 25), blocks_per_cluster=8),
    )
}
"""Compute capability → chip, ascending; a capability between two entries is like the lower one."""
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        replace(
            SM_90, name="H200", multiprocessors=132, clock=1.98e9, bandwidth=4.8e12, copy_bandwidth=4.2e12
        ),
        replace(SM_90, name="H100 SXM", multiprocessors=132, clock=1.98e9, bandwidth=3.35e12),
        replace(SM_80, name="A100 SXM 80GB", multiprocessors=108, clock=1.41e9, bandwidth=2.039e12),
        replace(SM_89, name="L40S", multiprocessors=142, clock=2.52e9, bandwidth=864e9),
        replace(SM_89, name="RTX 4090", multiprocessors=128, clock=2.52e9, bandwidth=1008e9),
    )
}
"""Name → product. A copy on an H200 was measured at 4.1 to 4.3 TB/s (driver 580, CUDA 13.0)."""
RECORDED = next(chip for chip in CAPABILITIES.values() if chip.evidence)
"""The chip whose recordings the simulator is tested against."""

STATIC_SHARED = 48 * KIB
"""Most bytes of a kernel's static ``.shared`` variables, on every chip."""
CONSTANTS = 64 * KIB
"""Most bytes of a module's ``.const`` variables."""
LOCAL = 512 * KIB
"""Most bytes of local memory per thread, on every chip, without recursion."""


def chip_of(cc: Capability) -> Chip:
    """The chip of a compute capability, or of the next lower entry."""
    known = list(CAPABILITIES)
    return CAPABILITIES[known[max(bisect_right(known, cc) - 1, 0)]]


def multiprocessors_of(cc: Capability) -> int:
    """The multiprocessors of the first product with a compute capability; the H200's if there is none."""
    return next((chip.multiprocessors for chip in CHIPS.values() if chip.cc == cc), 132)


def chip(name: str | Chip) -> Chip:
    """A chip by its name, or by a unique prefix of it, in any case; SchemeError for other names.

    >>> chip("a100").name
    'A100 SXM 80GB'
    >>> chip("B52")
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: unknown chip 'B52'
    there are H200, H100 SXM, A100 SXM 80GB, L40S, RTX 4090
    choose one of them, or describe yours as a simwarp.chips.chips.Chip
    """
    if isinstance(name, Chip):
        return name
    matches = [one for full, one in CHIPS.items() if full.lower().startswith(name.lower())]
    if len(matches) != 1 or not name:
        raise SchemeError(
            f"unknown chip {name!r}\nthere are {', '.join(CHIPS)}\n"
            "choose one of them, or describe yours as a simwarp.chips.chips.Chip"
        )
    return matches[0]


def most_parameters(version: str, target: int) -> int:
    """Most bytes of a kernel's parameters, for a version of the PTX ISA and an architecture."""
    major, _, minor = version.partition(".")
    return 32764 if (int(major), int(minor)) >= (8, 1) and target >= 70 else 4352


def check_size(line: int, what: str, size: int, most: int, advice: str) -> None:
    """Raise `PtxSyntaxError` if a kind of memory is larger than allowed."""
    if size > most:
        where = f"line {line}: " if line else ""
        raise PtxSyntaxError(f"{where}{what} has {size} bytes, {most} at most\n{advice}")
