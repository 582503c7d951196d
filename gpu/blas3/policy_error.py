"""The error of a policy that breaks its own protocol."""

from reference.errors import SimwarpError


class PolicyError(SimwarpError, RuntimeError):
    """A double free, the release of a tile that nobody reads, or another state that must not occur."""
