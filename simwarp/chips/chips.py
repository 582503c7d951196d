"""What NVIDIA's chips can do, as far as rooflines and occupancy need it.

Source: CUDA C++ Programming Guide 13.0, "Compute Capabilities" (technical specifications) and "Arithmetic
Instructions" (results per clock and multiprocessor); clocks, multiprocessors and bandwidth from NVIDIA's
data sheets of the H200, H100, A100 and L40S and the Ada architecture's whitepaper; granularities from the
CUDA occupancy calculator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reference.errors import SchemeError

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """One GPU.

    Attributes
    ----------
    name : str
    cc : (int, int)
        Its compute capability.
    multiprocessors : int
    clock : float
        The boost clock, in Hz.
    bandwidth : float
        Of device memory, in bytes per second, from the data sheet.
    copy_bandwidth : float or None
        What a copy reached where it was measured, bytes read and written together, per second.
    rates : mapping of str to int
        Instructions per clock and multiprocessor, one per lane: "f16", "bf16" (of pairs, each half counts),
        "f32", "f64", "integer" (32-bit add, multiply-add, logic and shift), "approximate" (reciprocal,
        roots, sine, exponential …).
    shared_per_multiprocessor, shared_per_block, shared_reserved : int
        Bytes of shared memory: all, what one block can ask for, and what the system takes from each block.
    shared_granularity : int
        A block's shared memory is a multiple of so many bytes.
    registers, registers_per_block, registers_per_thread : int
        32-bit registers per multiprocessor, and the most that a block or a thread can have.
    register_granularity, warp_granularity : int
        A warp's registers are a multiple of the one; warps spread over the other's number of partitions.
    warps, blocks, threads_per_block : int
        The most per multiprocessor, and of threads per block.

    Examples
    --------
    >>> chip = CHIPS["H200"]
    >>> chip.cc, chip.multiprocessors, round(chip.peak("f32") / 1e12, 1)
    ((9, 0), 132, 66.9)
    """

    name: str
    cc: tuple[int, int]
    multiprocessors: int
    clock: float
    bandwidth: float
    rates: Mapping[str, int]
    shared_per_multiprocessor: int
    shared_per_block: int
    warps: int
    blocks: int
    copy_bandwidth: float | None = None
    shared_granularity: int = 128
    shared_reserved: int = KIB
    registers: int = 64 * KIB
    registers_per_block: int = 64 * KIB
    registers_per_thread: int = 255
    register_granularity: int = 256
    warp_granularity: int = 4
    threads_per_block: int = 1024
    shared_bytes_per_clock: int = field(default=128)
    """Of one multiprocessor's shared memory: 32 banks of 4 bytes."""

    def peak(self, kind: str) -> float:
        """Operations per second, a multiply-add as two.

        Parameters
        ----------
        kind : str
            One of ``rates``.
        """
        each = 1 if kind == "approximate" else 2
        return float(each * self.rates[kind] * self.multiprocessors * self.clock)


def _rates(f16: int, bf16: int, f32: int, f64: int) -> dict[str, int]:
    return {"f16": f16, "bf16": bf16, "f32": f32, "f64": f64, "integer": 64, "approximate": 16}


_CC_80 = _rates(f16=256, bf16=128, f32=64, f64=32)
_CC_89 = _rates(f16=128, bf16=128, f32=128, f64=2)
_CC_90 = _rates(f16=256, bf16=256, f32=128, f64=64)

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip(
            "H200", (9, 0), 132, 1.98e9, 4.8e12, _CC_90, 228 * KIB, 227 * KIB, 64, 32, copy_bandwidth=4.2e12
        ),
        Chip("H100 SXM", (9, 0), 132, 1.98e9, 3.35e12, _CC_90, 228 * KIB, 227 * KIB, 64, 32),
        Chip("A100 SXM 80GB", (8, 0), 108, 1.41e9, 2.039e12, _CC_80, 164 * KIB, 163 * KIB, 64, 32),
        Chip("L40S", (8, 9), 142, 2.52e9, 864e9, _CC_89, 100 * KIB, 99 * KIB, 48, 24),
        Chip("RTX 4090", (8, 9), 128, 2.52e9, 1008e9, _CC_89, 100 * KIB, 99 * KIB, 48, 24),
    )
}
"""Every chip by its name. A copy on an H200 was measured at 4.1 to 4.3 TB/s (driver 580, CUDA 13.0)."""


def chip(name: str | Chip) -> Chip:
    """The chip of a name; capitals do not matter, and a beginning will do if only one chip has it.

    Raises
    ------
    SchemeError
        If there is none, or more than one.

    Examples
    --------
    >>> chip("a100").name
    'A100 SXM 80GB'
    >>> chip("B52")
    Traceback (most recent call last):
    ...
    reference.errors.SchemeError: no chip 'B52' is known
    there are H200, H100 SXM, A100 SXM 80GB, L40S, RTX 4090
    choose one of them, or describe yours as a simwarp.chips.chips.Chip
    """
    if isinstance(name, Chip):
        return name
    found = [one for known, one in CHIPS.items() if known.lower().startswith(name.lower())]
    if len(found) != 1 or not name:
        raise SchemeError(
            f"no chip {name!r} is known\nthere are {', '.join(CHIPS)}\n"
            "choose one of them, or describe yours as a simwarp.chips.chips.Chip"
        )
    return found[0]
