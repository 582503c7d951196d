// The sum of each row of a matrix, a thread for each row, four elements at a time.
//
// A vector load takes an address that is a multiple of its 16 bytes. The matrix begins at one; its rows do
// only if the number of columns is a multiple of four.

extern "C" __global__ void misaligned_vector(const float* x, float* sums, unsigned rows, unsigned columns)
{
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* elements = x + row * columns;
#ifndef FIXED
    const bool aligned = true;
#else
    const bool aligned = columns % 4 == 0;
#endif
    float sum = 0;
    unsigned j = 0;
    if (aligned)
        for (; j + 4 <= columns; j += 4) {
            const float4 four = *reinterpret_cast<const float4*>(elements + j);  // BUG
            sum += (four.x + four.y) + (four.z + four.w);
        }
    for (; j < columns; j++) sum += elements[j];
    sums[row] = sum;
}
