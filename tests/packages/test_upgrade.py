"""A cluster of three that goes broker by broker to this version, and back, while clients write and read.

The other version is a commit of this repository, made into a wheel and installed into a directory of its own. The
broker processes of both are real; what each is run from stands in its environment.
"""

import subprocess
import sys
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from packages.pythons import HOUSE

from sparklog.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.local.broker import PROGRAM
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(3600)]
OTHER = "17c757f5104a0953e669cccfd75f33b6a8864bdd"
"""The version that is upgraded from."""
TOPIC, GROUP, PARTITIONS = "kept", "readers", 6
SETTINGS = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
WAIT_S = 180


@pytest.fixture(scope="module")
def other_program(tmp_path_factory):
    """What runs ``sparklog`` of the other version; it is built once, and kept in ``build``."""
    home = HOUSE / "build" / "versions" / OTHER
    if not (home / "sparklog").is_dir():
        source = tmp_path_factory.mktemp("source") / "house"
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", HOUSE, source], check=True)
        found = subprocess.run(["git", "checkout", "--quiet", OTHER], cwd=source, capture_output=True, check=False)
        if found.returncode:
            pytest.skip(f"this clone has no commit {OTHER}")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        wheels = source / "wheels"
        subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, source], check=True)
        subprocess.run([*pip, "install", "--no-deps", "--target", home, *wheels.glob("*.whl")], check=True)
    return ("env", f"PYTHONPATH={home}", *PROGRAM)


@pytest.fixture
def cluster(tmp_path, other_program):
    kind = type("OtherVersion", (ClusterHarness,), {"program": other_program})
    with kind(tmp_path / "cluster", brokers=3, settings=SETTINGS) as found:
        yield found


@pytest.fixture
def admin(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as found:
        found.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        yield found


class Client(threading.Thread):
    """Works until it is told to stop; what it fails with is raised by ``finish``."""

    def __init__(self, work):
        super().__init__()
        self.values = []
        self.failure = None
        self._work = work
        self._over = threading.Event()

    def run(self):
        try:
            self._work(self.values, self._over)
        except BaseException as error:
            self.failure = error

    def finish(self):
        self._over.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure

    def check(self):
        if self.failure is not None:
            raise self.failure


def writing(bootstrap):
    def work(acknowledged, over):
        with Producer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
            for first in count(step=20):
                if over.is_set():
                    return
                futures = [producer.send(TOPIC, b"%d" % number) for number in range(first, first + 20)]
                for future in futures:
                    future.result(WAIT_S)
                acknowledged.extend(range(first, first + 20))

    return Client(work)


def reading(bootstrap):
    def work(read, over):
        with Consumer(bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            while not over.is_set():
                read.extend(int(each.value) for each in consumer.poll(timeout=0.5))

    return Client(work)


def program_of(broker):
    """The directory that a broker's process finds the library in."""
    children = Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
    return [each.decode() for each in children if each.startswith(b"PYTHONPATH=")]


def test_brokers_go_to_this_version_and_back_while_clients_write_and_read(cluster, admin, other_program):
    bootstrap = cluster.bootstrap_servers
    producer, consumer = writing(bootstrap), reading(bootstrap)
    clients = (producer, consumer)
    for each in clients:
        each.start()
    try:
        for program in (PROGRAM, other_program):
            for broker in cluster.brokers:
                broker.stop()  # others lead first
                assert all(each.leader >= 0 for each in partitions(admin))
                broker.spec = replace(broker.spec, program=program)
                broker.start()
                eventually(lambda: all(len(each.isr) == 3 for each in partitions(admin)), WAIT_S, "all are in sync")
                goes_on(producer, consumer)
                assert (other_program[1] in program_of(broker)) is (program is other_program)
        acknowledged = producer.values
        producer.finish()
        eventually(lambda: set(acknowledged) <= {*consumer.values}, WAIT_S, "the group has read all")
    finally:
        for each in clients:
            each.finish()
    assert stored(bootstrap) == sorted(acknowledged)
    assert sorted(consumer.values) == sorted(acknowledged)


def goes_on(producer, consumer):
    """Return when another hundred records are acknowledged, and read by the group."""
    wanted = len(producer.values) + 100

    def has():
        for each in (producer, consumer):
            each.check()
        return len(producer.values) >= wanted and len(consumer.values) >= wanted

    eventually(has, WAIT_S, "clients go on")


def partitions(admin):
    """Those of all topics, the internal ones too."""
    return [each for topic in admin.list_topics(internal=True) for each in topic.partitions]


def stored(bootstrap):
    """All that the topic has."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        assigned = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(assigned)
        ends = consumer.end_offsets(assigned)
        read = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            read += [int(each.value) for each in consumer.poll(timeout=1.0)]
    return sorted(read)
