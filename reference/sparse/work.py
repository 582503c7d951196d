"""The work of an MTTKRP in each format: operations, rows of factors that are read, rows that are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from reference.errors import FormatError, ShapeError
from reference.sparse.convert import check_kind
from reference.sparse.formats import OF_TYPE
from reference.types import Coo, FCoo, Fibers, PerMode, SparseTensor
from reference.types.arguments import check_mode, check_option, is_integer

By: TypeAlias = Literal["algorithms", "paper"]


@dataclass(frozen=True)
class MttkrpWork:
    """The work of an MTTKRP.

    Attributes
    ----------
    flops : int
        Multiplications and additions of elements, those into the result included.
    reads : int
        Elements of factor matrices that are read.
    writes : int
        Elements of the result that are added to or stored.

    Examples
    --------
    >>> MttkrpWork(3, 2, 1) + MttkrpWork(30, 20, 10)
    MttkrpWork(flops=33, reads=22, writes=11)
    """

    flops: int
    reads: int
    writes: int

    def __add__(self, other: MttkrpWork) -> MttkrpWork:
        return MttkrpWork(self.flops + other.flops, self.reads + other.reads, self.writes + other.writes)


def mttkrp_work(
    tensor: SparseTensor, rank: int, mode: int | None = None, *, by: By = "algorithms"
) -> MttkrpWork:
    """Return the operations, reads and writes of an MTTKRP, for one mode or all modes one after another.

    What the algorithms do for an order-d tensor of M nonzeros in S slices and F fibers, pieces of split
    fibers counted, times the rank:

    =========================== ======================= ============= ======
    representation and mode     flops                   reads         writes
    =========================== ======================= ============= ======
    Coo, HiCoo                  d M                     (d - 1) M     M
    FCoo, its mode              d M                     (d - 1) M     rows
    tree, root (algs. 2, 6)     2 M + (d - 1) F + S     (d - 2) F + M S
    tree, in between (alg. 7)   2 M + (d - 1) F         (d - 2) F + M F
    tree, leaves (alg. 8)       2 M + (d - 2) F         (d - 1) F     M
    =========================== ======================= ============= ======

    A tree is a Csf, a BCsf, Fibers, or a partition of an MmCsf, whose partitions are added. A PerMode has one
    representation for each mode. The writes of Coo, HiCoo and algorithm 7 are the most that a kernel needs,
    as neighbours with one row may be added up before; those of a root are the fewest, as several groups of
    threads may work on one slice.

    ``by="paper"`` is table 3, which is for three modes, all of them together:

    ============================== ============= =========== ==========
    format                         flops         reads       writes
    ============================== ============= =========== ==========
    Coo                            9 M           6 M         3 M
    PerMode of trees, for each one S + 2 F + 2 M F + M       S
    Csf, BCsf                      S + 4 F + 5 M 3 (F + M)   S + F + M
    Fibers, MmCsf, for each one    S + 4 F + 5 M 3 (F + M)   2 F + M
    ============================== ============= =========== ==========

    Parameters
    ----------
    tensor : any of `reference.types.SparseTensor`
        On the host.
    rank : int
        The columns of the factors.
    mode : int, optional
        By default all modes.
    by : {"algorithms", "paper"}

    Returns
    -------
    MttkrpWork

    Raises
    ------
    SchemeError
        For an unknown ``by``.
    DtypeError
        If the tensor is in none of the formats.
    ShapeError
        For a mode that the tensor does not have, a rank below 1; for ``by="paper"`` if the tensor does not
        have three modes, or a mode is given.
    FormatError
        If the arrays are on a device; for an FCoo of another mode; for ``by="paper"`` if table 3 does not
        have the format.

    Notes
    -----
    Three places of table 3 are at odds with the paper's text. Printed reads of MM-CSF lack the factor 3, the
    number of modes, which those of SPLATT-ONE have. The flops of one tree are printed as S + 4 F + 5 M; the
    footnote's three summands give S + 4 F + 7 M, with 3 M for the leaves, and algorithm 8 needs F + 2 M there
    if it multiplies the rows of a fiber once. And the text counts (S + M) R reads for algorithm 7 and (S + F)
    R for algorithm 8, where the row of a slice is kept from one fiber to the next. So ``by="paper"`` repeats
    the table, with that factor, and ``by="algorithms"`` is what kernels do.

    Source: MM-CSF (SC'19), table 3 and sections 3.1 and 5.1 to 5.3.

    Examples
    --------
    >>> from reference.sparse import csf_all, mm_csf
    >>> coo = Coo([[0, 0, 0, 1], [1, 1, 1, 0], [0, 2, 3, 3]], [1.0, 2.0, 3.0, 4.0], (2, 3, 4))
    >>> mttkrp_work(coo, 10)
    MttkrpWork(flops=360, reads=240, writes=120)
    >>> mttkrp_work(mm_csf(coo), 10, mode=2)
    MttkrpWork(flops=100, reads=40, writes=40)
    >>> mttkrp_work(csf_all(coo), 10) == mttkrp_work(csf_all(coo), 10, by="paper")
    True
    """
    check_option("by", by, ("algorithms", "paper"), "work is that of the algorithms, or of table 3")
    check_kind(tensor)
    rank, order = _checked_rank(rank), len(tensor.shape)
    if by == "paper":
        work = _by_table(tensor, mode)
    else:
        modes = range(order) if mode is None else [check_mode(mode, order)]
        work = sum((_of_mode(tensor, one) for one in modes), MttkrpWork(0, 0, 0))
    return MttkrpWork(work.flops * rank, work.reads * rank, work.writes * rank)


def _of_mode(tensor: Any, mode: int) -> MttkrpWork:
    """The work for one mode and one column."""
    if isinstance(tensor, PerMode):
        return _of_mode(tensor.tensors[mode], mode)
    return sum((_of_part(part, mode) for part in tensor.parts or (tensor,)), MttkrpWork(0, 0, 0))


def _of_part(part: Any, mode: int) -> MttkrpWork:
    """The work for one mode and one column of a tensor that is not made of others."""
    d, nonzeros = len(part.shape), _nonzeros(part)
    count = OF_TYPE[type(part)].slices_and_fibers
    if count is None:
        rows = _segments(part, mode) if isinstance(part, FCoo) else nonzeros
        return MttkrpWork(d * nonzeros, (d - 1) * nonzeros, rows)
    level, (slices, fibers) = part.modes.index(mode), count(part)
    if level == d - 1:
        return MttkrpWork(2 * nonzeros + (d - 2) * fibers, (d - 1) * fibers, nonzeros)
    sums, reads = 2 * nonzeros + (d - 1) * fibers, (d - 2) * fibers + nonzeros
    return MttkrpWork(sums + slices, reads, slices) if level == 0 else MttkrpWork(sums, reads, fibers)


def _by_table(tensor: Any, mode: int | None) -> MttkrpWork:
    """Table 3 for one column."""
    if len(tensor.shape) != 3 or mode is not None:
        raise ShapeError(
            f"the tensor has {len(tensor.shape)} modes, mode is {mode}\n"
            "table 3 is for three modes, all of them together\nleave out by='paper'"
        )
    if isinstance(tensor, Coo):
        nonzeros = _nonzeros(tensor)
        return MttkrpWork(9 * nonzeros, 6 * nonzeros, 3 * nonzeros)
    parts = tensor.parts or (tensor,)
    return sum((_of_tree(part, isinstance(tensor, PerMode)) for part in parts), MttkrpWork(0, 0, 0))


def _of_tree(part: Any, for_root: bool) -> MttkrpWork:
    """The row of table 3 for a tree, used for the mode of its root or for all modes."""
    count, m = OF_TYPE[type(part)].slices_and_fibers, _nonzeros(part)
    if count is None:
        raise FormatError(
            f"table 3 does not have {type(part).__name__}\n"
            "it has COO, CSF for one and for all modes, and MM-CSF\n"
            "leave out by='paper'"
        )
    s, f = count(part)
    if for_root:
        return MttkrpWork(s + 2 * f + 2 * m, f + m, s)
    return MttkrpWork(s + 4 * f + 5 * m, 3 * (f + m), (2 * f if isinstance(part, Fibers) else s + f) + m)


def _segments(part: FCoo, mode: int) -> int:
    """The rows of the result that an F-COO has."""
    if part.modes[0] != mode:
        raise FormatError(
            f"this FCoo was made for mode {part.modes[0]}, not for mode {mode}\n"
            "it is sorted for one mode\ngive f_coo_all(coo), or its mode"
        )
    return int(part.rows.size)


def _checked_rank(rank: object) -> int:
    if not is_integer(rank) or rank < 1:
        raise ShapeError(f"rank={rank!r}\na factor has at least one column\ngive their number, an int")
    return int(rank)


def _nonzeros(part: Any) -> int:
    if hasattr(part.values, "pointer"):
        raise FormatError(
            "the tensor is on a device\nits indices are counted, which must be on the host\n"
            "call mttkrp_work before the upload"
        )
    return int(part.values.size)
