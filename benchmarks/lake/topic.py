"""Topics of records with keys and values of words: unlike random bytes they compress, and unlike one batch that comes
again and again no dictionary holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.loads.keyed import keyed_batches
from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.clock import Clock
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition


@dataclass(frozen=True)
class KeyedTopic:
    """Records of about ``size`` bytes, each with one of ``keys`` keys, spread evenly over the partitions."""

    name: str
    size: int
    keys: int
    partitions: int = 2

    def create(self, bootstrap: str, clock: Clock) -> None:
        with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap), clock) as cluster:
            AdminClient(cluster).create_topics([NewTopic(self.name, self.partitions, 1, {"retention.ms": "-1"})])

    def write(self, bootstrap: str, records: int, clock: Clock) -> None:
        """Write so many records, the same in every run."""
        batches = keyed_batches(self.size, records, self.keys, CompressionType.NONE, clock.now_ms())
        with (
            ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap), clock) as cluster,
            BatchProducer(cluster) as producer,
        ):
            for number, batch in enumerate(batches):
                producer.send(TopicPartition(self.name, number % self.partitions), bytes(batch.data))
