"""Members come, go, are killed and lose their sessions, and a broker dies: nothing is lost, nothing owned twice."""

import contextlib
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.zookeeper import ZooKeeperConsumer, group
from sparklog.config.zookeeper_security import OPEN
from sparklog.local.process import ChildProcess
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk.holding import HoldingClient

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
PROGRAM = Path(__file__).with_name("member_program.py")
PARTITIONS = 6
STEPS = 25


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    settings = {"default.replication.factor": 2, "offsets.topic.replication.factor": 1}
    with ClusterHarness(tmp_path_factory.mktemp("brokers"), brokers=2, settings=settings) as harness:
        yield harness


@pytest.fixture
def zk(brokers):
    client = HoldingClient(
        brokers.zookeeper_connect, session_timeout=6.0, on_session=lambda _: None, makes_chroot=False, security=OPEN
    )
    yield client
    client.close()


def owned_once(zk, name, topic):
    """The owner of each partition; fails for one that has two."""
    folder = f"/consumers/{name}/owners/{topic}"
    names = zk.names(folder)
    seen = zk.seen_each([f"{folder}/{each}" for each in names])
    owners = [(group.partition_of(each), found.data) for each, found in zip(names, seen, strict=True) if found]
    assert max(Counter(partition for partition, _ in owners).values(), default=0) <= 1, owners
    return dict(owners)


def produce(brokers, topic, numbers):
    with Producer(bootstrap_servers=brokers.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


class Members:
    """Consumers of one group in this process, each with the numbers that it was given."""

    def __init__(self, connect, name, topic):
        self.settings = {"zookeeper.connect": connect, "group.id": name, "auto.offset.reset": "smallest"}
        self.topic = topic
        self.live = []
        self.found = Counter()

    def join(self):
        consumer = ZooKeeperConsumer(
            self.settings, rebalance_backoff_ms=50, auto_commit_interval_ms=100, zookeeper_session_timeout_ms=4000
        )
        consumer.subscribe({self.topic: 1 + len(self.live) % 2})
        self.live.append(consumer)

    def poll(self):
        for each in self.live:
            self.found.update(int(record.value) for record in each.poll(0.02, 7))

    def close(self):
        for each in self.live:
            each.close()


@pytest.mark.parametrize("seed", range(3))
def test_members_come_and_go_and_lose_their_sessions(brokers, zk, topic, seed):
    random = Random(seed)
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 2, {})])
    count = 0
    with CuttingProxy(brokers.zookeeper_connect) as proxy:
        members = Members(proxy.connect_string, topic, topic)
        with contextlib.closing(members):
            members.join()
            for _ in range(STEPS):
                step = random.choice(["join", "leave", "session", "cut", "broker", "read"])
                if step == "join" and len(members.live) < 5:
                    members.join()
                elif step == "leave" and len(members.live) > 1:
                    members.live.pop(random.randrange(len(members.live))).close()
                elif step == "session":
                    zk.end_session(random.choice(members.live)._member._registry._zk.session)
                elif step == "cut":
                    proxy.hang_up()
                elif step == "broker":
                    brokers.kill_broker(1)
                    members.poll()
                    brokers.start_broker(1)
                produce(brokers, topic, range(count, count := count + 30))
                for _ in range(random.randrange(5)):
                    members.poll()
                    owned_once(zk, topic, topic)

            def settled():
                members.poll()
                return len(owned_once(zk, topic, topic)) == PARTITIONS and len(members.found) == count

            eventually(settled, timeout=120, what="everything read")
            assert set(members.found) == set(range(count))


def test_members_that_are_killed_lose_nothing(brokers, zk, topic, tmp_path):
    with Admin(bootstrap_servers=brokers.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 2, {})])
    random, read, count, live = Random(1), set(), 0, {}
    everything = []

    def start(number):
        process = ChildProcess(f"member {number}", tmp_path / f"member-{number}")
        process.spawn([sys.executable, str(PROGRAM), brokers.zookeeper_connect, topic, topic, f"m{number}"])
        live[number] = process
        everything.append(process)

    def harvest():
        for process in everything:
            read.update(line for line in process.output().split("\n")[:-1] if line)
        return len(read) == count

    try:
        for number in range(6):
            start(number)
            produce(brokers, topic, range(count, count := count + 60))
            eventually(lambda: (owned_once(zk, topic, topic), harvest())[1], timeout=120, what="all read so far")
            if len(live) > 2:
                live.pop(random.choice(sorted(live))).kill()
        produce(brokers, topic, range(count, count := count + 60))
        eventually(lambda: (owned_once(zk, topic, topic), harvest())[1], timeout=120, what="all read in the end")
        assert len(owned_once(zk, topic, topic)) == PARTITIONS
    finally:
        for process in live.values():
            process.kill()
