"""Where partitions end, and since when, with a clock and leaders that the test gives."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.metrics.ends import PartitionEnds
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLagResponse, ListOffsetsResponse
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

HERE, THERE, GONE = TopicPartition("here", 0), TopicPartition("there", 1), TopicPartition("gone", 0)


class Cluster:
    """A broker's context: one partition is here, one is led by another broker."""

    def __init__(self):
        self.clock = ManualClock()
        self.replicas = SimpleNamespace(
            broker_id=1,
            shows_until=lambda tp: 30 if tp == HERE else -1,
            bytes_from=lambda tp, offset: 1000 if tp == HERE else -1,
        )
        leader = SimpleNamespace(id=2, endpoint=Endpoint("other", 1))
        self.metadata = SimpleNamespace(leader=lambda tp: leader if tp == THERE else None)
        self.peers = self
        self.asked = []
        self.work = []
        self.error = None
        self.offset = 55
        self.is_kafkas = False

    def in_background(self, work, _what):
        self.work.append(work)

    async def request(self, endpoint, _lane, api, build, **_):
        message = build(9)
        if api is ApiKey.DESCRIBE_LAG:
            return self.sizes(message)
        self.asked.append((endpoint, [(each.name, each.partitions[0].partition_index) for each in message.topics]))
        if self.error:
            raise self.error
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        found = topic.ListOffsetsPartitionResponse(partition_index=1, error_code=0, timestamp=-1, offset=self.offset)
        return ListOffsetsResponse(topics=[topic(name="there", partitions=[found])])

    def sizes(self, message):
        """Each record has 10 bytes; partition 1 ends at 55."""
        (topic,) = message.topics
        self.asked_sizes = [each.offset for each in topic.partitions]
        if self.is_kafkas:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "no such API")
        told = DescribeLagResponse.DescribedTopic
        partitions = [
            told.DescribedPartition(
                partition_index=1, error_code=0, offset=each, high_watermark=55, bytes=10 * (55 - each)
            )
            for each in self.asked_sizes
        ]
        return DescribeLagResponse(topics=[told(name=topic.name, partitions=partitions)])

    def run(self):
        while self.work:
            asyncio.run(self.work.pop())


def test_what_is_here_is_known_and_the_rest_is_asked_of_its_leader():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    assert [ends.end(tp) for tp in (HERE, THERE, GONE)] == [30, None, None]
    ends.refresh()
    cluster.run()
    assert cluster.asked == [(Endpoint("other", 1), [("there", 1)])]
    assert [ends.end(tp) for tp in (HERE, THERE, GONE)] == [30, 55, None]


def test_leaders_are_not_asked_by_each_scrape():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    for _ in range(5):
        ends.end(THERE)
        ends.refresh()
        cluster.run()
        cluster.clock.advance(3)
    assert len(cluster.asked) == 2


@pytest.mark.parametrize("is_led", [True, False])
def test_an_end_that_is_not_told_again_is_not_known(is_led):
    """The group might seem to have reached it, while the partition grows where this broker does not see it."""
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    scrape(cluster, ends)
    assert ends.end(THERE) == 55
    cluster.error = ConnectionFailed("gone")
    if not is_led:
        cluster.metadata.leader = lambda _: None
    scrape(cluster, ends)
    assert ends.end(THERE) is None


def test_an_end_that_a_leader_refuses_to_tell_is_not_known():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    scrape(cluster, ends)
    cluster.offset = -1
    scrape(cluster, ends)
    assert ends.end(THERE) is None


def test_what_no_group_reads_any_more_is_forgotten():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    ends.end(THERE)
    ends.refresh()
    cluster.run()
    ends.refresh()
    assert ends.end(THERE) is None


def test_a_record_is_as_old_as_the_first_scrape_that_saw_it():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    assert ends.behind_s(HERE, 10, 11) == 0
    cluster.clock.advance(60)
    assert ends.behind_s(HERE, 10, 20) == 60
    assert ends.behind_s(HERE, 15, 20) == 0
    cluster.clock.advance(40)
    assert ends.behind_s(HERE, 15, 30) == 40
    assert ends.behind_s(HERE, 10, 30) == 100


def test_no_more_partitions_are_watched_than_allowed_and_those_unused_are_forgotten():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 2)
    for number in range(5):
        ends.behind_s(TopicPartition("t", number), 0, 1)
    assert len(ends._seen) == 2
    cluster.clock.advance(3600)
    ends.refresh()
    assert ends._seen == {}


def scrape(cluster, ends, **offsets):
    """What a scrape is told of these groups, which read THERE; the leader is asked after it."""
    ends.end(THERE)
    found = [ends.bytes_behind(group, THERE, offset, 55) for group, offset in offsets.items()]
    ends.refresh()
    cluster.run()
    cluster.clock.advance(60)
    return found


def test_bytes_are_told_here_and_asked_of_a_leader_for_each_group():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    assert ends.bytes_behind("g", HERE, 5, 30) == 1000
    assert scrape(cluster, ends, near=50, far=5) == [None, None]
    assert cluster.asked_sizes == [50, 5]
    assert scrape(cluster, ends, near=50, far=5) == [50, 500]


def test_bytes_of_a_group_that_has_read_on_are_in_proportion():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    scrape(cluster, ends, far=5)
    assert scrape(cluster, ends, far=45) == [100]


def test_a_leader_that_knows_no_bytes_tells_its_end_all_the_same():
    cluster = Cluster()
    cluster.is_kafkas = True
    ends = PartitionEnds(cluster, 100)
    scrape(cluster, ends, far=5)
    assert scrape(cluster, ends, far=5) == [None]
    assert ends.end(THERE) == 55


def test_a_topic_that_was_made_again_has_not_waited_since_the_former_one():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    ends.behind_s(HERE, 900, 1000)
    cluster.clock.advance(100)
    assert ends.behind_s(HERE, 5, 30) == 0, "the record came after the former topic's end was seen"
    cluster.clock.advance(7)
    assert ends.behind_s(HERE, 5, 40) == 7
