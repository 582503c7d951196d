"""The pytest plugin; pytest loads it by itself where simwarp is installed.

``--simwarp-device=sim|cuda|both``
    The device of the fixture `simwarp_device`: the simulator (default), the first NVIDIA GPU, or one
    test on each.
``--simwarp-profile=ci|dev|gpu|nightly``
    The Hypothesis profile (`simwarp.testing.profiles`).
``@pytest.mark.gpu``
    A test that needs an NVIDIA GPU; it is skipped, with the reason, where there is none.

A comparison ``==`` of lane words or PackedBits that fails shows the words as bits. Without an
installation, ``pytest -p simwarp.testing.plugin`` loads the plugin; ``-p no:simwarp`` leaves it out.

Examples
--------
>>> DEVICES["both"]
('sim', 'cuda')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from reference.errors import MissingExtraError, NoGpuError
from simwarp.testing import profiles

DEVICES = {"sim": ("sim",), "cuda": ("cuda",), "both": ("sim", "cuda")}
"""The devices of a test, by the option's value."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("simwarp", "simwarp: a GPU in NumPy")
    group.addoption(
        "--simwarp-device",
        choices=tuple(DEVICES),
        default="sim",
        help="the device of the fixture simwarp_device: the simulator, the first NVIDIA GPU, or both",
    )
    group.addoption(
        "--simwarp-profile", choices=profiles.NAMES, help="the Hypothesis profile (simwarp.testing.profiles)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker, and the chosen profile."""
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; skipped where there is none (simwarp)")
    profile: str | None = config.option.simwarp_profile
    if profile:
        try:
            profiles.load(profile)
        except MissingExtraError as error:
            raise pytest.UsageError(f"--simwarp-profile={profile}: {error}") from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `simwarp_device` becomes one for each device that is asked for."""
    if "simwarp_device" in metafunc.fixturenames:
        chosen: str = metafunc.config.option.simwarp_device
        devices = DEVICES[chosen]
        # By this mark Hypothesis knows that a method runs in several instances of its class.
        several = pytest.mark.parametrize("simwarp_device", devices)
        marks = {"sim": [several], "cuda": [several, pytest.mark.gpu]}
        parameters = [pytest.param(device, marks=marks[device]) for device in devices]
        metafunc.parametrize("simwarp_device", parameters, indirect=True, scope="function")


# Hypothesis refuses fixtures declared for a function; the scope given above is the one that counts.
@pytest.fixture(scope="session")
def simwarp_device(request: pytest.FixtureRequest) -> Any:
    """A `simwarp.Device`, new for every test, or the `gpu.CudaDevice` (``--simwarp-device``).

    All examples of a Hypothesis test share it.
    """
    if request.param == "sim":
        from simwarp import Device

        return Device()
    from gpu import CudaDevice

    try:
        return CudaDevice()
    except NoGpuError as error:
        pytest.skip(str(error))


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    hardware = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_gpu() if hardware else None
    if reason:
        for item in hardware:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str | None:
    import ctypes

    try:
        status = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return f"needs an NVIDIA GPU, and the CUDA driver cannot be loaded: {error}"
    return f"needs an NVIDIA GPU, but cuInit returned {status}" if status else None


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """A failing ``==`` of lane words or PackedBits, as a picture."""
    kinds = _words(left), _words(right)
    if op != "==" or "" in kinds or kinds[0] != kinds[1]:
        return None
    from simwarp.testing.compare import difference

    found = difference(expected=right, got=left)
    if not found:
        found = "the bits are the same, but PackedBits are equal only to themselves\nuse assert_same_bits"
    return [f"{kinds[0]} == {kinds[0]} (got == expected)", *found.splitlines()]


def _words(x: Any) -> str:
    """What kind of words, if any."""
    from reference.types import PackedBits

    if isinstance(x, PackedBits):
        return "PackedBits"
    name = str(getattr(x, "dtype", ""))
    return f"{name} words" if name in ("uint32", "uint64") and hasattr(x, "tobytes") else ""
