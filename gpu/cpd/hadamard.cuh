// The product, element by element, of the modes' Gram matrices: V of MM-CSF's algorithm 1.

#pragma once

typedef unsigned long long Index;

// Element e of the product of all (order, rank, rank) matrices but the one of `mode`; of all, if mode == order.
__device__ inline double product_of_grams(const double* grams, unsigned order, unsigned mode, unsigned rank, unsigned e)
{
    double product = 1;
    for (unsigned n = 0; n < order; ++n)
        if (n != mode) product *= grams[(Index)n * rank * rank + e];
    return product;
}
