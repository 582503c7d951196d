"""Run the probes of `simwarp.lab.evidence`, and compute the results that the scalar twins expect."""

from itertools import groupby
from zlib import crc32

import numpy as np

from oracles import scalar_matrix as matrices
from oracles import scalar_ptx as twins
from simwarp.lab.evidence import catalogue, matrix, registers
from simwarp.lab.evidence.forms import required
from simwarp.lab.evidence.launch import launch
from simwarp.lab.evidence.memory import space
from simwarp.lab.evidence.operands import width
from simwarp.lab.evidence.probe import BLOCK, ROOM, module
from simwarp.ptx.instructions import TABLE
from simwarp.ptx.kinds import LOAD, MATRIX, MATRIX_LOAD, MATRIX_STORE, STORE, WARP

TWINS, BOUNDED, widen = {**twins.TWINS, **matrices.TWINS}, twins.BOUNDED, twins.widen
ADDRESSES = ("cvta", "cvta.to", "isspacep", "mapa", "getctarank")
"""Rows whose twins hold for the simulator alone: a chip has its own addresses."""


def probe_of(opcode):
    """Probe of a form; for forms that compute on addresses, a probe of the plain instruction."""
    row, form = TABLE.find(opcode)
    return registers.pure(row, form) if row.name in ADDRESSES else catalogue.probe_of(opcode)


def run(device, probes, operands):
    """Results of the probes of one module, one array per probe."""
    loaded = device.load(module(probes))
    return [
        launch(device, loaded.kernel(f"k{i}"), probe, given)
        for i, (probe, given) in enumerate(zip(probes, operands, strict=True))
    ]


