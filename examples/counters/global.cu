// Warp-wide accesses to global memory, made to be counted: the same as in shared.cu, but there.

enum : unsigned { nowhere = 0xFFFFFFFF };

// Each thread takes one of the elements that lie `stride` apart, the first of them at `offset`.
template <class T>
__device__ void take(const T* in, T* out, unsigned stride, unsigned offset)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    out[thread] = in[thread * stride + offset];
}

// Each thread puts its element where `take` would take one.
template <class T>
__device__ void put(const T* in, T* out, unsigned stride, unsigned offset)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    out[thread * stride + offset] = in[thread];
}

// Each thread takes the element at its place; those whose place is `nowhere` take none.
template <class T>
__device__ void gather(const T* in, T* out, const unsigned* places)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) out[thread] = in[place];
}

// Each thread puts what belongs at its place there: threads with the same place put the same.
template <class T>
__device__ void scatter(const T* in, T* out, const unsigned* places)
{
    const unsigned place = places[blockIdx.x * blockDim.x + threadIdx.x];
    if (place != nowhere) out[place] = in[place];
}

#define KERNELS(T, size)                                                                                  \
    extern "C" __global__ void take_##size(const T* in, T* out, unsigned stride, unsigned offset)         \
    {                                                                                                     \
        take(in, out, stride, offset);                                                                    \
    }                                                                                                     \
    extern "C" __global__ void put_##size(const T* in, T* out, unsigned stride, unsigned offset)          \
    {                                                                                                     \
        put(in, out, stride, offset);                                                                     \
    }                                                                                                     \
    extern "C" __global__ void gather_##size(const T* in, T* out, const unsigned* places)                 \
    {                                                                                                     \
        gather(in, out, places);                                                                          \
    }                                                                                                     \
    extern "C" __global__ void scatter_##size(const T* in, T* out, const unsigned* places)                \
    {                                                                                                     \
        scatter(in, out, places);                                                                         \
    }

KERNELS(unsigned char, 1)
KERNELS(unsigned short, 2)
KERNELS(unsigned, 4)
KERNELS(uint2, 8)
KERNELS(uint4, 16)

// Each thread with a place adds its element to what is there: a reduction, since nobody wants the old value.
extern "C" __global__ void add(const unsigned* in, unsigned* out, const unsigned* places)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) atomicAdd(&out[place], in[thread]);
}

// Each thread with a place clears bits there that are all clear: the old value is the same in any order. What
// comes of it goes behind all places.
extern "C" __global__ void fetch_and(const unsigned* in, unsigned* out, const unsigned* places)
{
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) out[4096 + thread] = in[thread] + atomicAnd(&out[place], in[thread]);
}
