"""The error of a policy that violates its own protocol."""

from reference.errors import SimwarpError


class PolicyError(SimwarpError, RuntimeError):
    """A double free, the release of a tile without readers, or another state that must not occur."""
