"""Typical faults of MTTKRP codes, planted in ours, are found by the harness.

Each fault edits the source of a kernel, or of host code, at exactly one place. The harness finds it among
the inputs of every run; with an edit that changes nothing, the same inputs agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pytest

import gpu.compile
from gpu.mttkrp import plan
from reference.sparse import coalesce
from reference.types import Coo
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.cases.mttkrp import FORMATS, TREES, Input, differs, in_format
from simwarp.verify.tensors import draw_factors, draw_tensor

CASE = CASES["mttkrp"]
NAMES = {"mttkrp": FORMATS, "mttkrp-trees": TREES}
"""The formats that each case draws."""
SOURCES = Path(gpu.compile.__file__).parent


@dataclass(frozen=True)
class Fault:
    """A source edit, the formats that it breaks, and the inputs that can detect it."""

    path: str
    old: str
    new: str
    formats: tuple[str, ...]
    when: Callable[[Input], bool] = lambda item: True
    function: str = ""
    """Of host code, whose module is at the path."""


def by_atomics(item):
    return not item.deterministic


FAULTS = {
    "columns past the 32nd added to the first ones": Fault(
        "sink.cuh",
        "add_to_memory(sink.out + offset_of(row, group), sum)",
        "add_to_memory(sink.out + (Offset)row * group.rank + group.column % (LANES * VEC), sum)",
        ("coo", "mm-csf"),
        lambda item: by_atomics(item) and item.rank > 32,
    ),
    "last chunk dropped": Fault(
        "runs.cuh",
        "end = min(begin + CHUNK, (Offset)count);",
        "end = begin + CHUNK <= count ? begin + CHUNK : begin;",
        ("coo", "hicoo"),
        by_atomics,
    ),
    "last partition dropped": Fault(
        "f_coo.cu",
        "end = min(begin + PARTITION, (Offset)count);",
        "end = begin + PARTITION <= count ? begin + PARTITION : begin;",
        ("f-coo",),
        by_atomics,
    ),
    "last slice dropped": Fault(
        "b_csf.cu",
        "const bool some = place < bins.places[bin + 1];",
        "const bool some = place + 1 < bins.places[bin + 1];",
        ("b-csf",),
        by_atomics,
    ),
    "last fiber dropped": Fault(
        "fibers.cu",
        "last = (unsigned)min(begin + run, (Offset)count);",
        "last = (unsigned)min(begin + run, (Offset)count - 1);",
        ("csf-all", "mm-csf", "fibers-all", "b-csf-one"),
        by_atomics,
    ),
    "slices of a balanced tree's fibers exchanged by the host": Fault(
        "formats/b_csf.py",
        "np.repeat(tensor.slices.download(), np",
        "np.repeat(tensor.slices.download()[::-1], np",
        ("b-csf-one",),
        lambda item: item.tensor.shape[item.mode] > min(item.tensor.shape) > 1,
        function="_of_fibers",
    ),
    "factors exchanged": Fault(
        "f_coo.cu",
        "load_row(factors.of[l], index",
        "load_row(factors.of[ORDER - 2 - l], index",
        ("f-coo",),
        lambda item: len(item.factors) > 2,
    ),
    "factors exchanged by the host": Fault(
        "formats/coo.py",
        "for n in (mode, *modes))",
        "for n in (mode, *reversed(modes)))",
        ("coo",),
        lambda item: len(item.factors) > 2,
        function="_work",
    ),
    "factors of a fiber's modes exchanged": Fault(
        "fibers.cuh",
        "rows[l] = load_row(factors.of[l],",
        "rows[l] = load_row(factors.of[levels - 1 - l],",
        ("b-csf", "mm-csf"),
        lambda item: len(item.factors) > 3,
    ),
    "result not cleared": Fault(
        "clear.cu",
        "if (i < count) reinterpret_cast<Row*>(sink.out)[i] = zero_row();",
        "",
        ("coo", "mm-csf"),
        by_atomics,
    ),
    "result not cleared by the host": Fault(
        "plan.py",
        "self._clearing = clearing(self._works, self.shape[self.mode], self.setting)",
        "self._clearing = ()",
        ("hicoo",),
        by_atomics,
        function="Plan.__init__",
    ),
    "rows without nonzeros not written": Fault(
        "clear.cu", "if (group.number < count) store", "if (group.number + 1 < count) store", ("f-coo",)
    ),
    "sum of an edge row stored": Fault(
        "f_coo.cu",
        "emit(sink, group, row, 2 * group.number, sum);",
        "store(sink, group, row, sum);",
        ("f-coo",),
        by_atomics,
    ),
    "sum of a run stored": Fault(
        "runs.cuh",
        "emit(sink, group, row, slot++, sum);",
        "store(sink, group, row, sum);",
        ("coo", "hicoo"),
        by_atomics,
    ),
    "sums of different rows combined": Fault(
        "sink.cuh",
        "&& some && its_row == row;",
        "&& some;",
        ("coo",),
        by_atomics,
    ),
    "last nonzero of a whole piece left out": Fault(
        "fibers.cuh",
        "end = __ldg(fibers.pointers + fiber + 1);",
        "end = min(__ldg(fibers.pointers + fiber + 1), z + 127);",
        ("b-csf", "csf-one", "mm-csf"),
        lambda item: item.kind in ("long fibers", "crossing fibers"),
    ),
    "last slot of a row left out": Fault(
        "reduce.cu",
        "for (Offset n = begin; n < end; n += step)",
        "for (Offset n = begin; n + 1 < end; n += step)",
        ("hicoo", "mm-csf"),
        lambda item: item.deterministic,
    ),
    "half of a block's groups left out": Fault(
        "reduce.cu",
        "half = groups / 2;",
        "half = groups / 4;",
        ("coo", "csf-one"),
        lambda item: item.deterministic and item.kind == "crossing fibers",
    ),
}

EACH = [(name, of) for name, fault in FAULTS.items() for of in fault.formats]


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make compiler and host code use an edited source; the edit without a change is the correct twin."""
    copies = iter(range(9))

    def edit(fault, new):
        source = (SOURCES / "mttkrp" / fault.path).read_text()
        assert source.count(fault.old) == 1
        edited = source.replace(fault.old, new)
        if fault.function:
            edit_host(fault, edited)
            return
        folder = tmp_path / str(next(copies))
        copytree(SOURCES / "mttkrp", folder / "mttkrp")
        (folder / "mttkrp" / fault.path).write_text(edited)
        monkeypatch.setattr(gpu.compile, "_PACKAGE", folder)

    def edit_host(fault, edited):
        module = import_module(f"gpu.mttkrp.{fault.path.removesuffix('.py').replace('/', '.')}")
        names = {"__name__": module.__name__, "__file__": module.__file__}
        exec(compile(edited, fault.path, "exec"), names)
        function = attrgetter(fault.function)
        monkeypatch.setattr(function(module), "__code__", function(SimpleNamespace(**names)).__code__)

    return edit


