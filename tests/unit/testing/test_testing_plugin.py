"""The pytest plugin in separate test runs, and the imports of the test kit."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpu
import simwarp
from support.plugin_projects import project as in_project

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]

ONE_TEST = "def test_it(simwarp_device): assert simwarp_device.multiprocessors"


@pytest.fixture
def project(pytester, monkeypatch):
    """A folder where pytest finds the plugin as in an installation of simwarp."""
    with in_project(pytester, monkeypatch):
        yield pytester


@pytest.fixture
def no_driver(monkeypatch):
    def no_library(name, *rest, **options):
        raise OSError(f"{name}: no such library")

    monkeypatch.setattr(ctypes, "CDLL", no_library)


@pytest.fixture
def a_driver(monkeypatch):
    class CudaDevice(simwarp.Device):
        pass

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(cuInit=lambda flags: 0))
    monkeypatch.setattr(gpu, "CudaDevice", CudaDevice)


@pytest.mark.slow
def test_every_test_gets_a_new_simulator_by_default(project):
    project.makepyfile(
        """
        import simwarp
        seen = []
        def test_one(simwarp_device): seen.append(simwarp_device)
        def test_two(simwarp_device): seen.append(simwarp_device)
        def test_both():
            assert [type(device) for device in seen] == [simwarp.Device] * 2
            assert seen[0] is not seen[1]
        """
    )
    result = project.runpytest_subprocess("-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_one?sim? PASSED*"])


@pytest.mark.usefixtures("no_driver")
def test_cuda_tests_without_a_gpu_are_skipped_with_the_reason(project):
    project.makepyfile(ONE_TEST)
    result = project.runpytest_inprocess("-rs", "--simwarp-device=cuda")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs an NVIDIA GPU*libcuda.so.1: no such library*"])
    project.runpytest_inprocess("--simwarp-device=both").assert_outcomes(passed=1, skipped=1)


@pytest.mark.usefixtures("a_driver")
def test_cuda_and_both_select_the_gpu(project):
    project.makepyfile("def test_it(simwarp_device): print('on', type(simwarp_device).__name__)")
    result = project.runpytest_inprocess("-s", "--simwarp-device", "both")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*on Device", "*on CudaDevice"])
    result = project.runpytest_inprocess("-s", "--simwarp-device=cuda")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*on Device")


@pytest.mark.slow
@pytest.mark.usefixtures("a_driver")
def test_hypothesis_examples_share_the_device_of_their_test(project):
    project.makepyfile(
        """
        from hypothesis import given
        from simwarp.testing.strategies import masks
        seen = set()
        @given(mask=masks())
        def test_it(simwarp_device, mask): seen.add(simwarp_device)
        class TestClass:
            @given(mask=masks())
            def test_it(self, simwarp_device, mask): seen.add(simwarp_device)
        def test_four(): assert len(seen) == 4
        """
    )
    project.runpytest_inprocess("--simwarp-device=both", "--simwarp-profile=ci").assert_outcomes(passed=5)


def test_an_unknown_device_or_profile_is_a_usage_error(project):
    project.makepyfile(ONE_TEST)
    for option in ("--simwarp-device=tpu", "--simwarp-profile=fast"):
        result = project.runpytest_inprocess(option)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{option.partition('=')[0]}: invalid choice*"])


def test_the_profile_option_loads_the_profile(project):
    project.makepyfile(
        "from hypothesis import settings\ndef test_it(): assert settings.default.max_examples == 30"
    )
    project.runpytest_inprocess().assert_outcomes(failed=1)
    project.runpytest_inprocess("--simwarp-profile=gpu").assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_profile_option_needs_hypothesis(project):
    (Path("installed") / "hypothesis.py").write_text("raise ImportError('there is none')\n")
    project.makepyfile("def test_it(): pass")
    result = project.runpytest_subprocess("--simwarp-profile=ci", "-p", "no:hypothesispytest")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*need Hypothesis*there is none*", "pip install 'simwarp?test?'"])


@pytest.mark.usefixtures("no_driver")
def test_tests_marked_gpu_are_skipped_without_a_gpu(project):
    project.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_it(): assert 0\ndef test_other(): pass")
    project.runpytest_inprocess().assert_outcomes(passed=1, skipped=1)
    project.runpytest_inprocess("-m", "not gpu").assert_outcomes(passed=1, deselected=1)
    project.runpytest_inprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.gpu: needs an NVIDIA GPU*"])


def test_tests_run_without_the_plugin(project):
    project.makepyfile("def test_it(): pass")
    project.runpytest_inprocess("-p", "no:simwarp").assert_outcomes(passed=1)
    refused = project.runpytest_inprocess("-p", "no:simwarp", "--simwarp-device=sim")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.at_most(1)
@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_our_conftest_loads_the_plugin_once(project, installed, monkeypatch):
    paths = [ROOT, ROOT / "tests", *(["installed"] if installed else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).absolute()) for path in paths))
    project.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    project.makepyfile(ONE_TEST)
    project.runpytest_subprocess("--simwarp-device=sim").assert_outcomes(passed=1)
    project.runpytest_subprocess("-p", "no:simwarp").assert_outcomes(errors=1)


def test_failed_word_comparisons_are_drawn(project):
    project.makepyfile(
        """
        import numpy as np
        import reference
        def test_words():
            assert np.uint32([7]) == np.uint32([5])
        def test_word():
            assert np.uint64(7) == np.uint64(5)
        def test_packed():
            assert reference.pack([[1.0]]) == reference.pack([[-1.0]])
        def test_the_same():
            assert reference.pack([[1.0]]) == reference.pack([[1.0]])
        def test_another_format():
            assert reference.pack([[1.0]], word=32) == reference.pack([[1.0]], word=64)
        def test_other():
            assert np.int32([7]) == np.int32([5])
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=5, passed=1)
    result.stdout.fnmatch_lines(
        [
            "E*assert uint32 words == uint32 words (got == expected)",
            "E*expected 5 (0x00000005), got 7 (0x00000007): bit 1 differs",
            "E*lane 0, got 00000000 00000000 00000000 00000111  0x00000007",
            "E*^",
            "E*assert uint64 words == uint64 words*",
            "E*0x0000000000000007*",
            "E*assert PackedBits == PackedBits*",
            "E*the first wrong matrix element is (0, 0)",
            "E*expected PackedBits (1, 1), row-major-64*",
        ]
    )


