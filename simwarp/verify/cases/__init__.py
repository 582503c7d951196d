"""Every case by its name, one file for each algorithm."""

from simwarp.verify.case import Case
from simwarp.verify.cases import bconv2d, bmm, mttkrp, pack

CASES: dict[str, Case] = {
    case.name: case for case in (*pack.CASES, *bmm.CASES, *bconv2d.CASES, *mttkrp.CASES)
}
"""All cases, in the order in which they are shown."""
