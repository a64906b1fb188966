"""Which partition each row of a column goes to: Kafka's default for keys, runs of neighbours where there is no key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.record.columnar import partition_rows


class Share(NamedTuple):
    """Rows of one partition: ``rows`` (int32 row numbers) of the columns' slice of ``length`` from ``offset``.

    ``rows`` None stands for the whole slice.
    """

    partition: int
    offset: int
    length: int
    rows: memoryview | None

    def row(self, position: int) -> int:
        """Which row of the columns is the share's ``position``-th, from 0."""
        return self.offset + (position if self.rows is None else self.rows[position])


class Partitioner:
    """Spreads the rows of one topic. A key's murmur2 decides, as in Java's producer; keyless rows take turns.

    Keyless rows go to ``available`` partitions only, where such are named: those that have a leader. A key's partition
    is waited for, whatever it lacks. Where a whole column is keyless, each partition in turn gets a run of neighbouring
    rows, without copying; among rows with keys the keyless ones of a column go to one partition, the next column's to
    the next.
    """

    def __init__(self, partition_count: int, first: int = 0) -> None:
        self._count = partition_count
        self._turn = first % partition_count

    def shares(self, key: pa.Array | None, rows: int, available: Sequence[int] | None = None) -> Iterator[Share]:
        """How ``rows`` rows with these keys are shared out; no row is left out."""
        keyless = available or range(self._count)
        if key is None or key.null_count == rows:
            yield from self._runs(rows, keyless)
            return
        by_partition = partition_rows(key, self._count, null_partition=keyless[self._turn % len(keyless)])
        if key.null_count:
            self._turn = (self._turn + 1) % len(keyless)
        for partition, chosen in enumerate(by_partition):
            if len(chosen):
                yield Share(partition, 0, rows, chosen)

    def _runs(self, rows: int, partitions: Sequence[int]) -> Iterator[Share]:
        taken = min(len(partitions), rows)
        for run in range(taken):
            low, high = rows * run // taken, rows * (run + 1) // taken
            yield Share(partitions[(self._turn + run) % len(partitions)], low, high - low, None)
        self._turn = (self._turn + taken) % len(partitions)
