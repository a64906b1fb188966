"""Which fetcher copies what: one a leader and connection, and none that has nothing to copy."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from sparklog.broker.replication import fetchers as fetchers_module
from sparklog.broker.replication.fetchers import Fetchers
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.vigil import Sight
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import BrokerInfo

US, ONE, TWO = 9, 1, 2
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class FakeFetcher:
    """In place of a ReplicaFetcher: what it is to copy, and whether it hung up."""

    made: "list[FakeFetcher]"

    def __init__(self, leader, _config, _replicas, _turns, _clock, *, ways, broker_epoch, on_contact):
        self.leader, self.find, self.broker_epoch, self.on_contact = leader, ways.find, broker_epoch, on_contact
        self.followed, self.closed = {}, False
        self.gate = asyncio.Event()
        self.gate.set()
        FakeFetcher.made.append(self)

    def follow(self, tp, leader_epoch):
        assert not self.closed
        self.followed[tp] = leader_epoch

    def leave(self, tp):
        self.followed.pop(tp, None)

    @property
    def partitions(self):
        return len(self.followed)

    async def close(self):
        await self.gate.wait()
        self.closed = True


class Stage:
    def __init__(self, monkeypatch, **settings):
        FakeFetcher.made = []
        monkeypatch.setattr(fetchers_module, "ReplicaFetcher", FakeFetcher)
        self.leaders = {}
        brokers = {ONE: BrokerInfo(ONE, Endpoint("one", 1)), TWO: BrokerInfo(TWO, Endpoint("two", 2))}
        self.doubted, self.sights, self.clock = set[int](), {}, ManualClock()
        metadata = SimpleNamespace(brokers=brokers, doubt=self.doubted.add, believe=self.doubted.discard)
        looks = SimpleNamespace(at=self._at)
        replicas = SimpleNamespace(partition=self._partition)
        config = BrokerConfig(**settings)
        self.fetchers = Fetchers(config, metadata, replicas, None, self.clock, lambda: 70, looks)

    async def _at(self, endpoint):
        await asyncio.sleep(0)
        return self.sights[endpoint.host]

    def _partition(self, tp):
        if tp not in self.leaders:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
        leader, epoch = self.leaders[tp]
        return SimpleNamespace(is_leader=leader == US, leader=leader, leader_epoch=epoch)

    def look(self, tp, leader=None, epoch=0):
        """The controller has decided, or the partition is gone."""
        if leader is None:
            self.leaders.pop(tp, None)
        else:
            self.leaders[tp] = leader, epoch
        self.fetchers.look_at(tp)

    @property
    def copied(self):
        """By leader, what is copied, and under which epochs; of those that have not hung up."""
        return {each.leader.broker_id: each.followed for each in FakeFetcher.made if not each.closed}


def on_stage(monkeypatch, test, **settings):
    @asynccontextmanager
    async def stage():
        stage = Stage(monkeypatch, **settings)
        yield stage
        await stage.fetchers.close()
        assert all(each.closed for each in FakeFetcher.made)

    async def main():
        async with asyncio.timeout(60), stage() as there:
            await test(there)

    asyncio.run(main())


def test_the_partitions_of_one_leader_share_a_fetcher(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE, 3)
        stage.look(T1, ONE, 4)
        stage.look(T2, TWO, 5)
        assert stage.copied == {ONE: {T0: 3, T1: 4}, TWO: {T2: 5}}
        assert len(FakeFetcher.made) == 2

    on_stage(monkeypatch, test)


def test_several_connections_to_a_leader_share_its_partitions(monkeypatch):
    async def test(stage):
        partitions = [TopicPartition("t", number) for number in range(40)]
        for tp in partitions:
            stage.look(tp, ONE)
        assert {each.leader.number for each in FakeFetcher.made} == {0, 1, 2}
        assert sorted(tp for each in FakeFetcher.made for tp in each.followed) == partitions
        for tp in partitions:
            stage.look(tp, ONE, 1)
        assert len(FakeFetcher.made) == 3, "a partition stays where it is"

    on_stage(monkeypatch, test, num_replica_fetchers=3)


def test_a_partition_is_copied_from_its_new_leader_and_no_longer_from_the_old_one(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE, 3)
        stage.look(T1, ONE, 3)
        stage.look(T0, TWO, 4)
        assert stage.copied == {ONE: {T1: 3}, TWO: {T0: 4}}
        stage.look(T1, TWO, 4)
        await asyncio.sleep(0)
        assert FakeFetcher.made[0].closed, "it has nothing left to copy"
        stage.look(T1, ONE, 5)
        assert stage.copied == {ONE: {T1: 5}, TWO: {T0: 4}}
        assert len(FakeFetcher.made) == 3

    on_stage(monkeypatch, test)


def test_what_is_led_here_or_by_nobody_or_is_gone_is_not_copied(monkeypatch):
    async def test(stage):
        for leader in (US, NO_LEADER, None):
            stage.look(T0, ONE, 3)
            stage.look(T0, leader, 4)
            await asyncio.sleep(0)
            assert stage.copied == {}
            stage.fetchers.leave(T0)
        assert len(FakeFetcher.made) == 3

    on_stage(monkeypatch, test)


def test_a_leader_is_found_as_the_cluster_knows_it_now(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE)
        (fetcher,) = FakeFetcher.made
        assert (fetcher.find(ONE), fetcher.broker_epoch()) == (Endpoint("one", 1), 70)
        stage.fetchers._metadata.brokers = {}
        assert fetcher.find(ONE) is None

    on_stage(monkeypatch, test)


def test_an_end_waits_for_all_that_hang_up(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE)
        stage.look(T1, TWO)
        for fetcher in FakeFetcher.made:
            fetcher.gate.clear()
        stage.fetchers.leave(T0)
        closing = asyncio.ensure_future(stage.fetchers.close())
        await asyncio.sleep(0)
        FakeFetcher.made[1].gate.set()
        await asyncio.sleep(0.01)
        assert not closing.done()
        FakeFetcher.made[0].gate.set()
        await closing

    on_stage(monkeypatch, test)


def test_a_leader_that_refuses_connections_is_doubted_for_a_while(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE)
        (fetcher,) = FakeFetcher.made
        for sight, doubted in ((Sight.REACHED, set()), (Sight.UNKNOWN, set()), (Sight.REFUSED, {ONE})):
            stage.sights["one"] = sight
            await fetcher.on_contact(ONE, False)
            assert stage.doubted == doubted, sight
        stage.clock.advance(4)
        await fetcher.on_contact(ONE, False)
        assert stage.doubted == {ONE}
        stage.clock.advance(1)
        await fetcher.on_contact(ONE, False)
        assert stage.doubted == set(), "it may be this broker alone that is refused"
        await fetcher.on_contact(ONE, True)
        await fetcher.on_contact(ONE, False)
        assert stage.doubted == {ONE}, "it was reached since"

    on_stage(monkeypatch, test)


def test_one_that_is_followed_no_longer_is_believed(monkeypatch):
    async def test(stage):
        stage.look(T0, ONE)
        stage.sights["one"] = Sight.REFUSED
        await FakeFetcher.made[0].on_contact(ONE, False)
        assert stage.doubted == {ONE}
        looking = asyncio.ensure_future(FakeFetcher.made[0].on_contact(ONE, False))
        await asyncio.sleep(0)
        stage.look(T0, TWO)
        assert stage.doubted == set()
        await looking
        assert stage.doubted == set(), "nobody would take it back"

    on_stage(monkeypatch, test)
