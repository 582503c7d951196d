"""The marks of tests/tiers.py select the cases that `make test` and CI leave out."""

from itertools import combinations, product

import pytest

import tiers

pytest_plugins = ["pytester"]

TESTS = """
    import pytest

    @pytest.mark.slow_cases("b-*", "c-2")
    @pytest.mark.parametrize("y", [1, 2])
    @pytest.mark.parametrize("x", "abc")
    def test_named(x, y): pass

    @pytest.mark.slow_cases(but=("a-1", "c-*"))
    @pytest.mark.parametrize("y", [1, 2])
    @pytest.mark.parametrize("x", "abc")
    def test_all_but(x, y): pass

    @pytest.mark.pairwise
    @pytest.mark.parametrize(("x", "also_x"), [(0, 0), (1, 1)])
    @pytest.mark.parametrize("y", [0, 1])
    @pytest.mark.parametrize("z", [0, 1])
    def test_pairs(x, also_x, y, z): pass

    @pytest.mark.slow
    @pytest.mark.singly
    @pytest.mark.parametrize("y", [0, 1, 2])
    @pytest.mark.parametrize("x", "ab")
    def test_values(x, y): pass

    @pytest.mark.slow_cases("0")
    @pytest.mark.gate_cases("9")
    @pytest.mark.at_most(4)
    @pytest.mark.parametrize("x", range(10))
    def test_few(x): pass

    def test_plain(): pass
"""


def names(pytester, *options):
    """Names of the tests that run."""
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers -p no:cacheprovider\nmarkers =\n  slow: long\n  gate: longer\n"
    )
    pytester.makepyfile(TESTS)
    passed, _, _ = pytester.inline_run(*options, plugins=[tiers]).listoutcomes()
    return [report.nodeid.partition("::test_")[2] for report in passed]


def test_slow_marks_select_cases(pytester):
    quick = names(pytester, "-m", "not slow and not gate")
    assert [name for name in quick if "pairs" not in name] == [
        "named[a-1]", "named[a-2]", "named[c-1]", "all_but[a-1]", "all_but[c-1]", "all_but[c-2]",
        "few[2]", "few[4]", "few[8]", "plain",
    ]  # fmt: skip
    assert len([name for name in quick if "pairs" in name]) == 4
    slow, gate = names(pytester, "-m", "slow and not gate"), names(pytester, "-m", "gate")
    assert [name for name in slow if "values" in name] == ["values[a-0]", "values[a-2]", "values[b-1]"]
    assert len([name for name in gate if "values" in name]) == 3
    assert [name for name in slow if "few" in name] == ["few[0]"]
    assert len([name for name in gate if "few" in name]) == 6
    assert len([name for name in gate if "pairs" in name]) == 4
    assert sorted([*quick, *slow, *gate]) == sorted(names(pytester))


def test_a_pattern_without_a_matching_case_is_refused(pytester):
    """Refused only when the whole suite is collected, since a part of it may lack the case."""
    pytester.makeini("[pytest]\naddopts = --strict-markers\ntestpaths = .\nmarkers = slow: long\n")
    path = pytester.makepyfile(
        """
        import pytest
        @pytest.mark.slow_cases("a", "d")
        @pytest.mark.parametrize("x", "abc")
        def test_it(x): pass
        """
    )
    result = pytester.runpytest_inprocess(plugins=[tiers])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it has no case d: correct its slow_cases"])
    pytester.runpytest_inprocess(path, plugins=[tiers]).assert_outcomes(passed=3)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (4, 2, 3), (3, 3, 3, 3), (5, 4), (16, 4, 2), (3,)])
def test_pairwise_cases_cover_all_pairs(sizes):
    cases = [tuple(enumerate(values)) for values in product(*map(range, sizes))]
    chosen = [cases[i] for i in tiers.covering(cases, 2)]
    assert {p for case in chosen for p in combinations(case, 2)} == {
        p for case in cases for p in combinations(case, 2)
    }
    largest = sorted(sizes)[-2:]
    assert len(chosen) <= 1.4 * largest[0] * largest[-1] if len(sizes) > 1 else not chosen


def test_cases_for_single_values_have_many_pairs():
    cases = [tuple(enumerate(values)) for values in product(range(4), range(2), range(2))]
    chosen = [cases[i] for i in sorted(tiers.covering(cases, 1))]
    assert [case[0][1] for case in chosen] == [0, 1, 2, 3]
    assert {case[1:] for case in chosen} == {case[1:] for case in cases}


def test_few_cases_bring_every_value_that_they_can():
    cases = [tuple(enumerate(values)) for values in product(range(4), range(2), range(3))]
    chosen = tiers.spread(cases, 4)
    assert {value for i in chosen for value in cases[i]} == {value for case in cases for value in case}
    assert sorted(tiers.spread(cases, 99)) == [*range(24)]
    assert tiers.spread([[("x", i)] for i in range(9)], 5) == [0, 8, 4, 2, 6]
