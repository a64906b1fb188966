"""Retention of real logs: what policies give up together, what waits for the offload, and what is said of it."""

import asyncio
import logging
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.log.retention import SegmentView
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.policies import InstalledPolicies
from sparklog.replica.retention import UNKNOWN, Retention
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish
from sparklog.zk.znodes import PartitionState

TP, ID = TopicPartition("t", 0), UUID(int=1)
WAITS = {"sparklog.offload.required": "true", "sparklog.offload.max.bytes": "1000000"}
A_SEGMENT = {"segment.bytes": "200"}
"""Holds one batch of those that are written here."""
SIZE = 171


class Inline:
    def submit(self, work, *args):
        work(*args)


class Scene:
    """A broker with one partition of ten segments, a record each, all of them old."""

    def __init__(self, home, settings, *, leads=True, records=10):
        self.clock = ManualClock()
        self.config = parse(TopicConfig, {"retention.ms": "1000", **A_SEGMENT, **settings})
        self.logs = LogManager([home], TopicConfig(), self.clock, Inline())
        self.logs.load({})
        self.loop = asyncio.new_event_loop()
        self.broker = ReplicaManager(1, self.logs, self.loop, clock=self.clock)
        self.make(ID, records)
        if not leads:
            self.broker.apply(TP, PartitionState(2, 1, (1, 2), 1, 1), self.config, ID, replicas=(1, 2))
        self.clock.advance(10)

    def make(self, topic_id, records=10):
        assert self.broker.apply(TP, PartitionState(1, 0, (1,), 1, 0), self.config, topic_id) is ErrorCode.NONE
        for _ in range(records):
            self.append()

    @property
    def partition(self):
        return self.broker.partition(TP)

    def append(self):
        builder = RecordBatchBuilder()
        builder.append(self.clock.now_ms(), b"k", bytes(100))
        self.broker.append(TP, memoryview(bytearray(builder.build())), 1)

    def round(self, offloaded=None):
        """The offset at which the partition begins after a round."""
        retention = self.broker.retention
        retention.begin({} if offloaded is None else {TP: offloaded}, self.broker.served)
        self.loop.run_until_complete(retention.consult(self.partition))
        finish(self.broker.apply_retention())
        return self.partition.log_start_offset

    @property
    def holding(self):
        return self.broker.retention.holdings[TP]

    def install(self, **answers):
        found = {name: SimpleNamespace(load=lambda each=each: policy_of(each)) for name, each in answers.items()}
        self.broker.retention = Retention(self.clock, InstalledPolicies(lambda: found))

    def close(self):
        self.logs.close()
        self.loop.close()


def policy_of(answer):
    return lambda _tp, _settings: SimpleNamespace(give_up=answer)


@pytest.fixture
def scene(tmp_path):
    opened = []

    def make(settings=None, **more):
        opened.append(Scene(tmp_path / str(len(opened)), settings or {}, **more))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_a_record_is_a_segment_here(scene):
    (*segments, _last) = scene({"retention.ms": "-1"}).partition.log.segment_views()
    assert [(each.next_base - each.base_offset, each.size) for each in segments] == [(1, SIZE)] * 9


# Policies of others


def test_a_segment_goes_if_one_policy_gives_it_up(scene):
    for own, expected in ((4, 4), (0, 0)):
        here = scene({"retention.ms": "-1", "sparklog.retention.policies": "mine,age"})
        here.install(mine=lambda *_, own=own: own)
        assert here.round() == expected
    here = scene({"sparklog.retention.policies": "mine,age"})
    here.install(mine=lambda *_: 4)
    assert here.round() == 10


@pytest.mark.parametrize("settings", ["mine,age", "age,mine", "age,yours,mine"])
def test_one_that_fails_lets_the_others_delete_nothing_until_it_works_again(scene, settings, caplog):
    here = scene({"sparklog.retention.policies": settings})
    answers = iter([-1, 99, 1])
    here.install(mine=lambda *_: next(answers), yours=lambda *_: 0)
    assert [here.round(), here.round()] == [0, 0]
    assert "policy 'mine' failed" in here.broker.retention.refusals[TP]
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    assert here.round() == 10
    assert here.broker.retention.refusals == {}


