"""Reading the topic back with Spark, by offset range, and checking that every flight is there exactly as sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.demo.evidence import Evidence, examine, keeps_order
from sparklog.errors import DataSourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "key binary, value binary, partition int, offset long, timestamp timestamp"


class Verified(NamedTuple):
    """What was found: all that was sent."""

    records: int
    keys: int
    partitions: int


def read_back(spark: SparkSession, bootstrap: str, topic: str, ends: Mapping[int, int]) -> pa.Table:
    """The records at offsets from 0 to ``ends`` of each partition, with the columns of SCHEMA."""
    frame = (
        spark.read.format("sparklog")
        .schema(SCHEMA)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("assign", json.dumps({topic: sorted(ends)}))
        .option("startingOffsets", _offsets(topic, dict.fromkeys(ends, 0)))
        .option("endingOffsets", _offsets(topic, ends))
    )
    return frame.load().toArrow()


def verify(records: pa.Table, sent: Mapping[int, Evidence]) -> Verified:
    """Raise DataSourceError saying what differs, unless ``records`` are exactly those that were sent, in order."""
    records = records.sort_by([("partition", "ascending"), ("offset", "ascending")])
    milliseconds = pc.cast(records["timestamp"], pa.timestamp("ms", "UTC")).cast(pa.int64())
    records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", milliseconds)
    for partition, expected in sent.items():
        arrived = records.filter(pc.equal(records["partition"], partition)).combine_chunks()
        found = examine(*(_whole(arrived[name]) for name in ("key", "value", "timestamp")))
        if found != expected:
            raise _differs(f"partition {partition}: sent {expected}, read {found}")
        offsets = arrived["offset"].to_numpy()
        if len(offsets) and (offsets[0] != 0 or offsets[-1] != len(offsets) - 1):
            raise _differs(
                f"partition {partition} has offsets {offsets[0]} to {offsets[-1]} for {len(offsets)} records"
            )
    if not keeps_order(records):
        raise _differs("the records of a key are not in the order in which they were sent")
    return Verified(records.num_rows, pc.count_distinct(records["key"], mode="only_valid").as_py(), len(sent))


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _differs(what: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_DEMO", f"what was read is not what was sent: {what}")
