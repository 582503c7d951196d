// Bit tensor cores: products of 8 x 128-bit tiles (BTC, sections 4 and 5.1; PTX ISA 9.0, 9.7.14.5).
//
// A tile is 8 lines (rows of A, or columns of B) of 128 bits of k, four words each. In a fragment, lane l
// holds word l % 4 of line l / 4: word l of the tile, where its words lie one after another (FSB). All of
// these instructions take tiles so, and give counts so: register i of lane l is row l / 4 + 8 * (i / 2) and
// column 2 * (l % 4) + i % 2.
//
//   sm_75                 8 x 8 counts, one tile of k, by xor
//   sm_80 to sm_89        16 x 8 counts, two tiles of k, by xor; with -DCOMMON by and
//   from sm_90            16 x 8 counts, two tiles of k, by and: there xor is many instructions
//
// Over k bits, popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b), so that
//
//   dot = k - 2 popc(a ^ b) = k - 2 popc(a) - 2 popc(b) + 4 popc(a & b).

#pragma once

enum : unsigned { tile_lines = 8, tile_bits = 128, tile_words = 4 };

#if __CUDA_ARCH__ >= 800
enum : unsigned { product_row_tiles = 2, product_k_tiles = 2 };
#else
enum : unsigned { product_row_tiles = 1, product_k_tiles = 1 };
#endif
enum : unsigned {
    product_rows = tile_lines * product_row_tiles,
    product_columns = tile_lines,
    product_words_of_a = product_row_tiles * product_k_tiles,
    product_words_of_b = product_k_tiles,
    product_counts = 2 * product_row_tiles,
};

#if __CUDA_ARCH__ >= 900 || (__CUDA_ARCH__ >= 800 && defined(COMMON))
#define BIT_OPERATION "and"
enum : bool { counts_common_ones = true };
#else
#define BIT_OPERATION "xor"
enum : bool { counts_common_ones = false };
#endif

// A fragment of A has its tiles of lines together, once for each tile of k: word i of it is of this tile of
// lines, and of this tile of k. One of B has a single tile of lines.
template <unsigned tiles_of_lines> __device__ constexpr unsigned line_tile_of(unsigned word)
{
    return word / (tiles_of_lines * product_k_tiles) * tiles_of_lines + word % tiles_of_lines;
}
template <unsigned tiles_of_lines> __device__ constexpr unsigned k_tile_of(unsigned word)
{
    return word / tiles_of_lines % product_k_tiles;
}

// d += counts, of fragments in that order. It is the instruction's own, and costs no moves.
__device__ inline void multiply_fragments(int (&d)[product_counts], const unsigned* a, const unsigned* b)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32." BIT_OPERATION ".popc "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32." BIT_OPERATION ".popc {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(b[0]));
#endif
}

// The same where a has both tiles of k of a tile of lines together, as b has: a[t * product_k_tiles + s].
__device__ inline void multiply_add(int (&d)[product_counts], const unsigned* a, const unsigned* b)
{
#if __CUDA_ARCH__ >= 800
    const unsigned in_order[] = {a[0], a[2], a[1], a[3]};
    multiply_fragments(d, in_order, b);
#else
    multiply_fragments(d, a, b);
#endif
}

// Four tiles from shared memory: this lane's word of each. `line` is for lane l line l % 8 of tile l / 8.
__device__ inline void load_four_tiles(unsigned* words, const uint4* line)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"((unsigned)__cvta_generic_to_shared(line))
                 : "memory");
}

// The dot product of k signs, from what the product counts and the ones of its row and its column.
__device__ inline int dot_of(int count, unsigned k, unsigned ones_of_row, unsigned ones_of_column)
{
    if (counts_common_ones) return (int)(k + 4 * (unsigned)count - 2 * (ones_of_row + ones_of_column));
    return (int)(k - 2 * (unsigned)count);
}

#if defined(COMMON)
// With -DCOMMON (sums.cuh) a product is of bits, how many are 1 in both. Those that differ are in one of them.
__device__ inline int common_of(int count, unsigned ones_of_row, unsigned ones_of_column)
{
    return counts_common_ones ? count : (int)((ones_of_row + ones_of_column - (unsigned)count) / 2);
}
#define dot_of(count, k, ones_of_row, ones_of_column) common_of(count, ones_of_row, ones_of_column)
#endif
