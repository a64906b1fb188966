"""Reading a topic back with Spark, and checking that every flight is there, once and exactly as sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from sparklog.demo.evidence import Evidence, examine, keeps_order
from sparklog.errors import DataSourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "key binary, value binary, partition int, offset long"


class Verified(NamedTuple):
    """What was found: all that was sent."""

    records: int
    keys: int
    partitions: int


def read_back(spark: SparkSession, bootstrap: str, topic: str) -> pa.Table:
    """The topic's committed records: key, value, partition, offset, and as ``timestamp`` the scheduled departure."""
    scheduled = F.get_json_object(F.col("value").cast("string"), "$.scheduled").cast("timestamp")
    return _load(spark, bootstrap, topic, "read_committed", _COLUMNS).withColumn("timestamp", scheduled).toArrow()


def count_all(spark: SparkSession, bootstrap: str, topic: str) -> int:
    """The records in the topic's log, those of aborted transactions with the others."""
    return int(_load(spark, bootstrap, topic, "read_uncommitted", "offset long").count())


def _load(spark: SparkSession, bootstrap: str, topic: str, isolation: str, columns: str) -> DataFrame:
    return (
        spark.read.format("sparklog")
        .schema(columns)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("kafka.isolation.level", isolation)
        .load()
    )


def verify(records: pa.Table, sent: Mapping[int, Evidence]) -> Verified:
    """Raise DataSourceError saying what differs, unless ``records`` are exactly those that were sent, in order.

    Offsets may have gaps, as transactions leave them.
    """
    records = records.sort_by([("partition", "ascending"), ("offset", "ascending")])
    milliseconds = pc.cast(records["timestamp"], pa.timestamp("ms", "UTC")).cast(pa.int64())
    records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", milliseconds)
    for partition, expected in sent.items():
        arrived = records.filter(pc.equal(records["partition"], partition)).combine_chunks()
        found = examine(*(_whole(arrived[name]) for name in ("key", "value", "timestamp")))
        if found != expected:
            raise _differs(f"partition {partition}: sent {expected}, read {found}")
    if not keeps_order(records):
        raise _differs("the records of a key are not in the order in which they were sent")
    return Verified(records.num_rows, pc.count_distinct(records["key"], mode="only_valid").as_py(), len(sent))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _differs(what: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_DEMO", f"what was read is not what was sent: {what}")
