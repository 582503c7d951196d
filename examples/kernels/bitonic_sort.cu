// Batcher's bitonic sort of 2^p keys ("Sorting networks and their applications", 1968).
//
// Stage `size` = 2, 4, 8, … n turns bitonic runs of `size` keys into sorted ones, ascending where the
// key's index has bit `size` clear, so that two neighbours make the bitonic run of the next stage. It does
// so in steps of `distance` = size / 2, … 2, 1: keys whose indices differ in that bit alone are compared
// and, if need be, exchanged. Steps within a tile are done in shared memory, longer ones in global memory.

enum : unsigned { threads = 256, tile_size = 2 * threads };

// The index of a thread's first key: its number with a clear bit put in at `distance`.
__device__ inline unsigned left_of(unsigned thread, unsigned distance)
{
    return 2 * thread - (thread & (distance - 1));
}

__device__ inline void compare_exchange(unsigned& left, unsigned& right, bool ascending)
{
    const unsigned a = left, b = right;
    if ((a > b) == ascending) {
        left = b;
        right = a;
    }
}

// Stages `first_size` to `last_size`, as far as their steps stay within a tile.
__device__ inline void sort_in_tile(unsigned* keys, unsigned first_size, unsigned last_size)
{
    __shared__ unsigned tile[tile_size];
    const unsigned first = blockIdx.x * tile_size, t = threadIdx.x;
    tile[t] = keys[first + t];
    tile[t + threads] = keys[first + t + threads];
    for (unsigned size = first_size; size <= last_size; size *= 2) {
        for (unsigned distance = min(size, tile_size) / 2; distance > 0; distance /= 2) {
            __syncthreads();
            const unsigned left = left_of(t, distance);
            compare_exchange(tile[left], tile[left + distance], ((first + left) & size) == 0);
        }
    }
    __syncthreads();
    keys[first + t] = tile[t];
    keys[first + t + threads] = tile[t + threads];
}

// All stages up to a tile's size.
extern "C" __global__ void __launch_bounds__(threads) sort_tiles(unsigned* keys)
{
    sort_in_tile(keys, 2, tile_size);
}

// One step that is too long for a tile.
extern "C" __global__ void __launch_bounds__(threads)
merge_step(unsigned* keys, unsigned size, unsigned distance)
{
    const unsigned left = left_of(blockIdx.x * threads + threadIdx.x, distance);
    compare_exchange(keys[left], keys[left + distance], (left & size) == 0);
}

// The steps of a stage that stay within tiles.
extern "C" __global__ void __launch_bounds__(threads) merge_tiles(unsigned* keys, unsigned size)
{
    sort_in_tile(keys, size, size);
}
