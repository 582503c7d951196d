"""The pytest plugin, which pytest loads automatically if simwarp is installed.

``--simwarp-device=sim|cuda|both``
    The device of the fixture `simwarp_device`: the simulator (default), the first NVIDIA GPU, or both, one
    test for each.
``--simwarp-checks=raise|report|off``, or by kind: ``--simwarp-checks=races=report,bounds=off``
    What the simulator does with the faults of kernels (`simwarp.checks`).
``--simwarp-observe=banks,sectors``, or ``all``
    The observers of the simulator (`simwarp.observe`).
``--simwarp-profile=ci|dev|gpu|nightly``
    The Hypothesis profile (`simwarp.testing.profiles`).
``@pytest.mark.gpu``
    A test that needs an NVIDIA GPU; it is skipped, with the reason, if there is none.

The report of a failed test of `simwarp_device` has a section "simwarp" with the faults that the simulator
collected and the counts of its observers. The traceback of a fault is without simwarp's own frames, unless
pytest has ``--full-trace``. A failed comparison ``==`` of lane words or PackedBits shows the
words as bits. Without an installation, ``pytest -p simwarp.testing.plugin`` loads the plugin;
``-p no:simwarp`` disables it.

>>> DEVICES["both"]
('sim', 'cuda')
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from reference.errors import MissingExtraError, NoGpuError, SchemeError
from simwarp.testing import explanations, profiles

DEVICES = {"sim": ("sim",), "cuda": ("cuda",), "both": ("sim", "cuda")}
"""The devices of a test, by the value of ``--simwarp-device``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add simwarp's command-line options to pytest."""
    group = parser.getgroup("simwarp", "simwarp: a GPU in NumPy")
    group.addoption(
        "--simwarp-device",
        choices=tuple(DEVICES),
        default="sim",
        help="the device of the fixture simwarp_device: the simulator, the first NVIDIA GPU, or both",
    )
    group.addoption(
        "--simwarp-checks",
        default="raise",
        metavar="ACTION",
        help="raise, report or off: what becomes of a kernel's faults on the simulator; or by kind, "
        "races=report,bounds=off",
    )
    group.addoption(
        "--simwarp-observe",
        default="",
        metavar="NAMES",
        help="what the simulator counts: coverage,fidelity,banks,sectors,divergence,traffic; or all",
    )
    group.addoption(
        "--simwarp-profile", choices=profiles.NAMES, help="the Hypothesis profile (simwarp.testing.profiles)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, load the chosen profile, and check the options of the simulator."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; skipped where there is none (simwarp)")
    profile: str | None = config.option.simwarp_profile
    try:
        if config.option.simwarp_checks != "raise" or config.option.simwarp_observe:
            _simulator(config)
        if profile:
            profiles.load(profile)
    except SchemeError as error:
        raise pytest.UsageError(f"--simwarp-{error}") from None
    except MissingExtraError as error:
        raise pytest.UsageError(f"--simwarp-profile={profile}: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test of `simwarp_device` by the chosen devices."""
    if "simwarp_device" in metafunc.fixturenames:
        chosen: str = metafunc.config.option.simwarp_device
        devices = DEVICES[chosen]
        # Hypothesis looks for this mark: it allows a method to run in several instances of its class.
        several = pytest.mark.parametrize("simwarp_device", devices)
        marks = {"sim": [several], "cuda": [several, pytest.mark.gpu]}
        parameters = [pytest.param(device, marks=marks[device]) for device in devices]
        metafunc.parametrize("simwarp_device", parameters, indirect=True, scope="function")


# Hypothesis rejects fixtures declared with function scope; parametrize above sets the effective scope.
@pytest.fixture(scope="session")
def simwarp_device(request: pytest.FixtureRequest) -> Any:
    """A `simwarp.Device`, new for every test, or the `gpu.CudaDevice` (``--simwarp-device``).

    All examples of a Hypothesis test share one device.
    """
    if request.param == "sim":
        return _simulator(request.config)
    from gpu import CudaDevice

    try:
        return CudaDevice()
    except NoGpuError as error:
        pytest.skip(str(error))


def _simulator(config: pytest.Config) -> Any:
    """Make a simulated device with the checks and observers of the options."""
    from simwarp import Device
    from simwarp.checks import read_checks

    names: str = config.option.simwarp_observe
    return Device(
        checks=read_checks([config.option.simwarp_checks]),
        observe="all" if names == "all" else [name for name in names.split(",") if name],
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the faults and counts of the simulated device to the report of a failed test."""
    if call.excinfo is not None and not item.config.option.fulltrace:
        _hide_own_frames(call.excinfo)
    report = yield
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    device = arguments.get("simwarp_device")
    text = _findings(device) if report.failed else ""
    if text:
        report.sections.append(("simwarp", text))
    if call.when == "call":
        _record(item, device, call.excinfo)
    return report


def _record(item: pytest.Item, device: Any, raised: pytest.ExceptionInfo[BaseException] | None) -> None:
    """Put the findings of a test, which failed or passed, into the file of ``--junit-xml``.

    Each is a property "simwarp.error" or "simwarp.note". Where ``junit_logging`` asks for output, the whole
    messages are part of it.
    """
    found: list[Any] = list(getattr(device, "faults", []))
    faults = sys.modules.get("simwarp.faults")
    if raised is not None and faults is not None and isinstance(raised.value, faults.KernelFault):
        found.append(raised.value)
    if not found:
        return
    from simwarp.findings import Finding

    findings = [Finding.of(fault) for fault in found]
    for one in findings:
        times = f" ({one.count} times)" if one.count > 1 else ""
        item.user_properties.append((f"simwarp.{one.severity}", f"{str(one).splitlines()[0]}{times}"))
    if getattr(item.config.option, "xmlpath", None):
        item.add_report_section("call", "stdout", "\n\n".join(map(str, findings)) + "\n")


def _hide_own_frames(raised: pytest.ExceptionInfo[BaseException]) -> None:
    """Take simwarp's own frames out of the traceback of a kernel's fault: it stands below the test's line."""
    faults = sys.modules.get("simwarp.faults")  # not imported: the exception is not a fault
    if faults is None or not isinstance(raised.value, faults.KernelFault):
        return
    package, steps, kept = Path(str(faults.__file__)).parent, list[TracebackType](), None
    step = raised.value.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    for step in reversed(steps):
        if package not in Path(step.tb_frame.f_code.co_filename).parents:
            kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    if kept is not None:
        raised.traceback = type(raised.traceback)(kept)


def _findings(device: Any) -> str:
    """The faults that a device collected, and the tables of its observers, as text."""
    parts = [f"{fault}\n  {fault.count} times" for fault in getattr(device, "faults", [])]
    report = getattr(device, "report", None)
    if report is not None and report.names:
        parts.append(report.to_text())
    return "\n\n".join(parts)


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Skip the tests that need a GPU if there is none; leave our lines out of Hypothesis' explanations."""
    if "hypothesis" in sys.modules:
        explanations.leave_out_own_lines()
    hardware = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if hardware else None
    if reason:
        for item in hardware:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str | None:
    """The reason why no GPU can be used; None if one can."""
    import ctypes

    try:
        status = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return f"needs an NVIDIA GPU, and the CUDA driver cannot be loaded: {error}"
    return f"needs an NVIDIA GPU, but cuInit returned {status}" if status else None


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain a failed ``==`` of lane words or PackedBits by a picture."""
    kinds = _words(left), _words(right)
    if op != "==" or "" in kinds or kinds[0] != kinds[1]:
        return None
    from simwarp.testing.compare import difference

    found = difference(expected=right, got=left)
    return [f"{kinds[0]} == {kinds[0]} (got == expected)", *found.splitlines()]


def _words(x: Any) -> str:
    """The kind of words that a value holds; "" for other values."""
    types = sys.modules.get("reference.types")  # not imported: x is not PackedBits
    if types and isinstance(x, types.PackedBits):
        return "PackedBits"
    name = str(getattr(x, "dtype", ""))
    return f"{name} words" if name in ("uint32", "uint64") and hasattr(x, "tobytes") else ""
