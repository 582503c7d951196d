"""Sparse tensors with broken fields, and arguments of other types, raise typed errors."""

from dataclasses import fields, replace

import numpy as np
import pytest

import reference
import simwarp
from gpu.cpd import cpd_als as gpu_cpd_als
from gpu.mttkrp import mttkrp as gpu_mttkrp
from gpu.mttkrp.upload import upload
from reference import sparse
from reference.errors import DtypeError, NotANumberError, SchemeError, ShapeError, SimwarpError
from reference.types import Coo
from simwarp import listings
from support.offenders import every_case

COO = Coo([[0, 1, 1], [2, 0, 1], [1, 1, 0]], [2.0, 3.0, 4.0], (2, 3, 2))
FORMATS = {
    "csf": sparse.csf(COO, (0, 1, 2)),
    "fibers": sparse.mm_csf(COO).partitions[0],
    "b-csf": sparse.b_csf(COO, (0, 1, 2)),
    "f-coo": sparse.f_coo(COO, 0),
    "hicoo": sparse.hi_coo(COO),
    "mm-csf": sparse.mm_csf(COO),
    "per mode": sparse.b_csf_all(COO),
}
FACTORS = [np.ones((n, 2)) for n in COO.shape]
BROKEN = [
    (name, field.name, value)
    for name, tensor in FORMATS.items()
    for field in fields(tensor)
    for value in (None, [1, 2], "x", 1.5, (None,), np.array(3.0))
]


@every_case(("name", "field", "value"), BROKEN)
def test_every_tier_refuses_broken_fields(name, field, value):
    broken = replace(FORMATS[name], **{field: value})
    with pytest.raises(SimwarpError):
        reference.mttkrp(broken, FACTORS, 0)
    with pytest.raises(SimwarpError):
        upload(broken, simwarp.Device())
    with pytest.raises(SimwarpError):
        listings.mttkrp(broken, FACTORS, 0)


@pytest.mark.parametrize("name", ["fibers", "b-csf", "mm-csf", "per mode"])
def test_intact_tensors_are_accepted(name):
    expected = reference.mttkrp(COO, FACTORS, 0)
    np.testing.assert_array_equal(listings.mttkrp(FORMATS[name], FACTORS, 0), expected)
    upload(FORMATS[name], simwarp.Device())


@pytest.mark.parametrize(
    ("given", "error", "part"),
    [
        ({"shape": 4}, ShapeError, "shape is 4\na tuple of ints"),
        ({"shape": None}, ShapeError, "shape is None\n"),
        ({"shape": (float("nan"), 2)}, ShapeError, "shape is (nan, 2)\n"),
        ({"shape": (float("inf"), 2)}, ShapeError, "shape is (inf, 2)\n"),
        ({"shape": (2.7, 2)}, ShapeError, "shape is (2.7, 2)\n"),
        ({"shape": ("2", 2)}, ShapeError, "shape is ('2', 2)\n"),
        ({"shape": ()}, ShapeError, "shape is ()\n"),
        ({"values": [[1.0], [2.0, 3.0]]}, ShapeError, "values is not an array: "),
        ({"values": None}, DtypeError, "values is object\n"),
        ({"coords": [[0], [0, 1]]}, ShapeError, "coords is not an array: "),
    ],
)
def test_broken_coo_arguments_are_refused(given, error, part):
    right = {"coords": [[0, 1], [0, 1]], "values": [1.0, 2.0], "shape": (2, 2)}
    with pytest.raises(error) as caught:
        Coo(**(right | given))
    assert str(caught.value).startswith(part)


def test_integers_of_any_type_are_accepted_as_dimensions():
    assert Coo([[0], [0]], [1.0], (np.int64(2), 3.0)).shape == (2, 3)


