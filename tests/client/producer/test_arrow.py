"""Tables as encoded batches of partitions."""

import pyarrow as pa
import pytest

from sparklog.client.producer.arrow import encoded_batches
from sparklog.client.producer.config import ProducerConfig
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.record.partitioning import partition_for
from sparklog.record.records import iter_records

_CONFIG = ProducerConfig.of(bootstrap_servers="a:1")
_KEY = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 2) == 0)


def _rows(named, kind, count=6):
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([_KEY] * count, pa.binary()),
            "value": pa.array([b"%d" % number for number in range(count)], pa.binary()),
            "partition": pa.array(named, kind),
        }
    )


def _encoded(rows):
    found = {}
    for tp, data in encoded_batches(_CONFIG, "t", 2, rows, 0):
        found.setdefault(tp.partition, []).extend(int(record.value) for record in iter_records(RecordBatch(data)))
    return found


def test_rows_of_a_partition_keep_their_order_whether_they_name_it_or_come_by_key():
    rows = _rows([0, None, 1, None, 0, None], pa.int32())
    assert _encoded(rows) == {0: [0, 1, 3, 4, 5], 1: [2]}
    assert _encoded(pa.Table.from_batches([rows.slice(0, 3), rows.slice(3)])) == {0: [0, 1, 3, 4, 5], 1: [2]}


@pytest.mark.parametrize(
    ("named", "kind"), [([1.0, None], pa.float64()), (["1", None], pa.string()), ([True, None], pa.bool_())]
)
def test_a_partition_is_an_integer(named, kind):
    with pytest.raises(ConfigError, match=f"'partition' must be of integers or null, not of {kind}"):
        _encoded(_rows(named, kind, 2))


def test_a_column_of_nulls_names_no_partition():
    assert _encoded(_rows([None] * 2, pa.null(), 2)) == {0: [0, 1]}


def test_a_partition_that_is_not_there_is_refused_before_the_first_batch():
    parts = [_rows([0, 1], pa.int32(), 2), _rows([0, 9], pa.int32(), 2)]
    with pytest.raises(ApiError, match="names partition 9 of topic 't', which has 0 to 1") as refused:
        next(encoded_batches(_CONFIG, "t", 2, pa.Table.from_batches(parts), 0))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
