"""The bugs of `examples/bugs/sm_90` are found under every schedule, with both sides; their twins are clean.

Expected places are computed from the launch sizes and the text of the kernels, not taken from the reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

import simwarp
from simwarp import faults
from simwarp.faults import Livelock, Place, RunawayKernel
from simwarp.lab.recording import example
from simwarp.ptx.parse import parse

BUGS = example("bugs", "asynchronous").BUGS
NAMES = list(BUGS)
BUDGET = 100_000
"""More instructions than any of the kernels executes, corrected."""
FEW = 4000
"""As many as a launch that does not end may execute under "random", where no state repeats soon."""


@dataclass(frozen=True)
class Found:
    """The expected report under the schedule "lowest pc".

    ``at`` and ``other`` are block, warp and lane of the two sides, None if it has one only; ``line`` is the
    place of the other line among those that are marked; ``values`` are parts of the message's second line.
    """

    at: tuple[int, int, int]
    other: tuple[int, int, int] | None
    values: tuple[str, ...] = ()
    line: int = 0


FOUND = {
    # Thread 0 reads its left neighbour, the last word of the third tile: half 0 of the ring, group 2.
    "pipeline_tail": Found((0, 0, 0), (0, 1, 31), ("byte 252 of stages", "group 2 of its thread")),
    "unshared_wait": Found((0, 0, 0), (0, 3, 31), ("byte 508 of tile",)),
    # Row 3 goes where row 0 was, which the last thread still reads from the left.
    "early_refill": Found((0, 0, 0), (0, 1, 31), ("byte 0 of ring",)),
    # The first warp has waited. Of the second one, thread 32 reads word 127 - 32.
    "unawaited_phase": Found(
        (0, 1, 0),
        (0, 0, 0),
        ("byte 380 of tile", "of full", "in phase 0", "has not waited for that mbarrier"),
    ),
    "stale_parity": Found(
        (0, 0, 0), (0, 0, 0), ("byte 508 of row", "of full", "in phase 1", "found phase 0 ")
    ),
    "too_few_bytes": Found(
        (0, 0, 0), (0, 0, 0), ("of full", "phase 0, 256 bytes arrived as expected, 256 bytes in flight"), 0
    ),
    # 180 numbers are two tiles and 52 numbers: 12 words of the third never come.
    "too_many_bytes": Found(
        (2, 0, 0), (2, 0, 0), ("of full", "phase 0, 0 of 1 arrivals and 48 bytes pending, 208 bytes arrived")
    ),
    "missing_proxy_fence": Found((0, 0, 0), (0, 0, 0), ("byte 0 of tile",)),
    "reused_tile": Found((0, 0, 0), (0, 0, 0), ("byte 0 of tile",)),
    "unread_exit": Found((0, 0, 0), (0, 0, 0), ("512 bytes from byte 0 of tile",)),
    # 77 numbers are two blocks and 13 numbers: the third block sends to the fourth, which has none.
    "cluster_exit": Found((2, 0, 31), (3, 0, 0), ("byte 0 of edge",)),
    "unattended_read": Found((1, 0, 0), None, ("mine in shared memory, of the block of rank 0",)),
    "unseen_barrier": Found((0, 0, 1), (0, 0, 0), ("byte 0 of full",)),
    # The third row waits for the release of the first one, by 64 lanes; two have arrived.
    "few_releases": Found(
        (0, 0, 0), (0, 2, 0), ("byte 0 of empty", "phase 0, 62 of 64 arrivals and 0 bytes pending"), 1
    ),
    "unfinished_product": Found((0, 0, 0), (0, 0, 0), ("no wait for it has ended",)),
    "unfenced_registers": Found((0, 0, 0), (0, 0, 0), ("the last one was executed here by",)),
    # Eight groups of eight rows, 512 bytes from one to the next: the fifth begins where the tile ends.
    "wrong_stride": Found(
        (0, 0, 0), None, ("byte 2048 of 2304; start 0, leading offset 128, stride offset 512",)
    ),
    "wrong_swizzle": Found((0, 0, 0), (0, 0, 0), ("descriptor 32 bytes, tensor map 128 bytes",)),
    "tile_under_product": Found((0, 0, 0), (0, 0, 0), ("byte 0 of left",)),
    "unaligned_box": Found((0, 0, 0), None, ("byte 0x10, expected a multiple of 128",)),
    # 16 rows of 128 bytes, and a tile of eight.
    "large_box": Found((0, 0, 0), None, ("offset 0x0 of 2056 bytes; tile has those from 0x0 to 0x3ff",)),
    # Eleven warps are served: 4 * 40 + 7 * 240 registers for each of 32 lanes. The last one finds 256.
    "too_many_registers": Found(
        (0, 11, 0),
        None,
        ("64512 registers, 168 for each thread", "64256 are owned, 256 free", "would own 66560"),
    ),
    "early_read": Found(
        (0, 0, 0), (0, 0, 0), ("byte 0 of y", "written here, in the launch before, by kernel squares")
    ),
}


ONLY_TEXT = ("too_many_bytes", "unfenced_registers", "wrong_swizzle")
"""Where the other side is in the message, and in none of the fault's fields."""


