"""The stack of contexts of a thread that uses the runtime, too."""

import ctypes

driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
SUCCESS, INVALID_CONTEXT = 0, 201


def current():
    context = ctypes.c_void_p()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == SUCCESS
    return context.value


def pop():
    return driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


version = ctypes.c_int()
assert runtime.cudaRuntimeGetVersion(ctypes.byref(version)) == SUCCESS
assert version.value >= 13000
assert driver.cuInit(0) == SUCCESS
assert current() is None  # a version needs no device
assert runtime.cudaDeviceSynchronize() == SUCCESS
primary = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0) == SUCCESS
assert current() == primary.value
own = ctypes.c_void_p()
assert driver.cuCtxCreate_v2(ctypes.byref(own), 0, 0) == SUCCESS
assert runtime.cudaDeviceSynchronize() == SUCCESS
assert current() == own.value
assert pop() == SUCCESS
assert current() == primary.value
assert pop() == SUCCESS
assert current() is None
assert pop() == INVALID_CONTEXT
assert runtime.cudaDeviceSynchronize() == SUCCESS
assert current() == primary.value
