"""What was sent and what arrived, boiled down so that it can be compared: per partition, by column."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Evidence(NamedTuple):
    """One partition's records: how many, their bytes of keys and values, a checksum over all in their order."""

    records: int
    size: int
    checksum: str


def examine(key: pa.Array, value: pa.Array, timestamp: pa.Array) -> Evidence:
    """Evidence of records (binary, binary, int64 ms) in their order; null and empty keys differ."""
    checksum = blake2b(digest_size=16)
    size = 0
    for column in (key, value):
        lengths = pc.fill_null(pc.binary_length(column), -1)
        data = _joined(column)
        checksum.update(_joined_integers(lengths.cast(pa.int64())))
        checksum.update(data)
        size += len(data)
    checksum.update(_joined_integers(timestamp))
    return Evidence(len(timestamp), size, checksum.hexdigest())


def keeps_order(records: pa.Table) -> bool:
    """Whether each key's records (columns key, partition, offset, timestamp) are in one partition, in time order."""
    keyed = records.filter(pc.is_valid(records["key"]))
    keyed = keyed.sort_by([("key", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    if keyed.num_rows < 2:
        return True
    before, after = keyed.slice(0, keyed.num_rows - 1), keyed.slice(1)
    other_key = pc.not_equal(before["key"], after["key"])
    same_place = pc.equal(before["partition"], after["partition"])
    in_time = pc.less_equal(before["timestamp"], after["timestamp"])
    return bool(pc.all(pc.or_(other_key, pc.and_(same_place, in_time))).as_py())


def _joined(column: pa.Array) -> memoryview:
    """The bytes of a binary array, one value after another."""
    if not len(column):
        return memoryview(b"")
    column = column.fill_null(b"")
    offsets = memoryview(column.buffers()[1]).cast("i")
    return memoryview(column.buffers()[2] or b"")[offsets[column.offset] : offsets[column.offset + len(column)]]


def _joined_integers(column: pa.Array) -> memoryview:
    return memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))]
