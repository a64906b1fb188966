"""Whose markers a partition takes: nobody's who claims an epoch that no coordinator has been given."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from broker.test_pace import with_others
from log.samples import marker_of, open_log, transactional
from replica.test_following import LEADER, Pair, decision
from replica.test_following import TP as LED

from sparklog.broker.txn.markers import TransactionMarkers
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.log.directories.manager import LogManager
from sparklog.log.origin import AppendOrigin
from sparklog.record.control import ControlType
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.structs import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.txn.markers import Marker
from sparklog.txn.state import Producer
from sparklog.zk.znodes import PartitionState, TopicAssignment

TP = TopicPartition("t", 0)
NOWHERE = TopicPartition("t", 7)
PRODUCER = 5
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Replicas:
    """One partition, of which this broker is the only replica."""

    def __init__(self, log):
        self.log = log

    def leads(self, tp):
        return tp == TP

    def partition(self, tp):
        if tp != TP:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Partition(tp, 0, self.log)

    def append_replicated(self, tp, batch, timeout_ms, origin):
        self.partition(tp).log.append_as_leader(memoryview(bytearray(batch)), 0, origin)
        return asyncio.sleep(0)


class ZooKeeper:
    """``epochs``: of the partitions of ``__transaction_state``; None: it does not answer. ``others``: the partitions of
    other topics, None for one whose znode says nothing.
    """

    def __init__(self, *epochs, **others):
        self.epochs = epochs
        self.others = others
        self.asked = 0
        self.topics = self.states = self

    async def run(self, call, *args):
        self.asked += 1
        if self.epochs is None:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return call(*args)

    def names(self):
        return [*self.others]

    def assignment(self, topic):
        if topic in self.others:
            if self.others[topic] is None:
                raise MalformedZnode("it says nothing")
            return TopicAssignment(topic, dict.fromkeys(range(self.others[topic]), (0,)), None)
        assert topic == TRANSACTIONS_TOPIC
        return TopicAssignment(topic, dict.fromkeys(range(len(self.epochs)), (0,)), None)

    def read(self, partitions):
        return {tp: PartitionState(0, self.epochs[tp.partition], (0,), 1) for tp in partitions}


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(transactional(PRODUCER, 0), 0, AppendOrigin.REPLICATION)
    yield log
    log.close()


def markers_of(log, zookeeper, known=()):
    """``known``: the epochs that the controller has told this broker."""
    partitions = {number: SimpleNamespace(leader_epoch=epoch) for number, epoch in enumerate(known)}
    topic = SimpleNamespace(partitions=partitions) if known else None
    metadata = SimpleNamespace(
        topic=lambda name: topic if name == TRANSACTIONS_TOPIC else None, knows=lambda tp: tp == TP
    )
    return TransactionMarkers(Replicas(log), metadata, None, ManualClock(), zookeeper, zookeeper.run, None)


def taken(markers, epoch, tp=TP):
    return asyncio.run(markers.take(Marker(Producer(PRODUCER, 0), True, epoch), [tp]))[tp]


def test_an_epoch_that_no_coordinator_has_is_refused_and_leaves_nothing_behind(log):
    markers = markers_of(log, ZooKeeper(3, 6), known=(3, 4))
    assert taken(markers, 7) is REFUSED
    assert log.coordinator_epoch(PRODUCER) == -1
    assert taken(markers, 6) is ErrorCode.NONE
    assert log.first_unstable_offset is not None  # until the high watermark has passed the marker
    assert not log.has_open_transaction(PRODUCER, 0)


def test_zookeeper_is_asked_only_about_what_is_news(log):
    zookeeper = ZooKeeper(3, 6)
    markers = markers_of(log, zookeeper, known=(3, 4))
    assert taken(markers, 4) is ErrorCode.NONE
    assert zookeeper.asked == 0
    assert taken(markers, 6) is ErrorCode.NONE
    assert zookeeper.asked == 1
    assert taken(markers, 6) is ErrorCode.NONE
    assert zookeeper.asked == 1


def test_without_an_answer_of_zookeeper_the_coordinator_is_to_try_again(log):
    zookeeper = ZooKeeper()
    zookeeper.epochs = None
    assert taken(markers_of(log, zookeeper, known=(3,)), 4) is ErrorCode.REQUEST_TIMED_OUT


def test_a_partition_that_is_not_here_is_named_as_before(log):
    assert taken(markers_of(log, ZooKeeper(0)), 0, NOWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_once_believed_a_false_coordinator_believes_the_true_one_again(log, caplog):
    log.append_as_leader(marker_of(PRODUCER, ControlType.ABORT, coordinator_epoch=999), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(PRODUCER, 1), 0, AppendOrigin.REPLICATION)
    markers = markers_of(log, ZooKeeper(3, 6), known=(3, 6))
    assert taken(markers, 6) is ErrorCode.NONE
    assert "bears the coordinator epoch 999, and none above 6 has been given" in caplog.text
    assert log.coordinator_epoch(PRODUCER) == 6
    assert not log.has_open_transaction(PRODUCER, 0)


def test_a_coordinator_that_was_replaced_is_refused(log):
    log.append_as_leader(marker_of(PRODUCER, ControlType.ABORT, coordinator_epoch=6), 0, AppendOrigin.COORDINATOR)
    assert taken(markers_of(log, ZooKeeper(3, 6), known=(3, 6)), 5) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("hangs_up", [True, False])
def test_what_a_marker_ends_is_told_though_the_asker_does_not_hear_that_it_is_replicated(
    tmp_path, monkeypatch, hangs_up
):
    """It is in the log: a group would keep as open, and count with the next commit, what the log has as aborted.
    An administrator that was told REQUEST_TIMED_OUT sends no other marker.
    """
    if not hangs_up:
        monkeypatch.setattr("sparklog.broker.txn.markers._REPLICATION_TIMEOUT_MS", 0)
    home, told = TopicPartition(OFFSETS_TOPIC, 3), []

    async def scenario(replicas):
        state = PartitionState(0, 0, (0, 1), 1)
        assert replicas.apply(home, state, TopicConfig(), None, replicas=(0, 1)) is ErrorCode.NONE
        markers = TransactionMarkers(replicas, None, lambda *each: told.append(each), ManualClock(), None, None, None)
        writing = asyncio.ensure_future(markers.append(Marker(Producer(PRODUCER, 0), False, 0), [home]))
        while not replicas.partition(home).log_end_offset:
            await asyncio.sleep(0)
        if hangs_up:
            writing.cancel()
        await asyncio.wait([writing])
        assert writing.cancelled() if hangs_up else writing.result() == {home: ErrorCode.REQUEST_TIMED_OUT}
        for _ in range(10):
            await asyncio.sleep(0)
        assert not told, "the follower does not have it"
        replicas.apply(home, replace(state, isr=(0,), version=1), None, None, replicas=(0, 1))
        for _ in range(10):
            await asyncio.sleep(0)

    async def run():
        with ThreadPoolExecutor(1) as disk:
            logs = LogManager([tmp_path], TopicConfig(), ManualClock(), disk)
            await scenario(ReplicaManager(0, logs, asyncio.get_running_loop()))
        logs.close()

    asyncio.run(run())
    assert told == [(3, PRODUCER, False)]


def test_a_transaction_of_many_partitions_is_ended_over_many_turns(log):
    markers = markers_of(log, ZooKeeper(0))
    gone = [TopicPartition("t", number) for number in range(1, 501)]

    codes, turns = asyncio.run(with_others(markers.append(Marker(Producer(PRODUCER, 0), True, 0), [TP, *gone])))
    assert codes == {TP: ErrorCode.NONE} | dict.fromkeys(gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert turns >= 10


class Stuck:
    """Leads every partition; their replicas do not follow before ``go_on``."""

    def __init__(self):
        self.appended = []
        self.go_on = asyncio.Event()

    def append_replicated(self, tp, batch, timeout_ms, origin):
        self.appended.append(tp)
        return self._replicated(tp)

    def partition(self, _):
        return SimpleNamespace(leader_epoch=0, log_end_offset=1, is_committed=lambda _: False)

    async def _replicated(self, tp):
        await self.go_on.wait()
        if tp == NOWHERE:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)


def test_a_marker_is_in_all_partitions_before_the_replicas_of_one_are_waited_for():
    """Each waited its own five seconds: with seven of them the coordinator had hung up before the answer. Where it
    hangs up all the same the group's coordinator is told of the marker when the replicas have it.
    """
    asked = [TP, NOWHERE, TopicPartition(OFFSETS_TOPIC, 3)]
    ended = []

    async def scenario():
        replicas = Stuck()
        markers = TransactionMarkers(
            replicas, None, lambda *each: ended.append(each), ManualClock(), ZooKeeper(), None, None
        )
        writing = asyncio.ensure_future(markers.append(Marker(Producer(PRODUCER, 0), True, 0), asked))
        await asyncio.sleep(0)
        assert replicas.appended == asked
        assert not ended
        replicas.go_on.set()
        codes = await writing
        given_up = asyncio.ensure_future(markers.append(Marker(Producer(PRODUCER, 0), True, 0), asked))
        replicas.go_on.clear()
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert len(ended) == 1
        replicas.go_on.set()
        while len(ended) == 1:
            await asyncio.sleep(0)
        return codes

    assert asyncio.run(scenario()) == dict(
        zip(asked, [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE], strict=True)
    )
    assert ended == [(3, PRODUCER, True)] * 2


def test_markers_of_a_real_leader_wait_for_its_follower(tmp_path):
    """Whether it is compiled or not; also where the coordinator hangs up before the follower has them."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as disk:
        pair = Pair(tmp_path, disk, loop)
        pair.decide(decision(LEADER, 0))
        markers = TransactionMarkers(pair[LEADER], None, None, ManualClock(), ZooKeeper(), None, None)
        marker, asked = Marker(Producer(PRODUCER, 0), True, 0), [LED, NOWHERE]
        writing, given_up = (loop.create_task(markers.append(marker, asked)) for _ in range(2))
        loop.run_until_complete(asyncio.sleep(0))
        assert pair.end(LEADER) == 2
        given_up.cancel()
        loop.run_until_complete(asyncio.wait([given_up]))
        assert not writing.done()
        pair.fetch()
        pair.fetch()
        codes = loop.run_until_complete(asyncio.wait_for(writing, 60))
        assert codes == {LED: ErrorCode.NONE, NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        pair.close()
    loop.close()


def test_what_is_deleted_is_gone_from_zookeeper_with_its_topic_or_from_the_one_made_again(log):
    markers = markers_of(log, ZooKeeper(t=1, grown=3, odd=None))
    asked = [TP, NOWHERE, *(TopicPartition(topic, 2) for topic in ("grown", "odd", "gone"))]
    assert asyncio.run(markers.deleted(asked)) == {NOWHERE, TopicPartition("gone", 2)}


def test_what_this_broker_was_told_of_may_still_have_gone_with_its_topic(log):
    assert asyncio.run(markers_of(log, ZooKeeper()).deleted([TP])) == {TP}


def test_nothing_is_deleted_while_zookeeper_does_not_answer(log):
    zookeeper = ZooKeeper()
    zookeeper.epochs = None
    assert asyncio.run(markers_of(log, zookeeper).deleted([TP, NOWHERE])) == set()
