"""ListOffsets by time of a log that has to be looked through: in steps, and right for the moment of the answer."""

from types import SimpleNamespace

import pytest
from log.samples import TP, batch_of, open_log

from sparklog.broker.apis import list_offsets
from sparklog.broker.context import ApiRequest
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import ListOffsetsRequest
from sparklog.replica.partition import Partition
from sparklog.testing.steps import counted, finish
from sparklog.zk.znodes import PartitionState

_LATEST_TIME = -3


@pytest.fixture
def partition(tmp_path):
    """Of 1000 records, the first of which is the latest and deleted, and the one with offset 700 the next."""
    partition = Partition(TP, 1, open_log(tmp_path / "t-0"))
    partition.apply(PartitionState(1, 0, (1,), 1))
    for number in range(1000):
        partition.append_as_leader(batch_of({0: 9000, 700: 5000}.get(number, 1000)), 1)
    partition.log.advance_start(1)
    return partition


def asking(partition, timestamp):
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=TP.partition, current_leader_epoch=-1, timestamp=timestamp)
    topics = [topic(name=TP.topic, partitions=[asked])]
    message = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    broker = SimpleNamespace(held=lambda tp: partition)
    return list_offsets.handle(broker, ApiRequest(list_offsets.API, 9, "c", "h", message))


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
