"""The kinds of statement. A new one is a class in a module here, and its name in `KINDS`."""

from simwarp.lab.fuzz.statements.block import ArriveAndSync, BarrierVote, Exchange, Sync, Tally
from simwarp.lab.fuzz.statements.compute import Chain, Compute
from simwarp.lab.fuzz.statements.control import Call, DeadBranch, Exit, If, Loop, Switch
from simwarp.lab.fuzz.statements.memory import AddressQuery, Atomic, CacheHint, Load, Store
from simwarp.lab.fuzz.statements.warp import Warp

KINDS = (
    *(Compute, Chain, Warp, Load, Store, Atomic, Exchange, Sync, CacheHint, AddressQuery, Call),
    *(BarrierVote, ArriveAndSync, Tally, If, Switch, Loop, DeadBranch, Exit),
)
"""The kinds that are drawn. In another order, or with others, a seed gives other programs."""
