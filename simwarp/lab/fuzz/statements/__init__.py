"""The kinds of statement; to add one, write a class in a module here and append it to `KINDS`."""

from simwarp.lab.fuzz.statements.block import ArriveAndSync, BarrierVote, Exchange, Sync, Tally
from simwarp.lab.fuzz.statements.compute import Chain, Compute
from simwarp.lab.fuzz.statements.control import Call, DeadBranch, Exit, If, Loop, Switch
from simwarp.lab.fuzz.statements.memory import AddressQuery, AsyncCopy, Atomic, CacheHint, Load, Store
from simwarp.lab.fuzz.statements.warp import Warp

KINDS = (
    *(Compute, Chain, Warp, Load, Store, Atomic, Exchange, Sync, CacheHint, AddressQuery, Call),
    *(BarrierVote, ArriveAndSync, Tally, If, Switch, Loop, DeadBranch, Exit, AsyncCopy),
)
"""The kinds of statement that programs have. Their order is part of the generator's definition."""
