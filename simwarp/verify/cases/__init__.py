"""The cases of the harness, one module for each algorithm."""

from simwarp.verify.case import Case
from simwarp.verify.cases import bconv2d, bmm, bnn, mttkrp, pack

CASES: dict[str, Case] = {
    case.name: case for case in (*pack.CASES, *bmm.CASES, *bconv2d.CASES, *mttkrp.CASES, *bnn.CASES)
}
"""All cases by name, in the order of reports."""
