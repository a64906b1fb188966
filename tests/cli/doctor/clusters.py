"""Clusters for the tests of the doctor's parts."""

from uuid import UUID

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.structs import BrokerId, Endpoint, LeaderEpoch


def partition(number, leader, replicas, isr=None):
    isr = replicas if isr is None else isr
    return PartitionInfo(number, BrokerId(leader), LeaderEpoch(0), tuple(replicas), tuple(isr))


def cluster(topics, live=(0, 1, 2), controller=0, errors=None, internal=()):
    infos = {name: TopicInfo(name, UUID(int=1), name in internal, tuple(each)) for name, each in topics.items()}
    brokers = {BrokerId(each): Endpoint("127.0.0.1", 9092 + each) for each in live}
    return ClusterInfo("a-cluster", BrokerId(controller), brokers, infos, errors or {})
