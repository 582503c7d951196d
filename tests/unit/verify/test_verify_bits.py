"""The cases "bmm-bits" and "bmm-bits-wgmma": their inputs, their tiers, and faults planted in the kernels."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import gpu.compile
import reference
import simwarp
from reference.types import PackedBits
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.cases.bits import EVERYWHERE, OUTPUTS, WARPGROUPS

SIMULATORS = {"simulator": simulator}
SCHEMES = {"bmm-bits": EVERYWHERE, "bmm-bits-wgmma": WARPGROUPS}
SOURCES = Path(gpu.compile.__file__).parent


def drawn(case, k):
    return CASES[case].draw(Draw(0, case, k))


def wrong(case, k, device=simulator):
    return check(CASES[case], 0, k, {"simulator": device}, ["simulator"]).mismatches


@pytest.mark.slow
@pytest.mark.parametrize("case", SCHEMES)
def test_the_first_inputs_cover_all_combinations(case):
    items = [drawn(case, k) for k in range(CASES[case].covering)]
    tried = [(x.scheme.name, x.transpose_a, x.transpose_b, x.output, k % 5) for k, x in enumerate(items)]
    whole = itertools.product(SCHEMES[case], (False, True), (False, True), OUTPUTS, range(5))
    assert len(tried) == len(set(tried)) == 60 * len(SCHEMES[case])
    assert set(tried) == set(whole)


def test_operands_are_of_every_kind_and_from_full_to_almost_empty():
    items = [drawn("bmm-bits", k) for k in range(60)]
    kinds = {
        "packed" if isinstance(x, PackedBits) else x.dtype.name for item in items for x in (item.a, item.b)
    }
    assert kinds == {"float64", "float32", "float16", "int8", "bool", "uint8", "packed"}
    shares = [
        np.mean(item.b != 0) for item in items if not isinstance(item.b, PackedBits) and item.b.size > 999
    ]
    assert min(shares) < 0.02
    assert max(shares) == 1
    assert {item.uploaded for item in items} == {False, True}


@pytest.mark.at_most(1)
@pytest.mark.parametrize(("case", "k"), [*(("bmm-bits", k) for k in range(20)), ("bmm-bits-wgmma", 6)])
def test_all_tiers_agree(case, k):
    found = check(CASES[case], 0, k, SIMULATORS)
    assert [str(mismatch) for mismatch in found.mismatches] == []
    assert set(found.seconds) == {"reference", "simulator"}


@pytest.mark.slow
def test_all_tiers_agree_about_300_products_of_bits():
    assert [str(mismatch) for k in range(300) for mismatch in wrong("bmm-bits", k)] == []


@pytest.mark.slow
def test_all_tiers_agree_about_60_products_of_bits_on_warpgroups():
    assert [str(mismatch) for k in range(60) for mismatch in wrong("bmm-bits-wgmma", k)] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", SCHEMES)
def test_every_kernel_has_a_digest(case):
    digests = CASES[case].kernels((9, 0))
    assert all(len(digest) == 64 for digest in digests.values())
    assert all("-DCOMMON" in name or name.startswith("bmm/nonzero.cu") for name in digests)


# Planted faults


@dataclass(frozen=True)
class Fault:
    """A source edit, and the schemes that it breaks, on a chip."""

    path: str
    old: str
    new: str
    schemes: tuple[str, ...]
    chip: tuple[int, int] = (9, 0)


FAULTS = {
    "bits of either": Fault("include/bmm/sums.cuh", "((x) & (y))", "((x) | (y))", ("bmm32", "bmms64")),
    "signs are given": Fault("include/bmm/sums.cuh", "((int)(count))", "((int)(k - 2 * count))", ("bmm64",)),
    "a common bit adds four": Fault("include/bmm/sums.cuh", "of_signs ? 4 : 1", "4", ("wgmma",)),
    "ones of rows subtracted": Fault("bmm/wgmma.cu", "!of_signs || tiles", "tiles", ("wgmma",)),
    "ones of columns subtracted": Fault(
        "bmm/wgmma.cu", "of_signs ? x.ones_of_b[of_b + at] : 0", "x.ones_of_b[of_b + at]", ("wgmma",)
    ),
    "differing bits are given": Fault(
        "include/bmm/tensor_core.cuh",
        "counts_common_ones ? count :",
        "true ? count :",
        ("btc1", "btc3"),
        (7, 5),
    ),
    "not halved": Fault(
        "include/bmm/tensor_core.cuh", "(unsigned)count) / 2)", "(unsigned)count))", ("btc2",), (7, 5)
    ),
    "dot products of signs": Fault(
        "include/bmm/tensor_core.cuh", "#define dot_of", "#define dot_for", ("btc2", "skinny", "mma")
    ),
    "minus zero is a bit": Fault("bmm/nonzero.cu", "word & ~top_of_first", "word", ("bmm32",)),
}


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Make the compiler use an edited source."""

    def edit(path, old, new):
        for part in ("bmm", "include"):
            copytree(SOURCES / part, tmp_path / part)
        source = (tmp_path / path).read_text()
        assert source.count(old) == 1
        (tmp_path / path).write_text(source.replace(old, new))
        monkeypatch.setattr(gpu.compile, "_PACKAGE", tmp_path)

    return edit


@pytest.mark.at_most(2)
@pytest.mark.parametrize(
    ("name", "scheme"), [(name, each) for name, f in FAULTS.items() for each in f.schemes]
)
def test_the_harness_finds_a_planted_fault(plant, name, scheme):
    fault, case = FAULTS[name], "bmm-bits-wgmma" if scheme == "wgmma" else "bmm-bits"
    of_zeros = fault.path == "bmm/nonzero.cu"
    inputs = [k for k in range(CASES[case].covering) if drawn_scheme(case, k) == scheme and k % 5 < 4]
    if of_zeros:
        inputs = [k for k in inputs if (x := drawn(case, k)).uploaded and x.a.dtype.kind == "f"]
    plant(fault.path, fault.old, fault.new)
    found = next(f for k in inputs if (f := wrong(case, k, lambda **o: simwarp.Device(fault.chip, **o))))
    assert (found[0].case, found[0].tier) == (case, "simulator")
    assert found[0].command.startswith(f"simwarp verify --case {case} --seed 0 --input ")


def drawn_scheme(case, k):
    """The scheme of an input, without drawing it."""
    return list(SCHEMES[case])[k // 5 % len(SCHEMES[case])]


def test_a_wrong_element_is_explained():
    item = next(
        x for k in range(540) if (x := drawn("bmm-bits", k)).output == "or" and x.scheme.first == "lsb"
    )
    case = CASES["bmm-bits"]
    assert case.explain(item, (0, 1), 1) == "bit of C[1, 1]"
    assert case.explain(replace(item, sizes=(3, 1, 3)), (0, 1), 1) == "bit of C[1, 1], which is padding"
    assert case.lead(item, (3, 5)) == 3
    right = reference.bmm(item.a, item.b, **item.options)
    assert right.dtype == np.bool_
    assert case.describe(item).startswith(f"{item.scheme.name}, ")
