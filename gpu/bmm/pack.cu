// Bit packing: one bit per element, 1 where the element is >= 0 (BSTC, section 4).
//
// Compiled once per element type, word size and bit order (see warp.cuh):
//   -DELEMENT_FLOAT64 | -DELEMENT_FLOAT32 | -DELEMENT_FLOAT16 | -DELEMENT_BFLOAT16 | -DELEMENT_INT8
//
// Two layouts (figure 4): pack_column puts consecutive elements of a row into a word, pack_row those
// of a column. A warp makes 32-bit pieces, of which a word is one, two or four. Each kernel has a twin whose
// lanes load 16 bytes at once, for matrices whose rows all start at a multiple of 16 bytes.
//
// Past the edge of the matrix a lane loads the last element again, and its bit is made 0. A NaN has no
// sign to keep: it raises *nan_flag, which the host reads.

#include "bmm/warp.cuh"

// Elements are read as their bits: a sign, then a magnitude that orders like an integer.
#if defined(ELEMENT_FLOAT64)
typedef unsigned long long Element;
enum : Element { sign = 1ull << 63, infinity = 0x7ffull << 52 };
#elif defined(ELEMENT_FLOAT32)
typedef unsigned Element;
enum : Element { sign = 1u << 31, infinity = 0xffu << 23 };
#elif defined(ELEMENT_FLOAT16) || defined(ELEMENT_BFLOAT16)
typedef unsigned short Element;
enum : Element { sign = 1u << 15, infinity = infinity_of_16_bits };
#elif defined(ELEMENT_INT8)
typedef unsigned char Element;
enum : Element { sign = 1u << 7 };
#endif

#if defined(ELEMENT_INT8)
__device__ inline bool is_one(Element x) { return x < sign; }
__device__ inline bool is_nan(Element) { return false; }
#else
__device__ inline bool is_one(Element x) { return x <= sign; }  // positive, or minus zero
__device__ inline bool is_nan(Element x) { return (x & (sign - 1)) > infinity; }
#endif

enum : unsigned { per_vector = 16 / sizeof(Element), of_warp = warp_size * per_vector };  // elements of a row

struct Matrix {
    const Element* elements;
    unsigned rows, columns;
};

// Element or vector of the matrix; past the edge, the last one of its row or column.
__device__ inline Element element_at(Matrix matrix, unsigned row, unsigned column)
{
    return matrix.elements[(Index)min(row, matrix.rows - 1) * matrix.columns + min(column, matrix.columns - 1)];
}

__device__ inline uint4 vector_at(Matrix matrix, unsigned row, unsigned column)
{
    const Index at = (Index)min(row, matrix.rows - 1) * matrix.columns + min(column, matrix.columns - per_vector);
    return *reinterpret_cast<const uint4*>(matrix.elements + at);
}

__device__ inline Element element_of(uint4 vector, unsigned i)
{
    const unsigned words[4] = {vector.x, vector.y, vector.z, vector.w};
#if defined(ELEMENT_FLOAT64)
    return (Element)words[2 * i + 1] << 32 | words[2 * i];
#else
    const unsigned per_word = per_vector / 4;
    return (Element)(words[i / per_word] >> i % per_word * (32 / per_word));
#endif
}

// One more element behind those in `bits`, of which it is number i.
__device__ inline unsigned append(unsigned bits, bool one, unsigned i)
{
#if defined(FIRST_MSB)
    return bits << 1 | one;
#else
    return bits | (unsigned)one << i;
#endif
}

__device__ inline void tell(bool nan, int* nan_flag)
{
    if (nan) atomicOr(nan_flag, 1);
}

// Column-major: 32-bit piece `piece` of row `row`.
__device__ inline void store_piece_of_row(unsigned* words, Matrix matrix, unsigned piece, unsigned row, unsigned bits)
{
    if (row < matrix.rows)
        words[half_at((Index)(piece / word_halves) * matrix.rows + row, piece % word_halves)] = bits;
}

// Row-major: 32-bit piece `piece` of column `column`.
__device__ inline void store_piece_of_column(unsigned* words, Matrix matrix, unsigned piece, unsigned column,
                                             unsigned bits)
{
    if (column < matrix.columns)
        words[half_at((Index)(piece / word_halves) * matrix.columns + column, piece % word_halves)] = bits;
}

// A tile of 32 rows by 32 columns: each ballot makes the piece of one row (listing 1).
extern "C" __global__ void __launch_bounds__(128)
pack_column(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned rows, unsigned columns,
            int* __restrict__ nan_flag)
{
    const Matrix matrix = {elements, rows, columns};
    const unsigned across = divide_up(matrix.columns, word_size) * word_halves;
    const unsigned warp = number_of_this_warp(), lane = lane_of_this_thread();
    const unsigned first_row = warp / across * warp_size, piece = warp % across;
    if (first_row >= matrix.rows) return;
    const unsigned column = piece * 32 + lane;
    Element x[warp_size];  // all loads are issued before the first is used
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) x[i] = element_at(matrix, first_row + i, column);
    unsigned mine = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) {
        const unsigned bits = first_lane_first(__ballot_sync(all_lanes, is_one(x[i]) && column < matrix.columns));
        if (lane == i) mine = bits;
        nan |= is_nan(x[i]);
    }
    store_piece_of_row(words, matrix, piece, first_row + lane, mine);
    tell(nan, nan_flag);
}

