"""The case "mttkrp": its inputs, its tiers, and its explanation of a wrong element."""

import itertools
from collections import Counter
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import reference
from gpu.compile import Ptx
from gpu.mttkrp import formats, plan
from reference import sparse
from reference.types import Coo
from simwarp import Device
from simwarp.verify import CASES, Draw, check, simulator
from simwarp.verify.cases import mttkrp
from simwarp.verify.cases.mttkrp import (
    DTYPES,
    FORMATS,
    PROBLEMS,
    RANKS,
    TREES,
    Input,
    differs,
    in_format,
)
from simwarp.verify.tensors import FACTOR, KINDS, draw_factors, draw_tensor, draw_values, kinds_of

CASE = CASES["mttkrp"]
SIMULATORS = {"simulator": simulator}


def drawn(k, seed=0):
    return CASE.draw(Draw(seed, CASE.name, k))


@pytest.fixture(scope="module")
def items():
    return [drawn(k) for k in range(CASE.covering)]


def problem(item):
    return len(item.tensor.shape), item.mode


# ------------------------------------------------------------------------------------------------ inputs


@pytest.mark.slow
def test_the_first_490_inputs_cover_all_combinations(items):
    tried = [(item.format, problem(item), item.rank) for item in items]
    assert len(tried) == len(set(tried)) == 490
    assert set(tried) == set(itertools.product(FORMATS, PROBLEMS, RANKS))


@pytest.mark.slow
def test_types_and_atomics_are_spread_over_the_inputs(items):
    settings = list(itertools.product(DTYPES, [False, True]))
    for of in (lambda i: i.format, problem, lambda i: i.rank, lambda i: i.kind):
        counts = Counter((of(item), str(item.tensor.values.dtype), item.deterministic) for item in items)
        values = {of(item) for item in items}
        least, most = min(counts.values()), max(counts.values())
        assert set(counts) == {(value, *setting) for value in values for setting in settings}
        assert 0 < most - least <= 3
    first = Counter((item.tensor.values.dtype, item.deterministic) for item in items[:40])
    assert min(first.values()) == 10


@pytest.mark.gate
def test_every_kind_is_drawn_in_every_format_and_rank(items):
    assert {(item.kind, item.format) for item in items} == set(itertools.product(KINDS, FORMATS))
    assert {(item.kind, item.rank) for item in items} == set(itertools.product(KINDS, RANKS))
    assert {(item.kind, problem(item)) for item in items} == set(itertools.product(KINDS, PROBLEMS))


@pytest.mark.slow
def test_every_input_belongs_to_its_kind(items):
    for item in items:
        assert item.kind in kinds_of(item.tensor)


def test_inputs_are_small(items):
    for item in items:
        assert item.tensor.values.size <= (800 if item.format == "coo" else 600)
        assert max(factor.size for factor in item.factors) <= FACTOR


def test_only_coo_has_duplicate_coordinates(items):
    twice = Counter()
    for item in items:
        places = np.unique(item.tensor.coords, axis=1).shape[1]
        twice[item.format] += places < item.tensor.values.size
    assert twice.keys() == set(FORMATS)
    assert twice["coo"] > 50
    assert twice.total() == twice["coo"]


def test_nonzeros_are_unsorted(items):
    orders = [np.lexsort(item.tensor.coords[::-1]) for item in items if item.tensor.values.size > 20]
    assert len(orders) > 300
    assert not any((order == np.arange(order.size)).all() for order in orders)


def test_factors_fit_and_that_of_the_mode_is_nan(items):
    for item in items:
        for n, factor in enumerate(item.factors):
            assert factor.shape == (item.tensor.shape[n], item.rank)
            assert factor.dtype == item.tensor.values.dtype
            assert np.isnan(factor).all() if n == item.mode else np.isfinite(factor).all()


def test_most_shapes_differ(items):
    assert len({CASE.shape(item) for item in items}) > 480


def test_draws_are_reproducible():
    for k in (0, 5, 213):
        one, other = drawn(k), drawn(k)
        np.testing.assert_array_equal(one.tensor.coords, other.tensor.coords)
        np.testing.assert_array_equal(one.tensor.values, other.tensor.values)
        for a, b in zip(one.factors, other.factors, strict=True):
            np.testing.assert_array_equal(a, b)
    assert CASE.describe(drawn(0, seed=1)) != CASE.describe(drawn(0))


def test_drawn_inputs_are_pinned():
    assert [CASE.describe(drawn(k)) for k in (0, 13, 123)] == PINNED
    item = drawn(13)
    assert item.tensor.values[:3].tolist() == VALUES


