"""LeaseSegments of a partition with more files than are looked up in one step."""

from types import SimpleNamespace

import pytest
from log.samples import SMALL, batch_of, open_log

from sparklog.broker.apis.records import lease_segments
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.leases import Leases
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.protocol.messages import LeaseSegmentsRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import counted, finish

SLICE, SEGMENTS, EPOCH = 3, 10, 6
THROUGHOUT = AbortedTransaction(7, 0, 1 << 20, 0)


class Partition:
    """A log of many segments. Leadership has moved when as many slices as ``moved_after`` were looked up."""

    def __init__(self, directory):
        self.log = open_log(directory, SMALL)
        while self.log.segment_count < SEGMENTS:
            self.log.append_as_leader(batch_of(1, 2, 3, size=30), 0)
        self.log_start_offset = 0
        self.slices = []
        self.moved_after = -1

    def check_leader(self):
        if len(self.slices) == self.moved_after:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def check_epoch(self, epoch):
        if epoch != EPOCH + (len(self.slices) == self.moved_after):
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)

    def extents(self, start, end, _isolation, most, lease):
        found = self.log.extents(start, end, most, lease)
        self.slices.append(len(found.files))
        return found

    def aborted_transactions(self, start, end):
        return [THROUGHOUT, AbortedTransaction(8, start, start, 0)]


@pytest.fixture
def partition(tmp_path, monkeypatch):
    monkeypatch.setattr(lease_segments, "_SLICE", SLICE)
    return Partition(tmp_path / "t-0")


def asking(partition, most=-1, end=1 << 40, **how):
    """The steps of the answer."""
    return asking_for(partition, (1, end), most=most, **how)


def asking_for(partition, *ranges, most=-1, version=0, epoch=-1):
    """The steps of the answer to a request for several ranges."""
    topic = LeaseSegmentsRequest.LeaseTopic
    message = LeaseSegmentsRequest(
        isolation_level=1,
        duration_ms=0,
        max_files=most,
        ended_leases=[],
        topics=[
            topic(
                topic="t",
                topic_id=ZERO_UUID,
                partitions=[
                    topic.LeasePartition(
                        partition_index=0, start_offset=start, end_offset=end, current_leader_epoch=epoch
                    )
                    for start, end in ranges
                ],
            )
        ],
    )
    broker = SimpleNamespace(
        authorizer=AllowEverything(),
        leases=SimpleNamespace(end=lambda _, holder: None),
        held=lambda _: partition,
        quotas=ClientQuotas(BrokerConfig(), ManualClock()),
    )
    return lease_segments.handle(broker, ApiRequest(lease_segments.API, version, "c", Caller("h"), message))


def told(answer):
    (partition,) = answer.topics[0].partitions
    files = [(each.path, each.start_position, each.end_position) for each in partition.files]
    return partition.error_code, files, partition.end_offset


@pytest.mark.parametrize("most", [-1, *range(SEGMENTS + 2)])
@pytest.mark.parametrize("short", [0, 1, 20])
def test_many_files_are_told_as_in_one_step(partition, most, short):
    end = partition.log.log_end_offset - short
    at_once = partition.log.extents(1, end, None if most < 0 else most)
    _, answer = counted(asking(partition, most, end))
    expected = [(str(each.path), each.start, each.end) for each in at_once.files]
    assert told(answer) == (ErrorCode.NONE, expected, at_once.end_offset)
    assert max(partition.slices) <= SLICE


def test_the_files_are_looked_up_a_slice_a_step(partition):
    steps = asking(partition)
    next(steps)
    assert partition.slices == [SLICE]
    assert counted(steps)[0] >= SEGMENTS
    assert sum(partition.slices) == SEGMENTS


def test_aborted_transactions_are_told_once(partition):
    (answer,) = finish(asking(partition)).topics[0].partitions
    found = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    starts = [1, *partition.log._segments.bases[SLICE::SLICE]]
    assert sorted(found) == [(7, 0), *((8, start) for start in starts)]


def test_a_partition_whose_leader_changes_between_two_steps_is_refused(partition):
    partition.moved_after = 2
    assert told(finish(asking(partition))) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [], -1)


