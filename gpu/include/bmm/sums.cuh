// What the product of a row and a column is:
//
//   -DCOMMON   of bits: popc(a & b), how many are 1 in both
//   else       of signs: k - 2 popc(a ^ b)

#pragma once
#include "bmm/warp.cuh"

#if defined(COMMON)
#define PAIRED(x, y) ((x) & (y))
#define SUM(k, count) ((int)(count))
enum : bool { of_signs = false };
#else
#define PAIRED(x, y) ((x) ^ (y))
#define SUM(k, count) ((int)((k) - 2 * (count)))
enum : bool { of_signs = true };
#endif
enum : unsigned { per_common = of_signs ? 4 : 1 };  // what a bit that is 1 in both adds
