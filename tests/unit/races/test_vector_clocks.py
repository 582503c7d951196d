"""The race detector by definition, on small hand-checked executions."""

import doctest

import pytest

from oracles import vector_clocks
from support.offenders import every_case

X, FLAG = "x", "flag"
BLOCKS = {"a": 0, "b": 0, "c": 1}
"""Two threads of one block, and one of another."""


def clocks():
    return vector_clocks.VectorClocks(BLOCKS)


def test_the_docstring_example_runs():
    example = doctest.DocTestParser().get_doctest(
        vector_clocks.__doc__, vars(vector_clocks).copy(), "vector_clocks", None, 0
    )
    assert (result := doctest.DocTestRunner().run(example)).failed == 0
    assert result.attempted


# --------------------------------------------------------------------------------- accesses and values


def test_unordered_writes_of_two_threads_race():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.write("b", 2, {X: 2})
    assert c.lines() == {(1, 2): {X}}


@pytest.mark.parametrize("first", ["read", "write"])
def test_an_unordered_read_and_write_race_in_either_order(first):
    c = clocks()
    if first == "read":
        c.read("a", 1, [X])
        c.write("b", 2, {X: 2})
    else:
        c.write("a", 1, {X: 2})
        c.read("b", 2, [X])
    assert c.lines() == {(1, 2): {X}}


def test_reads_and_accesses_of_one_thread_do_not_race():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.read("a", 2, [X])
    c.write("a", 3, {X: 2})
    c.barrier(["a", "b", "c"])
    for line, thread in enumerate("abc", 4):
        c.read(thread, line, [X])
    assert c.lines() == {}


def test_a_write_races_with_every_earlier_reader():
    c = clocks()
    for line, thread in enumerate("ab", 1):
        c.read(thread, line, [X])
    c.write("c", 3, {X: 1})
    assert c.lines() == {(1, 3): {X}, (2, 3): {X}}


def test_equal_bits_excuse_a_write_after_a_write_only():
    c = clocks()
    c.write("a", 1, {X: 7})
    c.write("b", 2, {X: 7})
    assert (c.lines(), c.excused) == ({}, {X})
    c.read("a", 3, [X])
    assert c.lines() == {(2, 3): {X}}
    c.write("b", 4, {X: 7})
    assert c.lines() == {(2, 3): {X}, (3, 4): {X}}


def test_only_shared_locations_race():
    c = clocks()
    c.write("a", 1, {0: 1, 1: 1, 2: 1, 3: 1})
    c.write("b", 2, {3: 2, 4: 2})
    c.write("c", 3, {5: 1})
    assert c.lines() == {(1, 2): {3}}


# ------------------------------------------------------------------------------------------- barriers


def test_a_barrier_orders_its_threads_and_no_others():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.barrier(["a", "b"])
    c.write("b", 2, {X: 2})
    c.write("c", 3, {X: 3})
    assert c.lines() == {(1, 3): {X}, (2, 3): {X}}


def test_accesses_after_a_barrier_are_not_ordered_by_it():
    c = clocks()
    c.barrier(["a", "b"])
    c.write("a", 1, {X: 1})
    c.read("b", 2, [X])
    assert c.lines() == {(1, 2): {X}}


def test_barriers_are_transitive():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.barrier(["a", "b"])
    c.barrier(["b", "c"])
    c.write("c", 2, {X: 2})
    assert c.lines() == {}


def test_an_arrival_orders_only_earlier_accesses_before_the_waiter():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.write("b", 2, {FLAG: 1})
    arrived = c.arrive("a")
    c.write("a", 3, {"y": 1})
    c.barrier(["b"], [arrived])
    c.read("b", 4, [X])
    c.read("b", 5, ["y"])
    c.read("a", 6, [FLAG])
    assert c.lines() == {(3, 5): {"y"}, (2, 6): {FLAG}}


# ---------------------------------------------------------------------------------- strong operations


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [
        (("a", "relaxed", "gpu"), ("c", "relaxed", "gpu"), False),
        (("a", "relaxed", "gpu"), ("c", "weak", "gpu"), True),
        (("a", "weak", "gpu"), ("b", "relaxed", "gpu"), True),
        (("a", "relaxed", "cta"), ("b", "relaxed", "gpu"), False),
        (("a", "relaxed", "cta"), ("c", "relaxed", "gpu"), True),
        (("a", "relaxed", "sys"), ("c", "relaxed", "cta"), True),
    ],
)
@pytest.mark.parametrize("action", ["write", "atomic"])
def test_strong_operations_race_unless_their_scopes_include_each_other(action, first, second, races):
    c = clocks()
    for line, (thread, order, scope) in enumerate((first, second), 1):
        if order == "weak" or action == "write":
            c.write(thread, line, {X: line}, order, scope)
        else:
            c.atomic(thread, line, {X: line}, order, scope)
    assert c.lines() == ({(1, 2): {X}} if races else {})


def pass_message(release, acquire, sender="a", receiver="c"):
    """Write x, release, acquire, read x; return the lines of the races."""
    c = clocks()
    c.write(sender, 1, {X: 1})
    release(c, sender)
    acquire(c, receiver)
    c.read(receiver, 9, [X])
    return list(c.lines())