def test_a_range_is_told_once(partition):
    end = partition.log.log_end_offset
    asked = [(0, end), (0, end), (0, end), (5, 6), (end - 1, end + 1), (end, end + 1)]
    partitions = finish(asking_for(partition, *asked)).topics[0].partitions
    told = [each.error_code for each in partitions]
    assert told == [ErrorCode.NONE, *[ErrorCode.INVALID_REQUEST] * 4, ErrorCode.NONE]
    assert [len(each.files) for each in partitions] == [SEGMENTS, 0, 0, 0, 0, 0]


def test_ranges_that_do_not_overlap_are_told_in_any_order(partition):
    asked = [(6, 9), (0, 3), (3, 6), (9, 9), (20, 5)]
    partitions = finish(asking_for(partition, *asked)).topics[0].partitions
    assert [each.error_code for each in partitions] == [ErrorCode.NONE] * 5


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, EPOCH + 1, ErrorCode.NONE),
        (1, EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_from_the_second_version_on_a_follower_tells_under_its_epoch(partition, version, epoch, code):
    partition.moved_after = 0
    partition.check_epoch = lambda told: None if told == EPOCH + 1 else Partition.check_epoch(partition, told)
    assert told(finish(asking(partition, version=version, epoch=epoch)))[0] is code


def test_a_change_of_epoch_between_two_steps_is_told(partition):
    partition.moved_after = 2
    assert told(finish(asking(partition, version=1, epoch=EPOCH)))[0] is ErrorCode.FENCED_LEADER_EPOCH


def leasing(partition, clock, rate, *, at=1, duration_ms=1000):
    """A lease of all from an offset on, by a client with this quota of bytes."""
    quotas = partition.quotas = getattr(partition, "quotas", None) or ClientQuotas(BrokerConfig(), clock)
    quotas.take_over("clients/c", {"consumer_byte_rate": str(rate)})
    topic = LeaseSegmentsRequest.LeaseTopic
    asked = topic.LeasePartition(partition_index=0, start_offset=at, end_offset=1 << 40, current_leader_epoch=-1)
    message = LeaseSegmentsRequest(
        isolation_level=1,
        duration_ms=duration_ms,
        max_files=-1,
        ended_leases=[],
        topics=[topic(topic="t", topic_id=ZERO_UUID, partitions=[asked])],
    )
    broker = SimpleNamespace(
        authorizer=AllowEverything(), leases=Leases(clock), held=lambda _: partition, quotas=quotas
    )
    answer = finish(lease_segments.handle(broker, ApiRequest(lease_segments.API, 0, "c", Caller("h"), message)))
    return answer, *told(answer)


def nbytes(files):
    return sum(end - start for _, start, end in files)


@pytest.mark.parametrize("rate", [10, 30, 60, 100])
def test_a_lease_is_cut_to_what_may_be_had_at_once_and_what_follows_is_leased_later(partition, rate):
    clock, at = ManualClock(), 1
    while at < partition.log.log_end_offset:
        answer, error, files, end = leasing(partition, clock, rate, at=at)
        assert error == ErrorCode.NONE
        assert end > at
        assert nbytes(files) <= 10 * rate or end == at + 1
        at = end
        clock.advance(max(answer.throttle_time_ms / 1000, 11))


def test_while_the_client_waits_no_lease_is_granted(partition):
    clock = ManualClock()
    leasing(partition, clock, 100)
    quotas = partition.quotas
    wait_ms = quotas.charge_lease(Caller("h"), "c", 5_000)
    answer, error, files, _ = leasing(partition, clock, 100)
    assert (error, files, answer.throttle_time_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, [], wait_ms)
    clock.advance(11)
    assert leasing(partition, clock, 100)[1] == ErrorCode.NONE


def test_who_only_asks_what_there_is_uses_nothing(partition):
    clock = ManualClock()
    whole = partition.log.extents(1, 1 << 40)
    for _ in range(3):
        answer, error, files, _ = leasing(partition, clock, 1, duration_ms=0)
        assert (error, len(files), answer.throttle_time_ms) == (ErrorCode.NONE, len(whole.files), 0)
