"""The table of docs/checks.md: every way to touch memory, with every check of memory.

A cell is the name of a test that shows that the mistake is found, or the letter of a reason why there is
nothing to find, or why it is not found. `support.ways` has the cells of the ways that an address names.

``python -m support.ways_table`` in the folder of tests prints the table.
"""

from __future__ import annotations

import sys

from support.ways import MISTAKES, WAYS

CHECKS = tuple(MISTAKES)
OF_WORDS = ("textures", "barriers")
"""Kinds that judge one kind of word: the handle of a texture or surface, the word of an mbarrier."""
OF_CODE = ("division", "members", "sources", "products", "deadlock", "runaway", "unreachable", "exits")
"""Kinds that judge instructions and control, however memory is touched."""
GENERIC = "test_ways.py::test_the_mistake_is_named_and_the_right_kernel_is_silent"

REASONS = {
    "a": "shared memory lives as long as its block; no other block can reach it",
    "b": "only its own thread can reach it",
    "c": "nothing can write it while a kernel runs; a write is `bounds`",
    "d": "the host gives it a value before the launch, or it is zero",
    "e": "no copy reads or writes it",
    "f": "it only writes, or only reads: the mistake needs the other",
    "g": "launches share global memory alone",
    "h": "it counts texels, and the address mode gives every place one",
    "i": "the asynchronous proxy does not concern it; what the launch writes is found as `races`",
    "j": "an image cannot be freed while its handle lives; a destroyed handle is `textures`",
    "k": "it lives as long as its module, its launch or its thread",
    "l": "**not seen**: `printf` reads its strings past the race detector",
    "m": "it belongs to the asynchronous proxy, or both proxies see it",
    "n": "a map is read when the copy is issued; one that the kernel changed without its fences is `proxies`",
    "o": "it takes bytes, or no address of an access",
    "p": "a frame is local memory: see `ld.local`",
}

_TEXTURES, _MAPS, _BULK = "test_textures.py", "test_ptx_tensor_maps.py", "test_ptx_bulk_copies.py"
_WGMMA, _HOST, _LIVES = "test_wgmma_faults.py", "test_ptx_host_functions.py", "test_lifetimes.py"
_SPACES, _BARRIERS, _WAYS = "test_ptx_spaces.py", "test_ptx_mbarriers.py", "test_ways.py"
_REGISTER = f"{_WAYS}::test_a_coordinate_or_a_handle_in_an_unwritten_register_is_named"
_BEFORE = f"{_WAYS}::test_texels_of_the_launch_before_are_touched_behind_the_wait_only"
_WRONG_COPY = f"{_MAPS}::test_a_wrong_copy_is_reported"
_UNWRITTEN_TEXELS = f"{_TEXTURES}::test_unwritten_and_freed_texels"
_SURFACE_BOUNDS = f"{_TEXTURES}::test_boundaries_of_a_surface"
_TEXEL_RACES = f"{_TEXTURES}::test_races_between_stores_and_reads"
_PASSED = f"{_WAYS}::test_an_unwritten_register_passed_to_a_function_of_the_simulator_is_named"
_STRING = f"{_WAYS}::test_a_string_of_printf_outside_its_array_or_freed_is_named"
_MAP = f"{_WAYS}::test_a_tensor_map_at_a_wrong_address_is_named"
_ARRIVAL = f"{_WAYS}::test_an_arrival_at_a_wrong_address_is_named"