def test_one_that_is_not_installed_deletes_nothing_and_says_so(scene, caplog):
    here = scene({"sparklog.retention.policies": "gone,age"})
    assert here.round() == 0
    assert "retention deletes nothing of t-0: its policy 'gone' failed: it is not installed" in caplog.text


def test_nothing_is_deleted_on_policies_that_were_not_asked(scene):
    here = scene({"sparklog.retention.policies": "mine,age"})
    here.install(mine=lambda *_: 10)
    finish(here.broker.apply_retention())
    assert here.partition.log_start_offset == 0


def test_what_a_policy_gave_up_goes_though_the_log_has_grown_meanwhile(scene):
    here = scene({"retention.ms": "-1", "sparklog.retention.policies": "mine"})
    here.install(mine=lambda segments, _: len(segments))
    retention = here.broker.retention
    retention.begin({}, here.broker.served)
    here.loop.run_until_complete(retention.consult(here.partition))
    here.append()
    finish(here.broker.apply_retention())
    assert (here.partition.log_start_offset, here.partition.log_end_offset) == (10, 11)


def test_what_lies_before_the_start_goes_whatever_policies_say(scene):
    here = scene({"sparklog.retention.policies": "gone"} | WAITS)
    here.broker.delete_records(TP, 4)
    assert here.round() == 4
    assert here.partition.log.base_offset == 4


def test_a_compacted_topic_is_not_asked_about(scene):
    here = scene({"cleanup.policy": "compact", "sparklog.retention.policies": "gone,age"} | WAITS)
    assert here.round(10) == 0
    assert (here.broker.retention.refusals, here.broker.retention.holdings) == ({}, {})


@pytest.mark.parametrize("policy", ["offload", "mine"])
def test_what_was_found_out_of_a_topic_counts_for_no_other_of_its_name(scene, policy):
    """It was deleted and made again while the round was under way: nothing of the new one is offloaded."""
    here = scene({"retention.ms": "-1", "sparklog.retention.policies": policy})
    here.install(mine=lambda *_: 10)
    retention = here.broker.retention
    retention.begin({TP: 10}, here.broker.served)
    here.loop.run_until_complete(retention.consult(here.partition))
    assert here.broker.stop(TP, delete=True) is ErrorCode.NONE
    here.make(UUID(int=2))
    finish(here.broker.apply_retention())
    assert here.partition.log_start_offset == 0
    assert here.round(10) == 10, "the next round is about this one"


@pytest.mark.parametrize("policy", ["offload", "mine"])
def test_what_was_found_out_in_a_leader_epoch_counts_in_no_other(scene, policy):
    """Another may have led between, of whose log this one's is a copy now."""
    here = scene({"retention.ms": "-1", "sparklog.retention.policies": policy})
    here.install(mine=lambda *_: 10)
    retention = here.broker.retention
    retention.begin({TP: 10}, here.broker.served)
    here.loop.run_until_complete(retention.consult(here.partition))
    here.broker.apply(TP, PartitionState(1, 2, (1,), 1, 2), here.config, ID)
    finish(here.broker.apply_retention())
    assert here.partition.log_start_offset == 0
    assert here.round(10) == 10, "the next round is about this one"


# Waiting for the offload


@pytest.mark.parametrize(("offloaded", "start"), [(None, 0), (0, 0), (3, 3), (9, 9), (10, 10), (99, 10)])
def test_records_stay_until_they_are_offloaded(scene, offloaded, start):
    here = scene(WAITS)
    assert here.round(offloaded) == start
    held = 10 - start
    known = UNKNOWN if offloaded is None else min(offloaded, 10)
    assert here.holding[:6] == (known, held * SIZE, held, 1_000_000, 0, UNKNOWN)
    assert here.holding.checked_ms == here.clock.now_ms()


def test_waiting_only_ever_keeps(scene):
    here = scene({"retention.ms": "-1"} | WAITS)
    assert here.round(10) == 0
    assert here.holding.bytes == 0


def test_what_is_offloaded_goes_at_once_where_the_offload_is_a_policy(scene):
    here = scene({"retention.ms": "-1", "sparklog.retention.policies": "offload"})
    assert [here.round(each) for each in (None, 4, 99)] == [0, 4, 10]


def test_a_group_that_is_set_back_only_makes_it_keep_more(scene):
    here = scene(WAITS)
    assert here.round(6) == 6
    assert here.round(2) == 6
    assert (here.holding.bytes, here.holding.records) == (4 * SIZE, 4)


