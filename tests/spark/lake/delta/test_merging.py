"""Merging into a table's files: they are what a dictionary is that was told the same, whatever the sizes."""

from functools import partial
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DataSourceError
from sparklog.spark.lake import files as files_module
from sparklog.spark.lake.delta import merging
from sparklog.spark.lake.delta.latest_rows import LatestRows
from sparklog.spark.lake.delta.merging import PartitionMerge
from sparklog.spark.lake.delta.stored_files import StoredFile
from sparklog.spark.lake.files import TableFiles

SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]
)
COLUMNS = (*SCHEMA.names, "topic", "partition")
VALUE = ("t", "0")


def rows(changes, first):
    """A batch of ``(key, value)``, of offsets from ``first`` on."""
    offsets = range(first, first + len(changes))
    columns = [[key for key, _ in changes], [value for _, value in changes], offsets, [each * 1000 for each in offsets]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


class Table:
    """One partition of a table, whose commits are lists of files."""

    def __init__(self, home, **more):
        self.files = []
        self.offset = 0
        self._home = home
        self.table = TableFiles(str(home), COLUMNS, ("topic", "partition"), **more)

    def begin(self, end="known"):
        return PartitionMerge(self.table, SCHEMA, self.files, VALUE, self.offset if end == "known" else end)

    def upsert(self, batches, key_bytes=1 << 20):
        """What a task does, and the commit of what it did."""
        merge, latest = self.begin(), LatestRows(key_bytes)
        for changes in batches:
            latest.add(rows(changes, self.offset))
            self.offset += len(changes)
            if latest.is_full:
                merge.apply(latest.take())
        rest = latest.take()
        if rest is not None:
            merge.apply(rest)
        self.commit(merge)
        return merge

    def commit(self, merge):
        self.files = [each for each in self.files if each.path not in merge.removed]
        self.files += [StoredFile(each.path, each.nbytes, each.partition_values) for each in merge.written]

    def rows(self):
        tables = [pq.ParquetFile(self._home / each.path).read() for each in self.files]
        return [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)]

    def on_disk(self):
        return {str(path.relative_to(self._home)) for path in self._home.rglob("*.parquet")}


@pytest.fixture
def table(tmp_path):
    return partial(Table, tmp_path)


_CHANGES = st.tuples(
    st.integers(0, 30).map(lambda number: b"%d" % number), st.none() | st.just(b"") | st.binary(min_size=1, max_size=60)
)
_ROUNDS = st.lists(st.lists(st.lists(_CHANGES, max_size=30), max_size=5), max_size=6)
_SIZES = st.sampled_from([1, 300, 2000, 1 << 20])


