// Each number's square as a share of its row's, a block for each row.
//
// The squares are kept in memory from malloc. One thread adds them up, and then gives the memory back; but
// all of the block's threads still need it.

extern "C" __global__ void use_after_free(const float* x, float* shares, unsigned columns)
{
    __shared__ float* squares;
    __shared__ float total;
    const float* row = x + blockIdx.x * columns;
    if (threadIdx.x == 0) squares = static_cast<float*>(malloc(columns * sizeof(float)));
    __syncthreads();
    for (unsigned j = threadIdx.x; j < columns; j += blockDim.x) squares[j] = row[j] * row[j];
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (unsigned j = 0; j < columns; j++) sum += squares[j];
        total = sum;
#ifndef FIXED
        free(squares);
#endif
    }
    __syncthreads();
    for (unsigned j = threadIdx.x; j < columns; j += blockDim.x)
        shares[blockIdx.x * columns + j] = squares[j] / total;  // BUG
#ifdef FIXED
    __syncthreads();
    if (threadIdx.x == 0) free(squares);
#endif
}
