"""A broker killed while a producer sends: nothing acknowledged is lost, nothing is there twice, all is in order."""

import threading

import pytest

from sparklog.client import Producer
from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, latest_offsets
from sparklog.client.consumer.batch_consumer import BatchConsumer
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
_PARTITIONS = [TopicPartition("numbers", number) for number in range(3)]


class _Numbers(threading.Thread):
    """Sends 0, 1, 2, … until it is stopped; never more ahead than the producer's memory allows."""

    def __init__(self, producer):
        super().__init__()
        self._producer = producer
        self._stop_asked = threading.Event()
        self.futures = []

    def run(self):
        while not self._stop_asked.is_set():
            number = len(self.futures)
            self.futures.append(self._producer.send("numbers", b"%d" % number, partition=number % 3))

    def stop(self):
        self._stop_asked.set()
        self.join(120)

    def acknowledged(self):
        return sum(future.done() for future in self.futures)


def test_kill_the_broker_while_records_are_sent(tmp_path):
    with ClusterHarness(tmp_path) as cluster:
        with ClusterMetadata(ClientConfig(bootstrap_servers=cluster.bootstrap_servers)) as metadata:
            AdminClient(metadata).create_topics([NewTopic("numbers", 3, 1)])
        with Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=100_000, batch_size=1000) as producer:
            numbers = _Numbers(producer)
            numbers.start()
            try:
                for _ in range(3):
                    before = numbers.acknowledged()
                    eventually(lambda before=before: numbers.acknowledged() > before + 2000, timeout=60)
                    cluster.kill_broker(0)
                    cluster.start_broker(0)
            finally:
                numbers.stop()
        found = _read(cluster.bootstrap_servers)
    for number, future in enumerate(numbers.futures):
        metadata = future.result(0)
        if metadata.offset >= 0:
            assert found[metadata.partition][metadata.offset] == number
    assert found == [list(range(first, len(numbers.futures), 3)) for first in range(3)]


def _read(servers):
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as cluster:
        ends = latest_offsets(cluster, _PARTITIONS)
        records = list(BatchConsumer(cluster, dict.fromkeys(_PARTITIONS, EARLIEST)).records(until=ends))
    return [[int(each.value) for each in records if each.tp == tp] for tp in _PARTITIONS]
