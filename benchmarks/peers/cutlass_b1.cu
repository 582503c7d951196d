// CUTLASS's product of bits, a & b counted, to int32: some of the tiles that its library has for sm_80. Compiled by
// `peers.py` when it runs; CUTLASS itself is not part of this repository.

#include "cutlass/gemm/device/gemm.h"

template <int rows, int columns, int depth, int warp_rows, int warp_columns, int stages>
int multiply(int m, int n, int k, const void* a, const void* b, void* c, cudaStream_t stream)
{
    using Gemm = cutlass::gemm::device::Gemm<
        cutlass::uint1b_t, cutlass::layout::RowMajor, cutlass::uint1b_t, cutlass::layout::ColumnMajor, int,
        cutlass::layout::RowMajor, int, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
        cutlass::gemm::GemmShape<rows, columns, depth>, cutlass::gemm::GemmShape<warp_rows, warp_columns, depth>,
        cutlass::gemm::GemmShape<16, 8, 256>, cutlass::epilogue::thread::LinearCombination<int, 4, int, int>,
        cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, stages, 128, 128, false,
        cutlass::arch::OpAndPopc>;
    const auto* of_a = static_cast<const cutlass::uint1b_t*>(a);
    const auto* of_b = static_cast<const cutlass::uint1b_t*>(b);
    auto* of_c = static_cast<int*>(c);
    Gemm gemm;
    return static_cast<int>(gemm({{m, n, k}, {of_a, k}, {of_b, k}, {of_c, n}, {of_c, n}, {1, 0}}, nullptr, stream));
}

struct Tile {
    const char* name;
    decltype(&multiply<256, 128, 1024, 64, 64, 3>) multiply;
};

static const Tile tiles[] = {
    {"256x128x1024", multiply<256, 128, 1024, 64, 64, 3>}, {"128x256x1024", multiply<128, 256, 1024, 64, 64, 3>},
    {"128x128x1024", multiply<128, 128, 1024, 64, 64, 4>}, {"128x256x512", multiply<128, 256, 512, 64, 64, 3>},
    {"64x64x1024", multiply<64, 64, 1024, 32, 32, 5>},
};

// The name of a tile, by its number; null past the last.
extern "C" const char* tile_name(unsigned tile)
{
    return tile < sizeof(tiles) / sizeof(*tiles) ? tiles[tile].name : nullptr;
}

// Launch the product of lines of k bits, a multiple of 128; returns CUTLASS's status, 0 for success.
extern "C" int cutlass_b1(unsigned tile, int m, int n, int k, const void* a, const void* b, void* c, void* stream)
{
    return tiles[tile].multiply(m, n, k, a, b, c, static_cast<cudaStream_t>(stream));
}
