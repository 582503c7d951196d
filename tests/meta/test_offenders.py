"""A loop over cases names every case that fails, and refuses to check nothing."""

import pytest

from support.offenders import check_each, every_case


def odd(number):
    assert number % 2 == 1, f"{number} is even"


def positive(number):
    assert number > 0


def test_every_case_that_fails_is_named_with_its_reason():
    with pytest.raises(pytest.fail.Exception) as failure:
        check_each(odd, [1, 2, 3, 4], name=lambda number: f"case {number}")
    first, *offenders = str(failure.value).splitlines()
    assert first == "2 of 4 fail"
    assert [line.partition(" (")[0] for line in offenders if line.startswith("case")] == [
        "case 2: 2 is even",
        "case 4: 4 is even",
    ]
    assert "(test_offenders.py:" in str(failure.value)


def test_an_assertion_without_a_message_shows_its_values():
    with pytest.raises(pytest.fail.Exception, match=r"1 of 2 fail\n-3: assert -3 > 0"):
        check_each(positive, [4, -3])


def test_an_error_of_a_case_is_named_and_the_others_are_checked():
    with pytest.raises(pytest.fail.Exception) as failure:
        check_each(lambda divisor: 1 // divisor, [0, 1, 0])
    assert str(failure.value).count("0: ZeroDivisionError: integer division or modulo by zero") == 2


def test_cases_that_pass_are_silent():
    check_each(odd, [1, 3])


def test_a_loop_over_nothing_fails():
    with pytest.raises(pytest.fail.Exception, match="no cases"):
        check_each(odd, [])


@pytest.fixture
def seen():
    """The cases of a test so far."""
    numbers = []
    yield numbers
    assert sorted(numbers) == [0, 0, 1, 1, 2, 2]


@every_case(("number", "square"), lambda: [(n, n * n) for n in range(3)])
@every_case("of", [abs, lambda number: number])
def test_cases_are_combined_and_share_a_fixture(of, number, square, seen):
    assert of(number) ** 2 == square
    seen.append(number)


def test_a_case_that_skips_does_not_pass_silently():
    with pytest.raises(pytest.fail.Exception, match=r"1 of 2 fail\n1: Skipped: torch is missing"):
        check_each(lambda case: case and pytest.skip("torch is missing"), [0, 1])


def test_every_combination_that_fails_is_named():
    @every_case("factor", [1, 2, 3])
    @every_case(("number", "text"), [(2, "two"), (5, "five")])
    def test(factor, number, text):
        assert factor * number % 2 == 0, text

    with pytest.raises(pytest.fail.Exception) as failure:
        test()
    assert [line.partition(" (")[0] for line in str(failure.value).splitlines() if "five" in line] == [
        "(5, 'five'): five",
        "(5, 'five'): five",
    ]
    assert "2 of 3 fail\n1: 1 of 2 fail\n" in str(failure.value)
