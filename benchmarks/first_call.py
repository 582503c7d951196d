"""The first product of a process: the seconds of its imports, of the context, and of the call.

    python benchmarks/first_call.py

`bits.py` starts this script in processes of their own, with caches that are empty or not. It prints JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

SIDE = 2048


def measure(device_of: Callable[[], Any] | None = None, side: int = SIDE) -> dict[str, float]:
    """Import, make a device, and multiply two float32 matrices that lie on the host."""
    start = time.perf_counter()
    import numpy as np

    import gpu

    if device_of is None:
        for name in ("cuda.bindings.driver", "pycuda.driver"):
            import_module(name)
    imported = time.perf_counter()
    device = (device_of or gpu.CudaDevice)()
    ready = time.perf_counter()
    a, b = np.random.default_rng().standard_normal((2, side, side), np.float32)
    called = time.perf_counter()
    c = gpu.bmm(a, b, device=device)
    done = time.perf_counter()
    if not np.array_equal(c, np.where(a >= 0, 1.0, -1.0) @ np.where(b >= 0, 1.0, -1.0)):
        raise SystemExit("first-call: the answer is wrong")
    return {"imports": imported - start, "context": ready - imported, "call": done - called}


if __name__ == "__main__":
    print(json.dumps(measure()))