PINNED = [
    "coo, mode 0 of 9 x 1 with 1 nonzeros (tiny), R = 1, float32",
    "mm-csf, mode 4 of 358 x 5 x 8 x 7 x 3 with 434 nonzeros (long fibers), R = 33, float32, deterministic",
    "f-coo, mode 2 of 5 x 9 x 414 x 5 with 409 nonzeros (long fibers), R = 33, float64",
]
VALUES = [0.08052190393209457, 0.35222968459129333, 1.1719517707824707]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_have_both_signs_and_full_mantissas(dtype):
    values = draw_values(Draw(0, "values", 0), 4000, dtype)
    assert values.dtype == dtype
    assert 0.4 < (values < 0).mean() < 0.6
    assert 0 < (values == 0).mean() < 0.05
    assert abs(values).max() == 100
    assert abs(values[values != 0]).min() >= 1 / 16
    words = values.view(f"u{values.itemsize}")
    assert len(np.unique(words & 0xFFF)) > 2000


@pytest.mark.at_most(5)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_hold_for_higher_orders_and_more_nonzeros(kind):
    for k, (order, rank) in enumerate([(6, 100), (7, 16), (8, 48), (3, 100)]):
        tensor = draw_tensor(Draw(0, kind, k), kind, order, "float32", rank=rank, most=3000)
        assert kind in kinds_of(tensor)
        assert max(tensor.shape) * rank <= FACTOR


def test_other_tensors_have_no_kind():
    places = np.array([[0, 0, 1, 1, 2, 2], [0, 3, 4, 6, 1, 9]])
    assert kinds_of(Coo(places, np.ones(6), (4, 10))) == ()


def test_a_factor_is_drawn_for_each_mode():
    shapes = [a.shape for a in draw_factors(Draw(0, "factors", 0), (2, 3, 4), 1, 5, "float64")]
    assert shapes == [(2, 5), (3, 5), (4, 5)]


# --------------------------------------------------------------------------------------------- answers


@pytest.mark.at_most(1)
@pytest.mark.parametrize("k", range(40))
def test_all_tiers_agree(k):
    found = check(CASE, 0, k, SIMULATORS)
    assert [str(mismatch) for mismatch in found.mismatches] == []
    assert set(found.seconds) == {"reference", "listing", "simulator"}


def test_formats_have_one_name_in_all_tiers():
    assert {*FORMATS, *TREES} == set(formats.FORMATS) == set(sparse.FORMATS)


@pytest.mark.gate
def test_all_tiers_agree_about_300_trees():
    found = [check(CASES["mttkrp-trees"], 0, k, SIMULATORS, ["listing", "simulator"]) for k in range(300)]
    assert [str(mismatch) for each in found for mismatch in each.mismatches] == []


@pytest.mark.slow
def test_the_first_140_trees_cover_all_combinations():
    case = CASES["mttkrp-trees"]
    items = [case.draw(Draw(0, case.name, k)) for k in range(case.covering)]
    tried = [(item.format, problem(item), item.rank) for item in items]
    assert len(tried) == len(set(tried)) == 140
    assert set(tried) == set(itertools.product(TREES, PROBLEMS, RANKS))
    kinds = {(item.kind, item.deterministic) for item in items}
    assert kinds == set(itertools.product(KINDS, [False, True]))


def test_coo_inputs_are_passed_unchanged():
    item = drawn(7)
    assert item.format == "coo"
    assert in_format(item) is item.tensor


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_error_beyond_the_bound_is_a_mismatch(dtype, items):
    item = next(i for i in items if i.tensor.values.dtype == dtype and i.kind == "skewed")
    expected = CASE.answers["reference"](item)
    bound = reference.mttkrp_bound(item.tensor, item.factors, item.mode, dtype)
    row, column = element = np.unravel_index(bound.argmax(), bound.shape)
    for share, wrong in ((0.9, False), (-0.9, False), (1.1, True), (-1.1, True), (np.nan, True)):
        got = expected.copy()
        got[element] += share * bound[element]
        found = differs(item, expected, got)
        assert found[row, column] == wrong
        assert found.sum() == wrong


def with_wrong_element(answer, element, change):
    honest = CASE.answers[answer]

    def wrong(item, *device):
        result = honest(item, *device).copy()
        result[element] += change
        return result

    return replace(CASE, answers={**CASE.answers, answer: wrong})


def a_sum(condition):
    """An input, and an element of its result that is a sum of several nonzeros."""
    k = next(k for k in itertools.count() if condition(drawn(k)) and drawn(k).kind == "dense block")
    row = int(drawn(k).tensor.coords[drawn(k).mode].max())
    return k, (row, drawn(k).rank - 1)


