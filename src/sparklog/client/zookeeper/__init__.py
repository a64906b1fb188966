"""Groups that live in ZooKeeper, without a coordinator: the consumer registry of the first design and of Kafka 0.8 to
1.1.

``ZooKeeperConsumer`` is for programs. The rules and what every znode holds are in ``group.py``, without I/O;
docs/adr/0040-older-consumer-registry.md says what always holds.
"""

from __future__ import annotations

from sparklog.client.zookeeper.consumer import ZooKeeperConsumer as ZooKeeperConsumer

__all__ = ["ZooKeeperConsumer"]
