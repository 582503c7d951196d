"""The limit on the CPU time of tests that are not marked slow (tests/cpu_costs.py)."""

import gc
import re
from pathlib import Path

import pytest

import cpu_costs

pytest_plugins = ["pytester"]

LIMIT = "--cpu-limit=0.03"
WORK = """
    import subprocess, sys, time
    import pytest

    def work(seconds=0.08):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    @pytest.fixture
    def costly():
        work()
"""


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch, tmp_path):
    """Disable garbage collection, which may exceed these limits, and use a cache of the test's own."""
    monkeypatch.setenv("SIMWARP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(cpu_costs, "_yardstick", lambda: cpu_costs.YARDSTICK)
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch):
    """Where CI is set, the limit is twice as long."""
    monkeypatch.delenv("CI", raising=False)


def outcomes(pytester, tests, *options):
    """Run tests in a temporary folder: the passed ones, the failure messages, and the recorded costs."""
    pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider\nmarkers = slow: long\n")
    pytester.makepyfile(WORK + tests)
    passed, _, failed = pytester.inline_run(
        "-p", "cpu_costs", "--cpu-costs=costs.tsv", *options
    ).listoutcomes()
    costs = [line.split("\t") for line in Path("costs.tsv").read_text().splitlines()]
    return {name(r) for r in passed}, {name(r): r.longreprtext for r in failed}, costs


def name(report):
    return report.nodeid.split("::")[1].removeprefix("test_")


TESTS = """
    def test_cheap(): pass
    def test_waiting(): time.sleep(0.2)
    def test_costly(): work()
    def test_costly_fixture(costly): pass
    def test_costly_child(): subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    @pytest.mark.slow
    def test_marked(): work()
"""


def test_an_unmarked_test_past_the_limit_fails(pytester):
    passed, failed, _ = outcomes(pytester, TESTS, LIMIT)
    assert passed == {"cheap", "waiting", "marked"}
    assert failed.keys() == {"costly", "costly_fixture", "costly_child"}
    for text in failed.values():
        assert re.fullmatch(r"\d\.\d CPU seconds, .* have 0\.03 here\n.*@pytest\.mark\.slow", text)


def test_a_slower_machine_has_longer(pytester, monkeypatch):
    monkeypatch.setattr(cpu_costs, "_yardstick", lambda: 1000 * cpu_costs.YARDSTICK)
    passed, failed, _ = outcomes(pytester, TESTS, LIMIT)
    assert len(passed) == 6
    assert not failed


def test_ci_has_twice_as_long(pytester, monkeypatch):
    monkeypatch.setenv("CI", "true")
    _, failed, _ = outcomes(pytester, "\n    def test_costly(): work()\n", LIMIT)
    assert "have 0.06 here" in failed["costly"]


def test_a_limit_of_0_disables_the_check(pytester):
    _, failed, costs = outcomes(pytester, TESTS, "--cpu-limit=0")
    assert not failed
    assert [test.split("_")[-1] for _, slow, test in costs if slow] == ["marked"]
    assert [test.split("test_")[-1] for seconds, _, test in costs if float(seconds) > 0.03] == [
        "costly", "costly_fixture", "costly_child", "marked"
    ]  # fmt: skip


def test_a_failing_test_keeps_its_own_reason(pytester):
    _, failed, _ = outcomes(pytester, "\n    def test_it(): work(); assert 1 == 2\n", LIMIT)
    assert "assert 1 == 2" in failed["it"]
    assert "CPU seconds" not in failed["it"]


def test_one_time_compilation_is_not_counted(pytester, monkeypatch):
    monkeypatch.setenv("SIMWARP_CACHE", str(pytester.path / "cache"))
    tests = """
    from numba.core import event
    from gpu.compiler.cache import cache_folder

    def test_numba():
        with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
            work()

    def test_beside_numba():
        with event.trigger_event("numba:compile"):
            work()
        work()

    def test_import():
        sys.modules.update({f"library.{i}": sys for i in range(60)})
        work()

    def test_nvrtc():
        cache_folder().mkdir(parents=True)
        (cache_folder() / "some.ptx").write_text("")
        work()
    """
    passed, failed, _ = outcomes(pytester, tests, LIMIT)
    assert passed == {"numba", "import", "nvrtc"}
    assert failed.keys() == {"beside_numba"}
