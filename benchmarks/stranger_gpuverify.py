"""GPUVerify's CUDA test suite: its labels, and arguments of ours that reach the faults which they name."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from stranger_labels import Arguments, Extent, Labelled, Put
from stranger_sources import StrangerError

from simwarp.device import DeviceArray
from simwarp.device.module import Module

PROJECT = "mc-imperial/gpuverify"
KERNELS = 183
THREADS = 1024
"""The most threads of a block: GPUVerify allows more, CUDA does not."""
ANNOTATIONS = """
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
#undef __all
#define __assert(c) ((c) ? (void)0 : __assertfail(#c, __FILE__, __LINE__, __func__, 1))
#define __requires __assert
#define __assume __assert
#define __all(c) (c)
#define __implies(a, b) (!(a) | (b))
#define __enabled() true
#define __other_int(x) __shfl_xor_sync(~0u, x, 1)
#define __uniform_bool(x) true
#define __distinct_int(x) true
#define __no_read(...) true
#define __read_implies(...) true
#define __write_implies(...) true
#define __ptr_offset_bytes(...) 0
#define __invariant(...) ((void)0)
#define __global_invariant(...) ((void)0)
#define __ensures(...) ((void)0)
#define __requires_fresh_array(...) ((void)0)
#define __axiom(...) static_assert(true)
"""
"""Assert conditions, ours included; leave out annotations for proofs or pairs of threads."""
OLDER = """
#define NULL 0
typedef unsigned int uint;
#define __builtin_memcpy memcpy
#define __builtin_memset memset
template <class T, int D, int M> struct texture { cudaTextureObject_t object; };
template <class T, int M> T tex1Dfetch(texture<T, 1, M> from, int x) { return tex1Dfetch<T>(from.object, x); }
"""
"""Definitions of clang and older releases of CUDA."""
GROUPS = """#include <cooperative_groups.h>
namespace cooperative_groups { template <class G> void synchronize(const G& group) { group.sync(); } }
"""


@dataclass(frozen=True)
class Ours:
    """Our choices for a kernel of the suite."""

    # parameter → number, "&f" for a device function, or a function that makes one
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    after: str = ""  # text behind the file: functions that it only declares
    # values that the host writes to variables
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reason: str = ""  # as in `Labelled`
    unused: str = ""  # as in `Labelled`


def pointers(count: int = 1) -> Ours:
    """A structure of pointers to arrays, whatever the parameter's name."""

    def structure(put: Put) -> bytes:
        return b"".join(put(np.ones(65536, np.int32)).pointer.to_bytes(8, "little") for _ in range(count))

    return Ours({"q": structure, "A": structure})


def mersenne_twister(put: Put) -> DeviceArray:
    """An initial state of cuRAND's MTGP32, in which a number depends on the one 50 behind it."""
    draw, sets, table = np.random.default_rng(11213), 200, 16
    parameters = draw.integers(0, 99, 3 * sets + 3 * sets * table + 1).astype(np.uint32)
    parameters[:sets] = 50
    state = np.zeros(1028, np.uint32)
    state[:1024] = draw.integers(0, 1 << 32, 1024, np.uint64)
    state[1026:] = np.array([put(parameters).pointer], np.uint64).view(np.uint32)
    return put(state)


def answers(declaration: str) -> Ours:
    """A definition for a function that the kernel only declares: answers differ by thread, and end with 0."""
    body = "return asked[threadIdx.x]++ < threadIdx.x + 5;"
    return Ours(after=f"__device__ int asked[1024];\n__device__ {declaration} {{ {body} }}")


