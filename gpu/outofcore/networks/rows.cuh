// Rows of planes, a plane for each image and channel.

#pragma once

#include "cuda_machine/pixels.cuh"

// Element (row, column) of a plane is behind row * width + column others; the next plane begins `apart` behind it.
struct Rows {
    Index apart;
    int height, width;

    __device__ int count() const { return height * width; }
};
