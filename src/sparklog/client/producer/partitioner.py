"""Which partition each row goes to: the one that it names, else Kafka's default for its key, else a run of neighbours.

Invariant: the rows of a partition keep their order, however each of them comes to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.record.columnar import as_binary, partition_rows


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

    def shares(
        self, key: pa.Array | None, rows: int, available: Sequence[int] | None = None, named: pa.Array | None = None
    ) -> Iterator[Share]:
        """How ``rows`` rows with these keys are shared out; no row is left out.

        A row goes where ``named`` says, integers without a ``misplaced`` one, and by its key where that is null.
        """
        if named is None or named.null_count == rows:
            yield from self._unnamed(key, rows, available)
        else:
            yield from _grouped(self._filled(named.cast(pa.int32()), key, available))

    def _unnamed(self, key: pa.Array | None, rows: int, available: Sequence[int] | None) -> Iterator[Share]:
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

    def _filled(self, named: pa.Array, key: pa.Array | None, available: Sequence[int] | None) -> pa.Array:
        """The partition of every row."""
        if not named.null_count:
            return named
        free = pc.is_null(named)
        keys = None if key is None else as_binary(key).filter(free)  # Arrow filters no view
        shares = list(self._unnamed(keys, named.null_count, available))
        sizes = [share.length if share.rows is None else len(share.rows) for share in shares]
        fill = pa.concat_arrays(
            [pa.repeat(pa.scalar(share.partition, pa.int32()), size) for share, size in zip(shares, sizes, strict=True)]
        )
        chosen = [share.rows for share in shares if share.rows is not None]
        if chosen:  # else they are runs, one behind the other
            places = pa.concat_arrays(
                [pa.Array.from_buffers(pa.int32(), len(each), [None, pa.py_buffer(each)]) for each in chosen]
            )
            fill = fill.take(pc.array_sort_indices(places))
        return pc.replace_with_mask(named, free, fill)

    def _runs(self, rows: int, partitions: Sequence[int]) -> Iterator[Share]:
        taken = min(len(partitions), rows)
        for run in range(taken):
            low, high = rows * run // taken, rows * (run + 1) // taken
            yield Share(partitions[(self._turn + run) % len(partitions)], low, high - low, None)
        self._turn = (self._turn + taken) % len(partitions)


def misplaced(named: pa.Array, partition_count: int) -> int | None:
    """The first row that names a partition which is not there; None if no row does."""
    if named.null_count == len(named):
        return None
    numbers = named.cast(pa.int64(), safe=False)
    row = pc.index(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, partition_count)), True).as_py()
    return None if row < 0 else int(row)


def _grouped(partitions: pa.Array) -> Iterator[Share]:
    """The rows of each partition, in their order; the whole slice, uncopied, if there is only one."""
    order = pc.array_sort_indices(partitions).cast(pa.int32())  # it is stable
    counts = pc.value_counts(partitions.take(order))
    places = memoryview(order.buffers()[1])[: 4 * len(order)].cast("i")
    begin = 0
    for partition, count in zip(*(each.to_pylist() for each in counts.flatten()), strict=True):
        yield Share(partition, 0, len(order), places[begin : begin + count] if count < len(order) else None)
        begin += count
