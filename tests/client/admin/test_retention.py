"""What the admin client makes of brokers' answers about retention."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.retention import RetentionAdmin
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import Backoff
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import DescribeRetentionResponse
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("clicks", 3)
_Topic = DescribeRetentionResponse.DescribedTopic


class Session:
    """Two brokers: the leader of a partition, and a follower whose policies fail."""

    config = ClientConfig(bootstrap_servers="h:1")

    def __init__(self):
        self.asked = []

    async def refresh(self, _topics):
        return SimpleNamespace(brokers={2: None, 1: None})

    async def topic(self, name):
        if name != "clicks":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    async def request(self, broker, _api, build, *, lane):
        self.asked.append((broker, build(0).topics, lane))
        names = ("offloaded_offset", "held_bytes", "held_records", "limit_bytes", "lost_records", "lost_until")
        figures = dict(zip(names, (7, 500, 20, 900, 3, 6) if broker == 1 else (-1,) * 6, strict=True))
        told = _Topic.DescribedPartition(
            partition_index=3,
            offload_group="g" if broker == 1 else None,
            checked_ms=1234 if broker == 1 else -1,
            refusal=None if broker == 1 else "so it is",
            **figures,
        )
        topics = [_Topic(name="clicks", partitions=[told])]
        return DescribeRetentionResponse(throttle_time_ms=0, error_code=0, topics=topics)

    def backoff(self):
        return Backoff(self.config, ManualClock(), 60_000)


def describe(session, topics=None):
    return asyncio.run(RetentionAdmin(session).describe_retention(topics))


def test_every_broker_tells_of_its_replicas():
    session = Session()
    found = describe(session, ["clicks"])
    assert [topics for _, topics, _ in session.asked] == [["clicks"]] * 2
    assert list(found) == [Replica(TP, 1), Replica(TP, 2)]
    assert tuple(found[Replica(TP, 1)]) == ("g", 7, 500, 20, 900, 3, 6, 1234, None)
    assert tuple(found[Replica(TP, 2)]) == (None, None, -1, -1, -1, 0, None, None, "so it is")


def test_what_there_is_not_is_named_before_anything_is_asked():
    session = Session()
    with pytest.raises(ApiError, match="no-such"):
        describe(session, ["no-such"])
    assert session.asked == []
