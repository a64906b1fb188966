"""The rows of Arrow tables as encoded batches of partitions; columns only, no row is touched in Python.

The columns are those of the Spark sink: ``key`` and ``value`` (binary or string), ``headers``, and, of a row's own
choice where it is not null, ``partition`` (integers); besides, ``timestamp``. At least one of key and value must be
there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.partitioner import Partitioner, misplaced
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
    for a partition that is not there; all of these before the first batch.

    Rows of one partition keep their order. Those that name no partition and have no key go to the ``available`` ones,
    if any are named. ``now_ms`` is the time of rows without one.
    """
    _check_columns(rows.schema.names)
    _check_times(rows)
    parts = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    _check_partitions(parts, topic, partition_count)
    encoder = ColumnarEncoder(
        compression=config.compression_type,
        max_batch_bytes=config.batch_size,
        is_transactional=config.is_transactional,
    )
    partitioner = Partitioner(partition_count, random.randrange(partition_count))
    for part in parts:
        key, named = _column(part, "key"), _column(part, "partition")
        for share in partitioner.shares(key, part.num_rows, available, named):
            shared = part.slice(share.offset, share.length)
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


def _check_partitions(parts: list[pa.RecordBatch], topic: str, count: int) -> None:
    for part in parts:
        column = _column(part, "partition")
        if column is None:
            return
        if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
            raise ConfigError(f"the column 'partition' must be of integers or null, not of {column.type}; cast it")
        row = misplaced(column, count)
        if row is not None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a row names partition {column[row]} of topic {topic!r}, which has 0 to {count - 1}",
            )


def _encode(
    encoder: ColumnarEncoder, tp: TopicPartition, rows: pa.RecordBatch, chosen: memoryview | None, now_ms: int
) -> Iterator[Encoded]:
    key, value, headers, timestamp = (_column(rows, name) for name in ("key", "value", "headers", "timestamp"))
    for batch in encoder.encode(key, value, headers, timestamp, now_ms=now_ms, rows=chosen):
        yield tp, batch.data


def _column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array | None:
    return rows.column(name) if name in rows.schema.names else None