def fault_of(name, budget=BUDGET, **options):
    with pytest.raises(faults.KernelFault) as caught:
        BUGS[name].run(simwarp.Device(instruction_budget=budget, **options))
    return caught.value


def check(name):
    return getattr(faults, BUGS[name].fault).check


def others(fault):
    """The places besides the fault's own."""
    places = [getattr(fault, field, Place()) for field in ("other", "exit", "copy", "product")]
    return [
        place for place in [*places, *getattr(fault, "waiting", ())] if place.kernel and place != fault.place
    ]


def where(place):
    return place.block[0], place.warp, place.lane


def is_as_expected(name, fault):
    bug, found = BUGS[name], FOUND[name]
    assert type(fault).__name__ == bug.fault
    assert (fault.place.kernel, fault.place.source_file) == (name, bug.file)
    assert (fault.place.source_line, where(fault.place)) == (bug.line, found.at)
    text = str(fault)
    assert text.startswith(f"{bug.file}:{bug.line}: ")
    assert all(part in text for part in found.values)
    if found.other is not None:
        line = bug.other_lines[found.line]
        assert f"{bug.file}:{line}" in text.partition("\n")[2]
        if name not in ONLY_TEXT:
            assert (line, found.other) in [(place.source_line, where(place)) for place in others(fault)]


# ---- each bug ------------------------------------------------------------------------------------------


@pytest.mark.at_most(11)
@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_and_named_with_both_sides(name):
    is_as_expected(name, fault_of(name))


@pytest.mark.parametrize(("schedule", "seed"), [("stack", 0), ("random", 0), ("random", 1), ("random", 2)])
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_finds_the_bug_at_its_lines(name, schedule, seed):
    """Another schedule has another order of events, by which the class may be another one: `Bug.others`."""
    bug, few = BUGS[name], {"budget": FEW} if schedule == "random" else {}
    fault = fault_of(name, schedule=schedule, seed=seed, **few)
    places = [fault.place]
    if type(fault) is RunawayKernel and bug.fault == "Livelock":
        places = fault.waiting
    else:
        assert type(fault).__name__ in {bug.fault} | bug.others.get(schedule, set())
    assert places
    assert {place.source_line for place in places} <= {bug.line, *bug.other_lines}
    assert bug.file in str(fault)


@pytest.mark.at_most(34)
@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_the_corrected_twin_is_clean_and_right(name, schedule):
    bug = BUGS[name]
    for seed in range(3 if schedule == "random" else 1):
        device = simwarp.Device(checks="report", schedule=schedule, seed=seed, instruction_budget=BUDGET)
        assert bug.is_right(bug.run(device, fixed=True))
        assert device.faults == []


@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_with_only_its_own_check(name):
    only = dict.fromkeys(simwarp.checks.KINDS, "off") | {check(name): "raise"}
    if BUGS[name].fault == "BlockLifetime":  # is found by the race detector
        only["races"] = "raise"
    is_as_expected(name, fault_of(name, checks=only))


