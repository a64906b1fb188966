"""A broker, a partition and its state in a tree, and what tests do to a session."""

from kazoo.client import KazooClient

from sparklog.structs import Endpoint, TopicPartition
from sparklog.zk.znodes import (
    BrokerInfo,
    PartitionState,
    TopicAssignment,
)

HERE = BrokerInfo(1, Endpoint("127.0.0.1", 9092))
TP = TopicPartition("t", 0)
STATE = PartitionState(1, 0, (1,), 1)


def expire(zk, zookeeper):
    """End the session behind the client's back, as the server does when it hears nothing."""
    thief = KazooClient(hosts=zookeeper.connect_string, client_id=zk.kazoo.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()


def controller_of(zk):
    _, version = zk.office.take(1, 5)
    zk.topics.create(TopicAssignment("t", dict.fromkeys(range(3), (1,))), {})
    return version