// A tile of 32 rows by 32 vectors: the lanes that share a piece join their bits by shuffles.
extern "C" __global__ void __launch_bounds__(128)
pack_column_vector(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned rows, unsigned columns,
                   int* __restrict__ nan_flag)
{
    const Matrix matrix = {elements, rows, columns};
    const unsigned lanes_per_piece = 32 / per_vector, batch = 8, whole = word_size > of_warp ? word_size : of_warp;
    const unsigned across = divide_up(matrix.columns, whole) * (whole / of_warp);
    const unsigned warp = number_of_this_warp(), lane = lane_of_this_thread();
    const unsigned first_row = warp / across * warp_size;
    if (first_row >= matrix.rows) return;
    const unsigned column = (warp % across * warp_size + lane) * per_vector;
    const unsigned place = lane % lanes_per_piece;
#if defined(FIRST_MSB)
    const unsigned shift = 32 - per_vector * (place + 1);
#else
    const unsigned shift = per_vector * place;
#endif
    unsigned mine[per_vector] = {};
    bool nan = false;
#pragma unroll
    for (unsigned start = 0; start < warp_size; start += batch) {
        uint4 loaded[batch];
#pragma unroll
        for (unsigned i = 0; i < batch; ++i) loaded[i] = vector_at(matrix, first_row + start + i, column);
#pragma unroll
        for (unsigned i = 0; i < batch; ++i) {
            unsigned bits = 0;
#pragma unroll
            for (unsigned e = 0; e < per_vector; ++e) {
                const Element x = element_of(loaded[i], e);
                bits = append(bits, is_one(x), e);
                nan |= is_nan(x);
            }
            bits = column < matrix.columns ? bits << shift : 0;
#pragma unroll
            for (unsigned distance = 1; distance < lanes_per_piece; distance *= 2)
                bits |= __shfl_xor_sync(all_lanes, bits, distance);
            const unsigned row = start + i;
            if (place == row % lanes_per_piece) mine[row / lanes_per_piece] = bits;
        }
    }
    const unsigned piece = column / 32;
    if (piece < divide_up(matrix.columns, word_size) * word_halves) {
#pragma unroll
        for (unsigned i = 0; i < per_vector; ++i)
            store_piece_of_row(words, matrix, piece, first_row + i * lanes_per_piece + place, mine[i]);
    }
    tell(nan, nan_flag);
}

// A tile of 32 rows by 32 columns: each lane gathers its own column, bit by bit (listing 2).
extern "C" __global__ void __launch_bounds__(128)
pack_row(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned rows, unsigned columns,
         int* __restrict__ nan_flag)
{
    const Matrix matrix = {elements, rows, columns};
    const unsigned across = divide_up(matrix.columns, warp_size);
    const unsigned warp = number_of_this_warp(), lane = lane_of_this_thread();
    const unsigned piece = warp / across, column = warp % across * warp_size + lane;
    if (piece >= divide_up(matrix.rows, word_size) * word_halves) return;
    Element x[warp_size];
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) x[i] = element_at(matrix, piece * 32 + i, column);
    unsigned bits = 0;
    bool nan = false;
#pragma unroll
    for (unsigned i = 0; i < warp_size; ++i) {
        bits = append(bits, is_one(x[i]) && piece * 32 + i < matrix.rows, i);
        nan |= is_nan(x[i]);
    }
    store_piece_of_column(words, matrix, piece, column, bits);
    tell(nan, nan_flag);
}

// A tile of 32 rows by 32 vectors: each lane gathers as many columns as a vector has elements.
extern "C" __global__ void __launch_bounds__(128)
pack_row_vector(const Element* __restrict__ elements, unsigned* __restrict__ words, unsigned rows, unsigned columns,
                int* __restrict__ nan_flag)
{
    const Matrix matrix = {elements, rows, columns};
    const unsigned batch = 8;
    const unsigned across = divide_up(matrix.columns, warp_size * per_vector);
    const unsigned warp = number_of_this_warp(), lane = lane_of_this_thread();
    const unsigned piece = warp / across, column = (warp % across * warp_size + lane) * per_vector;
    if (piece >= divide_up(matrix.rows, word_size) * word_halves) return;
    unsigned bits[per_vector] = {};
    bool nan = false;
#pragma unroll
    for (unsigned start = 0; start < warp_size; start += batch) {
        uint4 loaded[batch];
#pragma unroll
        for (unsigned i = 0; i < batch; ++i) loaded[i] = vector_at(matrix, piece * 32 + start + i, column);
#pragma unroll
        for (unsigned i = 0; i < batch; ++i) {
            const bool inside = piece * 32 + start + i < matrix.rows;
#pragma unroll
            for (unsigned e = 0; e < per_vector; ++e) {
                const Element x = element_of(loaded[i], e);
                bits[e] = append(bits[e], is_one(x) && inside, start + i);
                nan |= is_nan(x);
            }
        }
    }
#pragma unroll
    for (unsigned e = 0; e < per_vector; ++e) store_piece_of_column(words, matrix, piece, column + e, bits[e]);
    tell(nan, nan_flag);
}
