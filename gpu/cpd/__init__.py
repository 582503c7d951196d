"""CP decomposition of a sparse tensor by alternating least squares (CPD-ALS) on a device."""

from gpu.cpd.cpd import cpd_als

__all__ = ["cpd_als"]