LOCKSTEP = Ours(
    reason="a race since Volta, without __syncwarp(): the label assumes warps in lockstep (--warp-sync)"
)
TAKES_A_STRUCTURE = "__device__ void bar(s x) {}"
RETURNS_64 = "__device__ int bar() { return 64; }"
FIRST, SECOND = {"f": "&multiplyByTwo"}, {"f": "&divideByTwo"}
STATE, STRUCTURES = Ours({"state": mersenne_twister}), Ours({"p": bytes(4), "q": bytes(4)})
TABLE: dict[str, Ours] = {
    "annotation_tests/test_axiom": Ours(unused="its axiom excludes all blocks of a launch that CUDA allows"),
    "curand_tests/fail/curand_mtgp32_block_race": STATE,
    "curand_tests/fail/curand_mtgp32_race": STATE,
    "curand_tests/pass/curand_mtgp32": STATE,
    "fresh_arrays/fail/array": pointers(42),
    "fresh_arrays/fail/inherit": pointers(),
    "fresh_arrays/fail/struct_char": pointers(),
    "fresh_arrays/fail/struct_float": pointers(),
    "fresh_arrays/fail/struct_nested": pointers(),
    "fresh_arrays/pass/array": pointers(42),
    "fresh_arrays/pass/inherit": pointers(),
    "fresh_arrays/pass/struct_char": pointers(),
    "fresh_arrays/pass/struct_float": pointers(),
    "function_pointers/basic_argument_fail": Ours({"f": 0}),
    "function_pointers/basic_argument_pass": Ours({**FIRST, "size": 1024}),
    "function_pointers/basic_assignment_fail": Ours({"i": 0}),
    "function_pointers/funcptr_lt": Ours({**SECOND, "g": "&multiplyByTwo", "size": 1024}),
    "function_pointers/funcptr_to_ptr": Ours({**SECOND, "size": 1024}),
    "function_pointers/funcptr_to_ptr_add": Ours({**SECOND, "i": 0}),
    "function_pointers/pass_struct/call": Ours({"f": 0}),
    "function_pointers/pass_struct/requires": Ours(FIRST),
    "function_pointers/pass_struct/requires_call": Ours({**FIRST, "size": 1024}),
    "function_pointers/unknown_function": Ours(
        reason="no dynamic fault: the tool does not take a pointer to cos"
    ),
    "globalarray/fail": Ours(variables={"A": np.zeros(8, np.int32)}),
    "inheritance_struct_simplify/direct": STRUCTURES,
    "inheritance_struct_simplify/indirect": STRUCTURES,
    "memcpy/unhandled_varlen": Ours({"len": 12}),
    "memcpy_simplification/array_element_passed_to_call1": Ours(after=TAKES_A_STRUCTURE),
    "memcpy_simplification/array_element_passed_to_call2": Ours(after=TAKES_A_STRUCTURE),
    "memcpy_simplification/i8_element_global_passed_to_call1": Ours(after=TAKES_A_STRUCTURE),
    "memcpy_simplification/i8_element_global_passed_to_call2": Ours(after=TAKES_A_STRUCTURE),
    "memcpy_simplification/i8_element_parameter_passed_to_call": Ours({"x": bytes(1)}, TAKES_A_STRUCTURE),
    "memcpy_simplification/parameter_passed_to_call": Ours({"x": bytes(4)}, TAKES_A_STRUCTURE),
    "memcpy_simplification/shared_element_passed_to_call": Ours(after=TAKES_A_STRUCTURE),
    "memset/unhandled_varlen": Ours(after=RETURNS_64),
    "memset/unhandled_varval": Ours(
        after=RETURNS_64, reason="no dynamic fault: the tool does not take a value that varies"
    ),
    "misc/fail/miscfail1": Ours(unused="it does not compile, as its label says"),
    "misc/fail/miscfail2": Ours(reason="no dynamic fault: its loop invariants do not suffice for a proof"),
    "misc/fail/miscfail6": Ours(unused="CUDA's compiler refuses its array without elements"),
    "misc/fail/miscfail7": Ours(reason="no dynamic fault: integer arithmetic leads back to the array"),
    "misc/fail/miscfail8": Ours({"A": bytes(8)}),
    "misc/pass/misc4": Ours({"w": 1024, "h": 0}, "__device__ void bar(int i) {}"),
    "misc/pass/misc5": answers("int nondet()"),
    "misc/pass/misc6": answers("char nondet()"),
    "param_values/value_causing_race": Ours({"x": 185}),
    "param_values/value_in_assert": Ours({"c": 48}),
    "pointers_in_structs/test2": pointers(),
    "pointers_in_structs/test3": pointers(),
    "pointers_in_structs/test4": pointers(2),
    "predication/test1": answers("char nondet()"),
    "predication/test2": answers("char nondet()"),
    "reduced_strength_with_requires": Ours({"sz": 1024}),
    "scope": Ours(reason="uninitialised: all of the histogram is read, a quarter of it was cleared"),
    "store_in_byval_function": pointers(),
    "warpsync/2d": LOCKSTEP,
    "warpsync/intragroup_scan": LOCKSTEP,
    "warpsync/scan_warp": LOCKSTEP,
    "warpsync/shuffle": LOCKSTEP,
}
"""Kernels that need more than what `value_of` draws, or are not what their labels say."""