@pytest.mark.parametrize("name", NAMES)
def test_the_bug_is_found_with_one_block_or_cluster_at_a_time(name):
    """A launch that does not end ends at its first such block."""
    fault = fault_of(name, chunk_lanes=32)
    if BUGS[name].fault == "Livelock":
        assert fault.place.source_line == BUGS[name].line
    else:
        is_as_expected(name, fault)


@pytest.mark.parametrize("name", NAMES)
def test_a_reporting_device_continues_the_launch(name):
    device = simwarp.Device(checks="report", instruction_budget=BUDGET)
    BUGS[name].run(device)
    is_as_expected(name, device.faults[0])


# ---- more than the first fault --------------------------------------------------------------------------


def test_a_livelock_names_all_that_wait_for_mbarriers():
    """The warps that add wait for the third row, the one that fetches for the release of the first."""
    bug, fault = BUGS["few_releases"], fault_of("few_releases")
    assert isinstance(fault, Livelock)
    assert {(place.source_line, place.warp) for place in fault.waiting} == {
        (bug.other_lines[1], 2),
        (bug.line, 0),
    }
    notes = [(note.label, note.place.source_line, note.place.warp) for note in fault.notes]
    assert ("initialised here by", bug.other_lines[0], 0) in notes
    empty = "mbarrier at byte 0 of empty in shared memory: phase 0 is waited for here by"
    assert (empty, bug.other_lines[1], 2) in notes
    assert fault.advice.startswith("let as many arrivals and bytes reach each mbarrier as it expects")


def test_too_many_bytes_name_the_line_that_expects_them():
    bug, fault = BUGS["too_many_bytes"], fault_of("too_many_bytes")
    waits, expected = fault.notes
    assert fault.waiting == (fault.place,) == (waits.place,)
    assert expected.label == "its bytes were last expected here by"
    assert (expected.place.source_file, expected.place.block) == (bug.file, (2, 0, 0))
    assert expected.place.source_line == bug.other_lines[0]


def test_a_stale_parity_waits_for_ever_where_copies_arrive_at_once():
    """Under "stack" the second copy has completed its phase before the wait for the parity of the first."""
    fault = fault_of("stale_parity", schedule="stack")
    assert isinstance(fault, Livelock)
    assert fault.place.source_line == BUGS["stale_parity"].other_lines[1]
    assert "phase 2 is waited for here by" in fault.notes[0].label


def test_an_exit_is_named_where_it_happens():
    for name in ("unread_exit", "cluster_exit"):
        fault = fault_of(name)
        assert fault.copy == fault.place
        assert (fault.exit.source_file, fault.exit.source_line) == (BUGS[name].file, BUGS[name].other_line)


def test_a_barrier_that_others_do_not_see_yet_has_advice_of_its_own():
    assert "between mbarrier.init and the first use" in fault_of("unseen_barrier").advice


# ---- the folder ----------------------------------------------------------------------------------------


def test_each_bug_has_a_file_and_a_title():
    some = BUGS[NAMES[0]]
    assert {path.stem for path in some.path.parent.glob("*.cu")} == set(NAMES) == set(FOUND)
    assert len({bug.title for bug in BUGS.values()}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_small_and_marks_the_bug(name):
    text = BUGS[name].source
    assert 20 <= len(text.splitlines()) <= 70
    assert max(map(len, text.splitlines())) <= 110
    assert re.match(r"// .*\n(// .*\n)*//\n// ", text)
    assert len(re.findall(r"// BUG$", text, re.MULTILINE)) == 1
    assert len(re.findall(r"// BUG: ", text)) >= 1
    assert text.count("FIXED") >= 1
    for fixed in (False, True):
        kernels = [name, BUGS[name].before] if BUGS[name].before else [name]
        assert set(parse(BUGS[name].ptx(fixed=fixed).text).entries) == set(kernels)


def test_each_header_of_the_folder_is_included():
    folder = BUGS[NAMES[0]].path.parent / "include"
    assert {header for bug in BUGS.values() for header in bug.headers} == {
        f"include/{path.name}" for path in folder.iterdir()
    }
