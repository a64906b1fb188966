"""Batches of records with keys, as many producers of one topic make them; the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.record.columnar import ColumnarEncoder, EncodedBatch
from sparklog.record.compression import CompressionType

BATCH_BYTES = 16_384
"""What a producer's ``batch.size`` is by default: of records before they are compressed."""
OVERHEAD = 24
"""Of a record: a key of 12 bytes, and what the format adds."""
_ROWS_AT_ONCE = 100_000
_DISTINCT_VALUES = 20_000


def keyed_batches(
    size: int,
    records: int,
    keys: int,
    compression: CompressionType,
    now_ms: int,
    seed: int = 0,
    *,
    all_keys: bool = False,
) -> Iterator[EncodedBatch]:
    """Records of about ``size`` bytes in the log, each of one of ``keys`` keys, any as likely as another.

    Not every key need occur. With ``all_keys`` each does that the records suffice for: the first records have one each.
    The values are words, which compress two or three times.
    """
    pool, encoder = _values(size), ColumnarEncoder(compression=compression, max_batch_bytes=BATCH_BYTES)
    for number, start in enumerate(range(0, records, _ROWS_AT_ONCE)):
        rows = min(_ROWS_AT_ONCE, records - start)
        drawn = _draw(rows, keys, (seed << 32) + number)
        if all_keys and start < keys:
            new = min(rows, keys - start)
            drawn = pa.concat_arrays([pa.array(range(start, start + new), pa.int64()), drawn.slice(new)])
        key = pc.binary_join_element_wise("key-", pc.utf8_lpad(pc.cast(drawn, pa.string()), 8, "0"), "")
        value = pool.take(_draw(rows, len(pool), (seed << 32) + number + 1))
        yield from encoder.encode(key, value, None, None, now_ms=now_ms)


def _draw(count: int, below: int, seed: int) -> pa.Array:
    return pc.cast(pc.floor(pc.multiply(pc.random(count, initializer=seed), below)), pa.int64())


@lru_cache(maxsize=4)
def _values(size: int) -> pa.Array:
    chance = random.Random(size)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(3000)]
    text = b" ".join(chance.choices(words, k=200_000))
    length = size - OVERHEAD
    starts = [chance.randrange(len(text) - length) for _ in range(_DISTINCT_VALUES)]
    return pa.array([text[start : start + length] for start in starts], pa.binary())
