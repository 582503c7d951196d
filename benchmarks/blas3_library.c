/* Times dgemm_ of square matrices in this program's memory: blas3_library.c ROUNDS N …; with XT in the environment,
   cublasXtDgemm of that library instead. A line for each N: N, the seconds of each round, and the largest error
   of sampled elements over the largest sum of products. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
            const int *, const double *, const int *, const double *, double *, const int *);

typedef int xt_dgemm(void *, int, int, size_t, size_t, size_t, const double *, const double *, size_t, const double *,
                     size_t, const double *, double *, size_t);

static void *handle;
static xt_dgemm *multiply_by_xt;

static void open_xt(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int device = 0;

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    int (*create)(void **) = dlsym(library, "cublasXtCreate");
    int (*choose)(void *, int, int *) = dlsym(library, "cublasXtDeviceSelect");
    int (*set_tile)(void *, int) = dlsym(library, "cublasXtSetBlockDim");
    multiply_by_xt = (xt_dgemm *) dlsym(library, "cublasXtDgemm");
    if (create(&handle) || choose(handle, 1, &device) || set_tile(handle, 4096)) {
        fprintf(stderr, "cublasXt does not start\n");
        exit(2);
    }
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static double error_of(const double *a, const double *b, const double *c, size_t n)
{
    double worst = 0;

    for (size_t sample = 0; sample < 64; sample++) {
        size_t i = sample * 7919 % n, j = sample * 104729 % n;
        double sum = 0;
        for (size_t k = 0; k < n; k++)
            sum += a[i + k * n] * b[k + j * n];
        worst = fmax(worst, fabs(sum - c[i + j * n]));
    }
    return worst / n;
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[1]) : 0;

    if (getenv("XT"))
        open_xt(getenv("XT"));
    for (int at = 2; at < count; at++) {
        int n = atoi(arguments[at]);
        size_t size = (size_t) n * n;
        double *a = malloc(8 * size), *b = malloc(8 * size), *c = malloc(8 * size), one = 1, zero = 0;
        for (size_t i = 0; i < size; i++) {
            a[i] = (i * 2654435761u % 1000) / 1000.0 - 0.5;
            b[i] = (i * 40503u % 1000) / 1000.0 - 0.5;
            c[i] = 0;
        }
        printf("%d", n);
        for (int round = 0; round <= rounds; round++) { /* the first does not count */
            double start = now();
            if (handle) {
                if (multiply_by_xt(handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n))
                    return 3;
            } else {
                dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
            }
            if (round)
                printf(" %.6f", now() - start);
        }
        printf(" %.3g\n", error_of(a, b, c, n));
        fflush(stdout);
        free(a), free(b), free(c);
    }
    return 0;
}
