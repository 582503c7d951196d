// Rows of planes, a plane for each image and channel, and the pixels of a block of threads.

#pragma once

typedef long long Index;

// Element (row, column) of a plane is behind row * width + column others; the next plane begins `apart` behind it.
struct Rows {
    Index apart;
    int height, width;
};

// Block (p, part) works on plane p; its threads and those of its other parts share the pixels.
__device__ inline Index plane() { return blockIdx.x; }
__device__ inline int first_pixel() { return blockIdx.y * blockDim.x + threadIdx.x; }
__device__ inline int next_pixel(int pixel) { return pixel + gridDim.y * blockDim.x; }
