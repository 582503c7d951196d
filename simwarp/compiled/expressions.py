"""Values that record how they are computed.

The function of a row is called with them in place of arrays: it has one meaning, and the expression is what
it computed. A row that looks at values, or uses what is not recorded, raises, and stays with NumPy.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from simwarp.lanes import WARP_SIZE

OPERATIONS = {
    **dict.fromkeys(("add", "subtract", "multiply", "minimum", "maximum", "negative"), "iuf"),
    **dict.fromkeys(("divide", "isnan", "sqrt", "rint", "floor", "ceil", "trunc"), "f"),
    **dict.fromkeys(("floor_divide", "remainder", "bitwise_count"), "u"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "invert"), "biu"),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), "b"),
    **dict.fromkeys(("left_shift", "right_shift"), "iu"),
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), "biuf"),
}
"""The ufuncs that are recorded, by the kinds of their first operand."""


_OF_PYTHON: dict[Any, Any] = {int: int, float: float, bool: np.dtype(np.bool_)}


class UntraceableError(Exception):
    """A function needs values, or an operation that is not recorded."""


class Value(NDArrayOperatorsMixin):
    """The result of an operation in every lane.

    ``name`` is that of a ufunc, or "cast", "view", "where", "input", "constant", "byteswap" or a name of
    `simwarp.compiled.lowering`; ``about`` is the input's key, or the constant.
    """

    shape = (2, WARP_SIZE)
    ndim = 2
    __array_priority__ = 1000

    def __init__(self, name: str, dtype: Any, arguments: tuple[Value, ...] = (), about: Any = None) -> None:
        self.name, self.dtype, self.arguments, self.about = name, np.dtype(dtype), arguments, about

    # ---- what NumPy calls ------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """The result of a ufunc, with the types that NumPy would choose."""
        loop = options.pop("dtype", None)
        if method != "__call__" or options or ufunc.nout != 1:
            raise UntraceableError(ufunc.__name__)
        if loop is not None:
            kinds: tuple[Any, ...] = (np.dtype(loop),) * (ufunc.nin + 1)
        else:
            kinds = ufunc.resolve_dtypes((*map(_kind, inputs), None))
        if kinds[0].kind not in OPERATIONS.get(ufunc.__name__, "") or any(k == np.float16 for k in kinds):
            raise UntraceableError(ufunc.__name__)
        return Value(ufunc.__name__, kinds[-1], tuple(map(cast, inputs, kinds)))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """`numpy.where`, `clip`, `broadcast_arrays`, `ndim` and `all`."""
        if function is np.where and len(args) == 3 and not options:
            return where(*args)
        if function is np.clip and len(args) == 3 and not options:
            return np.minimum(np.maximum(args[0], args[1]), args[2])
        if function is np.broadcast_arrays and not options:
            return args
        if function is np.ndim:
            return self.ndim
        if function is np.all:  # rows ask in order to leave out what changes nothing
            return False
        raise UntraceableError(function.__name__)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: an array would have no values."""
        raise UntraceableError("asarray")

    # ---- methods of arrays -----------------------------------------------------------------------------

    def astype(self, dtype: Any) -> Value:
        """The value converted as C does."""
        return cast(self, np.dtype(dtype))

    def view(self, dtype: Any) -> Value:
        """The bits as another type of the same width."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        unknown = np.bool_ in (wanted, self.dtype) or np.float16 in (wanted, self.dtype)
        if wanted.itemsize != self.dtype.itemsize or unknown:
            raise UntraceableError("view")
        return Value("view", wanted, (self,))

    def byteswap(self) -> Value:
        """The bytes in reverse order."""
        return Value("byteswap", self.dtype, (self,))

    def any(self) -> bool:
        """True: rows ask in order to leave out what changes nothing."""
        return True

    def __bool__(self) -> NoReturn:
        raise UntraceableError("bool")

    def __hash__(self) -> int:
        return id(self)


def _kind(x: Any) -> Any:
    """What stands for an operand when NumPy chooses types: a dtype, or the type of a Python number."""
    dtype: Any = getattr(x, "dtype", None)
    if dtype is not None:
        return dtype
    for kind, of in _OF_PYTHON.items():
        if type(x) is kind:
            return of
    raise UntraceableError("an operand without a type")


def constant(x: Any, dtype: np.dtype[Any]) -> Value:
    """A number, or an array of one number, as a value."""
    array = np.asarray(x)
    if array.size == 0 or (array.size > 1 and not (array == array.reshape(-1)[0]).all()):
        raise UntraceableError("an array of several numbers")
    with np.errstate(all="ignore"):
        number = array.reshape(-1)[0] if array.dtype == dtype else array.reshape(-1)[:1].astype(dtype)[0]
    if isinstance(x, int) and not isinstance(x, bool) and dtype.kind in "iu" and int(number) != x:
        raise UntraceableError("a number that does not fit")
    return Value("constant", dtype, about=number)


def cast(x: Any, dtype: np.dtype[Any]) -> Value:
    """A value, or a number, converted to a type as C does."""
    if not isinstance(x, Value):
        return constant(x, dtype)
    if x.dtype == dtype:
        return x
    if (x.dtype.kind == "f" and dtype.kind in "iub") or np.float16 in (x.dtype, dtype):  # C leaves it open
        raise UntraceableError("a float as an integer")
    return Value("cast", dtype, (x,))


def where(condition: Any, x: Any, y: Any) -> Any:
    """`numpy.where` of three operands."""
    if not isinstance(condition, Value):
        raise UntraceableError("where without lanes")
    kinds: list[Any] = [z if type(z) in (int, float) else _kind(z) for z in (x, y)]
    dtype = np.result_type(*kinds)
    return Value("where", dtype, (cast(condition, np.dtype(np.bool_)), cast(x, dtype), cast(y, dtype)))
