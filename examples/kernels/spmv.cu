// A sparse matrix times a vector, y = A x; A in compressed sparse rows (CSR): the elements of row i are
// values[row_starts[i]] … values[row_starts[i + 1] - 1], in the columns that stand at the same places.
//
// One warp for each row: neighbouring lanes read neighbouring elements, and shuffles add up their sums.

enum : unsigned { warp_size = 32, all_lanes = 0xffffffffu };

extern "C" __global__ void spmv(const unsigned* __restrict__ row_starts, const unsigned* __restrict__ columns,
                                const float* __restrict__ values, const float* __restrict__ x,
                                float* __restrict__ y, unsigned rows)
{
    const unsigned lane = threadIdx.x % warp_size;
    const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / warp_size;
    if (row >= rows) return;
    const unsigned start = row_starts[row], end = row_starts[row + 1];
    float sum = 0;
    for (unsigned i = start + lane; i < end; i += warp_size) sum = fmaf(values[i], x[columns[i]], sum);
    for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
        sum += __shfl_down_sync(all_lanes, sum, distance);
    if (lane == 0) y[row] = sum;
}
