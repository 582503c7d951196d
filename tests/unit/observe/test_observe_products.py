"""Counts of the products of warpgroups, by line and by number of the warpgroup in its block."""

import json

import numpy as np
import pytest

import simwarp
from simwarp.observe.matrix_counts import ProductCounts
from simwarp.observe.report import ReportError
from support import small_kernels as small
from support import warpgroup_kernels as warpgroups
from support.warpgroup_kernels import COMMIT, ORDER, WAIT, Tile

MMA = "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8"
ONE = 64 * 16 * 32
SIZE = 64 * 32 + 16 * 32
PRODUCT = f"{MMA} {warpgroups.registers(8)}, %x, %y, %yes;"
OPERANDS = f"mov.b64 %x, {Tile(0, 64).word:#x}; mov.b64 %y, {Tile(2048, 16).word:#x};\n{ORDER}"


def counts(number):
    return ProductCounts(number, number * ONE)


def observed(body, threads, blocks=2, **options):
    """The counts of a kernel, whose body starts with line 1 of ``a.cu``."""
    body = f".loc 1 1 1\n{OPERANDS}{body}\n.loc 1 99 1\n{COMMIT}{WAIT}"
    text = warpgroups.kernel(MMA, body, SIZE, threads=threads)
    text = text.replace(".visible .entry", '.file 1 "lib/a.cu"\n.visible .entry')
    device = simwarp.Device(observe="products", **options)
    d = np.zeros((blocks, threads, 8), np.uint32)
    warpgroups.launch(text, np.zeros((blocks, SIZE), np.uint8), d, device=device, threads=threads)
    return device.report


@pytest.mark.parametrize("schedule", ["lowest pc", "stack", "random"])
def test_warpgroups_issue_different_numbers_of_products(schedule):
    """All three warpgroups issue line 2; the first two of them issue line 3, each round of its own loop."""
    body = f""".loc 1 2 1
{PRODUCT}
shr.u32 %r1, %t, 7; sub.u32 %r1, 2, %r1;
AGAIN: setp.eq.u32 %done, %r1, 0; @%done bra READY;
.loc 1 3 1
{PRODUCT}
sub.u32 %r1, %r1, 1; bra AGAIN;
READY:"""
    report = observed(body, 384, blocks=5, schedule=schedule)
    products = report.products
    assert (products["a.cu:2"], products["a.cu:3"], products.total) == (15, 15, counts(30))
    assert [products.warpgroups[i].total for i in range(3)] == [counts(15), counts(10), counts(5)]
    assert products.warpgroups[0]["a.cu:3"] == counts(10)
    assert list(products.warpgroups[2]) == ["lib/a.cu:2"]
    with pytest.raises(ReportError, match=r"no products of warpgroup 2 at a\.cu:3\nthere were some at lib/a"):
        products.warpgroups[2]["a.cu:3"]


def test_the_text_and_the_plain_data_have_the_warpgroups_apart():
    body = (
        f"setp.lt.u32 %done, %t, 128; @%done bra READY;\n.loc 1 2 1\n{PRODUCT}\nREADY:\n.loc 1 3 1\n{PRODUCT}"
    )
    report = observed(body, 256)
    data = report.to_json()["products"]
    assert json.loads(json.dumps(data)) == data
    assert data["total"] == {"products": 6, "multiply_adds": 6 * ONE}
    assert {number: list(one["lines"]) for number, one in data["warpgroups"].items()} == {
        "0": ["lib/a.cu:3"],
        "1": ["lib/a.cu:2", "lib/a.cu:3"],
    }
    expected = """Products of warpgroups, by number of the warpgroup in its block

warpgroup  line        products  multiply adds
0          lib/a.cu:3         2         65,536
0          total              2         65,536
1          lib/a.cu:2         2         65,536
1          lib/a.cu:3         2         65,536
1          total              4        131,072
all        lib/a.cu:2         2         65,536
all        lib/a.cu:3         4        131,072
all        total              6        196,608"""
    assert report.to_text() == expected


def test_lanes_without_their_warpgroup_issue_no_product():
    """The last warp of the second warpgroup does not come, which the checks only collect."""
    body = f"setp.ge.u32 %done, %t, 224; @%done bra READY;\n{PRODUCT}\nREADY:"
    report = observed(body, 256, checks="report")
    assert list(report.products.warpgroups) == [0]
    assert report.products.total == counts(2)


def test_a_kernel_without_products_has_no_counts():
    device = simwarp.Device(observe="products")
    small.run("mov.u32 %r2, 1;" + small.STORE, device=device)
    assert device.report.products.total == ProductCounts()
    assert device.report.to_text().endswith("\n\nnone")
