"""The tile cache against a list in the order of last use."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu.blas3.cache import Entry, TileCache

KEYS = st.sampled_from("abcdef")


class CacheMachine(RuleBasedStateMachine):
    """A place is returned once, when its tile is gone and its last reader is."""

    def __init__(self) -> None:
        super().__init__()
        self.returned: list[int] = []
        self.cache: TileCache[str, int] = TileCache(self.returned.append)
        self.order: list[str] = []
        self.held: dict[str, Entry[str, int]] = {}
        self.readers: list[Entry[str, int]] = []
        self.places = 0
        self.gone = 0

    @rule(key=KEYS)
    def use(self, key: str) -> None:
        entry = self.cache.take(key)
        assert (entry is not None) == (key in self.order)
        if entry is None:
            entry = self.cache.insert(key, self.places)
            self.places += 1
            self.held[key] = entry
        else:
            assert entry is self.held[key]
            self.order.remove(key)
        self.order.append(key)
        self.readers.append(entry)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        entry = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        is_last = entry not in self.readers
        before = len(self.returned)
        self.cache.release(entry)
        assert len(self.returned) - before == (is_last and entry not in self.held.values())

    @rule()
    def evict(self) -> None:
        free = [key for key in self.order if self.held[key] not in self.readers]
        evicted = self.cache.evict()
        assert evicted == (free[0] if free else None)
        if evicted is not None:
            assert self.returned[-1] == self.held[evicted].place
            self.forget(evicted)

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.order))
        self.cache.drop(key)
        self.forget(key)

    def forget(self, key: str) -> None:
        self.order.remove(key)
        del self.held[key]
        self.gone += 1

    @invariant()
    def each_place_is_in_use_or_returned_once(self) -> None:
        in_use = {entry.place for entry in [*self.held.values(), *self.readers]}
        assert len(set(self.returned)) == len(self.returned)
        assert in_use.isdisjoint(self.returned)
        assert len(in_use) + len(self.returned) == self.places
        assert len(self.cache) == len(self.order)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
