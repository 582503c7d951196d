"""A small kernel for the tests of `gpu.compile` and its cache."""

from __future__ import annotations

from typing import Any

from gpu.compile import Ptx, compile

ANSWER = """
extern "C" __global__ void answer(int* x) {
    x[threadIdx.x] = ANSWER * (int)threadIdx.x;
}
"""


def answer(value: int = 42, **changes: Any) -> Ptx:
    """Compile the kernel with a value of its macro and further arguments of `gpu.compile`."""
    return compile(**{"source": ANSWER, "name": "answer.cu", "defines": {"ANSWER": value}, **changes})
