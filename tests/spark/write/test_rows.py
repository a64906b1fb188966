"""Rows to topics and partitions; no broker is asked."""

from types import SimpleNamespace
from uuid import UUID

import pyarrow as pa
import pytest

from sparklog.client.producer.config import ProducerConfig
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.partitioning import partition_for
from sparklog.record.records import iter_records
from sparklog.spark.write.rows import TopicWriter
from sparklog.testing.clock import ManualClock

_KEY = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 2) == 0)


class _Cluster:
    """One topic of two partitions."""

    config = ProducerConfig.of(bootstrap_servers="a:1")
    clock = ManualClock()

    def topic(self, name, create):
        if name != "t":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}")
        return SimpleNamespace(topic_id=UUID(int=1), partitions=[0, 1])

    def suggestion(self, name):
        return "; did you mean 't'?"


class _Producer:
    """Keeps what it is given."""

    def __init__(self):
        self.named = set()
        self.sent = {}

    def will_send(self, partitions):
        self.named |= {tp.partition for tp in partitions}

    def send(self, tp, data):
        assert tp.partition in self.named
        values = [int(record.value) for record in iter_records(RecordBatch(data))]
        self.sent.setdefault(tp.partition, []).extend(values)


def _write(named):
    producer = _Producer()
    values = pa.array([b"%d" % number for number in range(len(named))], pa.binary())
    keys = pa.array([_KEY] * len(named), pa.binary())
    rows = {"key": keys, "value": values, "partition": pa.array(named, pa.int32())}
    TopicWriter(_Cluster(), producer, "t").write(pa.RecordBatch.from_pydict(rows))
    return producer.sent


def test_rows_of_a_partition_keep_their_order_whether_they_name_it_or_come_by_key():
    assert _write([0, None, 1, None, 0, None]) == {0: [0, 1, 3, 4, 5], 1: [2]}


def test_a_row_that_names_no_partition_of_the_topic_is_named():
    with pytest.raises(DataSourceError, match="names partition 2 of topic 't', which has 0 to 1"):
        _write([0, None, 2])


def test_a_topic_that_is_misspelt_may_be_another_one():
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x"])})
    told = r"SPARKLOG_UNKNOWN_TOPIC\] .*topic 'tt'; asked for by the row .*; did you mean 't'\?$"
    with pytest.raises(DataSourceError, match=told):
        TopicWriter(_Cluster(), _Producer(), "tt").write(rows)
