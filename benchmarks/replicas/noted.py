"""When ZooKeeper was told what, by its own clock: nothing is asked while a cluster is timed.

Both sides keep the same tree (``sparklog.zk.znodes``). Times are in milliseconds since 1970, of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from benchmarks.replication import Cluster
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import CONTROLLER, PartitionState, broker_path, decode_partition_state, partition_state_path

_TIMEOUT_S = 60


@dataclass(frozen=True)
class Noted:
    """What a cluster's ZooKeeper holds."""

    zookeeper: KazooClient

    def states(self, topic: str, partitions: Iterable[int]) -> list[tuple[PartitionState, int]]:
        """Of each partition its state, and when that was written."""
        names = [TopicPartition(topic, number) for number in partitions]
        asked = [(tp, self.zookeeper.get_async(partition_state_path(tp))) for tp in names]
        found = [(tp, *each.get(timeout=_TIMEOUT_S)) for tp, each in asked]
        return [(decode_partition_state(tp, data, stat.version), stat.mtime) for tp, data, stat in found]

    def registered(self, broker_id: int) -> int:
        """When the broker registered; NoNodeError if it is not."""
        return int(self.zookeeper.get(broker_path(broker_id))[1].ctime)

    def is_registered(self, broker_id: int) -> bool:
        return self.zookeeper.exists(broker_path(broker_id)) is not None

    def controller_since(self) -> int:
        """When the controller took its office; 0 if there is none."""
        try:
            return int(self.zookeeper.get(CONTROLLER)[1].ctime)
        except NoNodeError:
            return 0


@contextmanager
def noted(cluster: Cluster) -> Iterator[Noted]:
    client = KazooClient(cluster.zookeeper)
    client.start(timeout=_TIMEOUT_S)
    try:
        yield Noted(client)
    finally:
        client.stop()
        client.close()
