"""C and C++ headers for kernels, in memory, as NVRTC does not read those of the system.

Built-in names (``printf``, ``assert``, ``malloc``, ``memcpy``, the mathematical functions, ``size_t``,
``clock``) need no declaration. The rest comes from libcu++; its namespace ``cuda::std`` is imported into
``std``. The header `PRELUDE`, included before every source, has what nvcc includes implicitly.

>>> print(HEADERS["cstdlib"], end="")
#pragma once
#include <stdlib.h>
#include <cuda/std/cstdlib>
namespace cuda { namespace std {} }
namespace std { using namespace cuda::std; }
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PRELUDE = "what_nvcc_includes.h"
"""The name of the header that is included before every source."""

_ONCE = "#pragma once\n"
_STD = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"

_NOTHING = "assert ctype errno malloc memory signal stdarg stdbool stddef stdio sys/time time unistd"
"""C headers that are empty, as device code can use only built-in names of them."""

_FLOAT = """\
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_DIG 6
#define FLT_DECIMAL_DIG 9
#define FLT_MIN_EXP (-125)
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MAX_10_EXP 38
#define FLT_MIN 1.17549435e-38f
#define FLT_MAX 3.40282347e+38f
#define FLT_EPSILON 1.19209290e-7f
#define FLT_TRUE_MIN 1.40129846e-45f
#define DBL_MANT_DIG 53
#define DBL_DIG 15
#define DBL_DECIMAL_DIG 17
#define DBL_MIN_EXP (-1021)
#define DBL_MAX_EXP 1024
#define DBL_MIN_10_EXP (-307)
#define DBL_MAX_10_EXP 308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_TRUE_MIN 4.9406564584124654e-324
"""
_MATH = """\
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fffffff)
#define HUGE_VALF INFINITY
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000ULL)
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
__device__ inline double pow(float x, double y) { return pow((double)x, y); }
__device__ inline double pow(double x, float y) { return pow(x, (double)y); }
"""
_FUNCTIONS = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor
fma fmax fmin fmod frexp hypot ilogb isfinite isinf isnan ldexp lgamma llrint llround log log10 log1p log2
logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round scalbln scalbn signbit sin sinh
sqrt tan tanh tgamma trunc
"""
"""The mathematical functions that ``<cmath>`` also declares in ``std``."""

_DRIVER = """\
#include <stdint.h>
#define CUDA_VERSION 13000
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct alignas(64) CUtensorMap_st { cuuint64_t opaque[16]; } CUtensorMap;
"""
_STDLIB = """\
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647
#include <sys/types.h>
"""
_TYPES = "typedef unsigned short ushort;\ntypedef unsigned int uint;\ntypedef unsigned long ulong;\n"
_STRING = "#include <cuda/std/cstring>\n" + "".join(
    f"using cuda::std::{name};\n" for name in ("memchr", "memcmp", "memmove")
)
_INTTYPES = "#include <stdint.h>\n" + "".join(
    f'#define PRI{letter}{bits} "{size}{letter}"\n'
    for bits, size in ((32, ""), (64, "ll"))
    for letter in "dux"
)
_using = "".join(f"using ::{name};\n" for name in _FUNCTIONS.split())
_C = {
    "cuda": _DRIVER,
    **dict.fromkeys(_NOTHING.split(), ""),
    "float": _FLOAT,
    "inttypes": _INTTYPES,
    "limits": "#include <cuda/std/climits>\n",
    "math": f"{_MATH}namespace std {{\n{_using}}}\n",
    "stdint": "#include <cuda/std/cstdint>\n",
    "stdlib": _STDLIB,
    "string": _STRING,
    "sys/types": _TYPES,
}
_NO_LIBRARY = "assert ctype errno float inttypes math signal stdarg stdbool stdio"
_LIBRARY = "limits stddef stdint stdlib string time"
"""C headers with a C++ name, ``<c…>``: those that libcu++ does not have, and those that it has."""

_ALGORITHM = "".join(
    f"#include <cuda/std/__algorithm/{name}.h>\n" for name in ("min", "max", "minmax", "clamp")
)
_CUB = """
block/block_discontinuity block/block_exchange block/block_histogram block/block_load block/block_radix_sort
block/block_reduce block/block_scan block/block_store
warp/warp_exchange warp/warp_load warp/warp_reduce warp/warp_scan warp/warp_store
"""
"""The headers of CUB for kernels; the others are for the host."""
_CPP = """
array atomic bit bitset chrono complex concepts functional initializer_list iterator limits numeric optional
ratio span tuple type_traits utility variant
"""
"""C++ headers that libcu++ has by the same name."""


def _headers() -> dict[str, str]:
    """Build the text of every header from the tables above."""
    found = {f"{name}.h": text for name, text in _C.items()}
    found |= {f"c{name}": f"#include <{name}.h>\n{_STD}" for name in _NO_LIBRARY.split()}
    found |= {
        f"c{name}": f"#include <{name}.h>\n#include <cuda/std/c{name}>\n{_STD}" for name in _LIBRARY.split()
    }
    found |= {name: f"#include <cuda/std/{name}>\n{_STD}" for name in _CPP.split()}
    found["algorithm"] = f"{_ALGORITHM}#include <cuda/std/utility>\n{_STD}"
    found["cub/cub.cuh"] = "".join(f"#include <cub/{name}.cuh>\n" for name in _CUB.split())
    found["new"] = ""
    found[PRELUDE] = "".join(f"#include <{name}.h>\n" for name in ("limits", "math", "stdlib", "string"))
    return {name: _ONCE + text for name, text in found.items()}


HEADERS: Mapping[str, str] = MappingProxyType(_headers())
"""The text of each header, by its name in an ``#include``."""
