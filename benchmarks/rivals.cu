// Rivals of the products of bits, in tables 3 and 4 of BTC: `bits_rivals.py` measures them.
//
//   xnor_gemm   the tiled product of 2016 (BinaryNet, XNOR-Net): a thread has an element of C
//   u4_gemm     bits as unsigned numbers of four bits, on tensor cores of integers

enum : unsigned { side = 16 };

// c[i, j] = k - 2 * popc(a[i, :] ^ b[:, j]): words of 32 bits along k, a (m, words), b (words, n).
extern "C" __global__ void __launch_bounds__(side * side)
xnor_gemm(const unsigned* __restrict__ a, const unsigned* __restrict__ b, int* __restrict__ c, unsigned m, unsigned n,
          unsigned words, unsigned k)
{
    __shared__ unsigned of_a[side][side], of_b[side][side];
    const unsigned x = threadIdx.x % side, y = threadIdx.x / side;
    const unsigned row = blockIdx.y * side + y, column = blockIdx.x * side + x;
    unsigned differing = 0;
    for (unsigned first = 0; first < words; first += side) {
        of_a[y][x] = row < m && first + x < words ? a[(size_t)row * words + first + x] : 0;
        of_b[y][x] = column < n && first + y < words ? b[(size_t)(first + y) * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (unsigned w = 0; w < side; ++w) differing += __popc(of_a[y][w] ^ of_b[w][x]);
        __syncthreads();
    }
    if (row < m && column < n) c[(size_t)row * n + column] = (int)(k - 2 * differing);
}

// A block has 128 x 128 of C in eight warps of 64 x 32; a stage is 128 numbers, 64 bytes, of each line.
enum : unsigned { tile = 128, stages = 3, line = 64, stage_bytes = 2 * tile * line, warp_rows = 64, warp_columns = 32 };

// Chunks of 16 bytes, so that eight lines of a matrix lie in different banks.
__device__ inline unsigned place(unsigned row, unsigned chunk) { return row * line + ((chunk ^ row / 2 % 4) * 16); }

__device__ inline void load_matrices(unsigned (&to)[4], unsigned address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// c[i, j] = sum of a[i, x] * b[j, x] over lines of `bytes` bytes, two numbers in each; all sizes multiples of the tile.
extern "C" __global__ void __launch_bounds__(256)
u4_gemm(const unsigned char* __restrict__ a, const unsigned char* __restrict__ b, int* __restrict__ c, unsigned n,
        unsigned bytes)
{
    __shared__ __align__(128) unsigned char shared[stages * stage_bytes];
    const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row0 = warp / 4 * warp_rows, column0 = warp % 4 * warp_columns;
    const unsigned char* const of_a = a + (size_t)blockIdx.y * tile * bytes;
    const unsigned char* const of_b = b + (size_t)blockIdx.x * tile * bytes;
    const unsigned steps = bytes / line;

    const auto bring = [&](unsigned step) {
        if (step < steps) {
            const unsigned to = base + step % stages * stage_bytes;
#pragma unroll
            for (unsigned i = 0; i < stage_bytes / (256 * 16); ++i) {
                const unsigned piece = i * 256 + threadIdx.x, half = piece / (tile * 4);
                const unsigned row = piece / 4 % tile, chunk = piece % 4;
                const unsigned char* from = (half ? of_b : of_a) + (size_t)row * bytes + step * line + chunk * 16;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                             :
                             : "r"(to + half * tile * line + place(row, chunk)), "l"(__cvta_generic_to_global(from))
                             : "memory");
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    int sums[4][4][4] = {};
    for (unsigned step = 0; step < stages - 1; ++step) bring(step);
    for (unsigned step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2) : "memory");
        __syncthreads();
        bring(step + stages - 1);
        const unsigned from = base + step % stages * stage_bytes;
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            unsigned x[4][4], y[2][4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
                load_matrices(x[i], from + place(row0 + 16 * i + lane % 16, 2 * half + lane / 16));
#pragma unroll
            for (unsigned j = 0; j < 2; ++j)
                load_matrices(y[j], from + tile * line + place(column0 + 16 * j + lane / 16 * 8 + lane % 8,
                                                               2 * half + lane / 8 % 2));
#pragma unroll
            for (unsigned i = 0; i < 4; ++i)
#pragma unroll
                for (unsigned j = 0; j < 4; ++j) {
                    int(&d)[4] = sums[i][j];
                    asm("mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                        "{%0, %1, %2, %3};"
                        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                        : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j / 2][j % 2 * 2]),
                          "r"(y[j / 2][j % 2 * 2 + 1]));
                }
        }
    }
#pragma unroll
    for (unsigned i = 0; i < 4; ++i)
#pragma unroll
        for (unsigned j = 0; j < 4; ++j)
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const size_t row = blockIdx.y * tile + row0 + 16 * i + lane / 4 + 8 * half;
                const unsigned column = blockIdx.x * tile + column0 + 8 * j + lane % 4 * 2;
                *reinterpret_cast<int2*>(c + row * n + column) = make_int2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
}
