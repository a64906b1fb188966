"""The rows of Arrow tables as encoded batches of partitions; columns only, no row is touched in Python.

The columns are those of the Spark sink: ``key`` and ``value`` (binary or string), ``headers``, and, of a row's own
choice where it is not null, ``partition``; besides, ``timestamp``. At least one of key and value must be there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.partitioner import Partitioner
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.record.columnar import ColumnarEncoder
from sparklog.structs import TopicPartition

_COLUMNS = ("key", "value", "headers", "partition", "timestamp")
Encoded = tuple[TopicPartition, bytearray]


def encoded_batches(
    config: ProducerConfig,
    topic: str,
    partition_count: int,
    rows: pa.RecordBatch | pa.Table,
    now_ms: int,
    available: Sequence[int] | None = None,
) -> Iterator[Encoded]:
    """Each batch and where it goes. Raises ConfigError for other columns, ValueError for a time before 1970, ApiError
    for a partition that is not there.

    Rows of one partition keep their order. Those that name no partition and have no key go to the ``available`` ones,
    if any are named. ``now_ms`` is the time of rows without one.
    """
    _check_columns(rows.schema.names)
    _check_times(rows)
    encoder = ColumnarEncoder(
        compression=config.compression_type,
        max_batch_bytes=config.batch_size,
        is_transactional=config.is_transactional,
    )
    partitioner = Partitioner(partition_count, random.randrange(partition_count))
    for part in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        for group, partition in _groups(part, topic, partition_count):
            if partition is not None:
                yield from _encode(encoder, TopicPartition(topic, partition), group, None, now_ms)
                continue
            for share in partitioner.shares(_column(group, "key"), group.num_rows, available):
                shared = group.slice(share.offset, share.length)
                yield from _encode(encoder, TopicPartition(topic, share.partition), shared, share.rows, now_ms)


def _check_columns(names: list[str]) -> None:
    unknown = sorted(set(names) - set(_COLUMNS))
    if unknown or not {"key", "value"} & set(names):
        found = ", ".join(names) or "none"
        raise ConfigError(
            f"the columns must be key or value or both, and some of {', '.join(_COLUMNS[2:])}; not {found}"
        )


def _check_times(rows: pa.RecordBatch | pa.Table) -> None:
    column = _column(rows, "timestamp")
    if column is None or column.null_count == len(column):
        return
    earliest = pc.min(column.cast(pa.int64())).as_py()
    if earliest < 0:
        raise ValueError(f"a timestamp is ms since 1970, from 0 on, and the earliest of these is {earliest}")


def _groups(rows: pa.RecordBatch, topic: str, count: int) -> Iterator[tuple[pa.RecordBatch, int | None]]:
    """The rows under each partition that they name, and those that name none."""
    column = _column(rows, "partition")
    if column is None or column.null_count == len(column):
        if rows.num_rows:
            yield rows, None
        return
    for partition in pc.unique(column).to_pylist():
        if partition is not None and not 0 <= partition < count:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a row names partition {partition} of topic {topic!r}, which has 0 to {count - 1}",
            )
        chosen = pc.is_null(column) if partition is None else pc.equal(column, partition)
        yield rows.filter(chosen), partition


def _encode(
    encoder: ColumnarEncoder, tp: TopicPartition, rows: pa.RecordBatch, chosen: memoryview | None, now_ms: int
) -> Iterator[Encoded]:
    key, value, headers, timestamp = (_column(rows, name) for name in ("key", "value", "headers", "timestamp"))
    for batch in encoder.encode(key, value, headers, timestamp, now_ms=now_ms, rows=chosen):
        yield tp, batch.data


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | None:
    return rows.column(name) if name in rows.schema.names else None