def some_sets(probe):
    """A sample of a probe's operand sets, edges and random ones; all sets if they depend on each other."""
    every = catalogue.operands_of(probe)
    row, _ = TABLE.find(probe.form)
    if row.kind is WARP or probe.at_once or probe.baked:
        return every
    if row.kind.fragments:
        return some_warps(probe, every)
    return every[np.arange(BLOCK) * len(every) // BLOCK]


def some_warps(probe, every):
    """A sample of whole warps of operands, whose styles differ between forms."""
    warps = every.reshape(-1, 32, every.shape[1])
    different = 4 if len(required(TABLE.find(probe.form)[0])) <= 4 else 2
    first = crc32(probe.form.encode())
    return np.concatenate([warps[(first + 5 * (k % different)) % len(warps)] for k in range(BLOCK // 32)])


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def flat(results):
    """Flatten nested tuples to integers: ``((1, True), 2)`` → ``[1, 1, 2]``."""
    return [word for r in results for word in (flat(r) if isinstance(r, tuple) else [int(r)])]


def differences(probe, operands, got):
    """The first operand sets for which a probe's results differ from the twin."""
    row, form = TABLE.find(probe.form)
    if row.name in BOUNDED:
        legal = BOUNDED[row.name]
        cases = zip(operands.tolist(), got[:, 0].tolist(), strict=True)
        wrong = [
            (given, result, "out of bounds")
            for given, result in cases
            if not legal(probe.form, given, result)
        ]
    else:
        cases = zip(operands.tolist(), got.tolist(), expected(row, form, probe, operands), strict=True)
        wrong = [(given, g, e) for given, g, e in cases if e is not None and in_question(form, probe, g) != e]
    return [f"{[*map(hex, given)]}: got {g}, expected {e}" for given, g, e in wrong[:3]]


def in_question(form, probe, got):
    """Results with the bits masked that the twin leaves open, such as those above a byte result of cvt."""
    if not probe.form.startswith("cvt.") or form.T not in ("u8", "s8"):
        return got
    return [word & 0xFF for word in got]


def expected(row, form, probe, operands):
    """Words of all results for each operand set; None if the twin leaves it open or the lane has exited."""
    twin, sets = TWINS[row.name], operands.tolist()
    if row.kind is WARP:
        return [e for k in range(0, len(sets), 32) for e in _of_warp(twin, probe.form, sets[k : k + 32])]
    if row.kind.fragments:
        return _of_matrices(twin, row, probe, sets)
    results = [twin(_placed(row, form, i), *given) for i, given in enumerate(sets)]
    words = [flat(as_tuple(r)) for r in results]
    if row.base == "lop3" and "lop3." + form.opcode.split(".")[1] != "lop3.b32":
        words = [w[0::2] + w[1::2] for w in words]  # the twin's pairs, by result
        words = [[w[i] for t in range(0, 256, 5) for i in (t, 256 + t)] for w in words]
    if row.kind is LOAD:
        return [[widen(form.T, w, _register(c)) for w, c in _repeated(e, probe.results)] for e in words]
    if row.base == "cvt":
        least = 8 if form.T in ("u8", "s8") else 64
        return [
            [widen(form.T, w, min(least, _register(c))) for w, c in _repeated(e, probe.results)]
            for e in words
        ]
    if row.kind is STORE:
        return [[w for w, _ in _repeated(e, probe.results)] for e in words]
    return words


def _of_warp(twin, opcode, sets):
    *columns, active = (list(column) for column in zip(*sets, strict=True))
    results = twin(opcode, *columns, active)
    assert all(bool(on) == (r is not None) for on, r in zip(active, results, strict=True)), (
        "a case the ISA leaves open"
    )
    return [None if r is None else flat(as_tuple(r)) for r in results]


def _of_matrices(twin, row, probe, sets):
    """Twin results of a matrix probe for each warp; warps with equal operands are computed once."""
    by_warp = {}
    warps = [tuple(map(tuple, sets[k : k + 32])) for k in range(0, len(sets), 32)]
    for warp in set(warps):
        by_warp[warp] = _OF_MATRICES[row.kind](twin, row, probe, warp)
    return [words for warp in warps for words in by_warp[warp]]


def _product(twin, row, probe, sets):
    """Operands of a product from the probe's columns: a0, a1, … are registers of A; b0, b1, … of B."""
    names = [column.name[0] for column in probe.operands]
    ends = [sum(1 for _ in group) for _, group in groupby(names)]
    starts = [sum(ends[:i]) for i in range(len(ends))]
    fragments = [[lane[at : at + n] for lane in sets] for at, n in zip(starts, ends, strict=True)]
    return twin(probe.form, *fragments)


def _addresses(row):
    """Offsets of each lane's address in the memory of its warp."""
    return [0 if row.base == "wmma" else (lane ^ matrix.ORDER) * ROOM for lane in range(32)]


def _strides(probe):
    wide = matrix.stride(TABLE.find(probe.form)[1])
    return [None, wide] if wide else [None]


def _loaded(twin, row, probe, sets):
    memory = np.array(sets, "<u8").tobytes()
    loads = [twin(probe.form, memory, _addresses(row), stride) for stride in _strides(probe)]
    return [[word for load in loads for word in load[lane]] for lane in range(32)]


def _stored(twin, row, probe, sets):
    left = [twin(probe.form, sets, bytes(32 * ROOM), _addresses(row), stride) for stride in _strides(probe)]
    words = [np.frombuffer(memory, "<u8").reshape(32, -1).tolist() for memory in left]
    return [[word for memory in words for word in memory[lane]] for lane in range(32)]


_OF_MATRICES = {MATRIX: _product, MATRIX_LOAD: _loaded, MATRIX_STORE: _stored}


def _placed(row, form, i):
    """The opcode as the twin needs it: generic addresses of odd threads point to shared memory."""
    if row.kind.is_atomic and not space(form) and form.vector == 1 and i % 2:
        return form.opcode.replace(row.base, f"{row.base}.shared", 1)
    return form.opcode


def _repeated(words, results):
    """The twin's words, repeated for the results in wider or narrower registers."""
    return zip(words * (len(results) // len(words)), results, strict=True)


def _register(column):
    return max(16, width(column.type))
