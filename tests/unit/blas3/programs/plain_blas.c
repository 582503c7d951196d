/* A plain BLAS with the two functions that blas_calls.c calls; it counts its calls. */
int plain_calls;

void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double *a, int lda,
                 const double *b, int ldb, double beta, double *c, int ldc)
{
    int down_a = (order == 102) == (trans_a == 111) ? 1 : lda, right_a = down_a == 1 ? lda : 1;
    int down_b = (order == 102) == (trans_b == 111) ? 1 : ldb, right_b = down_b == 1 ? ldb : 1;
    int down_c = order == 102 ? 1 : ldc, right_c = order == 102 ? ldc : 1;

    __sync_fetch_and_add(&plain_calls, 1);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += a[i * down_a + l * right_a] * b[l * down_b + j * right_b];
            double *at = c + i * down_c + j * right_c;
            *at = alpha * sum + (beta ? beta * *at : 0);
        }
}

void dgemm_(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k, const double *alpha,
            const double *a, const int *lda, const double *b, const int *ldb, const double *beta, double *c,
            const int *ldc)
{
    cblas_dgemm(102, *trans_a == 'N' ? 111 : 112, *trans_b == 'N' ? 111 : 112, *m, *n, *k, *alpha, a, *lda, b, *ldb,
                *beta, c, *ldc);
}
