"""What can be wrong with a question about fragments."""

from __future__ import annotations

from reference.errors import SimwarpError


class FragmentError(SimwarpError, ValueError):
    """An instruction that does not exist, or a lane, register or element outside of a fragment."""
