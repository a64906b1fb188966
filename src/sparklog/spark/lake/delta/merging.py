"""PartitionMerge: applies the latest rows of keys to the files of one partition of a table, by writing some anew.

After ``apply`` a key has its latest row, or none if that row's value is null (a tombstone); all other rows are as they
were. Files without a row that was replaced or deleted stay as they are, but for small ones, which are joined: one of
less than a megabyte, or of at most twice what is written, is written with it. So small files are few, and a row is
copied for that some ``log(file size / commit size)`` times.

Memory: the rows that are applied, twice, the numbers of the rows that they replace, 64 MB of keys, and a row group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.spark.lake.columns import PartitionValue
from sparklog.spark.lake.delta.stored_files import StoredFile, StoredRows
from sparklog.spark.lake.destination import refuse
from sparklog.spark.lake.files import TableFiles, TableWriter, WrittenFile, opened, remove_files

_SCAN_BYTES = 64 << 20
"""Keys of the table that are looked up at a time: each time a hash table of the new keys is made."""
_BATCH_BYTES = 8 << 20
_SMALL_BYTES = 1 << 20
"""A file of less is always written with what is written."""

Matches = Mapping[str, np.ndarray]
"""The numbers of the rows of each file that have one of some keys, ascending."""


class PartitionMerge:
    """The files of one partition of a table, as they will be. ``discard`` it unless its files are committed."""

    def __init__(
        self, table: TableFiles, schema: pa.Schema, files: Iterable[StoredFile], value: PartitionValue, end: int | None
    ) -> None:
        """``schema`` has the columns of the files. All rows of ``files`` have offsets below ``end``, if it is given."""
        self.removed: list[str] = []
        """Files of the table that are replaced, by their paths."""
        self._table = table
        self._schema = schema
        self._value = value
        self._end = end
        self._fs, self._root = opened(table.location)
        self._files = list(files)
        self._written: dict[str, WrittenFile] = {}

    @property
    def written(self) -> list[WrittenFile]:
        """The files that are to be added to the table."""
        return list(self._written.values())

    def apply(self, rows: pa.Table) -> None:
        """Let ``rows``, one a key and later than all before, replace or delete those of the same keys.

        Raises DataSourceError for a table with rows that no upsert wrote; OSError, ArrowException.
        """
        matches = self._find(rows.column("key").combine_chunks())
        living = rows.filter(pc.is_valid(rows.column("value")))
        stale = self._stale(matches, living.nbytes)
        writer = TableWriter(self._table)
        try:
            for file in stale:
                for batch in self._without(file, matches.get(file.path)):
                    writer.write_to(self._value, batch)
            for batch in _in_batches(living.select(self._schema.names)):
                writer.write_to(self._value, batch)
            self._replace(stale, writer.finish())
        except BaseException:
            writer.discard()
            raise

    def discard(self) -> None:
        """Remove what was written, as far as that can be done."""
        remove_files(self._table.location, self.written)

    # Where keys are

    def _find(self, keys: pa.Array) -> Matches:
        search = _Search(keys, self._table.location)
        for file in self._files:
            first = 0
            for batch in self._open(file).batches(["key", "offset"]):
                if file.path not in self._written:
                    self._check(file, batch.column("offset"))
                search.add(file.path, first, batch.column("key"))
                first += batch.num_rows
        return search.finish()

    def _check(self, file: StoredFile, offsets: pa.Array) -> None:
        if self._end is None or not len(offsets):
            return
        if offsets.null_count or pc.max(offsets).as_py() >= self._end:
            highest = "no offset" if offsets.null_count else f"offset {pc.max(offsets).as_py()}"
            refuse(
                f"table {self._table.location}",
                f"its file {file.path} has a row with {highest}, and it is offloaded up to {self._end}: somebody else"
                " wrote that row, or the log was cut off and the loss accepted then; accept losses to go on",
            )

    def _open(self, file: StoredFile) -> StoredRows:
        return StoredRows(self._fs, f"{self._root.rstrip('/')}/{file.path}", self._schema)

    # What is written anew

    def _stale(self, matches: Matches, nbytes: int) -> list[StoredFile]:
        """The files to be written anew; ``nbytes`` are new rows."""
        stale = [file for file in self._files if file.path in matches]
        total = nbytes + sum(file.size for file in stale)
        for file in sorted(self._files, key=lambda file: file.size):
            if file.path in matches:
                continue
            if not total or file.size > min(max(2 * total, _SMALL_BYTES), self._table.target_bytes // 2):
                break
            stale.append(file)
            total += file.size
        return stale

    def _without(self, file: StoredFile, gone: np.ndarray | None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, but for those of these numbers."""
        first = 0
        for batch in self._open(file).batches(self._schema.names):
            if gone is not None:
                low, high = np.searchsorted(gone, (first, first + batch.num_rows))
                first += batch.num_rows
                stays = np.ones(batch.num_rows, np.bool_)
                stays[gone[low:high] - (first - batch.num_rows)] = False
                batch = batch.filter(pa.array(stays))
            if batch.num_rows:
                yield batch

    def _replace(self, stale: Iterable[StoredFile], written: Iterable[WrittenFile]) -> None:
        gone = {file.path for file in stale}
        self.removed += [path for path in gone if path not in self._written]
        own = [self._written.pop(path) for path in gone if path in self._written]
        self._written |= {each.path: each for each in written}
        self._files = [file for file in self._files if file.path not in gone]
        self._files += [StoredFile(each.path, each.nbytes, each.partition_values) for each in written]
        remove_files(self._table.location, own)


class _Search:
    """Looks for keys in files, many rows at a time."""

    def __init__(self, keys: pa.Array, location: str) -> None:
        self._keys = keys
        self._location = location
        self._times = np.zeros(len(keys), np.int64)
        self._found: dict[str, list[np.ndarray]] = defaultdict(list)
        self._begin()

    def _begin(self) -> None:
        self._places: list[tuple[str, int]] = []
        self._chunks: list[pa.Array] = []
        self._nbytes = 0

    def add(self, path: str, first: int, keys: pa.Array) -> None:
        """The keys of the next rows of a file; ``first`` is the number of the first one."""
        self._places.append((path, first))
        self._chunks.append(keys)
        self._nbytes += keys.nbytes
        if self._nbytes >= _SCAN_BYTES:
            self._look_up()

    def finish(self) -> Matches:
        self._look_up()
        return {path: np.concatenate(numbers) for path, numbers in self._found.items()}

    def _look_up(self) -> None:
        if not self._chunks:
            return
        places = pc.index_in(pa.chunked_array(self._chunks), self._keys)
        numbers = np.asarray(pc.fill_null(places, -1))
        self._count(numbers[numbers >= 0])
        end = 0
        for (path, first), chunk in zip(self._places, self._chunks, strict=True):
            start, end = end, end + len(chunk)
            rows = np.flatnonzero(numbers[start:end] >= 0)
            if len(rows):
                self._found[path].append(rows + first)
        self._begin()

    def _count(self, found: np.ndarray) -> None:
        self._times += np.bincount(found, minlength=len(self._keys))
        if self._times.max(initial=0) > 1:
            key = self._keys[int(self._times.argmax())].as_py()
            refuse(f"table {self._location}", f"key {key!r} is in it twice: somebody else has written a row of it")


def _in_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows, some 8 MB at a time."""
    if rows.num_rows:
        yield from rows.to_batches(max(rows.num_rows * _BATCH_BYTES // max(rows.nbytes, 1), 1))
