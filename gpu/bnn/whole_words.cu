// A whole binarized network in one cooperative launch on CUDA cores (BSTC, section 6: SBNN).
//
//   -DNARROW -DWIDE    it has layers on words of 32, or of 64
//
// The other macros are those of delegation.cuh. Bits between layers are rows of units of 64, which are two words of 32,
// so that layers on either stand beside one another.

#define KERNEL whole_words
#include "bnn/elements.cuh"
#include "bnn/soft_numbers.cuh"
#include "bnn/soft_products.cuh"

typedef unsigned Narrow;
typedef unsigned long long Wide;

// Tiles of pixels by filters; gpu/bnn/forms.py has their rows.
__device__ inline void make_layer(const Layer& step, const Memory& memory, Sums& sums)
{
    switch (step.kind) {
    case numbers_by_bytes: make_numbers_by_bytes(step, memory, sums); break;
#if defined(NARROW)
    case bmm32: make_soft_products<Narrow, 32, 1, CarrySave<Narrow, 32, 1>>(step, memory, sums); break;
    case bmms32: make_soft_products<Narrow, 16, 1, CarrySave<Narrow, 16, 1>>(step, memory, sums); break;
    case bconv32: make_soft_products<Narrow, 8, 1, CarrySave<Narrow, 8, 1>>(step, memory, sums); break;
#endif
#if defined(WIDE)
    case bmm64: make_soft_products<Wide, 64, 2, Packed<Wide, 64, 2>>(step, memory, sums); break;
    case bmms64: make_soft_products<Wide, 16, 2, CarrySave<Wide, 16, 2>>(step, memory, sums); break;
    case bconv64: make_soft_products<Wide, 8, 2, CarrySave<Wide, 8, 2>>(step, memory, sums); break;
#endif
    case numbers_of_numbers: make_numbers(step, memory); break;
    case bits_of_numbers: make_bits(step, memory); break;
    case shorts_of_numbers: make_shorts(step, memory); break;
    case bits_of_planes: make_planes(step, memory); break;
    case bits_flattened: make_flat(step, memory); break;
    default: make_pools(step, memory);
    }
}

#include "bnn/delegation.cuh"
