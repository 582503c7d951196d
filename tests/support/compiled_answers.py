"""One small kernel for the tests of `gpu.compile` and its cache."""

from __future__ import annotations

from typing import Any

from gpu.compile import Ptx, compile

ANSWER = """
extern "C" __global__ void answer(int* x) {
    x[threadIdx.x] = ANSWER * (int)threadIdx.x;
}
"""


def answer(value: int = 42, **changes: Any) -> Ptx:
    """The kernel, compiled with a value of the macro and with other arguments of `gpu.compile`."""
    return compile(**{"source": ANSWER, "name": "answer.cu", "defines": {"ANSWER": value}, **changes})