def cases(folder: Path, include: Sequence[Path] = ()) -> Iterator[Labelled]:
    """The labelled kernels of a checkout; ``include`` has cuRAND's headers."""
    suite = folder / "gpuverify" / "testsuite" / "CUDA"
    paths = sorted(suite.rglob("*.cu"))
    if len(paths) != KERNELS:
        raise StrangerError(
            f"{suite} holds {len(paths)} kernels, not {KERNELS}\ncheck out github.com/{PROJECT} in {folder}"
        )
    return (case_of(path.parent.relative_to(suite).as_posix(), path.read_text(), include) for path in paths)


def case_of(name: str, text: str, include: Sequence[Path] = ()) -> Labelled:
    """A kernel of the suite: its label, its geometry and its arguments."""
    label, command = text.splitlines()[:2]
    ours, faulty = TABLE.get(name, Ours()), "xfail" in label.lower()
    found = re.search(r"__global__\s+void\s+(\w+)\s*\(([^)]*)\)", text)
    if ours.unused or found is None:
        return Labelled(name, faulty, unused=ours.unused or "there is no kernel in the file")
    block, grid = (extent(command, option) for option in ("blockDim", "gridDim"))
    while prod(block) > THREADS:
        block = tuple(size // 2 if size == max(block) else size for size in block)
    parameters = [each.strip() for each in found[2].split(",") if each.strip()]
    values = [value_of(each, ours.arguments, text, prod(block) * prod(grid)) for each in parameters]
    functions = [value[1:] for value in values if isinstance(value, str)]
    addresses = [f"__device__ decltype(&{f}) address_of_{f} = &{f};" for f in functions]
    of_curand = "curand" in text
    headers = "#include <curand_kernel.h>\n" * of_curand + GROUPS * ("cooperative_groups" in text)
    return Labelled(
        name,
        faulty,
        "\n".join([text, ours.after, *addresses]),
        entry=found[1],
        grid=grid,
        block=block,
        arguments=arguments_of(values, ours.variables),
        compiling={
            "headers": {"cuda.h": "", "shim.h": headers + ANNOTATIONS + OLDER},
            "options": ["--pre-include=shim.h", "-default-device", *re.findall(r"-D\S+", command)],
            "include": include if of_curand else (),
        },
        cooperative="grid_group" in text,
        reason=ours.reason,
    )


def extent(command: str, option: str) -> Extent:
    """A geometry of the command line: ``--blockDim=64`` or ``--blockDim=[8,8]``."""
    match = re.search(rf"--{option}=\[?([\d,]+)", command)
    return tuple(int(size) for size in match[1].split(",")) if match else (1,)


ELEMENTS = {"float": "f4", "char": "i1", "int": "i4", "unsigned": "u4", "unsigned long long": "u8"}
QUALIFIERS = ("*", "const", "volatile", "__restrict", "struct")


def value_of(parameter: str, chosen: Mapping[str, Any], text: str, threads: int) -> Any:
    """An argument: the table's, small random numbers, the value that the kernel requires, or 1."""
    *words, name = re.findall(r"\w+|\*", parameter)
    if name in chosen:
        return chosen[name]
    if "*" not in words:
        required = re.search(rf"__requires\({name} == (\d+)\)", text)
        return int(required[1]) if required else 1
    element = " ".join(word for word in words if word not in QUALIFIERS)
    dtype = ELEMENTS.get(element if element == "int" else element.removesuffix(" int"), "64u1")
    each = 256 if threads <= 4096 else 1
    draw, dtype = np.random.default_rng(zlib.crc32(parameter.encode())), np.dtype(dtype)
    return draw.integers(0, 8, (each * threads + 4096, *dtype.shape)).astype(dtype.base)


def arguments_of(values: Sequence[Any], variables: Mapping[str, Any]) -> Arguments:
    """Put the values into a launch's arguments and a module's variables."""

    def argument(module: Module, put: Put, value: Any) -> Any:
        if isinstance(value, str):
            return int(module.variable(f"address_of_{value[1:]}").download().view(np.uint64)[0])
        if isinstance(value, np.ndarray):
            return put(value)
        make: Callable[[Put], Any] | Any = value
        return make(put) if callable(make) else make

    def arguments(module: Module, put: Put) -> list[Any]:
        for name, value in variables.items():
            module.variable(name).upload(value.view(np.uint8))
        return [argument(module, put, value) for value in values]

    return arguments
