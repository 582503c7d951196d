// From a real matrix to what bit tensor cores multiply: lines of k bits, padded with zeros to whole pieces of
// 128 bits, least significant bit first, and the ones of each line. Compiled once per element type (signs.cuh).
//
// lines_of_rows takes the rows of the matrix as lines, lines_of_columns its columns. Each has a twin for matrices
// whose rows are aligned: there a lane loads 16 bytes of a row at once, or the 32 bits of neighbouring columns.
//
// Past the edge of the matrix a lane loads the last element again, and its bit is made 0. A NaN has no sign to
// keep: it raises *nan_flag, which the host reads.

#include "bmm/signs.cuh"
#include "bmm/tensor_core.cuh"
#include "bmm/warp.cuh"

// The bits of a line from `first` on, whose number is a multiple of 32.
__device__ inline unsigned ones_of(unsigned negative, unsigned first, unsigned k)
{
    if (first >= k) return 0;
    return k - first < 32 ? ~negative & ((1u << (k - first)) - 1) : ~negative;
}

__device__ inline void tell(bool nan, int* nan_flag)
{
    if (nan) atomicOr(nan_flag, 1);
}

// A warp takes 1024 elements of a row at a time, and each of its lanes makes one of their words.
enum : unsigned { batch_words = warp_size, batch = 32 * batch_words };

// place: which word of a batch is this lane's; load: its bits, 1 where the element is negative.
struct Elements {
    __device__ static unsigned place() { return lane_of_this_thread(); }

    __device__ static unsigned load(const Element* row, unsigned first, unsigned k, bool& nan)
    {
        const unsigned lane = lane_of_this_thread();
        Element x[batch_words];  // all loads are issued before the first is used
#pragma unroll
        for (unsigned i = 0; i < batch_words; ++i) x[i] = row[min(first + 32 * i + lane, k - 1)];
        unsigned mine = 0;
#pragma unroll
        for (unsigned i = 0; i < batch_words; ++i) {
            const unsigned bits = __ballot_sync(all_lanes, negatives(word_of(x[i])) & top_of_first);
            if (lane == i) mine = bits;
            if (i % 2) nan |= any_nan(word_of(x[i - 1]), word_of(x[i]));
        }
        return mine;
    }
};

// As many lanes as there are loads share a word of each. Every lane first has its bits of all of them, a field for
// each load; then lane i of them gets field i of each.
struct Vectors {
    enum : unsigned { loads = 32 / per_vector };

    __device__ static unsigned place()
    {
        const unsigned lane = lane_of_this_thread();
        return lane % loads * per_vector + lane / loads;
    }
    __device__ static unsigned load(const Element* row, unsigned first, unsigned k, bool& nan)
    {
        const unsigned lane = lane_of_this_thread();
        uint4 loaded[loads];
#pragma unroll
        for (unsigned i = 0; i < loads; ++i) {
            const unsigned at = min(first + (i * warp_size + lane) * per_vector, k - per_vector);
            loaded[i] = *reinterpret_cast<const uint4*>(row + at);
        }
        unsigned bits = 0;
#pragma unroll
        for (unsigned i = loads; i-- > 0;) {
            unsigned words[vector_words];
            words_of(words, loaded[i]);
#pragma unroll
            for (unsigned w = vector_words; w-- > 0;) {
                bits = in_front_of(bits, negatives(words[w]));
                if (w % 2) nan |= any_nan(words[w - 1], words[w]);
            }
        }
        return transposed(bits);
    }
    __device__ static unsigned transposed(unsigned bits)
    {
#pragma unroll
        for (unsigned distance = loads / 2; distance > 0; distance /= 2) {
            const bool upper = lane_of_this_thread() & distance;
            const unsigned shift = distance * per_vector;
            const unsigned keep = 0xffffffffu / ((1u << shift) + 1) ^ (upper ? 0xffffffffu : 0);  // every other field
            const unsigned other = __shfl_xor_sync(all_lanes, bits, distance);
            bits = bits & keep | __funnelshift_l(other, other, upper ? 32 - shift : shift) & ~keep;
        }
        return bits;
    }
};

// Four blocks of a multiprocessor leave registers for all loads of a lane at once; so do two below.
enum : unsigned { most_warps = 8, blocks = 4 };

// Threads (lanes of the warps of a line, lines).
template <class Load>
__device__ void pack_rows(const Element* elements, unsigned* words, unsigned* ones, unsigned lines, unsigned k,
                          int* nan_flag)
{
    __shared__ unsigned ones_of_warp[most_warps];
    const unsigned line = blockIdx.x * blockDim.y + threadIdx.y;
    const unsigned warps = blockDim.x / warp_size, warp = threadIdx.x / warp_size;
    const unsigned k_words = divide_up(k, tile_bits) * tile_words;
    unsigned mine = 0;
    bool nan = false;
    for (unsigned first = warp * batch_words; line < lines && first < k_words; first += warps * batch_words) {
        const unsigned negative = Load::load(elements + (Index)line * k, 32 * first, k, nan);
        const unsigned word = first + Load::place(), bits = ones_of(negative, 32 * word, k);
        mine += __popc(bits);
        if (word < k_words) words[(Index)line * k_words + word] = bits;
    }
#pragma unroll
    for (unsigned distance = 1; distance < warp_size; distance *= 2)
        mine += __shfl_xor_sync(all_lanes, mine, distance);
    tell(nan, nan_flag);
    if (warps > 1) {
        unsigned* const of_line = ones_of_warp + threadIdx.y * warps;
        of_line[warp] = mine;
        __syncthreads();
        mine = 0;
        for (unsigned i = 0; i < warps; ++i) mine += of_line[i];
    }
    if (threadIdx.x == 0 && line < lines) ones[line] = mine;
}