@cache
def drawn(case, k):
    return CASES[case].draw(Draw(0, case, k))


def case_of(of):
    return next(case for case, names in NAMES.items() if of in names)


def tried(fault, of):
    """The inputs of a format that can detect the fault, among those of every run."""
    case = case_of(of)
    names, numbers = NAMES[case], range(CASES[case].covering)
    return (k for k in numbers if names[k % len(names)] == of and fault.when(drawn(case, k)))


def wrong_about(case, k):
    """The wrong elements of the simulator's output for an input."""
    return check(CASES[case], 0, k, {"simulator": simulator}, ["simulator"]).mismatches


@cache
def correct(function, case, k):
    """Whether the planted twin agrees on an input; checked once, since twins of kernels are equal."""
    return wrong_about(case, k) == []


@pytest.mark.slow
@pytest.mark.at_most(2)
@pytest.mark.slow_cases("columns past*", "rows without*", "half of*-coo", "last nonzero of a whole piece*")
@pytest.mark.parametrize(("name", "of"), EACH)
def test_the_harness_finds_only_the_planted_fault(plant, name, of):
    fault, case = FAULTS[name], case_of(of)
    plant(fault, fault.new)
    last, (found,) = next((k, wrong) for k in tried(fault, of) if (wrong := wrong_about(case, k)))
    assert (found.case, found.input, found.tier) == (case, last, "simulator")
    assert found.command == f"simwarp verify --case {case} --seed 0 --input {last}"
    if "cleared" in name:
        assert ", which nothing wrote" in found.fault
    if found.fault:
        assert found.place is not None  # a fault of the kernel, not of the compiler
    else:
        row, column = found.element
        assert found.meaning.startswith(f"column {column} of index {row} of mode {drawn(case, last).mode}, ")

    plant(fault, fault.old)
    again = takewhile(lambda k: k <= last, tried(fault, of))
    assert [k for k in again if not correct(fault.function, case, k)] == []


