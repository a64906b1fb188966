"""How a table may be upserted to."""

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.lake.delta.upsert import partition_value
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.structs import TopicPartition


def test_what_no_table_has():
    with pytest.raises(DataSourceError, match="not 'brotli'"):
        UpsertTable("x", compression="brotli")


@pytest.mark.parametrize(
    ("partition_by", "value"), [(("topic", "partition"), ("t", "3")), (("partition", "topic"), ("3", "t"))]
)
def test_the_partition_of_the_table_is_that_of_the_log(partition_by, value):
    assert partition_value(partition_by, TopicPartition("t", 3)) == value
