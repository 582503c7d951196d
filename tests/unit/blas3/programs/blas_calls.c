/* Products before main, in main, in threads and in a child process, each checked with sums of its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
            const int *, const double *, const int *, const double *, double *, const int *);
extern int plain_calls;

enum { ROWS = 101, COLUMNS = 102, PLAIN = 111, TRANSPOSED = 112 };

/* A drawn product of parts of larger matrices; 1 if it is right and nothing else of C has changed. */
static int is_right(int order, int trans_a, int trans_b, int m, int n, int k, int is_fortran)
{
    int by_columns = order == COLUMNS, turned_a = trans_a == TRANSPOSED, turned_b = trans_b == TRANSPOSED;
    int lda = (by_columns != turned_a ? m : k) + 3, ldb = (by_columns != turned_b ? k : n) + 1;
    int ldc = (by_columns ? m : n) + 5, lines = by_columns ? n : m, length = by_columns ? m : n, right = 1;
    double *a = malloc(sizeof *a * (lda * (m + k))), *b = malloc(sizeof *b * (ldb * (n + k)));
    double *c = malloc(sizeof *c * ldc * lines), *old = malloc(sizeof *c * ldc * lines);
    double alpha = 0.5, beta = 2;

    for (int i = 0; i < lda * (m + k); i++)
        a[i] = i % 7 - 3;
    for (int i = 0; i < ldb * (n + k); i++)
        b[i] = i % 5 - 1;
    for (int i = 0; i < ldc * lines; i++)
        old[i] = c[i] = i % 3;
    if (is_fortran)
        dgemm_(turned_a ? "T" : "N", turned_b ? "T" : "N", &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
    else
        cblas_dgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    for (int line = 0; line < lines; line++)
        for (int at = 0; at < ldc; at++) {
            int i = by_columns ? at : line, j = by_columns ? line : at;
            double expected = old[line * ldc + at];
            if (at < length) {
                double sum = 0;
                for (int l = 0; l < k; l++)
                    sum += a[by_columns != turned_a ? i + l * lda : l + i * lda]
                         * b[by_columns != turned_b ? l + j * ldb : j + l * ldb];
                expected = alpha * sum + beta * expected;
            }
            right &= c[line * ldc + at] == expected; /* all are multiples of a half */
        }
    free(a), free(b), free(c), free(old);
    return right;
}

static const char *word(int right)
{
    return right ? "right" : "wrong";
}

static int early;

__attribute__((constructor)) static void before_main(void)
{
    early = is_right(COLUMNS, PLAIN, PLAIN, 33, 20, 17, 1);
}

static void *in_thread(void *argument)
{
    int number = *(int *) argument;
    return (void *) (long) (is_right(ROWS, PLAIN, TRANSPOSED, 20 + number, 31, 9, 0)
                            & is_right(COLUMNS, TRANSPOSED, PLAIN, 20 + number, 11, 29, 1));
}

int main(void)
{
    pthread_t threads[4];
    int numbers[4], right, status, before;

    printf("early: %s\n", word(early));
    right = is_right(ROWS, PLAIN, PLAIN, 31, 29, 37, 0) & is_right(COLUMNS, TRANSPOSED, TRANSPOSED, 5, 47, 23, 1);
    printf("main: %s\n", word(right & is_right(COLUMNS, PLAIN, PLAIN, 2, 2, 2, 1)));
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        pthread_create(threads + i, NULL, in_thread, numbers + i);
    }
    right = 1;
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        right &= (long) result;
    }
    printf("threads: %s\n", word(right));
    printf("plain: %d\n", plain_calls);
    fflush(stdout);
    if (!fork()) {
        before = plain_calls;
        right = is_right(ROWS, PLAIN, PLAIN, 31, 29, 37, 0) & is_right(COLUMNS, PLAIN, PLAIN, 31, 29, 37, 1);
        printf("child: %s\nchild_plain: %d\n", word(right), plain_calls - before);
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    return status;
}