@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f4", "<f8"])
@pytest.mark.parametrize("index", [">i8", ">u4", "<u2"])
def test_a_coo_may_have_any_byte_order(dtype, index):
    given = Coo(COO.coords.astype(index), COO.values.astype(dtype), COO.shape)
    assert given.coords.dtype.isnative
    assert given.values.dtype == np.dtype(dtype).newbyteorder("=")
    assert given.values.dtype.isnative
    native = Coo(COO.coords, given.values, COO.shape)
    expected = reference.mttkrp(native, FACTORS, 1)
    factors = [factor.astype(given.values.dtype) for factor in FACTORS]
    np.testing.assert_array_equal(reference.mttkrp(given, FACTORS, 1), expected)
    np.testing.assert_array_equal(listings.mttkrp(sparse.mm_csf(given), factors, 1), expected)
    np.testing.assert_array_equal(gpu_mttkrp(given, factors, 1, device=simwarp.Device()), expected)


RAGGED = [[1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("factors", "mode", "part"),
    [
        (FACTORS, True, "mode=True "),
        (FACTORS, "0", "mode='0' "),
        (FACTORS, None, "mode=None "),
        (FACTORS, 1.0, "mode=1.0 "),
        (None, 0, "factors is NoneType\n"),
        (5, 0, "factors is int\n"),
        ([RAGGED, *FACTORS[1:]], 0, "factors[0] is not an array: "),
        ([None] * 3, 0, "factors[0] has shape ()"),
    ],
)
def test_the_reference_refuses_wrong_arguments(factors, mode, part):
    with pytest.raises(ShapeError) as caught:
        reference.mttkrp(COO, factors, mode)
    assert str(caught.value).startswith(part)


@pytest.mark.parametrize(
    "factors", [None, 5, "abc", [None] * 3, [RAGGED, *FACTORS[1:]], [], FACTORS[:2]], ids=str
)
def test_the_device_refuses_wrong_factors(factors):
    with pytest.raises(ShapeError) as caught:
        gpu_mttkrp(COO, factors, 0, device=simwarp.Device())
    assert len(str(caught.value).splitlines()) == 3


def test_every_tier_refuses_a_bool_as_mode():
    for mttkrp, given in ((gpu_mttkrp, {"device": simwarp.Device()}), (listings.mttkrp, {})):
        with pytest.raises(ShapeError, match="True"):
            mttkrp(FORMATS["mm-csf"], FACTORS, True, **given)


@every_case(
    ("given", "error"),
    [
        *(({"rank": rank}, ShapeError) for rank in ("2", 1.5, True, None, 0, 10**21)),
        *(({"iterations": number}, ShapeError) for number in ("2", 1.5, True, None, 0)),
        *(({"seed": seed}, SchemeError) for seed in (None, "1", 1.5, -1, 2**64, True)),
        *(({"tolerance": number}, NotANumberError) for number in (None, "1", float("nan"), [1.0])),
        *(({"start": start}, ShapeError) for start in (5, [RAGGED] * 3, [None] * 3, [], "abc")),
    ],
)
def test_decompositions_refuse_wrong_arguments(given, error):
    for cpd_als, device in ((reference.cpd_als, {}), (gpu_cpd_als, {"device": simwarp.Device()})):
        with pytest.raises(error):
            cpd_als(COO, **({"rank": 2} | given | device))


@pytest.mark.parametrize("rank", [200_000_000, 10**21])
def test_ranks_beyond_memory_are_refused_at_once(rank):
    """Such a rank is refused before any memory of its size is allocated."""
    with pytest.raises(
        ShapeError, match=rf"^rank is {rank}: .* GiB\nthis machine has .* GiB\ngive a smaller"
    ):
        reference.cpd_als(COO, rank)


def test_dimensions_beyond_memory_are_refused_at_once():
    wide = Coo([[0], [1]], [1.0], (2, 2**32))
    with pytest.raises(ShapeError, match=r"^rank is 9999: .* GiB\nthis machine has "):
        reference.cpd_als(wide, 9999)
    wide = Coo([[0], [1]], [1.0], (2, 2**45))
    column = np.broadcast_to(np.ones(1), (2**45, 1))
    with pytest.raises(ShapeError, match=r"^35184372088832 rows of 1 numbers need .* GiB\nthis machine has "):
        reference.mttkrp(wide, [np.ones((2, 1)), column], 1)
