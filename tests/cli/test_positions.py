"""What ``--from`` and ``--to`` are taken for, and where that is in a partition."""

from datetime import UTC, datetime, timedelta, timezone

import click
import pyarrow as pa
import pytest

from sparklog.cli.positions import parse_position, parse_timestamp, resolve_position
from sparklog.client.admin.admin import Admin, AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.columnar import encode_columns
from sparklog.structs import TopicPartition


def _parse(text):
    return parse_position(None, None, text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (None, None),
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("42", 42),
        ("2013-07-04", datetime(2013, 7, 4, tzinfo=UTC)),
        ("2013-07-04T12:00", datetime(2013, 7, 4, 12, tzinfo=UTC)),
        ("2013-07-04T12:00-04:00", datetime(2013, 7, 4, 12, tzinfo=timezone(timedelta(hours=-4)))),
    ],
)
def test_text_is_an_end_an_offset_or_a_time(text, position):
    assert _parse(text) == position


@pytest.mark.parametrize("text", ["", "-1", "soon", "2013-13-01", "1.5", "9" * 5000])
def test_other_text_is_refused_with_examples(text):
    with pytest.raises(click.BadParameter, match=r"earliest, latest, an offset \(42\), a time \(2013-07-04T12:00"):
        _parse(text)


@pytest.mark.parametrize("text", ["", "-1", "soon", str(1 << 63), "9" * 5000])
def test_what_is_no_time_of_a_record_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is no time .*, and no ms since 1970"):
        parse_timestamp(None, None, text)
    assert parse_timestamp(None, None, str((1 << 63) - 1)) == (1 << 63) - 1


@pytest.fixture
def partition(bootstrap, topic):
    """A partition with records at 1000, 2000 and 3000 ms, and the way to it."""
    with ClusterMetadata(ClientConfig.from_properties({"bootstrap.servers": bootstrap})) as cluster:
        AdminClient(cluster).create_topics([NewTopic(topic, 1, 1)])
        tp = TopicPartition(topic, 0)
        with BatchProducer(cluster) as producer:
            for moment in (1000, 2000, 3000):
                (batch,) = encode_columns(None, pa.array([b"v"]), None, pa.array([moment], pa.int64()), now_ms=0)
                producer.send(tp, batch.data)
                producer.flush()
        yield cluster, tp


@pytest.mark.integration
@pytest.mark.parametrize(
    ("position", "offset"),
    [
        ("earliest", 0),
        ("latest", 3),
        (0, 0),
        (2, 2),
        (99, 3),
        (datetime.fromtimestamp(1.5, UTC), 1),
        (datetime.fromtimestamp(2, UTC), 1),
        (datetime.fromtimestamp(0, UTC), 0),
        (datetime.fromtimestamp(-0.001, UTC), 0),
        (datetime(1, 1, 1, tzinfo=UTC), 0),
        (datetime.fromtimestamp(4, UTC), 3),
    ],
)
def test_a_position_is_an_offset_that_the_partition_has(partition, position, offset):
    cluster, tp = partition
    with Admin(cluster.config) as admin:
        assert resolve_position(admin, [tp], position) == ({tp: offset}, {})
