"""Level-3 BLAS over all devices of a machine, from host memory (BLASX)."""
