"""ListOffsets by time of a log that has to be looked through: in steps, and right for the moment of the answer."""

import asyncio
import os
from types import SimpleNamespace

import pytest
from log.samples import TP, batch_of, open_log

from sparklog.broker.apis.records import list_offsets
from sparklog.broker.context import ApiRequest
from sparklog.errors import ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import ListOffsetsRequest
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.replica.partition import Partition
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.testing.steps import counted, finish
from sparklog.zk.znodes import PartitionState

_LATEST, _EARLIEST, _LATEST_TIME = -1, -2, -3
CONSUMER, FOLLOWER = -1, 2


@pytest.fixture
def partition(tmp_path):
    """Of 1000 records, the first of which is the latest and deleted, and the one with offset 700 the next."""
    partition = Partition(TP, 1, open_log(tmp_path / "t-0"))
    partition.apply(PartitionState(1, 0, (1,), 1))
    for number in range(1000):
        partition.append_as_leader(batch_of({0: 9000, 700: 5000}.get(number, 1000)), 1)
    partition.log.advance_start(1)
    return partition


def asking(partition, timestamp, asker=CONSUMER, **parts):
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=TP.partition, current_leader_epoch=-1, timestamp=timestamp)
    topics = [topic(name=TP.topic, partitions=[asked])]
    message = ListOffsetsRequest(replica_id=asker, isolation_level=0, topics=topics)
    broker = SimpleNamespace(authorizer=AllowEverything(), held=lambda tp: partition, **parts)
    return list_offsets.handle(broker, ApiRequest(list_offsets.API, 9, "c", Caller("h"), message))


def told(response):
    ((answer,),) = (topic.partitions for topic in response.topics)
    return ErrorCode(answer.error_code), answer.timestamp, answer.offset


@pytest.mark.parametrize("timestamp", [_LATEST_TIME, 4000])
def test_a_log_is_looked_through_in_steps(partition, timestamp):
    steps, response = counted(asking(partition, timestamp))
    assert told(response) == (ErrorCode.NONE, 5000, 700)
    assert steps > 3


def test_what_was_appended_between_two_steps_is_told(partition):
    steps = asking(partition, 6000)
    for _ in range(4):
        next(steps)
    partition.append_as_leader(batch_of(7000), 1)
    assert told(finish(steps)) == (ErrorCode.NONE, 7000, 1000)


def test_a_partition_whose_leader_changes_between_two_steps_is_refused(partition):
    steps = asking(partition, _LATEST_TIME)
    for _ in range(3):
        next(steps)
    partition.leader = 2
    assert told(finish(steps)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_the_end_is_not_told_before_it_is_known_under_a_new_leader(partition):
    """A consumer has seen more at the leader before than this one knows to be committed: an end that goes back would
    send it back too.
    """
    replicas = (1, FOLLOWER)
    partition = Partition(TP, 1, partition.log, high_watermark=800)
    partition.apply(PartitionState(1, 1, replicas, 1, version=1), replicas)
    partition.append_as_leader(batch_of(1000), 1)
    assert told(finish(asking(partition, _LATEST))) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
    assert told(finish(asking(partition, _LATEST, FOLLOWER))) == (ErrorCode.NONE, -1, 1001), "a replica sees it all"
    assert told(finish(asking(partition, _EARLIEST))) == (ErrorCode.NONE, -1, 1), "the beginning is known"
    partition.fetched(FOLLOWER, 999, 7)
    assert told(finish(asking(partition, _LATEST)))[0] is ErrorCode.OFFSET_NOT_AVAILABLE
    partition.fetched(FOLLOWER, 1000, 7)
    assert told(finish(asking(partition, _LATEST))) == (ErrorCode.NONE, -1, 1000), "what was there when it began"


def test_a_time_that_lies_beyond_what_is_known_under_a_new_leader_is_not_told_of_as_none(partition):
    """What a search finds there may have been committed, and seen, under the leader before: a consumer that is told
    that there is no such record goes to the end, and passes it over.
    """
    replicas = (1, FOLLOWER)
    partition = Partition(TP, 1, partition.log, high_watermark=600)
    partition.apply(PartitionState(1, 1, replicas, 1, version=1), replicas)
    unavailable = ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1
    assert told(finish(asking(partition, 4000))) == unavailable
    assert told(finish(asking(partition, _LATEST_TIME))) == unavailable
    assert told(finish(asking(partition, 1000))) == (ErrorCode.NONE, 1000, 1), "it is known to be committed"
    assert told(finish(asking(partition, 6000))) == (ErrorCode.NONE, -1, -1), "nor is there any beyond"
    partition.fetched(FOLLOWER, 1000, 7)
    assert told(finish(asking(partition, 4000))) == (ErrorCode.NONE, 5000, 700)
    partition.append_as_leader(batch_of(8000), 1)
    assert told(finish(asking(partition, 7000))) == (ErrorCode.NONE, -1, -1), "it was not there when it began"


@pytest.fixture
def heavy(tmp_path):
    """A partition of a batch that is small and that decompresses to a MB; its second record is the latest."""
    partition = Partition(TP, 1, open_log(tmp_path / "heavy-0"))
    partition.apply(PartitionState(1, 0, (1,), 1))
    builder = RecordBatchBuilder(compression=CompressionType.ZSTD)
    for time, value in ((1000, b"v"), (3000, bytes(1 << 20)), (2000, None)):
        builder.append(time, None, value)
    partition.append_as_leader(memoryview(bytearray(builder.build())), 1)
    return partition


class Elsewhere:
    """Long work is done on another thread; ``meanwhile`` happens while it is."""

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile = meanwhile
        self.count = 0

    async def run(self, work):
        self.count += 1
        await asyncio.get_running_loop().run_in_executor(None, work)
        self.meanwhile()


def answered(partition, timestamp, elsewhere):
    """What is told of the partition, where other connections are served meanwhile."""

    async def answer():
        turns = Turns(asyncio.get_running_loop())
        steps, waiting = counted(asking(partition, timestamp, turns=turns, preparation=elsewhere))
        assert steps < 10
        return told(await waiting)

    return asyncio.run(answer())


@pytest.mark.parametrize(("timestamp", "found"), [(_LATEST_TIME, (3000, 1)), (500, (1000, 0)), (1500, (3000, 1))])
def test_a_large_batch_is_looked_into_off_the_loop(heavy, timestamp, found):
    elsewhere = Elsewhere()
    assert answered(heavy, timestamp, elsewhere) == (ErrorCode.NONE, *found)
    assert elsewhere.count == 1


def test_each_large_batch_of_a_search_is_looked_into_off_the_loop(heavy):
    heavy.log.advance_start(2)
    elsewhere = Elsewhere()
    assert answered(heavy, _LATEST_TIME, elsewhere) == (ErrorCode.NONE, 2000, 2)
    assert elsewhere.count == 3, "for the latest of all, for the greatest time that is left, and for who has it"


def test_a_partition_whose_leader_changes_meanwhile_is_refused(heavy):
    elsewhere = Elsewhere(lambda: setattr(heavy, "leader", 2))
    assert answered(heavy, 1500, elsewhere) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def test_a_large_batch_that_cannot_be_read_is_told_of(heavy):
    records = heavy.log._segments.active.log
    os.pwrite(records.fileno(), b"\xff" * 8, records.size - 8)
    assert answered(heavy, 1500, Elsewhere()) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
