// Jacobi's method for Laplace's equation on a plate whose edge is held: in each sweep every inner cell
// becomes the mean of its four neighbours.
//
// All sweeps are one launch. No block may begin a sweep before all have ended the last one, so all blocks
// are on the chip at once (a cooperative launch) and wait for one another at grid.sync().

#include <cooperative_groups.h>

// `now` and `next` begin alike; the plate ends in `now` if the number of sweeps is even, else in `next`.
// `change` begins as 0 and ends as the bits of the largest change in the last sweep: those of floats that
// are not negative compare as whole numbers do, and a maximum does not depend on the order.
extern "C" __global__ void jacobi(float* now, float* next, unsigned rows, unsigned columns, unsigned sweeps,
                                  unsigned* change)
{
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const unsigned row = blockIdx.y * blockDim.y + threadIdx.y;
    const unsigned column = blockIdx.x * blockDim.x + threadIdx.x;
    const bool inner = row > 0 && row + 1 < rows && column > 0 && column + 1 < columns;
    const unsigned i = row * columns + column;
    for (unsigned sweep = 1; sweep <= sweeps; ++sweep) {
        if (inner) {
            next[i] = 0.25f * ((now[i - columns] + now[i + columns]) + (now[i - 1] + now[i + 1]));
            if (sweep == sweeps) atomicMax(change, __float_as_uint(fabsf(next[i] - now[i])));
        }
        float* const old = now;
        now = next;
        next = old;
        grid.sync();
    }
}
