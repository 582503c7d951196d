"""Faults and reports of the simulated device that the pytest plugin attaches to a failing test."""

from xml.etree import ElementTree

import pytest

from support.plugin_projects import project as in_project

pytest_plugins = ["pytester"]

KERNEL = '''
    import numpy as np
    PTX = """
    .version 9.0 .target sm_90 .address_size 64
    .visible .entry fill(.param .u64 x) {
        .reg .b32 %i; .reg .b64 %a, %x;
        ld.param.u64 %x, [x]; mov.u32 %i, %tid.x; mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %x;
        st.global.u32 [%a], %i; ret; }
    """
    def fill(device, size):
        x = device.allocate((size,), np.uint32, "x")
        device.load(PTX).kernel("fill")((1, 1, 1), (32, 1, 1), x)
        return x.download()
'''


@pytest.fixture
def project(pytester, monkeypatch):
    """A folder with a module ``fill`` of one kernel, and the plugin loaded."""
    with in_project(pytester, monkeypatch, pytester.path):
        pytester.makepyfile(fill=KERNEL)
        yield pytester


def ran(project, body, *options):
    project.makepyfile(test_it=f"from fill import fill\ndef test_it(simwarp_device):\n    {body}\n")
    return project.runpytest_inprocess("test_it.py", *options)


def test_collected_faults_are_attached_to_a_failure(project):
    result = ran(project, "assert fill(simwarp_device, 30)[3] == 4", "--simwarp-checks=report")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- simwarp -*",
            "*: out of bounds: write of x[[]30], past its end",
            "*kernel fill, block (0, 0, 0), thread (30, 0, 0), warp 0, lane 30",
            "*past the end of x (120 bytes *",
            "  2 times",
        ]
    )


def test_reports_are_attached_to_a_failure(project):
    result = ran(project, "fill(simwarp_device, 32); assert 0", "--simwarp-observe=sectors,fidelity")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- simwarp -*", "Sectors: *", "total *1 *4 *1 *128", "Fidelity"])


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("assert fill(simwarp_device, 32)[3] == 3", "passed"),
        ("assert fill(simwarp_device, 32)[3] == 4", "failed"),
    ],
)
def test_tests_without_faults_have_no_report(project, body, outcome):
    result = ran(project, body)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.no_fnmatch_line("*- simwarp -*")


def test_reports_are_not_attached_to_a_passing_test(project):
    result = ran(project, "fill(simwarp_device, 30)", "--simwarp-checks=bounds=report", "-rA")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*out of bounds*")


def test_findings_are_in_the_junit_file_of_tests_that_pass_or_fail(project):
    project.makepyfile(
        test_it="""
        from fill import fill
        def test_passes(simwarp_device):
            fill(simwarp_device, 30)
        def test_fails():
            import simwarp
            fill(simwarp.Device(), 30)
        def test_clean(simwarp_device):
            fill(simwarp_device, 32)
        """
    )
    options = "--simwarp-checks=report", "--junit-xml=out.xml", "-o", "junit_logging=system-out"
    project.runpytest_inprocess("test_it.py", *options).assert_outcomes(passed=2, failed=1)
    cases = {case.get("name"): case for case in ElementTree.parse("out.xml").iter("testcase")}
    for name in ("test_passes[sim]", "test_fails"):
        (told,) = cases[name].iter("property")
        assert told.get("name") == "simwarp.error"
        assert told.get("value").endswith("out of bounds: write of x[30], past its end (2 times)")
        assert "kernel fill, block (0, 0, 0), thread (30, 0, 0)" in cases[name].findtext("system-out")
    assert not list(cases["test_clean[sim]"].iter("property"))


def test_faults_are_raised_unless_their_check_is_off(project):
    body = "fill(simwarp_device, 30)"
    raised = ran(project, body)
    raised.assert_outcomes(failed=1)
    raised.stdout.fnmatch_lines(
        ["E*simwarp.faults.OutOfBounds: *: out of bounds: write of x[[]30], past its end"]
    )
    raised.stdout.fnmatch_lines(["test_it.py:3: *", "fill.py:11: OutOfBounds"])
    raised.stdout.no_fnmatch_line("*simwarp/*.py:*")
    whole = ran(project, body, "--full-trace")
    whole.stdout.fnmatch_lines(["*simwarp/device/module.py:*", "*simwarp/checks.py:*: OutOfBounds"])
    ran(project, body, "--simwarp-checks=races=report").assert_outcomes(failed=1)
    ran(project, body, "--simwarp-checks=races=report,bounds=off").assert_outcomes(passed=1)


def test_each_test_has_its_own_report_section(project):
    project.makepyfile(
        test_it="""
        from fill import fill
        def test_one(simwarp_device):
            fill(simwarp_device, 30)
            assert 0
        def test_two(simwarp_device):
            assert 0
        def test_three():
            assert 0
        """
    )
    result = project.runpytest_inprocess("test_it.py", "--simwarp-checks=report")
    result.assert_outcomes(failed=3)
    assert result.stdout.str().count("- simwarp -") == 1


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ("--simwarp-checks=rise", "*--simwarp-checks: 'rise' is not an action*"),
        ("--simwarp-checks=race=off", "*--simwarp-checks: 'race' is not a kind*"),
        ("--simwarp-observe=bank", "*--simwarp-observe: there is nothing called 'bank'*"),
    ],
)
def test_a_bad_option_is_a_usage_error(project, option, part):
    result = ran(project, "assert 1", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([part])
