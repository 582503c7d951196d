"""The cases of the harness, one module for each algorithm."""

from simwarp.verify.case import Case
from simwarp.verify.cases import bconv2d, bits, blas3, bmm, bnn, conv, mttkrp, pack

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *pack.CASES,
        *bmm.CASES,
        *bits.CASES,
        *bconv2d.CASES,
        *mttkrp.CASES,
        *bnn.CASES,
        *blas3.CASES,
        *conv.CASES,
    )
}
"""All cases by name, in the order of reports."""
