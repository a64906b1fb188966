"""Where partitions end, and since when, with a clock and leaders that the test gives."""

import asyncio
from types import SimpleNamespace

from sparklog.errors import ConnectionFailed
from sparklog.metrics.ends import PartitionEnds
from sparklog.protocol.messages import ListOffsetsResponse
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock

HERE, THERE, GONE = TopicPartition("here", 0), TopicPartition("there", 1), TopicPartition("gone", 0)


class Cluster:
    """A broker's context: one partition is here, one is led by another broker."""

    def __init__(self):
        self.clock = ManualClock()
        self.replicas = SimpleNamespace(broker_id=1, shows_until=lambda tp: 30 if tp == HERE else -1)
        leader = SimpleNamespace(id=2, endpoint=Endpoint("other", 1))
        self.metadata = SimpleNamespace(leader=lambda tp: leader if tp == THERE else None)
        self.peers = self
        self.asked = []
        self.work = []
        self.error = None

    def in_background(self, work, _what):
        self.work.append(work)

    async def request(self, endpoint, _lane, _api, build, **_):
        message = build(9)
        self.asked.append((endpoint, [(each.name, each.partitions[0].partition_index) for each in message.topics]))
        if self.error:
            raise self.error
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        found = topic.ListOffsetsPartitionResponse(partition_index=1, error_code=0, timestamp=-1, offset=55)
        return ListOffsetsResponse(topics=[topic(name="there", partitions=[found])])

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


def test_a_leader_that_does_not_answer_leaves_its_partitions_as_they_were():
    cluster = Cluster()
    ends = PartitionEnds(cluster, 100)
    cluster.error = ConnectionFailed("gone")
    ends.end(THERE)
    ends.refresh()
    cluster.run()
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