extern "C" __global__ void __launch_bounds__(most_warps * warp_size, blocks)
lines_of_rows(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned* __restrict__ ones,
              unsigned lines, unsigned k, int* __restrict__ nan_flag)
{
    pack_rows<Elements>(elements, words, ones, lines, k, nan_flag);
}

extern "C" __global__ void __launch_bounds__(most_warps * warp_size, blocks)
lines_of_rows_vector(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned* __restrict__ ones,
                     unsigned lines, unsigned k, int* __restrict__ nan_flag)
{
    pack_rows<Vectors>(elements, words, ones, lines, k, nan_flag);
}

// A block takes the columns of 32 lanes, and each of its warps a word of them, 32 rows. The words meet in shared
// memory, so that a thread stores a piece of a line, and its neighbours the pieces behind it. Where columns make few
// blocks, several (along y) share k, and add to ones that clear.cu has set to 0.
enum : unsigned { column_warps = 16, pieces_at_once = column_warps / tile_words, padded_warps = column_warps + 4 };

// A lane's words of its `columns` columns, from a row on: 1 where the element is negative.
template <unsigned columns>
__device__ void load_columns(unsigned (&words)[columns], const Element* elements, unsigned lines, unsigned column,
                             unsigned first, unsigned k, bool& nan)
{
    unsigned fields[per_word] = {};  // of as many rows each as an element has bits: one bit an element and row
#pragma unroll
    for (unsigned i = 0; i < per_word; ++i) {
        unsigned x[element_bits];
#pragma unroll
        for (unsigned j = 0; j < element_bits; ++j) {
            const unsigned row = min(first + i * element_bits + j, k - 1);
            const Element* const at = elements + (Index)row * lines + min(column, lines - columns);
            x[j] = columns == 1 ? word_of(*at) : *reinterpret_cast<const unsigned*>(at);
        }
#pragma unroll
        for (unsigned j = 0; j < element_bits; ++j) {
            fields[i] = fields[i] >> 1 | negatives(x[j]) & tops;
            if (j % 2) nan |= any_nan(x[j - 1], x[j]);
        }
    }
    const unsigned field = 0xffffffffu >> (32 - element_bits);
#pragma unroll
    for (unsigned c = 0; c < columns; ++c) {
        words[c] = 0;
#pragma unroll
        for (unsigned i = 0; i < per_word; ++i)
            words[c] |= (fields[i] >> c * element_bits & field) << i * element_bits;
    }
}

template <unsigned columns>
__device__ void pack_columns(const Element* elements, uint4* pieces, unsigned* ones, unsigned lines, unsigned k,
                             int* nan_flag)
{
    __shared__ __align__(16) unsigned tiles[2][columns * warp_size][padded_warps];
    const unsigned lane = lane_of_this_thread(), warp = threadIdx.x / warp_size;
    const unsigned block_line = blockIdx.x * columns * warp_size, k_pieces = divide_up(k, tile_bits);
    const unsigned place = threadIdx.x / pieces_at_once, piece = threadIdx.x % pieces_at_once;
    const unsigned line = block_line + place % warp_size * columns + place / warp_size;
    unsigned mine = 0;
    bool nan = false;
    const unsigned stride = gridDim.y * pieces_at_once;
    for (unsigned first = blockIdx.y * pieces_at_once, stage = 0; first < k_pieces; first += stride, stage ^= 1) {
        const unsigned row = (first * tile_words + warp) * 32;
        unsigned words[columns] = {};
        if (row < k) load_columns(words, elements, lines, block_line + lane * columns, row, k, nan);
#pragma unroll
        for (unsigned c = 0; c < columns; ++c)
            tiles[stage][c * warp_size + lane][warp] = ones_of(words[c], row, k);
        __syncthreads();  // one is enough: the next store to this stage comes after the next barrier
        if (place < columns * warp_size && line < lines && first + piece < k_pieces) {
            const uint4 of_piece = *reinterpret_cast<const uint4*>(tiles[stage][place] + piece * tile_words);
            pieces[(Index)line * k_pieces + first + piece] = of_piece;
            mine += __popc(of_piece.x) + __popc(of_piece.y) + __popc(of_piece.z) + __popc(of_piece.w);
        }
    }
#pragma unroll
    for (unsigned distance = 1; distance < pieces_at_once; distance *= 2)
        mine += __shfl_xor_sync(all_lanes, mine, distance);
    tell(nan, nan_flag);
    if (piece != 0 || place >= columns * warp_size || line >= lines) return;
    if (gridDim.y > 1) atomicAdd(ones + line, mine);
    else ones[line] = mine;
}

extern "C" __global__ void __launch_bounds__(column_warps * warp_size, blocks / 2)
lines_of_columns(const Element* __restrict__ elements, uint4* __restrict__ pieces, unsigned* __restrict__ ones,
                 unsigned lines, unsigned k, int* __restrict__ nan_flag)
{
    pack_columns<1>(elements, pieces, ones, lines, k, nan_flag);
}

extern "C" __global__ void __launch_bounds__(column_warps * warp_size, blocks / 2)
lines_of_columns_vector(const Element* __restrict__ elements, uint4* __restrict__ pieces,
                        unsigned* __restrict__ ones, unsigned lines, unsigned k, int* __restrict__ nan_flag)
{
    pack_columns<per_word>(elements, pieces, ones, lines, k, nan_flag);
}
