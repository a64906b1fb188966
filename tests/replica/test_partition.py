"""One partition: who may lead it, in which epoch, and how far consumers see."""

import pytest
from compaction.ours import cleaned, sections_of, task_of
from log.samples import read_bytes

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.log import Log
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.partition import Partition
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import PartitionState

TP = TopicPartition("t", 0)
ME, OTHER = 1, 2


def batch(count=1, **producer):
    builder = RecordBatchBuilder(**producer)
    for _ in range(count):
        builder.append(1, None, b"v")
    return memoryview(bytearray(builder.build()))


def state(leader, epoch, *isr):
    return PartitionState(leader, epoch, isr or (leader,), 1)


@pytest.fixture
def partition(tmp_path):
    settings = parse(TopicConfig, {"min.insync.replicas": "2"})
    log = Log(tmp_path, TP, settings, ManualClock(), lambda work: work())
    yield Partition(TP, ME, log)
    log.close()


def refusal(call, *arguments):
    with pytest.raises(ApiError) as caught:
        call(*arguments)
    return caught.value.code


def test_who_does_not_lead_takes_no_records(partition):
    assert refusal(partition.append_as_leader, batch(), 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.apply(state(OTHER, 0))
    assert refusal(partition.append_as_leader, batch(), 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.log.log_end_offset == 0


def test_an_older_decision_is_refused_and_changes_nothing(partition):
    assert partition.apply(state(ME, 5))
    assert not partition.apply(state(OTHER, 4))
    assert partition.is_leader
    again = PartitionState(ME, 5, (ME, OTHER), 1, version=1)
    assert partition.apply(again, (ME, OTHER)), "the same epoch may be told again"
    assert partition.isr == (ME, OTHER)
    assert partition.apply(PartitionState(ME, 5, (ME,), 1, version=0), (ME, OTHER))
    assert partition.isr == (ME, OTHER), "a state of before the last change of the ISR"


def test_each_leadership_begins_an_epoch_in_the_log(partition):
    partition.apply(state(ME, 3))
    partition.append_as_leader(batch(2), 1)
    partition.apply(state(OTHER, 4))
    partition.apply(state(ME, 7))
    partition.append_as_leader(batch(1), 1)
    assert [partition.log.epochs.epoch_at(offset) for offset in range(3)] == [3, 3, 7]


def test_the_askers_epoch_must_be_the_current_one(partition):
    assert refusal(partition.check_leader, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(partition.check_leader, 3) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.apply(state(OTHER, 2))
    assert refusal(partition.check_leader, 1) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(partition.check_leader, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.check_epoch(2)
    partition.apply(state(ME, 3))
    assert refusal(partition.check_leader, 2) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(partition.check_leader, 4) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.check_leader(3)
    partition.check_leader(-1)


def test_alone_in_sync_all_is_committed_at_once(partition):
    partition.apply(state(ME, 0))
    for count in (1, 3, 2):
        partition.append_as_leader(batch(count), 1)
        assert partition.high_watermark == partition.log.end
    for isolation in IsolationLevel:
        assert partition.bound(isolation).offset == 6


def test_with_another_in_sync_nothing_is_committed_that_it_may_lack(partition):
    partition.apply(state(ME, 0))
    partition.append_as_leader(batch(2), 1)
    partition.apply(state(ME, 1, ME, OTHER))
    partition.append_as_leader(batch(2), 1)
    assert (partition.high_watermark.offset, partition.log.log_end_offset) == (2, 4)
    partition.apply(state(ME, 2, ME))
    assert partition.high_watermark.offset == 4


def test_a_high_watermark_does_not_go_back(partition):
    partition.apply(state(ME, 0))
    partition.append_as_leader(batch(3), 1)
    for decision in (state(OTHER, 1), state(ME, 2, ME, OTHER), state(-1, 3, ME)):
        partition.apply(decision)
        assert partition.high_watermark.offset == 3


def test_acks_all_wants_enough_replicas_in_sync(partition):
    partition.apply(state(ME, 0), replicas=(ME, OTHER, 3))
    assert refusal(partition.append_as_leader, batch(), -1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    partition.append_as_leader(batch(), 1)
    partition.apply(state(ME, 1, ME, OTHER), replicas=(ME, OTHER, 3))
    partition.append_as_leader(batch(), -1)
    assert partition.log.log_end_offset == 2


def test_nothing_overtakes_a_batch_for_which_too_few_were_in_sync(partition):
    def send(sequence):
        first = batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        return partition.append_as_leader(first, -1).first_offset

    replicas = (ME, OTHER, 3)
    for first in (0, 2):
        partition.apply(state(ME, first), replicas=replicas)
        assert refusal(send, first) is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.apply(state(ME, first + 1, ME, OTHER), replicas=replicas)
        assert refusal(send, first + 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert [send(first), send(first + 1)] == [first, first + 1]


def test_acks_all_wants_no_more_replicas_than_there_are(partition):
    partition.apply(state(ME, 0), replicas=(ME,))
    partition.append_as_leader(batch(), -1)
    assert partition.high_watermark.offset == 1


def test_a_refused_batch_leaves_the_partition_as_it_was(partition):
    partition.apply(state(ME, 0))
    partition.append_as_leader(batch(), 1)
    broken = batch()
    broken[-1] ^= 1
    assert refusal(partition.append_as_leader, broken, 1) is ErrorCode.CORRUPT_MESSAGE
    assert (partition.high_watermark.offset, partition.log.log_end_offset) == (1, 1)


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize(("visibility", "seen"), [("strict", 0), ("immediate", 1)])
def test_with_too_few_in_sync_readers_see_what_the_topic_says(tmp_path, visibility, seen, acks):
    settings = parse(TopicConfig, {"min.insync.replicas": "2", "sparklog.min.isr.visibility": visibility})
    log = Log(tmp_path, TP, settings, ManualClock(), lambda work: work())
    partition = Partition(TP, ME, log)
    partition.apply(state(ME, 0, ME), (ME, OTHER))
    partition.append_as_leader(batch(), acks)
    assert partition.high_watermark.offset == seen
    assert refusal(partition.append_as_leader, batch(), -1) is ErrorCode.NOT_ENOUGH_REPLICAS
    partition.apply(PartitionState(ME, 0, (ME, OTHER), 1, version=1), (ME, OTHER))
    partition.append_as_leader(batch(), acks)
    assert partition.high_watermark.offset == seen, "the other has not fetched it"
    partition.fetched(OTHER, 2, 7)
    assert partition.high_watermark.offset == 2
    log.close()


def test_acks_all_does_not_count_a_replica_that_is_only_proposed(tmp_path):
    """Until ZooKeeper has it, another that left the ISR with all that was acknowledged may be elected."""
    settings = parse(TopicConfig, {"min.insync.replicas": "2", "sparklog.min.isr.visibility": "immediate"})
    clock, third = ManualClock(), 3
    log = Log(tmp_path, TP, settings, clock, lambda work: work())
    partition = Partition(TP, ME, log, clock=clock, max_lag_ms=30_000)
    partition.apply(PartitionState(ME, 0, (ME, OTHER), 1, version=0), (ME, OTHER, third))
    partition.append_as_leader(batch(), -1)
    partition.fetched(OTHER, 1, 7)
    clock.advance(31)
    partition.fetched(third, 0, 8)
    partition.append_as_leader(batch(), -1)
    shrink = partition.leave_out_lagging()
    assert shrink.isr == (ME,)
    partition.fetched(third, 1, 8)
    partition.settle(shrink, (ME,), 1)
    partition.fetched(third, 2, 8)
    join = partition.wants_to_join(third)
    assert (partition.high_watermark.offset, join.isr) == (2, (ME, third))
    assert not partition.has_enough_in_sync
    assert not partition.is_committed(1)
    partition.settle(join, (ME, third), 2)
    assert partition.is_committed(1)
    log.close()


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_all_is_seen_of_a_segment_that_grew_when_it_was_cleaned(tmp_path, isolation):
    """A tombstone that stays gets a delete horizon, from which timestamps are further away: they take more bytes."""
    settings = parse(TopicConfig, {"cleanup.policy": "compact"})
    log = Log(tmp_path, TP, settings, ManualClock(), lambda work: work())
    partition = Partition(TP, ME, log)
    partition.apply(state(ME, 0), (ME,))
    builder = RecordBatchBuilder()
    for number in range(30):
        builder.append(1, b"k%d" % number, None if number == 29 else b"v")
    partition.append_as_leader(memoryview(bytearray(builder.build())), 1)
    log.roll()
    before = partition.read(0, 1 << 20, isolation, min_one_batch=True)
    cleaned(log, task_of(log, sections_of(log, 0, now_ms=5000), now_ms=5000))
    after = partition.read(0, 1 << 20, isolation, min_one_batch=True)
    assert after.records.size > before.records.size
    assert len(read_bytes(after.records)) == log.size
    assert (after.high_watermark, partition.bound(isolation).offset) == (30, 30)
    assert partition.read(30, 1 << 20, isolation, min_one_batch=True).records is None
    log.close()
