"""Kernels that Triton itself compiled, for two chips; compiling needs no GPU."""

import importlib
from typing import Any

import numpy as np
import pytest

from simwarp import Out, faults, run

triton: Any = pytest.importorskip("triton", reason="these tests compile with Triton")
tl: Any = importlib.import_module("triton.language")
ASTSource: Any = importlib.import_module("triton.compiler").ASTSource
GPUTarget: Any = importlib.import_module("triton.backends.compiler").GPUTarget

pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    """Triton's cache in the home folder may name the source by another checkout's path, which is gone."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compiled(kernel, signature, constants, cc, **options):
    target = GPUTarget("cuda", cc, 32)
    return triton.compile(ASTSource(kernel, signature, constants), target=target, options=options)


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_without_a_mask(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i), mask=i < n)


@triton.jit
def softmax(x, out, columns: tl.constexpr, block: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + i, power / tl.sum(power, axis=0), mask=i < columns)


@triton.jit
def product(a, b, c, rows: tl.constexpr, columns: tl.constexpr, inner: tl.constexpr, step: tl.constexpr):
    m, n, k = tl.arange(0, rows), tl.arange(0, columns), tl.arange(0, step)
    sums = tl.zeros((rows, columns), dtype=tl.float32)
    for start in range(0, inner, step):
        left = tl.load(a + m[:, None] * inner + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * columns + n[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + m[:, None] * columns + n[None, :], sums)


OF_SUMS = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


@pytest.mark.parametrize("cc", [80, 90])
def test_a_masked_sum(cc):
    kernel = compiled(add, OF_SUMS, {"block": 128}, cc)
    x, y = np.random.default_rng(cc).standard_normal((2, 201)).astype(np.float32)
    result = run(kernel, grid=2, block=128, args=[x, y, Out("float32", 201), 201])
    np.testing.assert_array_equal(result.outputs["out"], x + y)


def test_a_forgotten_mask_is_found_at_its_line_of_python(tmp_path):
    kernel = compiled(add_without_a_mask, OF_SUMS, {"block": 128}, 90)
    args = [*np.ones((2, 201), np.float32), Out("float32", 201), 201]
    with pytest.raises(faults.OutOfBounds, match=r"test_run_triton.py:(?s:.*)tl\.load\(x \+ i\)") as caught:
        run(kernel, grid=2, block=128, args=args)
    (tmp_path / "add.ptx").write_text(kernel.asm["ptx"].replace(".version 9.4", ".version 9.0"))
    with pytest.raises(faults.OutOfBounds) as of_the_file:
        run(tmp_path / "add.ptx", grid=2, block=128, args=[*args, 0, 0])
    assert of_the_file.value.place.source_line == caught.value.place.source_line


@pytest.mark.parametrize("cc", [80, 90])
def test_a_softmax_of_rows(cc):
    kernel = compiled(softmax, {"x": "*fp32", "out": "*fp32"}, {"columns": 77, "block": 128}, cc)
    x = np.random.default_rng(cc).standard_normal((3, 77)).astype(np.float32)
    result = run(kernel, grid=3, block=128, args=[x, Out("float32", (3, 77))])
    power = np.exp(x - x.max(axis=1, keepdims=True))
    expected = power / power.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.outputs["out"], expected, rtol=1e-5)


@pytest.mark.parametrize("cc", [80, 90])
def test_a_product_of_tensor_cores_in_the_shared_memory_that_triton_asks_for(cc):
    constants = {"rows": 64, "columns": 32, "inner": 96, "step": 32}
    kernel = compiled(product, {"a": "*fp16", "b": "*fp16", "c": "*fp32"}, constants, cc, num_stages=3)
    assert kernel.metadata.shared > 0
    assert ("wgmma" if cc == 90 else "mma.sync") in kernel.asm["ptx"]
    generator = np.random.default_rng(cc)
    a, b = (generator.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 96), (96, 32)))
    result = run(kernel, grid=1, block=128, args=[a, b, Out("float32", (64, 32))])
    np.testing.assert_array_equal(result.outputs["c"], a.astype(np.float32) @ b.astype(np.float32))
