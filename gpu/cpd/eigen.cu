// The pseudo-inverse of V where it has no inverse: from its eigenvalues, by Jacobi's rotations.

#include "cpd/hadamard.cuh"

enum : unsigned { most_threads = 1024, most_sweeps = 30 };

// The rows p and q of pair `i` at a step: of `size` rows, an even number, all meet once in size - 1 steps.
__device__ inline uint2 pair_at(unsigned i, unsigned step, unsigned size)
{
    const unsigned turning = size - 1;
    return i == 0 ? make_uint2(turning, step)
                  : make_uint2((step + i) % turning, (step + turning - i) % turning);
}

// (c, s): the rows c * p - s * q and s * p + c * q, and columns alike, have a 0 where they meet. (1, 0) where p and
// q are as good as that already.
__device__ inline double2 rotation(double pp, double qq, double pq, double threshold)
{
    if (!(fabs(pq) > threshold)) return make_double2(1, 0);
    const double theta = (qq - pp) / (2 * pq);
    const double tangent = copysign(1 / (fabs(theta) + sqrt(fma(theta, theta, 1))), theta);
    const double cosine = 1 / sqrt(fma(tangent, tangent, 1));
    return make_double2(cosine, tangent * cosine);
}

// Two numbers of rows (or columns) p and q, turned.
__device__ inline void turn(double& p, double& q, double2 by)
{
    const double before = p;
    p = fma(by.x, p, -(by.y * q));
    q = fma(by.y, before, by.x * q);
}

// inverse (rank, rank) = the pseudo-inverse of V, in one block; nothing where *singular is 0. Eigenvalues not above
// `tolerance` times the largest count as 0.
//
// `matrix` (size, size) is V, which rotations make diagonal, `vectors` their product: its rows become the
// eigenvectors. Where rank is odd, a row and a column of zeros make size even. Rotations of a step have no row in
// common: the four elements where two pairs meet depend on each other only.
extern "C" __global__ void __launch_bounds__(most_threads)
pseudo_invert(const double* __restrict__ grams, unsigned order, unsigned mode, unsigned rank, double tolerance,
              double* matrix, double* vectors, double* __restrict__ inverse, const int* __restrict__ singular)
{
    if (!*singular) return;
    extern __shared__ double2 rotations[];
    const unsigned threads = blockDim.x, size = rank + rank % 2, pairs = size / 2;
    for (unsigned e = threadIdx.x; e < size * size; e += threads) {
        const unsigned i = e / size, j = e % size;
        matrix[e] = i < rank && j < rank ? product_of_grams(grams, order, mode, rank, i * rank + j) : 0;
        vectors[e] = i == j;
    }
    __syncthreads();
    double trace = 0;
    for (unsigned i = 0; i < rank; ++i) trace += matrix[i * size + i];
    const double threshold = trace * 0x1p-55;
    bool turned = true;
    for (unsigned sweep = 0; turned && sweep < most_sweeps; ++sweep) {
        turned = false;
        for (unsigned step = 0; step < size - 1; ++step) {
            bool any = false;
            for (unsigned i = threadIdx.x; i < pairs; i += threads) {
                const uint2 at = pair_at(i, step, size);
                rotations[i] = rotation(matrix[at.x * size + at.x], matrix[at.y * size + at.y],
                                        matrix[at.x * size + at.y], threshold);
                any |= rotations[i].y != 0;
            }
            if (!__syncthreads_or(any)) continue;
            turned = true;
            for (unsigned e = threadIdx.x; e < pairs * pairs; e += threads) {
                const unsigned i = e / pairs, j = e % pairs;
                const uint2 rows = pair_at(i, step, size), columns = pair_at(j, step, size);
                double *const upper = matrix + rows.x * size, *const lower = matrix + rows.y * size;
                double a = upper[columns.x], b = upper[columns.y], c = lower[columns.x], d = lower[columns.y];
                turn(a, c, rotations[i]), turn(b, d, rotations[i]);
                turn(a, b, rotations[j]), turn(c, d, rotations[j]);
                if (i == j && rotations[i].y != 0) b = c = 0;
                upper[columns.x] = a, upper[columns.y] = b, lower[columns.x] = c, lower[columns.y] = d;
            }
            for (unsigned e = threadIdx.x; e < pairs * size; e += threads) {
                const uint2 rows = pair_at(e / size, step, size);
                turn(vectors[rows.x * size + e % size], vectors[rows.y * size + e % size], rotations[e / size]);
            }
            __syncthreads();
        }
    }
    double largest = 0;
    for (unsigned i = 0; i < rank; ++i) largest = fmax(largest, matrix[i * size + i]);
    for (unsigned e = threadIdx.x; e < rank * rank; e += threads) {
        double sum = 0;
        for (unsigned i = 0; i < size; ++i) {
            const double value = matrix[i * size + i], *const vector = vectors + i * size;
            if (value > tolerance * largest) sum = fma(vector[e / rank] / value, vector[e % rank], sum);
        }
        inverse[e] = sum;
    }
}
