"""What a reader is given when nothing is open any more: committed records, unless it asks for all."""

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.record.records import iter_records
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.eventually import eventually


def values_in(metadata, tp, isolation=IsolationLevel.READ_COMMITTED):
    """The values of a partition, in their order."""

    def is_settled():
        return latest_offsets(metadata, [tp], IsolationLevel.READ_COMMITTED) == latest_offsets(metadata, [tp])

    eventually(is_settled, what=f"nothing is open in {tp}")
    end = latest_offsets(metadata, [tp])[tp]
    batches = fetch_range(metadata, tp, 0, end, isolation=isolation)
    return [bytes(record.value) for batch in batches for record in iter_records(batch)]


def numbers_in(client, topic, partitions, isolation=IsolationLevel.READ_COMMITTED):
    """Those of a whole topic whose values are numbers, sorted. ``client`` is what a client is told."""
    with ClusterMetadata(ClientConfig.from_properties(client)) as metadata:
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        return sorted(int(value) for tp in tps for value in values_in(metadata, tp, isolation))