def fence_and_store(scope="gpu"):
    def release(c, thread):
        c.fence(thread, scope)
        c.write(thread, 2, {FLAG: 1}, "relaxed")

    return release


def load_and_fence(scope="gpu"):
    def acquire(c, thread):
        c.read(thread, 8, [FLAG], "relaxed")
        c.fence(thread, scope)

    return acquire


def store(order, scope="gpu"):
    return lambda c, thread: c.write(thread, 2, {FLAG: 1}, order, scope)


def load(order, scope="gpu"):
    return lambda c, thread: c.read(thread, 8, [FLAG], order, scope)


def update(line, order, scope="gpu"):
    return lambda c, thread: c.atomic(thread, line, {FLAG: line}, order, scope)


def release_then_store(c, thread):
    c.write(thread, 2, {FLAG: 1}, "release")
    c.write(thread, 3, {FLAG: 2}, "relaxed")


def load_then_acquire(c, thread):
    c.read(thread, 7, [FLAG], "relaxed")
    c.read(thread, 8, [FLAG], "acquire")


RELEASES = [
    store("release"),
    update(2, "release"),
    update(2, "acq_rel"),
    fence_and_store(),
    release_then_store,
]
ACQUIRES = [load("acquire"), update(8, "acquire"), update(8, "acq_rel"), load_and_fence(), load_then_acquire]


@every_case("release", RELEASES)
@every_case("acquire", ACQUIRES)
def test_a_release_pattern_synchronises_with_an_acquire_pattern(release, acquire):
    assert pass_message(release, acquire) == []


@pytest.mark.parametrize("release", [store("relaxed"), update(2, "relaxed"), update(2, "acquire")])
@pytest.mark.parametrize("acquire", ACQUIRES)
def test_accesses_without_a_release_are_unordered(release, acquire):
    assert pass_message(release, acquire) == [(1, 9)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("acquire", [load("relaxed"), update(8, "relaxed"), update(8, "release")])
def test_accesses_without_an_acquire_are_unordered(release, acquire):
    assert pass_message(release, acquire) == [(1, 9)]


@pytest.mark.parametrize(
    ("release", "acquire"),
    [
        (fence_and_store("cta"), load_and_fence("gpu")),
        (fence_and_store("gpu"), load_and_fence("cta")),
        (fence_and_store("gpu"), update(8, "acq_rel", "cta")),
    ],
)
def test_too_narrow_scopes_do_not_order_other_blocks(release, acquire):
    assert (1, 9) in pass_message(release, acquire, receiver="c")
    assert pass_message(release, acquire, receiver="b") == []


def test_a_fence_releases_only_earlier_accesses():
    c = clocks()
    c.fence("a")
    c.write("a", 1, {X: 1})
    c.write("a", 2, {FLAG: 1}, "relaxed")
    c.read("b", 3, [FLAG], "acquire")
    c.read("b", 4, [X])
    assert c.lines() == {(1, 4): {X}}


def test_an_acquire_that_misses_the_release_does_not_synchronise():
    """A store or an atomic overwrites the flag between release and acquire; only a store hides it."""
    for over, races in (("store", {(1, 5): {X}}), ("weak", {(1, 5): {X}, (3, 4): {FLAG}}), ("atomic", {})):
        c = clocks()
        c.write("a", 1, {X: 1})
        c.write("a", 2, {FLAG: 1}, "release")
        if over == "atomic":
            c.atomic("b", 3, {FLAG: 2})
        else:
            c.read("b", 9, [FLAG], "relaxed")
            c.write("b", 3, {FLAG: 2}, "relaxed" if over == "store" else "weak")
        c.read("c", 4, [FLAG], "acquire")
        c.read("c", 5, [X])
        assert c.lines() == races


def test_order_is_transitive_through_a_third_thread():
    c = clocks()
    c.write("a", 1, {X: 1})
    c.barrier(["a", "b"])
    c.write("b", 2, {FLAG: 1}, "release")
    c.read("c", 3, [FLAG], "acquire")
    c.write("c", 4, {X: 2})
    assert c.lines() == {}


def test_an_observed_write_happens_before_later_accesses_of_the_reader():
    """The last of several counting blocks resets the counter by a plain store without a fence."""
    c = clocks()
    c.write("a", 1, {X: 1})
    c.atomic("a", 2, {FLAG: 1})
    c.atomic("b", 3, {FLAG: 2})
    c.atomic("c", 4, {FLAG: 3})
    c.write("c", 5, {FLAG: 0})
    assert c.lines() == {}
    c.read("c", 6, [X])
    assert c.lines() == {(1, 6): {X}}
    c.atomic("b", 7, {FLAG: 1})
    assert c.lines()[5, 7] == {FLAG}


def test_a_barrier_passes_observed_writes_on():
    c = clocks()
    c.atomic("c", 1, {FLAG: 1})
    c.atomic("a", 2, {FLAG: 2})
    c.barrier(["a", "b"])
    c.write("b", 3, {FLAG: 0})
    assert c.lines() == {}