@settings(max_examples=settings().max_examples // 4)
@given(_ROUNDS, _SIZES, _SIZES, _SIZES, _SIZES)
def test_the_files_are_the_dictionary(tmp_path_factory, rounds, file_bytes, key_bytes, group_bytes, scan_bytes):
    found, expected, offset = Table(tmp_path_factory.mktemp("t"), target_bytes=file_bytes), {}, 0
    with (
        mock.patch.object(files_module, "ROW_GROUP_BYTES", group_bytes),
        mock.patch.object(merging, "_SCAN_BYTES", scan_bytes),
        mock.patch.object(merging, "_BATCH_BYTES", group_bytes),
    ):
        for batches in rounds:
            merge = found.upsert(batches, key_bytes)
            for key, value in (change for changes in batches for change in changes):
                expected[key] = (value, offset)
                offset += 1
            told = sorted((key, value, at) for key, (value, at) in expected.items() if value is not None)
            assert sorted(row[:3] for row in found.rows()) == told
            assert {row[3].microsecond // 1000 for row in found.rows()} == {at % 1000 for _, _, at in told}
            assert not {each.path for each in merge.written} & set(merge.removed)
            assert found.on_disk() >= {each.path for each in found.files}


def test_files_without_a_replaced_row_stay_as_they_are(table):
    found = table(target_bytes=1000)
    found.upsert([[(b"%d" % number, b"v" * 900)] for number in range(8)], key_bytes=1)
    before = {each.path for each in found.files}
    assert len(before) == 8
    merge = found.upsert([[(b"3", b"new" * 300), (b"99", None)]])
    assert len(merge.removed) == 1
    assert {each.path for each in found.files} & before == before - set(merge.removed)


def test_a_file_of_which_no_row_is_left_goes_and_nothing_is_written(table):
    found = table()
    found.upsert([[(b"a", b"1"), (b"b", b"2")]])
    merge = found.upsert([[(b"b", None), (b"a", None)]])
    assert (found.files, merge.written, len(merge.removed)) == ([], [], 1)


def test_tombstones_of_unknown_keys_change_nothing(table):
    found = table()
    found.upsert([[(b"a", b"1" * 1000)]])
    merge = found.upsert([[(b"z", None)]])
    assert (merge.written, merge.removed, len(found.files)) == ([], [], 1)


def test_small_files_are_joined_so_that_there_are_few(table, monkeypatch):
    monkeypatch.setattr(merging, "_SMALL_BYTES", 0)
    found, most, written = table(compression="none"), 0, 0
    for number in range(60):
        merge = found.upsert([[(b"%d" % number, b"v" * 10_000)]])
        most = max(most, len(found.files))
        written += sum(each.rows for each in merge.written)
    assert len(found.rows()) == 60
    assert 3 <= most <= 6
    assert written <= 60 * 6


def test_tiny_files_are_always_joined(table):
    found = table()
    for number in range(20):
        found.upsert([[(b"%d" % number, b"v")]])
    assert len(found.files) == 1


def test_files_end_at_the_size_that_is_aimed_at_and_large_ones_are_let_alone(table, monkeypatch):
    monkeypatch.setattr(files_module, "ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(merging, "_BATCH_BYTES", 5_000)
    found = table(target_bytes=20_000, compression="none")
    for number in range(40):
        found.upsert([[(b"%d" % number, b"v" * 1000)]])
    assert 2 <= len(found.files) <= 8
    assert max(each.size for each in found.files) < 40_000


class TestRowsOfOthers:
    def test_a_row_beyond_what_is_offloaded(self, table):
        found = table()
        found.upsert([[(b"a", b"1")] * 3])
        with pytest.raises(DataSourceError, match="has a row with offset 2, and it is offloaded up to 2"):
            found.begin(end=2).apply(pa.Table.from_batches([rows([(b"z", b"1")], 3)]))
        merge = found.begin(end=None)
        merge.apply(pa.Table.from_batches([rows([(b"a", b"2")], 2)]))
        assert len(merge.removed) == 1

    def test_a_row_without_an_offset(self, table):
        found = table()
        merge = found.begin()
        merge.apply(pa.Table.from_batches([rows([(b"a", b"1")], 0).set_column(2, SCHEMA.field(2), pa.nulls(1, "i8"))]))
        found.commit(merge)
        with pytest.raises(DataSourceError, match="has a row with no offset"):
            found.begin(end=9).apply(pa.Table.from_batches([rows([(b"z", b"1")], 9)]))

    def test_a_key_that_is_there_twice(self, table):
        found = table()
        found.upsert([[(b"a", b"1")]])
        found.files *= 2
        with pytest.raises(DataSourceError, match="key b'a' is in it twice"):
            found.upsert([[(b"a", b"2")]])


def test_a_merge_that_fails_leaves_nothing(table, monkeypatch):
    found = table(target_bytes=500)
    found.upsert([[(b"%d" % number, b"v" * 400) for number in range(10)]])
    before = found.on_disk()
    monkeypatch.setattr(files_module, "ROW_GROUP_BYTES", 100)
    merge = found.begin()
    merge.apply(pa.Table.from_batches([rows([(b"1", b"w" * 400)], 10)]))
    assert found.on_disk() > before
    monkeypatch.setattr(files_module._FileWriter, "finish", mock.Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        merge.apply(pa.Table.from_batches([rows([(b"2", b"w" * 400)], 11)]))
    merge.discard()
    assert found.on_disk() == before