# ------------------------------------------------------------------------ what other checks would not see


@pytest.mark.slow
def test_at_most_32_columns_hide_the_fault_across_columns(plant):
    """For at most 32 columns, one accumulator per lane suffices."""
    fault = FAULTS["columns past the 32nd added to the first ones"]
    plant(fault, fault.new)
    for rank in (7, 32, 33):
        item = small_input("coo", rank)
        wrong = CASE.wrong(item, CASE.answers["reference"](item), CASE.answers["gpu"](item, simulator()))
        assert wrong.any() == (rank > 32)


def test_constant_factors_hide_exchanged_factors(plant):
    """With constant factors, rows of the wrong factor give the same result."""
    fault = FAULTS["factors exchanged"]
    plant(fault, fault.new)
    item = small_input("f-coo", 7)
    constant = replace(item, factors=tuple(np.full_like(f, n + 0.5) for n, f in enumerate(item.factors)))
    for each, seen in ((constant, False), (item, True)):
        expected, got = CASE.answers["reference"](each), CASE.answers["gpu"](each, simulator())
        assert differs(each, expected, got).any() == seen


@pytest.mark.at_most(7)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("of", [*FORMATS, *TREES])
def test_a_second_call_gives_the_same_result(of, deterministic):
    """The kernel is idempotent: output of the first call does not affect the second."""
    first, second = (replace(small_input(of, 5, k), deterministic=deterministic) for k in (0, 1))
    assert not_within(first, second) == []


def test_an_uncleared_result_is_wrong_from_the_second_call(plant):
    fault = FAULTS["result not cleared"]
    plant(fault, fault.new)
    assert not_within(small_input("coo", 5), small_input("coo", 5, 1)) == [1, 2]


def small_input(of, rank, k=0):
    """One tensor with modes of equal size, and the k-th set of factors."""
    tensor = draw_tensor(Draw(0, "planted", 0), "skewed", 3, "float32")
    tensor = Coo(tensor.coords % 11, tensor.values, (11, 11, 11))
    tensor = tensor if of == "coo" else coalesce(tensor)
    factors = draw_factors(Draw(0, "planted factors", k), tensor.shape, 1, rank, "float32")
    return Input(tensor, factors, 1, of, "skewed")


def not_within(first, second):
    """The numbers of the wrong calls of one plan with the first, second and first factors."""
    device = simulator()
    launch = plan(in_format(first), 1, first.rank, np.float32, device, first.deterministic)
    out = device.upload(np.zeros((11, first.rank), np.float32))
    wrong = []
    for n, item in enumerate((first, second, first)):
        launch([device.upload(factor) for factor in item.factors], out)
        if differs(item, CASE.answers["reference"](item), out.download()).any():
            wrong.append(n)
    return wrong