def python(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_kit_imports_without_hypothesis_and_pytest():
    printed = python(
        "import sys; sys.modules.update(hypothesis=None, pytest=None)\n"
        "import simwarp.testing as kit\n"
        "kit.assert_same_bits([1], [1]); kit.Golden; kit.replay; kit.profiles.NAMES\n"
        "for use in (lambda: kit.strategies, kit.profiles.register):\n"
        "    try: use()\n"
        "    except ImportError as error: print(type(error).__name__, str(error).splitlines()[-1])\n"
    )
    assert printed.splitlines() == ["MissingExtraError pip install 'simwarp[test]'"] * 2


def test_the_plugin_imports_neither_numpy_nor_the_simulator():
    printed = python("import sys, simwarp.testing.plugin; print(*sys.modules)")
    loaded = set(printed.split())
    assert "simwarp.testing.plugin" in loaded
    assert loaded & {"numpy", "numba", "hypothesis", "gpu", "simwarp.device", "simwarp.verify"} == set()


def test_the_kit_exports_every_listed_name():
    import simwarp.testing as kit

    assert all(getattr(kit, name) for name in kit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kit.nothing


@pytest.mark.gate
def test_the_first_test_of_the_page_passes_by_the_command_that_it_shows(project):
    page = (ROOT / "docs" / "testing.md").read_text()
    code = re.search(r"```python\n# (test_product\.py)\n(.*?)```", page, re.DOTALL)
    command = re.search(r"^\$ pytest test_product\.py (.*)$", page, re.MULTILINE)
    assert code is not None
    assert command is not None
    Path(project.path, code[1]).write_text(code[2])
    project.runpytest_subprocess(code[1], *command[1].split()).assert_outcomes(passed=1)


@pytest.mark.slow
def test_an_explanation_of_hypothesis_has_the_users_lines_alone(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = project.makepyfile(
        """
        from hypothesis import given, settings
        from simwarp import reference
        from simwarp.testing import assert_same_convolution
        from simwarp.testing.strategies import conv_operands

        def mine(x, w, geometry):
            y = reference.bconv2d(x, w, **geometry.options)
            if geometry.excluded.max() > 2:
                y[..., 0] += 2
            return y

        @settings(derandomize=True)
        @given(drawn=conv_operands(dtypes=["int8"], packed=False))
        def test_mine(drawn):
            x, w, geometry = drawn
            assert_same_convolution(drawn, reference.bconv2d(x, w, **geometry.options), mine(x, w, geometry))
        """
    )
    result = project.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    lines = result.stdout.lines
    start = next(n for n, line in enumerate(lines) if "always and only run by failing" in line)
    assert f"{path}:9" in lines[start + 1]
    assert not [line for line in lines[start + 1 : start + 7] if str(ROOT / "simwarp") in line]
