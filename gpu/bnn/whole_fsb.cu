// A whole binarized network in one cooperative launch, with FSB between its layers (BTC, section 6.2).
//
// Macros are those of delegation.cuh. Bits are tiles of eight images by 128 channels, (H, W, N / 8, C / 128, 8, 4) words
// of 32; of vectors H and W are 1. Integers of residuals are rows, as in the other kernels.

#define KERNEL whole_fsb
#define FSB
#include "bnn/fsb_elements.cuh"
#include "bnn/fsb_products.cuh"
#include "bnn/soft_numbers.cuh"

__device__ inline void make_layer(const Layer& step, const Memory& memory, Sums& sums)
{
    switch (step.kind) {
    case numbers_by_bytes: make_numbers_by_bytes(step, memory, sums); break;
    case products_of_tiles: make_products_of_tiles(step, memory, sums[0]); break;
    case numbers_of_numbers: make_numbers(step, memory); break;
    case bits_of_numbers: make_bits_in_tiles(step, memory); break;
    case shorts_of_numbers: make_shorts(step, memory); break;
    case bits_of_planes: make_planes_in_tiles(step, memory); break;
    case bits_flattened: make_flat_in_tiles(step, memory); break;
    default: make_pools_in_tiles(step, memory);
    }
}

#include "bnn/delegation.cuh"