@pytest.mark.at_most(1)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_wrong_sum_is_explained_in_words(deterministic):
    k, element = a_sum(lambda item: item.format == "f-coo" and item.deterministic == deterministic)
    item = drawn(k)
    (found,) = check(with_wrong_element("gpu", element, 1e6), 0, k, SIMULATORS, ["simulator"]).mismatches
    terms = int((item.tensor.coords[item.mode] == element[0]).sum())
    assert found.element == element
    assert found.meaning == (
        f"column {element[1]} of index {element[0]} of mode {item.mode}, a sum over {terms} nonzeros"
    )
    assert found.wrong == 1
    assert found.place is not None
    assert str(found).splitlines()[2] == f"replay: {found.command}"
    assert found.command == f"simwarp verify --case mttkrp --seed 0 --input {k}"


def test_a_wrong_listing_is_located():
    k, element = a_sum(lambda item: item.format == "mm-csf")
    (found,) = check(with_wrong_element("listing", element, 1e6), 0, k, SIMULATORS, ["listing"]).mismatches
    assert found.tier == "listing"
    assert "alg" in found.place.kernel


def test_a_nan_result_is_a_mismatch():
    k, element = a_sum(lambda item: item.format == "coo")
    (found,) = check(with_wrong_element("gpu", element, np.nan), 0, k, SIMULATORS, ["simulator"]).mismatches
    assert found.element == element
    assert "got nan" in str(found)


def test_an_input_is_described_in_words():
    tensor = Coo([[0, 1], [2, 0]], np.ones(2, np.float32), (2, 3))
    factors = draw_factors(Draw(0, "factors", 0), (2, 3), 1, 5, "float32")
    assert CASE.describe(Input(tensor, factors, 1, "hicoo", "tiny", deterministic=True)) == (
        "hicoo, mode 1 of 2 x 3 with 2 nonzeros (tiny), R = 5, float32, deterministic"
    )


def test_the_listed_kernels_are_those_of_the_plans(monkeypatch):
    """Only names are compared; nothing is compiled."""
    taken = set()

    def compile_file(path, macros, arch):
        name = " ".join([path, *(f"-D{key}={value}".removesuffix("=") for key, value in macros.items())])
        taken.add(name)
        return Ptx(name, name, arch, "none")

    for module in ("gpu.mttkrp.kernels", "simwarp.verify.cases.mttkrp"):
        monkeypatch.setattr(import_module(module), "compile_file", compile_file)
    monkeypatch.setattr(
        Device, "load", lambda device, text: SimpleNamespace(kernel=lambda name: lambda *_: None)
    )
    named = CASE.kernels((9, 0))
    assert len(set(named.values())) == len(named) == len(taken) > 40
    taken.clear()
    for dtype, rank, deterministic in itertools.product(DTYPES, (7, 32), (False, True)):
        tensor = draw_tensor(Draw(0, "kernels", 0), "far corner", 3, dtype)
        tensor = Coo(tensor.coords[:, :7], tensor.values[:7], tensor.shape)
        for of in FORMATS:
            built = tensor if of == "coo" else sparse.FORMATS[of](tensor)
            plan(built, 1, rank, dtype, Device(), deterministic)
    assert set(named) <= taken


def test_every_kernel_has_a_digest():
    digests = CASE.kernels((9, 0))
    assert all(len(digest) == 64 for digest in digests.values())
    assert {name.split()[0] for name in digests} == {
        f"mttkrp/{source}.cu" for source in ("coo", "hi_coo", "f_coo", "b_csf", "fibers", "clear", "reduce")
    }


@pytest.mark.slow
@pytest.mark.at_most(1)
@pytest.mark.parametrize("of", ["csf-one", "csf-all", "mm-csf", *TREES])
def test_groups_with_several_fibers_agree(monkeypatch, of):
    """Forced by a small number of groups, as only large tensors have such groups."""
    monkeypatch.setattr(import_module("gpu.mttkrp.formats.fibers"), "ENOUGH_GROUPS", 5)
    case, names = (CASES["mttkrp-trees"], TREES) if of in TREES else (CASE, FORMATS)
    numbers = range(2 * case.covering)
    inputs = [k for k in numbers if names[k % len(names)] == of and KINDS[k % 11] == "skewed"]
    assert len(inputs) > 4
    for k in inputs[:4]:
        found = check(case, 0, k, SIMULATORS, ["simulator"])
        assert [str(mismatch) for mismatch in found.mismatches] == []


def test_the_case_is_registered_with_its_tiers():
    assert [CASE, CASES["mttkrp-trees"]] == mttkrp.CASES
    assert set(CASE.answers) == {"reference", "listing", "gpu"}
