"""What the loads write: the same bytes in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice, repeat

from sparklog.record.builder import RecordBatchBuilder

NOW_MS = 1_700_000_000_000
_DISTINCT_VALUES = 4096


def values(size: int) -> list[bytes]:
    """Random bytes, the same in every run."""
    chance = random.Random(size)
    return [chance.randbytes(size) for _ in range(_DISTINCT_VALUES)]


def keys() -> list[bytes]:
    """As many as there are values; 16 random bytes each."""
    return values(16)


def pairs(size: int, records: int, partitions: int) -> Iterator[tuple[bytes | None, bytes]]:
    """So many keys and values; keys are None where there is but one partition."""
    pool = zip(keys() if partitions > 1 else repeat(None), values(size), strict=False)
    return islice(cycle(pool), records)


def batch_of(size: int, batch_bytes: int) -> tuple[bytes, int]:
    """One uncompressed batch of at most ``batch_bytes``, at least one record; and how many it has."""
    builder = RecordBatchBuilder()
    for value in cycle(values(size)):
        builder.append(NOW_MS, None, value)
        if builder.size_estimate + size + 16 > batch_bytes:
            break
    return builder.build(), builder.record_count
