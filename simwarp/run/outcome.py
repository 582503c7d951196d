"""Results and faults as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

from simwarp.faults import KernelFault, Place


def fault_to_json(fault: KernelFault) -> dict[str, Any]:
    r"""A fault with all its fields; places become dictionaries.

    Examples
    --------
    >>> fault = KernelFault("too late", "values", "advice", Place(kernel="k", lane=3))
    >>> data = fault_to_json(fault)
    >>> data["class"], data["place"]["lane"], data["message"]
    ('KernelFault', 3, 'too late: kernel k, lane 3\nvalues\nadvice')
    """
    more = {name: _plain(value) for name, value in vars(fault).items() if isinstance(value, _KEPT)}
    return {
        "class": type(fault).__name__,
        "check": fault.check,
        "count": fault.count,
        **more,
        "message": str(fault),
    }


_KEPT = (int, str, tuple, Place)


def _plain(value: Any) -> Any:
    if isinstance(value, Place):
        return asdict(value)
    return [_plain(item) for item in cast("tuple[Any]", value)] if isinstance(value, tuple) else value