def test_a_segment_that_is_offloaded_in_part_stays(scene):
    here = scene({"segment.bytes": "400"} | WAITS)
    assert here.round(3) == 2
    assert here.holding[1:3] == (8 * SIZE, 7)


def test_beyond_the_limit_the_oldest_goes_and_it_is_said_once(scene, caplog):
    here = scene(WAITS | {"sparklog.offload.max.bytes": str(4 * SIZE)})
    assert here.round(2) == 6
    assert here.holding[:6] == (2, 4 * SIZE, 4, 4 * SIZE, 4, 6)
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(told) == 1
    assert "from offset 2 on, first those up to 6" in told[0]
    here.append()
    here.clock.advance(10)
    assert here.round(2) == 7
    assert here.holding[:6] == (2, 4 * SIZE, 4, 4 * SIZE, 5, 7)
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1


def test_many_that_the_limit_gives_up_are_counted_once(scene, monkeypatch):
    monkeypatch.setattr("sparklog.log.log._DELETED_AT_ONCE", 2)
    here = scene(WAITS | {"sparklog.offload.max.bytes": "1"})
    assert here.round(1) == 10
    assert here.holding[:6] == (1, 0, 0, 1, 9, 10)


def test_it_is_said_when_little_room_is_left_and_again_after_there_was_more(scene, caplog):
    here = scene(WAITS | {"sparklog.offload.max.bytes": str(10 * SIZE)})

    def warnings():
        return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]

    here.round(3)
    assert warnings() == []
    for _ in range(2):
        here.append()
    here.clock.advance(10)
    here.round(3)
    here.round(3)
    assert len(warnings()) == 1
    assert f"holds back {9 * SIZE} bytes (9 records)" in warnings()[0]
    here.round(8)
    for _ in range(6):
        here.append()
    here.clock.advance(10)
    here.round(8)
    assert len(warnings()) == 2
    assert not [each for each in caplog.records if each.levelno == logging.ERROR]


def test_a_follower_of_one_that_waits_goes_by_its_leaders_start_alone(scene):
    here = scene(WAITS, leads=False)
    assert here.round(10) == 0
    assert here.broker.retention.holdings == {}
    here.partition.log.advance_start(3)
    assert here.round(10) == 3
    assert here.partition.log.base_offset == 3


def test_what_waits_no_longer_is_told_of_no_longer(scene):
    here = scene(WAITS)
    here.round(4)
    here.partition.log.config = parse(TopicConfig, {"retention.ms": "1000", **A_SEGMENT})
    assert here.round() == 10
    assert here.broker.retention.holdings == {}


@given(
    sizes=st.lists(st.integers(1, 50), max_size=8),
    wanted=st.integers(0, 8),
    offloaded=st.integers(-1, 90),
    limit=st.integers(1, 200),
    high_watermark=st.integers(0, 80),
)
def test_no_more_goes_than_policies_give_up_and_no_more_stays_than_the_limit(
    sizes, wanted, offloaded, limit, high_watermark
):
    segments = [SegmentView(n * 10, n * 10 + 10, size, 0) for n, size in enumerate(sizes)]
    wanted = min(wanted, len(segments))
    config = TopicConfig(offload_required=True, offload_max_bytes=limit, retention_policies=("mine",))
    partition = SimpleNamespace(
        tp=TP,
        topic_id=ID,
        leader_epoch=0,
        config=config,
        is_leader=True,
        log_start_offset=0,
        high_watermark=SimpleNamespace(offset=high_watermark),
        log=SimpleNamespace(segment_views=lambda: segments),
    )
    found = {"mine": SimpleNamespace(load=lambda: policy_of(lambda *_: wanted))}
    retention = Retention(ManualClock(), InstalledPolicies(lambda: found))
    retention.begin({TP: offloaded} if offloaded >= 0 else {}, [partition])
    asyncio.run(retention.consult(partition))
    count = retention.given_up(partition)(segments, 0)
    kept, gone = segments[count:wanted], segments[:count]
    committed = [each for each in segments[:wanted] if each.next_base <= high_watermark]
    assert count <= len(committed)
    assert sum(each.size for each in kept if each in committed) <= limit
    lost = [each for each in gone if each.next_base > min(offloaded, high_watermark)]
    if lost:
        assert sum(each.size for each in [*kept, lost[-1]] if each in committed) > limit
