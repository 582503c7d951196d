"""``libsimwarpblas.so``: calls of level-3 BLAS of any program, by CBLAS's or Fortran's names, to `gpu.blas3`.

A program started with it in ``LD_PRELOAD`` runs Python within its process from its first large call on.
"""

from simwarp.exec.blas.build import build_library

__all__ = ["build_library"]


def __dir__() -> list[str]:
    return sorted(__all__)
