// Warp-wide accesses to shared memory, made to be counted: by the simulator, and by a GPU's counters.
//
// There is a kernel for elements of 1, 2, 4, 8 and 16 bytes: 8 and 16 as float2 and float4.

enum : unsigned { bytes = 16384, nowhere = 0xFFFFFFFF };

// Each thread takes one of the elements that lie `stride` apart, the first of them at `offset`.
template <class T>
__device__ void take(const T* in, T* out, unsigned stride, unsigned offset)
{
    __shared__ T elements[bytes / sizeof(T)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(T); i += blockDim.x) elements[i] = in[i];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = elements[threadIdx.x * stride + offset];
}

// Each thread puts its element where `take` would take one.
template <class T>
__device__ void put(const T* in, T* out, unsigned stride, unsigned offset)
{
    __shared__ T elements[bytes / sizeof(T)];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    elements[threadIdx.x * stride + offset] = in[thread];
    __syncthreads();
    out[thread] = elements[threadIdx.x * stride + offset];
}

// Each thread takes the element at its place; those whose place is `nowhere` take none.
template <class T>
__device__ void gather(const T* in, T* out, const unsigned* places)
{
    __shared__ T elements[bytes / sizeof(T)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(T); i += blockDim.x) elements[i] = in[i];
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) out[thread] = elements[place];
}

// Each thread puts what belongs at its place there: threads with the same place put the same.
template <class T>
__device__ void scatter(const T* in, T* out, const unsigned* places)
{
    __shared__ T elements[bytes / sizeof(T)];
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) elements[place] = in[place];
    __syncthreads();
    if (place != nowhere) out[thread] = elements[place];
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
    __shared__ unsigned sums[bytes / sizeof(unsigned)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) sums[i] = 0;
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) atomicAdd(&sums[place], in[thread]);
    __syncthreads();
    if (place != nowhere) out[thread] = sums[place];
}

// Each thread with a place sets bits there that are all set: the old value is the same in any order.
extern "C" __global__ void fetch_or(const unsigned* in, unsigned* out, const unsigned* places)
{
    __shared__ unsigned words[bytes / sizeof(unsigned)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) words[i] = ~0u;
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) out[thread] = atomicOr(&words[place], in[thread]);
}

// The same with a constant; for 1, the chip has an instruction of its own. Of the old value,
// `fetch_count` wants to know only what is true in any order.
extern "C" __global__ void count(const unsigned*, unsigned* out, const unsigned* places)
{
    __shared__ unsigned sums[bytes / sizeof(unsigned)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) sums[i] = 0;
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) atomicAdd(&sums[place], 1);
    __syncthreads();
    if (place != nowhere) out[thread] = sums[place];
}

extern "C" __global__ void count_in_twos(const unsigned*, unsigned* out, const unsigned* places)
{
    __shared__ unsigned sums[bytes / sizeof(unsigned)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) sums[i] = 0;
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) atomicAdd(&sums[place], 2);
    __syncthreads();
    if (place != nowhere) out[thread] = sums[place];
}

extern "C" __global__ void fetch_count(const unsigned* in, unsigned* out, const unsigned* places)
{
    __shared__ unsigned sums[bytes / sizeof(unsigned)];
    for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) sums[i] = 0;
    __syncthreads();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, place = places[thread];
    if (place != nowhere) out[thread] = atomicAdd(&sums[place], 1) < blockDim.x ? in[thread] : 0;
}
