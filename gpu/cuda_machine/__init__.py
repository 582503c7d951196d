"""`CudaMachine`: the protocol of `gpu.machine` on NVIDIA GPUs of one process.

The driver is called as `gpu.cuda.driver` does, in primary contexts, which torch, CuPy and PyCUDA share.
"""

from gpu.cuda_machine.cublas import RoutineError
from gpu.cuda_machine.driver import DriverError
from gpu.cuda_machine.machine import DEFAULT_LOCK, CudaMachine, default_machine
from gpu.cuda_machine.queues import CudaRoutine, Queue

__all__ = [
    "DEFAULT_LOCK",
    "CudaMachine",
    "CudaRoutine",
    "DriverError",
    "Queue",
    "RoutineError",
    "default_machine",
]
