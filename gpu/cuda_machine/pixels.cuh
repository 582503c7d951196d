// Planes of pixels, whose blocks share them: block (p, part) works on plane p.

#pragma once

typedef long long Index;

__device__ inline Index plane() { return blockIdx.x; }
__device__ inline int first_pixel() { return blockIdx.y * blockDim.x + threadIdx.x; }
__device__ inline int next_pixel(int pixel) { return pixel + gridDim.y * blockDim.x; }

// Call write(i, read(i)) for each pixel i of a thread, of `count` in the plane. Pixels are read four at a time:
// the compiler cannot move a read before a write, as it does not know that both are apart.
template <class Read, class Write> __device__ inline void each_pixel(int count, Read read, Write write)
{
    const int apart = gridDim.y * blockDim.x;
    int i = first_pixel();
    for (; count - i > 3 * apart; i += 4 * apart) {
        const auto first = read(i), second = read(i + apart), third = read(i + 2 * apart), fourth = read(i + 3 * apart);
        write(i, first);
        write(i + apart, second);
        write(i + 2 * apart, third);
        write(i + 3 * apart, fourth);
    }
    for (; i < count; i += apart) write(i, read(i));
}
