"""The replay: what it says it sent is what the log has."""

import pyarrow as pa
import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.demo.flights import load_flights
from sparklog.demo.replay import BLOCK, replay
from sparklog.demo.verify import verify
from sparklog.errors import ApiError
from sparklog.record.columnar import ColumnarDecoder
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration

PARTITIONS = 4


@pytest.fixture
def cluster_metadata(bootstrap):
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap)) as metadata:
        yield metadata


def read_all(metadata, topic):
    """All that the topic has, as Spark would give it."""
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    tables = []
    for tp, end in latest_offsets(metadata, wanted).items():
        decoder = ColumnarDecoder(("key", "value", "offset", "timestamp"))
        for batch in fetch_range(metadata, tp, 0, end):
            decoder.append(batch, 0, end)
        columns = pa.table(decoder.finish())
        milliseconds = columns["timestamp"].cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
        columns = columns.set_column(columns.schema.get_field_index("timestamp"), "timestamp", milliseconds)
        tables.append(columns.append_column("partition", pa.array([tp.partition] * len(columns), pa.int32())))
    return pa.concat_tables(tables)


def test_its_evidence_is_that_of_the_log(cluster_metadata, topic):
    # More than one block, so that numbers of rows in later ones count too.
    flights = load_flights(BLOCK + 1500)
    replayed = replay(cluster_metadata, topic, PARTITIONS, flights)
    assert sorted(replayed.evidence) == list(range(PARTITIONS))
    assert sum(each.records for each in replayed.evidence.values()) == BLOCK + 1500
    assert all(each.records > BLOCK // 10 for each in replayed.evidence.values())
    assert replayed.seconds > 0
    found = verify(read_all(cluster_metadata, topic), replayed.evidence)
    assert found.records == BLOCK + 1500
    assert found.keys == len(set(flights.key.drop_null().to_pylist()))


def test_a_topic_that_is_there_is_not_added_to(cluster_metadata, topic):
    flights = load_flights(10)
    replay(cluster_metadata, topic, PARTITIONS, flights)
    with pytest.raises(ApiError, match="exists already"):
        replay(cluster_metadata, topic, PARTITIONS, flights)
    assert read_all(cluster_metadata, topic).num_rows == 10
