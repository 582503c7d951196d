"""`simwarp.lab.fuzz`: generated programs are legal, mutants agree, planted faults are found and shrunk."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import simwarp
from reference.errors import InputFileError, NoGpuError
from simwarp.cli import main
from simwarp.faults import KernelFault
from simwarp.lab import fuzz
from simwarp.lab import recording as lab
from simwarp.lab.counterexamples import keep, still_right
from simwarp.lab.fuzz.memory import RECORD, TALLIES, own_at, tally_of
from simwarp.lab.fuzz.mutate import are_independent
from simwarp.lab.fuzz.program import Address, Condition, walk
from simwarp.lab.fuzz.registers import REGISTERS
from simwarp.lab.fuzz.statements import (
    KINDS,
    AddressQuery,
    ArriveAndSync,
    AsyncCopy,
    Atomic,
    BarrierVote,
    Call,
    Chain,
    Compute,
    Exchange,
    Exit,
    If,
    Load,
    Loop,
    Store,
    Switch,
    Sync,
    Tally,
    Warp,
)
from simwarp.lab.fuzz.statements.instruction import Instruction
from simwarp.lab.fuzz.vocabulary import GUARDS, WITNESSES, all_rows
from simwarp.lab.recording import Asking, Subject
from simwarp.lab.subjects import programs as lab_programs
from simwarp.lab.subjects.programs import ask_programs, load, replay
from simwarp.ptx.instructions import ROWS, TABLE
from simwarp.testing.golden import read, write
from simwarp.verify.draw import Draw

Program = fuzz.Program


class StandIn(simwarp.Device):
    """A simulator that reports a GPU's name, so that `record` takes it for hardware."""

    name = "NVIDIA Test"
    uuid = "00112233445566778899aabbccddeeff"
    driver_version = "580.0"


TILES = {name for name, row in ROWS.items() if row.kind.fragments}
"""Of matrix instructions whole tiles are compared with hardware: see tests/record_tiles.py."""


@pytest.fixture(scope="module")
def programs():
    return [fuzz.generate(0, k) for k in range(300)]


