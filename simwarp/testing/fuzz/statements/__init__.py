"""The kinds of statement. A new one is a class in a module here, and its name in `KINDS`."""

from simwarp.testing.fuzz.statements.block import Exchange, Handover, Poll, Sync, Tally
from simwarp.testing.fuzz.statements.compute import Chain, Compute
from simwarp.testing.fuzz.statements.control import Call, DeadBranch, If, Leave, Loop, Switch
from simwarp.testing.fuzz.statements.memory import Atomic, Hint, Load, Locate, Store
from simwarp.testing.fuzz.statements.warp import Warp

KINDS = (
    *(Compute, Chain, Warp, Load, Store, Atomic, Exchange, Sync, Hint, Locate, Call, Poll, Handover, Tally),
    *(If, Switch, Loop, DeadBranch, Leave),
)
"""The kinds that are drawn. In another order, or with others, a seed gives other programs."""
