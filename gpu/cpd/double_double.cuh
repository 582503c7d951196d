// Numbers of 106 bits, as the unevaluated sum of two doubles, for sums of which almost nothing is left.
//
// Source: Hida, Li, Bailey, Library for double-double and quad-double arithmetic (2000); Ogita, Rump, Oishi, Accurate
// sum and dot product (2005). Each operation errs by a few units of 2^-104 of its result; a sum, of its terms.

#pragma once

struct DoubleDouble {
    double high = 0, low = 0;
};

// a + b where |a| >= |b|, or a is 0; exact.
__device__ inline DoubleDouble ordered_sum(double a, double b)
{
    const double high = a + b;
    return {high, b - (high - a)};
}

// a + b, exact.
__device__ inline DoubleDouble exact_sum(double a, double b)
{
    const double high = a + b, of_b = high - a;
    return {high, (a - (high - of_b)) + (b - of_b)};
}

// a * b, exact.
__device__ inline DoubleDouble exact_product(double a, double b)
{
    const double high = a * b;
    return {high, fma(a, b, -high)};
}

__device__ inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b)
{
    const DoubleDouble high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
    const DoubleDouble sum = ordered_sum(high.high, high.low + low.high);
    return ordered_sum(sum.high, sum.low + low.low);
}

__device__ inline DoubleDouble operator*(DoubleDouble a, double b)
{
    const DoubleDouble product = exact_product(a.high, b);
    return ordered_sum(product.high, fma(a.low, b, product.low));
}

__device__ inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b)
{
    const DoubleDouble product = exact_product(a.high, b.high);
    return ordered_sum(product.high, product.low + fma(a.high, b.low, a.low * b.high));
}