def outputs(program, device=None):
    """Words of each output register, by name, of shape (threads,)."""
    (answer,) = fuzz.answers(device or simwarp.Device(), [program])
    assert not isinstance(answer, KernelFault), answer
    threads = program.blocks * program.block
    words = answer[: threads * RECORD // 8].reshape(threads, -1)
    return {register: words[:, REGISTERS.index(register)] for register in program.outputs}


def first(program):
    """Initial words of each register."""
    words, _, _ = fuzz.inputs(program)
    return {register: words[:, i] for i, register in enumerate(REGISTERS)}


# What is generated


def in_groups():
    """Rows that no statement has: bulk copies, their barriers, tensor maps, textures; waits for copies."""
    copies = ("cp.async.", "cp.reduce", "mbarrier", "red.async", "st.async", "setmaxnreg")
    maps = ("tensormap.", "prefetch.tensormap", "fence.proxy.tensormap")
    textures = ("tex", "tld4", "txq", "suld", "sust", "suq")
    return {name for name in ROWS if name.startswith((*copies, *maps, *textures, "wgmma"))}


def test_every_row_is_generated(programs):
    counts = fuzz.coverage(programs)
    untouched = [name for name, count in counts.items() if not count and name not in TILES | in_groups()]
    assert list(counts) == list(ROWS)
    assert len(untouched) <= len(ROWS) // 10, untouched


def test_the_vocabulary_omits_only_listed_rows():
    known = {name for rows in all_rows().values() for name in rows}
    structure = {"bra", "cvta", "cvta.to"}
    miscompiled = {name for name in ROWS if name.startswith("set.bf16")}
    assert set(ROWS) - known <= structure | in_groups() | miscompiled | TILES
    for rows in all_rows().values():
        for name, opcodes in rows.items():
            assert {TABLE.find(opcode)[0].name for opcode in opcodes} == {name}


def test_inexact_rows_are_guarded_or_not_used():
    for row in ROWS.values():
        used = any(row.name in all_rows().get(kind, {}) for kind in ("compute", "warp"))
        if used and row.fidelity != "exact":
            assert row.base in (*GUARDS[row.fidelity], *WITNESSES), row.name


def test_most_programs_diverge_and_exchange_between_lanes(programs):
    assert sum(map(fuzz.is_divergent, programs)) > len(programs) / 2


def test_every_kind_of_statement_is_drawn(programs):
    kinds = {type(statement) for program in programs for statement, _ in walk(program.body)}
    wanted = {Compute, Warp, Load, Store, Atomic, Exchange, Tally, Sync, If, Loop, Exit}
    for purpose, kind in (
        ("chain", Chain),
        ("call", Call),
        ("switch", Switch),
        ("poll", BarrierVote),
        ("arrive", ArriveAndSync),
        ("locate", AddressQuery),
        ("copy", AsyncCopy),
    ):
        if purpose in all_rows():
            wanted.add(kind)
    assert wanted <= kinds


class Reversal(Instruction):
    """A statement kind that the generator lacks."""

    weight, purpose, flat = 20, "compute", True

    @classmethod
    def draw(cls, maker, scope):
        return cls("brev.b64", maker.vector("b64", 1), maker.vector("b64", 1))


def test_a_new_kind_of_statement_needs_one_class(monkeypatch):
    for name in ("generate", "mutate"):
        module = import_module(f"simwarp.lab.fuzz.{name}")
        monkeypatch.setattr(module, "KINDS", (*KINDS, Reversal))

    def has_reversal(program):
        return any(isinstance(statement, Reversal) for statement, _ in walk(program.body))

    program = next(p for p in (fuzz.generate(0, k) for k in range(9)) if has_reversal(p))
    assert has_reversal(fuzz.mutate(program))
    (small,) = fuzz.shrink(program, has_reversal).body
    assert isinstance(small, Reversal)
    assert small.sources == ("%d0",)
    start, end = first(Program(3, 1, (small,))), outputs(Program(3, 1, (small,)))
    backwards = [int(f"{word:064b}"[::-1], 2) for word in start["%d0"].tolist()]
    assert end[small.destinations[0]].tolist() == backwards


def test_a_program_depends_only_on_seed_number_and_vocabulary(programs):
    assert [fuzz.generate(0, k) for k in (299, 7)] == [programs[299], programs[7]]
    assert fuzz.generate(1, 7) != programs[7]
    few = {"compute": {"add": ("add.u32",)}, "warp": {"redux": ("redux.sync.add.u32",)}}
    text = fuzz.module_text([fuzz.generate(0, 7, few)])
    assert "mul.hi" not in text
    assert "add.u32" in text


def test_every_register_is_declared(programs):
    for program in programs[:50]:
        text = fuzz.module_text([program])
        declared = set(re.findall(r"\.reg \.\w+ (%\w+);", text))
        special = {"%tid", "%ctaid", "%laneid", "%lanemask_eq"}
        assert set(re.findall(r"%\w+", text)) - special <= declared


@pytest.mark.gate
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
def test_ptxas_accepts_every_program(programs, tmp_path):
    (tmp_path / "fuzz.ptx").write_text(fuzz.module_text(programs[:48]))
    command = ["ptxas", "-arch=sm_90", str(tmp_path / "fuzz.ptx"), "-o", str(tmp_path / "fuzz.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# What programs do


@pytest.mark.slow
def test_programs_have_no_faults_and_do_not_depend_on_scheduling(programs):
    some = programs[:60]
    together, apart = simwarp.Device(), simwarp.Device(chunk_lanes=32)
    digests = [fuzz.digest(answer) for answer in fuzz.answers(together, some)]
    assert b"" not in digests
    assert [fuzz.digest(answer) for answer in fuzz.answers(apart, some)] == digests
    assert len(set(digests)) == len(digests)


def test_an_empty_program_copies_inputs_to_outputs():
    program = Program(3, 1, (), blocks=2, block=32)
    start, end = first(program), outputs(program)
    width = {"d": 64, "r": 32, "h": 16, "p": 1}
    for register in REGISTERS:
        np.testing.assert_array_equal(
            end[register], start[register] & np.uint64(2 ** width[register[1]] - 1), err_msg=register
        )


def test_both_sides_of_a_branch_see_their_own_mask():
    count = Warp("vote.sync.ballot.b32", ("%r0",), ("%p0",))
    sides = If(Condition("lane", 0), (count, Warp("redux.sync.add.u32", ("%r1",), ("%r4",))), (count,))
    program = Program(3, 1, (sides,), block=64)
    start, end = first(program), outputs(program)
    holds = (start["%p0"] & np.uint64(1)).reshape(-1, 32)
    lane = np.arange(32)
    for odd in (0, 1):
        wanted = (holds << lane.astype(np.uint64))[:, lane % 2 == odd].sum(axis=1)
        got = end["%r0"].reshape(-1, 32)[:, lane % 2 == odd]
        np.testing.assert_array_equal(got, np.broadcast_to(wanted[:, None], got.shape))
    sums = start["%r4"].reshape(-1, 32)[:, 1::2].astype(np.uint32).sum(axis=1, dtype=np.uint32)
    np.testing.assert_array_equal(end["%r1"].reshape(-1, 32)[:, 1], sums)


@pytest.mark.slow
def test_hiding_results_from_the_compiler_keeps_the_outputs(programs):
    some = programs[60:75]
    bare = [fuzz.unveil(program) for program in some]
    digests = fuzz.outputs(simwarp.Device(), some)
    assert b"" not in digests
    assert fuzz.outputs(simwarp.Device(), bare) == digests
    open_text, veiled = (fuzz.module_text(each) for each in (bare, some))
    assert "%zero" not in open_text
    assert len(veiled.splitlines()) > 1.1 * len(open_text.splitlines())


def test_a_loop_runs_the_trip_count_of_each_lane():
    body = (Compute("add.u32", ("%r0",), ("%r0", 1)), Warp("vote.sync.ballot.b32", ("%r2",), ("%p0",)))
    for peeled in (0, 1, 3):
        program = Program(3, 1, (Loop("%r1", body, peeled),))
        start, end = first(program), outputs(program)
        trips = start["%r1"] & np.uint64(3)
        np.testing.assert_array_equal(end["%r0"], (start["%r0"] + trips) & np.uint64(0xFFFFFFFF))


def test_a_switch_takes_the_side_of_its_index():
    if "switch" not in all_rows():
        pytest.skip("needs brx.idx")
    sides = [(Compute("mov.u32", ("%r0",), (n,)),) for n in (10, 11, 12, 13)]
    program = Program(3, 1, (Switch("brx.idx", "%r1", *sides),))
    np.testing.assert_array_equal(outputs(program)["%r0"], 10 + (first(program)["%r1"] & np.uint64(3)))


def test_lanes_that_exit_write_their_outputs_first():
    program = Program(3, 1, (Exit(Condition("lane", 1)), Compute("mov.u32", ("%r0",), (7,))))
    leaves = np.arange(program.blocks * program.block) >> 1 & 1
    wanted = np.where(leaves, first(program)["%r0"] & np.uint64(0xFFFFFFFF), 7)
    np.testing.assert_array_equal(outputs(program)["%r0"], wanted)


def test_threads_exchange_through_shared_memory():
    for barrier, size in (("bar.sync", 64), ("", 32)):
        swap = Exchange("st.shared.b32", "ld.shared.b32", ("%r0",), ("%r1",), "%r2", barrier)
        program = Program(3, 1, (swap,), block=64)
        start = first(program)
        thread = np.arange(128)
        other = thread - thread % size + (start["%r2"] & np.uint64(size - 1)).astype(int)
        np.testing.assert_array_equal(outputs(program)["%r1"], start["%r0"][other] & np.uint64(0xFFFFFFFF))


def test_tally_atomics_do_not_depend_on_order():
    update = Atomic("atom.shared.max.u32", ("_",), ("%r0",), Address("tally", 0, "%r1"))
    body = If(Condition("data", "%p0"), (update,))
    program = Program(3, 1, (Tally("atom.shared.max.u32", 5, ("%r2",), (body,)),), blocks=1, block=64)
    start, end = first(program), outputs(program)
    for word in range(4):
        touch = (start["%p0"] & np.uint64(1) == 1) & (start["%r1"] & np.uint64(3) == word)
        most = max([5, *(start["%r0"][touch] & np.uint64(0xFFFFFFFF)).tolist()])
        assert set(end["%r2"][word::4].tolist()) == {most}


def test_global_tallies_sum_over_all_blocks():
    at = Address("tallies", 8 * TALLIES.index("add.b32"), "%r1")
    program = Program(3, 1, (Atomic("atom.global.add.u32", ("_",), ("%r0",), at),), block=64)
    (answer,) = fuzz.answers(simwarp.Device(), [program])
    memory = answer[128 * RECORD // 8 :]
    start, (_, before, _) = first(program), fuzz.inputs(program)
    for number in range(8):
        added = start["%r0"][start["%r1"] & np.uint64(7) == number].astype(np.uint32).sum(dtype=np.uint32)
        cell = (at.offset + 256 * number) // 8
        assert int(memory[cell]) & 0xFFFFFFFF == (int(before[cell]) + int(added)) & 0xFFFFFFFF


def test_local_memory_is_private_to_each_thread():
    store = Store("st.global.b32", (), ("%r0",), Address("global", 4))
    load = Load("ld.global.u8", ("%r1",), (), Address("global", 5))
    program = Program(3, 1, (store, load), block=32)
    np.testing.assert_array_equal(
        outputs(program)["%r1"], first(program)["%r0"] >> np.uint64(8) & np.uint64(255)
    )
    assert own_at(1) - own_at(0) == 32


@pytest.mark.parametrize(("taken", "grouped"), [(16, False), (6, True)])
def test_an_asynchronous_copy_has_ended_behind_its_wait(taken, grouped):
    source = Address("inputs", 16 * (REGISTERS.index("%d0") // 2))
    move = AsyncCopy("cp.async.cg.shared.global", (), (), source, 16, taken, 16, grouped)
    load = Load("ld.shared.v2.b64", (("%d1", "%d2"),), (), Address("shared", 16))
    program = Program(3, 1, (If(Condition("lane", 0), (move,)), load))
    words, _, _ = fuzz.inputs(program)
    whole = words[:, source.offset // 8 :][:, :2].copy().view(np.uint8)
    whole[:, taken:] = 0
    whole[::2] = 0  # the shared memory of the lanes without a copy
    end = outputs(program)
    np.testing.assert_array_equal(np.stack([end["%d1"], end["%d2"]], axis=1), whole.view(np.uint64))


def test_neighbours_are_swapped_unless_both_access_memory_and_one_writes():
    place = Address("shared", 0)
    store, load = Store("st.shared.b32", (), ("%r0",), place), Load("ld.shared.b32", ("%r1",), (), place)
    copy = AsyncCopy("cp.async.ca.shared.global", (), (), Address("global"))
    add = Compute("add.u32", ("%r2",), ("%r3", 1))
    other_load = replace(load, destinations=("%r4",))
    for one, other in [(add, store), (copy, add), (load, other_load)]:
        assert are_independent(one, other)
    for one, other in [(store, load), (load, copy), (copy, store), (copy, copy)]:
        assert not are_independent(one, other)


def test_order_dependent_atomics_are_not_generated_as_tallies():
    for opcode in ("atom.global.exch.b32", "atom.global.inc.u32", "atom.global.add.f32", "atom.cas.b32"):
        assert tally_of(opcode) == ""
    assert tally_of("atom.shared.add.relaxed.cta.u64") == "add.b64"


def test_operands_with_undefined_results_are_replaced():
    divide = Compute("div.u32", ("%r0",), ("%r1", 4))
    program = Program(3, 1, (divide, Compute("rem.u32", ("%r2",), ("%r1", "%r3"))))
    start, end = first(program), outputs(program)
    low = np.uint64(0xFFFFFFFF)
    np.testing.assert_array_equal(end["%r0"], (start["%r1"] & low) // np.uint64(5))
    np.testing.assert_array_equal(end["%r2"], (start["%r1"] & low) % (start["%r3"] & low | np.uint64(1)))


# Mutants


@pytest.mark.gate
@pytest.mark.at_most(1)
@pytest.mark.slow_cases(but=("swap",))
@pytest.mark.parametrize("name", list(fuzz.MUTATIONS))
def test_each_mutation_changes_the_program_but_not_its_outputs(programs, name):
    some = programs[100:125]
    change = fuzz.MUTATIONS[name]
    mutants = [change(p, Draw(0, name, p.number), all_rows()) for p in some]
    assert sum(p != m for p, m in zip(some, mutants, strict=True)) > len(some) / 3
    device = simwarp.Device()
    digests = fuzz.outputs(device, some)
    assert b"" not in digests
    assert fuzz.outputs(device, mutants) == digests


# Faults are found


class Faulty(simwarp.Device):
    """A simulator in which one row computes ``wrong(right, form, *operands)``."""

    def __init__(self, name, wrong):
        super().__init__()
        self.row, self.wrong = ROWS[name], wrong

    def load(self, ptx):
        right = self.row.function
        object.__setattr__(self.row, "function", partial(self.wrong, right))
        try:
            return super().load(f"{ptx}// {self.row.name} is wrong here")
        finally:
            object.__setattr__(self.row, "function", right)


class Unguarded(simwarp.Device):
    """A simulator that ignores the guards of instructions other than branches."""

    def load(self, ptx):
        return super().load(re.sub(r"\t@!?%\w+ (?!bra|vote)", "\t", ptx))


FAULTS = {
    "shifts as C does": ("shr", lambda right, form, a, b: right(form, a, b & 31)),
    "minimum of signed words as unsigned": (
        "min",
        lambda right, form, a, b: np.minimum(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")),
    ),
    "the carry is lost": ("addc", lambda right, form, a, b, carry: right(form, a, b, carry & False)),
    "shuffles take c for 31": (
        "shfl.sync.b32",
        lambda right, form, active, a, b, c, m: right(form, active, a, b, np.uint32(31), m),
    ),
    "matches of lanes outside the mask": (
        "match.any.sync",
        lambda right, form, active, a, m: right(form, None, a, np.uint32(0xFFFFFFFF)),
    ),
    "votes of all ask for any": (
        "vote.sync.pred",
        lambda right, form, active, a, m: right(replace(form, modifiers=("any",)), active, a, m),
    ),
    "atomic minimum and maximum exchanged": (
        "atom (min, max)",
        lambda right, form, old, b, **facts: np.where(right(form, old, b, **facts) == b, old, b),
    ),
}


@pytest.mark.at_most(1)
@pytest.mark.slow_cases(but=("the carry is lost",))
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_planted_fault_is_found_and_shrunk(fault):
    name, wrong = FAULTS[fault]
    witnesses = [
        fuzz.Witness("right", simwarp.Device()),
        fuzz.Witness("wrong", Faulty(name, wrong)),
    ]
    found = next(fuzz.hunt(witnesses, (fuzz.generate(0, k) for k in range(200))), None)
    assert found is not None
    touched = {row for row, count in fuzz.coverage([found.program]).items() if count}
    assert name in touched
    kinds = [type(statement).__name__ for statement, _ in walk(found.program.body)]
    assert len(kinds) <= 4, found.text
    assert len(found.text.splitlines()) < 75
    where, *values = found.lines()
    assert re.match(r"(thread|memory of thread|tally at byte) \d+", where)
    assert [line.split(":")[0] for line in values] == ["right", "wrong"]


@pytest.mark.gate
def test_mutants_find_a_fault_without_a_second_device():
    witnesses = [
        fuzz.Witness("program", Unguarded()),
        fuzz.Witness("mutant", Unguarded(), fuzz.mutate),
    ]
    found = next(fuzz.hunt(witnesses, (fuzz.generate(0, k) for k in range(100)), trials=100), None)
    assert found is not None
    assert fuzz.digest(found.words[0]) != fuzz.digest(found.words[1])


def test_a_fault_on_all_devices_is_a_counterexample():
    class Broken(simwarp.Device):
        def load(self, ptx):
            return super().load(ptx.replace("popc.b32", "popc.b33"))

    program = Program(0, 0, (Sync(("bar.warp.sync",)), Compute("popc.b32", ("%r0",), ("%r1",))))
    witnesses = [fuzz.Witness("one", Broken()), fuzz.Witness("other", Broken())]
    (found,) = fuzz.hunt(witnesses, [program])
    assert [type(statement) for statement in found.program.body] == [Compute]
    assert found.lines()[0].startswith("one: line ")


def test_shrinking_is_deterministic_and_bounded():
    calls = []

    def differs(program):
        calls.append(program)
        return "popc" in fuzz.module_text([program])

    number = next(k for k in range(100) if differs(fuzz.generate(0, k)))
    program = fuzz.generate(0, number)
    calls.clear()
    small = fuzz.shrink(program, differs, trials=400)
    assert len(calls) <= 400
    assert len(list(walk(small.body))) <= 2
    assert fuzz.shrink(program, differs, trials=400) == small
    assert fuzz.shrink(program, differs, trials=0) == program
    assert small.names == 0
    assert (small.blocks, small.block, small.outputs) == (1, 32, ())


def test_shrinking_does_not_inline_a_branch_no_lane_takes():
    dead = If(Condition("never", "%r0"), (Sync(("trap",)),))
    program = Program(0, 0, (dead, Compute("popc.b32", ("%r0",), ("%r1",))))
    device, bodies = simwarp.Device(), []

    def differs(candidate):
        bodies.append(candidate.body)
        (answer,) = fuzz.answers(device, [candidate])
        assert not isinstance(answer, KernelFault)
        return any(isinstance(s, If) for s in candidate.body)

    assert fuzz.shrink(program, differs).body == (replace(dead, then=()),)


# Recordings


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording") / "deep"
    seen = []
    record(StandIn(), folder, seed=5, count=8, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 1), (1, 1)]
    return folder / "sm_90" / "fuzz.json"


def record(device, folder, seed, count, **options):
    """Record programs of any seed as the subject "fuzz"."""
    subject = Subject("fuzz", "", lambda asking: ask_programs(asking, seed, count))
    lab.record(subject, Asking(lambda: device, **options), folder)
    return load(folder / "sm_90" / "fuzz.json")


@pytest.mark.slow
def test_a_recording_names_its_origin(recorded):
    meta = json.loads(recorded.read_text())
    assert meta.pop("date").count("-") == 2
    assert len(meta.pop("ptx")["programs"]) == 64
    assert len(meta.pop("sha256")) == 64
    assert {"commit", "seconds"} <= meta.keys()
    del meta["commit"], meta["seconds"]
    assert meta == {
        "version": 1,
        "subject": "fuzz",
        "nvrtc": "NVRTC 13.0",
        "trial": False,
        "generator": 1,
        "seed": 5,
        "count": 8,
        "without": 0,
        "gpu": {"name": StandIn.name, "uuid": StandIn.uuid},
        "driver": "580.0",
        "arch": [9, 0],
        "command": "simwarp record fuzz",
    }


@pytest.mark.slow
def test_a_recording_is_replayed_in_full_or_in_part(recorded):
    recording = load(recorded)
    done = []
    assert replay(recording, simwarp.Device(), range(6), progress=done.append) == []
    assert done == [1, 2, 3, 4, 5, 6]
    wrong = Faulty("mad.wide", lambda right, form, *operands: right(form, *operands) + np.uint64(8))
    assert replay(recording, wrong, [0, 1, 2]) == [0, 1, 2]


def test_programs_whose_mutants_differ_on_hardware_are_left_out(tmp_path, monkeypatch):
    class Unsettled(StandIn):
        """A simulator on which mutants, recognised by their register names, exit too early."""

        def load(self, ptx):
            return super().load(
                ptx.replace("memory\n)\n{\n", "memory\n)\n{\n\tret;\n") if "%w0" in ptx else ptx
            )

    monkeypatch.setattr("simwarp.lab.subjects.programs.mutate", lambda p: replace(p, names=1))
    recording = record(Unsettled(), tmp_path, seed=0, count=4)
    assert recording.meta["without"] == 4
    assert replay(recording, simwarp.Device()) == []


def test_a_changed_digest_is_reported(recorded):
    recording = load(recorded)
    digests = recording.digests.copy()
    digests[4, 15] ^= 1
    assert replay(replace(recording, digests=digests), simwarp.Device(), range(3, 6)) == [4]


def test_a_changed_generator_is_reported(recorded, monkeypatch):
    recording = load(recorded)
    with pytest.raises(InputFileError, match=r"program 0 .*: the generator now makes another"):
        replay(replace(recording, meta={**recording.meta, "seed": 6}), simwarp.Device(), [0])
    gone = {"compute": {"popc": ("popc.b7",)}, "warp": {"redux": ("redux.sync.add.u32",)}}
    with pytest.raises(InputFileError, match=r"no row has 'popc\.b7' any more"):
        replay(replace(recording, vocabulary=gone), simwarp.Device(), [0])


def test_new_rows_do_not_change_an_old_recording(recorded, monkeypatch):
    recording = load(recorded)
    module = import_module("simwarp.lab.fuzz.generate")
    monkeypatch.setattr(module, "all_rows", dict)
    assert replay(recording, simwarp.Device(), [0, 1]) == []


@pytest.mark.parametrize("damage", ["no sidecar", "no data", "half the data", "another count", "not json"])
def test_a_damaged_recording_is_refused(recorded, tmp_path, damage):
    sidecar = tmp_path / "fuzz.json"
    file = sidecar.with_suffix(".npz")
    shutil.copy(recorded, sidecar)
    shutil.copy(recorded.with_suffix(".npz"), file)
    if damage == "no sidecar":
        sidecar.unlink()
    elif damage == "no data":
        file.unlink()
    elif damage == "half the data":
        file.write_bytes(file.read_bytes()[:1000])
    elif damage == "another count":
        sidecar.write_text(sidecar.read_text().replace('"count": 8', '"count": 9'))
    else:
        sidecar.write_text("{")
    with pytest.raises(InputFileError, match="record it on a GPU"):
        load(file)


def test_a_recording_of_a_simulator_is_refused(tmp_path):
    with pytest.raises(InputFileError, match="trial on simwarp simulator"):
        record(simwarp.Device(), tmp_path, seed=0, count=1)


def test_a_path_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFileError, match="cannot be written"):
        record(StandIn(), tmp_path / "file", seed=0, count=1)


@pytest.fixture
def counterexample():
    program = Program(3, 1, (Compute("popc.b32", ("%r0",), ("%r1",)),), outputs=("%r0",))
    wrong = Faulty("popc", lambda right, form, a: right(form, a) + np.uint32(1))
    witnesses = [fuzz.Witness("right", StandIn()), fuzz.Witness("wrong", wrong)]
    (found,) = fuzz.hunt(witnesses, [program], trials=0)
    return found, wrong


def test_a_kept_counterexample_is_replayed_on_the_simulator(counterexample, tmp_path):
    found, wrong = counterexample
    ptx = keep(found, tmp_path / "kept", StandIn())
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".ptx", ".npz", ".json"}
    assert ptx.read_text() == found.text
    assert still_right(ptx, simwarp.Device())
    assert not still_right(ptx, wrong)
    meta = json.loads(ptx.with_suffix(".json").read_text())
    assert meta["gpu"]["name"] == "NVIDIA Test"
    assert meta["witnesses"] == ["right", "wrong"]
    ptx.with_suffix(".npz").write_bytes(b"half")
    with pytest.raises(InputFileError, match="not a complete counterexample"):
        still_right(ptx, simwarp.Device())


# Recordings of hardware

GOLDEN = Path(__file__).parents[2] / "golden"
REPLAYED = 300


@pytest.mark.gate
@pytest.mark.parametrize("file", sorted(GOLDEN.glob("sm_*/fuzz.npz")), ids=lambda file: file.parent.name)
def test_the_simulator_agrees_with_a_recording(file):
    recording = load(file)
    assert len(recording.digests) >= 10_000
    assert recording.meta["without"] < 0.01 * len(recording.digests)
    assert replay(recording, simwarp.Device(), range(REPLAYED)) == []
    assert file.stat().st_size <= 1 << 20


@pytest.mark.parametrize("ptx", sorted(GOLDEN.glob("sm_*/counterexamples/*.ptx")), ids=lambda ptx: ptx.stem)
def test_the_simulator_passes_old_counterexamples(ptx):
    assert still_right(ptx, simwarp.Device())


# Workers

FRAGILE = """
import os, time
import simwarp

class Fragile(simwarp.Device):
    def load(self, ptx):
        if "popc.b32" in ptx:
            os._exit(139)
        if "brev.b32" in ptx:
            time.sleep(60)
        return super().load(ptx)
"""


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    (tmp_path / "fragile_device.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(tmp_path)
    return import_module("fragile_device").Fragile


@pytest.mark.slow
def test_a_crash_or_a_hang_loses_one_program(fragile):
    words = ("not.b32", "popc.b32", "clz.b32", "brev.b32", "abs.s32")
    programs = [Program(0, k, (Compute(w, ("%r0",), ("%r1",)),)) for k, w in enumerate(words)]
    workers = fuzz.Workers(fragile, count=2, patience=12)
    digests = workers.digests(programs)
    workers.close()
    right = fuzz.outputs(simwarp.Device(), programs)
    assert digests == [right[0], b"", right[2], b"", right[4]]


@pytest.mark.slow
def test_programs_without_a_result_are_not_counterexamples(fragile, tmp_path):
    programs = [
        Program(0, k, (Compute(w, ("%r0",), ("%r1",)),)) for k, w in enumerate(("not.b32", "popc.b32"))
    ]
    workers = fuzz.Workers(fragile, count=1)
    witnesses = [
        fuzz.Witness("fragile", fragile(), workers=workers),
        fuzz.Witness("simulator", simwarp.Device()),
    ]
    assert list(fuzz.hunt(witnesses, programs)) == []
    assert (witnesses[0].silent, witnesses[1].silent) == ([1], [])
    workers.close()


# The command


class Here:
    """Runs the tasks of workers in this process."""

    def __init__(self, make_device):
        self.make_device = make_device

    def digests(self, programs):
        return fuzz.outputs(self.make_device(), programs)

    def close(self):
        pass


def run(capsys, *arguments, code=0):
    assert main(["fuzz", *map(str, arguments)]) == code
    return capsys.readouterr()


@pytest.mark.slow
def test_the_command_reports_agreement(capsys, tmp_path):
    printed = run(capsys, "--programs", 6, "--out", tmp_path / "none")
    line = r"6 programs: the simulator, mutants on the simulator agree \(\d+\.\d s\)\n"
    assert re.fullmatch(line, printed.out.replace("\n(", " ("))
    assert not (tmp_path / "none").exists()
    report = json.loads(run(capsys, "--programs", 3, "--seed", 2, "--json").out)
    assert (report["programs"], report["seed"], report["differences"]) == (3, 2, [])
    assert not report["interrupted"]


@pytest.fixture
def faulty_simulator(monkeypatch):
    """Makes the command's second simulator compute ``xor`` wrongly."""
    wrong = Faulty("xor", lambda right, form, a, b: right(form, a, b) ^ np.asarray(a).dtype.type(1))
    devices = [simwarp.Device(), wrong]
    monkeypatch.setattr("simwarp.device.device.Device", lambda **options: devices.pop(0))


@pytest.mark.slow
@pytest.mark.usefixtures("faulty_simulator")
def test_the_command_shows_a_counterexample_and_keeps_it(capsys, tmp_path):
    report = json.loads(run(capsys, "--programs", 200, "--most", 1, "--out", tmp_path, "--json", code=1).out)
    (found,) = report["differences"]
    assert found["witnesses"] == ["the simulator", "mutants on the simulator"]
    assert "xor" in found["ptx"]
    assert found["lines"]
    assert still_right(Path(found["file"]), simwarp.Device())


@pytest.mark.usefixtures("faulty_simulator")
@pytest.mark.slow
def test_the_command_prints_the_ptx_and_both_outputs(capsys, tmp_path):
    printed = run(capsys, "--programs", 200, "--most", 1, "--out", tmp_path, code=1).out
    (ptx,) = tmp_path.glob("*.ptx")
    assert ptx.read_text().replace("\t", "        ") in printed
    assert re.search(r"^the simulator: ", printed, re.MULTILINE)
    assert re.search(r"^mutants on the simulator: ", printed, re.MULTILINE)
    assert "1 counterexample: PTX and words are in" in printed


def test_the_command_replays_a_recording(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("gpu.cuda.default_device", StandIn)
    monkeypatch.setattr("gpu.cuda.default_device", StandIn)
    monkeypatch.setattr(lab_programs, "Workers", Here)
    monkeypatch.setattr(lab_programs, "COUNT", 3)
    assert main(["record", "fuzz", "--out", str(tmp_path)]) == 0
    assert "recorded fuzz on NVIDIA Test: 0 differ" in capsys.readouterr().err
    file = tmp_path / "sm_90" / "fuzz.npz"
    assert "3 programs: simwarp simulator (sm_90) agrees with" in run(capsys, "--replay", file).out
    recording = read(file.with_suffix(".json"))
    recording.arrays["digests"][1] ^= 1
    write(file.parent, recording)
    report = json.loads(run(capsys, "--replay", file, "--json", code=1).out)
    assert (report["programs"], report["different"], report["gpu"]) == (3, [1], "NVIDIA Test")
    assert run(capsys, "--replay", file, "--programs", 1, "--device", "cuda").out


def test_hardware_and_simulator_are_compared(capsys, monkeypatch):
    monkeypatch.setattr("gpu.cuda.default_device", StandIn)
    monkeypatch.setattr("simwarp.lab.fuzz.Workers", Here)
    report = json.loads(run(capsys, "--device", "both", "--programs", 2, "--json").out)
    assert report["witnesses"] == ["NVIDIA Test", "the simulator", "mutants on NVIDIA Test"]
    report = json.loads(run(capsys, "--device", "cuda", "--programs", 2, "--optimised", "--json").out)
    assert report["witnesses"] == ["NVIDIA Test", "mutants on NVIDIA Test", "the compiler for NVIDIA Test"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--replay", "f.npz", "--device", "both"], "give --device sim or cuda"),
        (["--replay", "no-such.npz"], "record it on a GPU"),
        (["--programs", "0"], "see simwarp fuzz --help"),
        (["--device", "tpu"], "see simwarp fuzz --help"),
        (["--device", "cuda"], "give --device sim"),
    ],
)
def test_impossible_requests_are_refused(capsys, monkeypatch, arguments, message):
    def nothing():
        raise NoGpuError("no CUDA device can be used: none found\npass device=simwarp.Device()")

    monkeypatch.setattr("gpu.cuda.default_device", nothing)
    printed = run(capsys, *arguments, code=2)
    assert message in printed.err
    assert printed.out == ""


def test_an_interruption_reports_partial_results(capsys, monkeypatch):
    def hunt(witnesses, programs, progress):
        progress(8)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("simwarp.lab.fuzz.hunt", hunt)
    assert run(capsys, "--programs", 100, code=130).out.startswith("stopped before the end; 8 programs: ")
    report = json.loads(run(capsys, "--programs", 100, "--json", code=130).out)
    assert (report["interrupted"], report["programs"]) == (True, 8)
