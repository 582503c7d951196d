"""Level-3 BLAS with matrices that lie on devices of a simulated machine."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gpu import blas3
from gpu.machine import Tile
from reference.errors import DtypeError, FormatError, FreedMemoryError, LaunchError, ShapeError
from simwarp.machine import EIGHT, EVEREST, H200, H200x2, H200x4, Machine, Topology

Array = npt.NDArray[Any]


def matrices(count: int, size: int = 30, order: Any = "F") -> list[Array]:
    rng = np.random.default_rng(size)
    return [np.array(rng.standard_normal((size, size)), order=order) for _ in range(count)]


def put(machine: Machine, x: Array, device: int) -> Any:
    """A tile of a device with the values of a column-major matrix."""
    tile = machine.allocate(device, x.nbytes).tile(*x.shape, x.dtype)
    machine.pin(x)
    machine.copy_in(machine.stream(device), x, tile)
    machine.run([])
    machine.unpin(x)
    return tile


def get(machine: Machine, tile: Any) -> Array:
    x = np.zeros((tile.rows, tile.columns), tile.dtype, order="F")
    machine.pin(x)
    machine.copy_out(machine.stream(tile.memory.device), tile, x)
    machine.run([])
    machine.unpin(x)
    return x


@pytest.mark.at_most(1)
@pytest.mark.parametrize("topology", [H200, H200x2, H200x4])
@pytest.mark.parametrize("options", [blas3.Options(), blas3.Options.paper(), blas3.Options(cache=False)])
def test_homes_change_no_bit(topology: Topology, options: blas3.Options) -> None:
    a, b, c = matrices(3)
    last = len(topology.gpus) - 1
    expected = blas3.dgemm(2.0, a, b, 0.5, c, device=Machine(topology), tile=8, options=options)
    for homes in ((0, None, None), (None, last, 0), (last, 0, last), (None, None, last)):
        machine, is_in_place = Machine(topology), homes[2] is not None
        of_a, of_b, of_c = (
            x if home is None else put(machine, x, home) for x, home in zip((a, b, c), homes, strict=True)
        )
        result = blas3.dgemm(
            2.0, of_a, of_b, 0.5, of_c, overwrite_c=is_in_place, device=machine, tile=8, options=options
        )
        assert (result is of_c) == is_in_place
        np.testing.assert_array_equal(get(machine, result) if is_in_place else result, expected)
        allocated = sum(len(machine.allocated(number)) for number in range(machine.devices))
        assert allocated == 3 - homes.count(None)
        assert not machine.pinned()


def test_triangular_routines_are_in_place_on_the_device() -> None:
    a, b = matrices(2)
    a += 30 * np.eye(30)
    for routine in (blas3.dtrmm, blas3.dtrsm):
        expected = routine(1.5, a, b, lower=1, device=Machine(H200x2), tile=7)
        for of_a, of_b in ((0, 0), (1, 0), (0, 1)):
            machine, counts = Machine(H200x2), blas3.Statistics()
            left, right = put(machine, a, of_a), put(machine, b, of_b)
            result = routine(
                1.5, left, right, lower=1, overwrite_b=1, device=machine, tile=7, statistics=counts
            )
            assert result is right
            np.testing.assert_array_equal(get(machine, right), expected)
            assert counts.total("bytes_in") == counts.total("bytes_out") == 0 < counts.total("bytes_peer")


@pytest.mark.parametrize("size", [19, 30, 45])
def test_a_solution_whose_copy_was_evicted_is_read_at_home(size: int) -> None:
    """The other device keeps a finished tile until it needs the room; then only the home has it."""
    a, b = matrices(2, size)
    a += size * np.eye(size)
    options = blas3.Options(streams=1, ahead=4, station=1)
    needed = blas3.explain("dtrsm", size, tile=8, devices=2, uplo="L", options=options).needed
    machine = Machine(H200x2)
    right = put(machine, b, 0)
    keywords: Any = {"device": machine, "tile": 8, "memory_budget": needed, "options": options}
    blas3.dtrsm(1.0, a, right, lower=1, overwrite_b=1, **keywords)
    expected = blas3.dtrsm(1.0, a, b, lower=1, device=Machine(H200x2), tile=8)
    np.testing.assert_array_equal(get(machine, right), expected)


def test_one_device_with_all_its_matrices_copies_nothing() -> None:
    machine, counts = Machine(), blas3.Statistics()
    a, b, c = matrices(3)
    result = put(machine, c, 0)
    blas3.dgemm(
        1.0, put(machine, a, 0), put(machine, b, 0), 1.0, result,
        overwrite_c=1, device=machine, tile=8, statistics=counts,
    )  # fmt: skip
    assert counts.total("misses") == counts.total("bytes_in") == counts.total("bytes_out") == 0
    np.testing.assert_allclose(get(machine, result), a @ b + c, rtol=1e-12, atol=1e-12)


def test_a_part_of_a_larger_matrix_leaves_the_rest() -> None:
    machine = Machine(H200x2)
    a, b, c = matrices(3, 12)
    whole = put(machine, c, 1)
    part = Tile(whole.memory, (3 * 12 + 2) * 8, 5, 4, 12, np.dtype(np.float64))
    blas3.dgemm(1.0, a[:5], b[:, :4], 0.0, part, overwrite_c=1, device=machine, tile=3)
    expected = c.copy()
    expected[2:7, 3:7] = a[:5] @ b[:, :4]
    np.testing.assert_allclose(get(machine, whole), expected, rtol=1e-12, atol=1e-12)


def freed(machine: Machine, x: Array) -> Any:
    tile = put(machine, x, 0)
    machine.free(tile.memory)
    return tile


def outside(machine: Machine, x: Array) -> Any:
    tile = put(machine, x, 0)
    return Tile(tile.memory, 8, tile.rows, tile.columns, tile.stride, tile.dtype)


REFUSED: list[tuple[type[Exception], str, Callable[[Machine, Array], Any]]] = [
    (FreedMemoryError, "is freed, or of another machine", freed),
    (FreedMemoryError, "is freed, or of another machine", lambda machine, x: put(Machine(), x, 0)),
    (ShapeError, r"at byte 8.*\nits memory has 7200 bytes", outside),
    (
        DtypeError,
        r"dgemm, argument 7 \(a\): dtype float32",
        lambda machine, x: put(machine, x.astype("f4"), 0),
    ),
    (
        DtypeError,
        r"a GPU is given to a Machine.*\nonly gpu.CudaMachine",
        lambda machine, x: SimpleNamespace(
            __cuda_array_interface__={"shape": x.shape, "typestr": "<f8", "data": (4096, False), "version": 3}
        ),
    ),
]


@pytest.mark.parametrize(("error", "message", "make"), REFUSED)
def test_what_is_not_a_matrix_of_the_machine(
    error: type[Exception], message: str, make: Callable[[Machine, Array], Any]
) -> None:
    machine = Machine()
    a, b = matrices(2)
    with pytest.raises(error, match=message):
        blas3.dgemm(1.0, make(machine, a), b, device=machine)


def test_a_tile_needs_its_machine() -> None:
    (a,) = matrices(1)
    with pytest.raises(DtypeError, match=r"without a machine\n.*\npass its machine as device="):
        blas3.dgemm(1.0, put(Machine(), a, 0), a)


def test_a_result_on_a_device_is_computed_in_place() -> None:
    machine = Machine()
    a, b, c = matrices(3)
    with pytest.raises(FormatError, match=r"argument 12 \(c\): it lies on device 0.*\n.*\n.*overwrite_c=1"):
        blas3.dgemm(1.0, a, b, 1.0, put(machine, c, 0), device=machine)
    with pytest.raises(FormatError, match=r"argument 10 \(b\): it lies on device 0.*\n.*\n.*overwrite_b=1"):
        blas3.dtrsm(1.0, a, put(machine, b, 0), device=machine)


def test_a_result_that_shares_memory_with_an_operand() -> None:
    machine = Machine()
    (a,) = matrices(1)
    tile = put(machine, a, 0)
    with pytest.raises(FormatError, match="it shares memory with a"):
        blas3.dgemm(1.0, tile, a, 1.0, tile, overwrite_c=1, device=machine)
    left, right = (
        Tile(tile.memory, offset, 15, 15, 30, np.dtype(np.float64)) for offset in (0, 15 * 8)
    )  # beside one another in the same columns
    blas3.dgemm(1.0, left, a[:15, :15], 0.0, right, overwrite_c=1, device=machine, tile=8)
    found = get(machine, tile)
    np.testing.assert_allclose(found[15:, :15], a[:15, :15] @ a[:15, :15], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[:15], a[:15])


@pytest.mark.parametrize(
    ("topology", "options", "message"),
    [
        (EIGHT, blas3.Options(), "a lies on device 0, which device 1 does not reach"),
        (EVEREST, blas3.Options(), "a lies on device 0, which device 1 does not reach"),
        (H200x2, blas3.Options(peer="none"), 'peer="none" with matrices on devices'),
        (H200, blas3.Options(on_device_loss="continue"), 'on_device_loss="continue" with matrices'),
    ],
)
def test_what_a_machine_cannot_do(topology: Topology, options: blas3.Options, message: str) -> None:
    machine = Machine(topology)
    a, b = matrices(2)
    with pytest.raises(LaunchError, match=message):
        blas3.dgemm(1.0, put(machine, a, 0), b, device=machine, options=options)


def test_a_conjugate_without_a_transpose_would_need_a_copy() -> None:
    machine = Machine()
    a, b, c = (np.array(x + 1j, order=order) for x, order in zip(matrices(3), "FCC", strict=True))
    with pytest.raises(FormatError, match="on device 0 is column-major\nthe call needs it row-major"):
        blas3.zgemm(1.0, put(machine, a, 0), b, 1.0, c, trans_a=2, device=machine)
