"""Three brokers leave one after the other, and the last loses its unflushed end: one of the others leads with all."""

import os
import signal

import pytest
from integration import wire
from integration.replicated import NOTICED_S, read_all
from integration.test_replication import described, in_sync, make_topic, numbered, send

from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTopicPartitionsRequest
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("standing"), brokers=3) as harness:
        yield harness


def eligible(trio, broker_id, topic):
    """As that broker says, and whom it says to have led last."""
    request = DescribeTopicPartitionsRequest
    asked = request(topics=[request.TopicRequest(name=topic)], response_partition_limit=10, cursor=None)
    with wire.connect(trio.broker(broker_id).address) as connection:
        answer = connection.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda _: asked)
    (partition,) = answer.topics[0].partitions
    return set(partition.eligible_leader_replicas), set(partition.last_known_elr)


def lose_unflushed_end(trio, broker_id, topic):
    """As a power cut: of what was never flushed the second half is gone."""
    (path,) = trio.directory.broker(broker_id).glob(f"**/{topic}-0/*.log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_who_left_the_isr_in_order_leads_with_all_that_the_last_of_it_has_lost(trio):
    make_topic(trio, "stands", **{"min.insync.replicas": "2"})
    send(trio, "stands", numbered(0, 500))
    last = described(trio, "stands").leader
    first, second = {0, 1, 2} - {last}
    trio.stop_broker(first)
    eventually(lambda: in_sync(trio, "stands") == {second, last}, NOTICED_S, "one has gone")
    send(trio, "stands", numbered(500, 600))
    assert eligible(trio, last, "stands") == (set(), set()), "two are enough"
    trio.stop_broker(second)
    eventually(lambda: in_sync(trio, "stands") == {last}, NOTICED_S, "two have gone")
    assert eligible(trio, last, "stands") == ({second}, set())
    trio.kill_broker(last)
    lose_unflushed_end(trio, last, "stands")
    trio.start_broker(last)
    eventually(lambda: in_sync(trio, "stands") == {second}, NOTICED_S, "who has lost its end stands no more")
    assert described(trio, "stands").leader == -1
    assert eligible(trio, last, "stands") == (set(), {last})
    trio.start_broker(first)
    trio.start_broker(second)
    eventually(lambda: described(trio, "stands").leader == second, NOTICED_S, "who has everything leads")
    eventually(lambda: in_sync(trio, "stands") == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    send(trio, "stands", numbered(600, 700))
    assert read_all(trio, "stands", 700) == numbered(0, 700)


@pytest.mark.parametrize("first_back", ["that was killed", "without its end"])
def test_one_that_was_killed_leads_with_all_that_the_last_of_the_isr_has_lost(trio, first_back):
    """Neither can say that it has everything: both are waited for, and the longer log leads."""
    topic = f"longest-{first_back}".replace(" ", "-")
    make_topic(trio, topic, **{"min.insync.replicas": "2"})
    send(trio, topic, numbered(0, 500))
    last = described(trio, topic).leader
    first, second = {0, 1, 2} - {last}
    trio.stop_broker(first)
    eventually(lambda: in_sync(trio, topic) == {second, last}, NOTICED_S, "one has gone")
    send(trio, topic, numbered(500, 600))
    trio.kill_broker(second)
    eventually(lambda: in_sync(trio, topic) == {last}, NOTICED_S, "two have gone")
    assert eligible(trio, last, topic) == ({second}, set())
    trio.kill_broker(last)
    lose_unflushed_end(trio, last, topic)
    back = [second, last] if first_back == "that was killed" else [last, second]
    for each in back:
        trio.start_broker(each)
    eventually(lambda: described(trio, topic).leader == second, NOTICED_S, "the longer log leads")
    trio.start_broker(first)
    eventually(lambda: in_sync(trio, topic) == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    send(trio, topic, numbered(600, 700))
    assert read_all(trio, topic, 700) == numbered(0, 700)


@pytest.mark.slow
def test_all_lose_their_power_and_the_one_that_has_everything_goes_on(trio):
    """The leader and a follower lose their unflushed ends. Nobody can say that it has everything: the longest leads."""
    make_topic(trio, "dark", **{"min.insync.replicas": "2"})
    send(trio, "dark", numbered(0, 100))
    leader = described(trio, "dark").leader
    follower = ({0, 1, 2} - {leader}).pop()
    for broker in trio.brokers:
        os.kill(broker.pid, signal.SIGSTOP)  # whoever lived on for a moment would take the others for gone
    for broker in trio.brokers:
        broker.kill()
    for each in (leader, follower):
        lose_unflushed_end(trio, each, "dark")
    for broker in trio.brokers:
        broker.start()
    eventually(lambda: in_sync(trio, "dark") == {0, 1, 2}, NOTICED_S, "all replicas are in sync")
    assert read_all(trio, "dark", 100) == numbered(0, 100)
