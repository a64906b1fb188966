"""What healthy brokers say: nothing that somebody would have to act upon."""

import re

import pytest

from sparklog.client import Admin, Consumer, NewTopic, Producer
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
RECORDS = 100
LOUD = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) .*", re.MULTILINE)
OF_THE_MACHINE = re.compile("held up all others for|files may be open")
"""How fast it is, and how many files it lets a process open."""


def read_all(bootstrap, group):
    """As a new group, which commits."""
    with Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["clicks"])
        found = []
        eventually(lambda: found.extend(consumer.poll(0.5)) or len(found) == RECORDS, what="all records")
        consumer.commit()


def use(bootstrap):
    """Topics come, grow and go, and are compacted; records are written and read by groups."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("clicks", 3, 2), NewTopic("users", 1, 2, {"cleanup.policy": "compact"})])
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(RECORDS):
                for topic in ("clicks", "users"):
                    producer.send(topic, f"{number}", key=f"{number % 7}")
        for group in ("readers", "others"):
            read_all(bootstrap, group)
        admin.compact(["users"])
        admin.create_partitions({"clicks": 4})
        admin.delete_groups(["others"])
        admin.delete_topics(["users"])
        return admin.describe_cluster().controller


def test_brokers_warn_of_nothing_from_their_start_to_their_end(tmp_path):
    """The controller stops last: whoever stays is told at once that its port is closed, and not why."""
    with ClusterHarness(tmp_path, brokers=2, settings={"zookeeper.session.timeout.ms": 60_000}) as cluster:
        controller = use(cluster.bootstrap_servers)
        for broker in sorted(cluster.brokers, key=lambda each: each.spec.broker_id == controller):
            broker.stop()
        said = "".join(broker.output() for broker in cluster.brokers)
    assert "is no longer the controller" in said
    assert [line for line in LOUD.findall(said) if not OF_THE_MACHINE.search(line)] == []
