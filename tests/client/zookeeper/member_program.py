"""A member of a group in ZooKeeper in a process of its own, to be killed: prints each record's partition and offset."""

import sys

from sparklog.client.zookeeper import ZooKeeperConsumer

connect, group, topic, name = sys.argv[1:]
consumer = ZooKeeperConsumer(
    {"zookeeper.connect": connect, "group.id": group, "consumer.id": name, "auto.offset.reset": "smallest"},
    auto_commit_interval_ms=200,
    rebalance_backoff_ms=100,
    zookeeper_session_timeout_ms=2000,
)
consumer.subscribe({topic: 1})
while True:
    for record in consumer.poll(0.2):
        sys.stdout.write(f"{record.partition} {record.offset}\n")
    sys.stdout.flush()