CELLS: dict[str, dict[str, str]] = {
    "`ldmatrix`, `stmatrix`": {"freed": "a", "dependents": "g"},
    "`ld.global.nc`": {"copies": "f", "proxies": "f"},
    "`ld.const`": {
        "freed": "k",
        "uninitialised": "d",
        "races": "c",
        "copies": "e",
        "proxies": "e",
        "dependents": "c",
    },
    "`ld.param`": {
        "freed": "k",
        "uninitialised": "d",
        "races": "c",
        "copies": "e",
        "proxies": "e",
        "dependents": "c",
    },
    "`ld.local`, `st.local`": {"freed": "k", "races": "b", "copies": "e", "proxies": "e", "dependents": "b"},
    "another block's shared memory": {
        "freed": f"{_LIVES}::test_a_visit_after_the_blocks_met_may_be_too_late",
        "dependents": "g",
    },
    "`st.async`, `red.async`": {
        "freed": f"{_BULK}::test_a_copy_into_a_block_that_has_exited_is_named",
        "uninitialised": f"{_BULK}::test_a_reduction_of_unwritten_memory_is_named",
        "proxies": "m",
        "dependents": "g",
    },
    "`cp.async.bulk.tensor`": {
        "bounds": _WRONG_COPY,
        "alignment": _WRONG_COPY,
        "freed": f"{_WAYS}::test_a_tile_of_a_freed_array_is_named",
        "registers": f"{_WAYS}::test_a_coordinate_of_a_tile_in_an_unwritten_register_is_named",
        "uninitialised": f"{_WAYS}::test_a_tile_of_an_unwritten_array_is_named_where_it_is_used",
        "races": f"{_MAPS}::test_a_store_that_others_read_needs_an_order",
        "copies": f"{_MAPS}::test_an_access_before_the_wait_is_reported",
        "proxies": f"{_MAPS}::test_a_store_of_what_threads_wrote_needs_a_proxy_fence",
        "dependents": f"{_WAYS}::test_a_tile_of_the_launch_before_is_touched_behind_the_wait_only",
    },
    "tensor maps": {
        "bounds": _WRONG_COPY,
        "alignment": _WRONG_COPY,
        "freed": _MAP,
        "registers": _MAP,
        "uninitialised": f"{_MAPS}::test_an_uninitialised_map_is_reported",
        "races": "o",
        "copies": "n",
        "proxies": f"{_MAPS}::test_a_changed_map_needs_a_release",
        "dependents": "n",
    },
    "`wgmma` operands and descriptors": {
        "bounds": f"{_WGMMA}::test_a_descriptor_that_leaves_its_array_for_another_one",
        "alignment": f"{_WGMMA}::test_bits_without_a_meaning_in_a_descriptor_are_found",
        "freed": "a",
        "registers": f"{_WAYS}::test_a_descriptor_in_an_unwritten_register_is_named",
        "uninitialised": f"{_WGMMA}::test_shared_memory_that_nothing_wrote_is_named",
        "races": f"{_WGMMA}::test_another_warpgroup_must_be_ordered_behind_the_wait",
        "copies": f"{_WGMMA}::test_shared_memory_overwritten_while_a_product_reads_it_is_found",
        "proxies": f"{_WGMMA}::test_a_write_before_the_product_needs_a_proxy_fence",
        "dependents": "g",
    },
    "`tex`, `tld4`": {
        "bounds": "h",
        "alignment": "h",
        "freed": _UNWRITTEN_TEXELS,
        "registers": _REGISTER,
        "uninitialised": _UNWRITTEN_TEXELS,
        "races": _TEXEL_RACES,
        "copies": f"{_WAYS}::test_a_texture_of_memory_that_a_copy_writes_is_named",
        "proxies": "i",
        "dependents": _BEFORE,
    },
    "`suld`, `sust`": {
        "bounds": _SURFACE_BOUNDS,
        "alignment": _SURFACE_BOUNDS,
        "freed": "j",
        "registers": _REGISTER,
        "uninitialised": _UNWRITTEN_TEXELS,
        "races": _TEXEL_RACES,
        "copies": "e",
        "proxies": "e",
        "dependents": _BEFORE,
    },
    "stack frames": {
        "bounds": "test_ptx_calls.py::test_a_stack_overflow_names_the_lane_that_recursed_too_deep",
        "alignment": "p",
        "freed": f"{_WAYS}::test_a_variable_of_a_function_that_returned_is_named",
        "registers": "test_ptx_calls.py::test_an_unwritten_register_of_a_function_is_reported",
        "uninitialised": "test_undefined_memory.py::test_use_of_an_unset_struct_member_is_reported",
        "races": "test_lent.py::test_a_foreign_pointer_names_the_owner_of_its_memory",
        "copies": "e",
        "proxies": "e",
        "dependents": "b",
    },
    "`malloc`, `free`": {
        "bounds": f"{_HOST}::test_double_free_and_free_of_foreign_memory_are_faults",
        "alignment": "o",
        "freed": f"{_HOST}::test_double_free_and_free_of_foreign_memory_are_faults",
        "registers": _PASSED,
        "uninitialised": f"{_HOST}::test_malloc_memory_is_uninitialised_and_bounded",
        "races": f"{_WAYS}::test_a_free_is_a_write_of_the_whole_block",
        "copies": f"{_WAYS}::test_a_free_under_a_copy_is_named",
        "proxies": "f",
        "dependents": f"{_WAYS}::test_a_free_before_the_wait_is_named",
    },
    "`printf`": {
        "bounds": _STRING,
        "alignment": "o",
        "freed": _STRING,
        "registers": _PASSED,
        "uninitialised": "test_undefined_memory.py::test_printing_an_uninitialised_value_is_reported",
        "races": "l",
        "copies": "l",
        "proxies": "l",
        "dependents": "l",
    },
    "mbarrier words": {
        "bounds": _ARRIVAL,
        "alignment": f"{_BARRIERS}::test_misuse_of_a_barrier_is_a_fault",
        "freed": f"{_LIVES}::test_an_arrival_that_nobody_waits_for_may_be_too_late",
        "registers": _ARRIVAL,
        "uninitialised": f"{_BARRIERS}::test_misuse_of_a_barrier_is_a_fault",
        "races": f"{_BARRIERS}::test_a_barrier_used_without_a_barrier_behind_its_initialisation_is_a_race",
        "copies": f"{_WAYS}::test_an_arrival_under_a_copy_is_named",
        "proxies": "m",
        "dependents": "g",
    },
}


def cell(way: str, check: str) -> str:
    """A test, or the letter of a reason."""
    if check in CELLS.get(way, {}):
        return CELLS[way][check]
    applies = MISTAKES[check][2]
    return GENERIC if any(map(applies, WAYS.get(way, ()))) else ""


def ways() -> list[str]:
    """The rows."""
    return list(dict.fromkeys((*WAYS, *CELLS)))


def lines() -> list[str]:
    """The table and its reasons in Markdown."""
    rows = [[way, *("✓" if "::" in (of := cell(way, check)) else of for check in CHECKS)] for way in ways()]
    head = [["", *(f"`{check}`" for check in CHECKS)], ["---", *(":-:" for _ in CHECKS)]]
    table = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (*head, *rows)]
    return [*table, "", *(f"- {letter}: {reason}" for letter, reason in REASONS.items())]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
