"""Rows of a partition from files that keep no order: each once, by offset, in little memory."""

import random

import pyarrow as pa
import pytest
from spark.lake.history.delta_log import DeltaLog, rows, wanted

from sparklog.errors import DataSourceError
from sparklog.spark.lake.history import table_rows as module
from sparklog.spark.lake.history.snapshot import Snapshot
from sparklog.spark.lake.history.table_rows import TableRows, overlapping
from sparklog.spark.read.columns import MOST_BYTES
from sparklog.spark.schema import source_schema

SCHEMA = source_schema(include_headers=True)


@pytest.fixture
def log(tmp_path):
    return DeltaLog(tmp_path / "table")


@pytest.fixture
def read(log):
    opened = []

    def found(of, schema=SCHEMA):
        opened.append(TableRows(Snapshot.open(str(log.path)), schema))
        return [each.batch for each in opened[-1].batches(of)]

    yield found
    for each in opened:
        each.close()


def offsets(batches):
    return [offset for each in batches for offset in each.column("offset").to_pylist()]


def test_a_range_is_what_its_bounds_say(log, read):
    log.append(rows(range(0, 10)), rows(range(10, 20)), rows(range(5), partition=1))
    assert offsets(read(wanted(3, 13))) == list(range(3, 13))
    assert offsets(read(wanted(18, 99))) == [18, 19]
    assert offsets(read(wanted(0, 3, partition=1))) == [0, 1, 2]
    assert read(wanted(0, 5, partition=2)) == read(wanted(50, 60)) == []


def test_the_columns_are_those_of_the_source(log, read):
    log.append(rows([4, 5]))
    (batch,) = read(wanted(0, 9))
    expected = rows([4, 5]).combine_chunks().to_batches()[0]
    assert batch.to_pylist() == expected.select(batch.schema.names).to_pylist()
    assert batch.schema.field("headers").type.value_field.name == "element"
    assert batch.schema.names == SCHEMA.names


def test_files_whose_offsets_overlap_are_merged(log, read):
    log.append(rows(range(0, 40, 2)), rows(range(1, 40, 2)), rows(range(40, 50)), row_group_size=4)
    assert offsets(read(wanted(5, 45))) == list(range(5, 45))


def test_a_file_may_mix_partitions_and_topics_in_any_order(log, read):
    chance = random.Random(5)
    parts = [rows([each], partition, topic) for each in range(30) for partition in (0, 1) for topic in ("a", "clicks")]
    chance.shuffle(parts)
    log.append(pa.concat_tables(parts[:60]), pa.concat_tables(parts[60:]), row_group_size=7)
    assert offsets(read(wanted(0, 30))) == list(range(30))
    assert offsets(read(wanted(11, 19, 1, "a"))) == list(range(11, 19))


def test_statistics_that_are_not_there_leave_nothing_out(log, read):
    log.append(rows(range(10, 20)), rows(range(10)), told=(), write_statistics=False)
    assert offsets(read(wanted(4, 16))) == list(range(4, 16))


def test_what_is_sorted_together_has_few_bytes(log, read, monkeypatch):
    chance, held = random.Random(1), []
    numbers = list(range(4000))
    chance.shuffle(numbers)
    log.append(rows(numbers, value=lambda offset: b"x" * 100), row_group_size=100, use_dictionary=False)
    monkeypatch.setattr(module, "SORTED_BYTES", 50_000)
    sort = TableRows._sorted

    def watched(self, *arguments):
        for table in sort(self, *arguments):
            held.append(table.nbytes)
            yield table

    monkeypatch.setattr(TableRows, "_sorted", watched)
    assert offsets(read(wanted(0, 4000))) == list(range(4000))
    assert max(held) < 100_000


def test_batches_are_of_the_size_that_spark_likes(log, read):
    log.append(rows(range(8000), value=lambda offset: b"x" * 1000), *(rows([8000 + each]) for each in range(5)))
    found = read(wanted(0, 9000))
    assert [each.nbytes < MOST_BYTES for each in found] == [True] * len(found)
    assert len(found) < 8
    assert offsets(found) == list(range(8005))


def test_an_offset_that_comes_twice_is_an_error(log, read):
    log.append(rows(range(10)), rows([7]))
    with pytest.raises(DataSourceError, match="offset 7 of partition clicks-0 twice"):
        read(wanted(0, 10))


def test_a_file_that_is_gone_is_told_as_such(log, read):
    (first, _) = log.append(rows(range(10)), rows(range(10, 20)))
    (log.path / first).unlink()
    assert offsets(read(wanted(10, 20))) == list(range(10, 20))
    with pytest.raises(FileNotFoundError):
        read(wanted(9, 20))


@pytest.mark.parametrize(
    "damage", [lambda whole: b"\xff" * (len(whole) // 2) + whole[len(whole) // 2 :], lambda whole: whole[:3]]
)
def test_a_damaged_file_is_named(log, read, damage):
    (path,) = log.append(rows(range(1000)))
    (log.path / path).write_bytes(damage((log.path / path).read_bytes()))
    with pytest.raises(DataSourceError, match=f"SPARKLOG_HISTORY_UNREADABLE.*{path}"):
        read(wanted(0, 10**6))


def test_a_column_that_a_file_lacks_is_null(log, read):
    log.append(rows(range(3)).drop_columns(["headers"]), rows(range(3, 5)))
    (batch,) = read(wanted(0, 9))
    assert batch.column("headers").to_pylist() == [None] * 3 + [[{"key": "h", "value": b"3"}], None]


def test_times_of_other_writers(log, read):
    log.append(rows([1, 2]), use_deprecated_int96_timestamps=True)
    (batch,) = read(wanted(0, 9))
    assert batch.column("timestamp").equals(rows([1, 2]).column("timestamp").combine_chunks())


@pytest.mark.parametrize("told", [("topic", "partition", "offset", "timestamp"), ()])
def test_the_first_row_and_the_first_of_a_time(log, told):
    log.append(
        rows([5, 6, 9], time_ms=lambda offset: 1000 if offset == 9 else 100),
        rows([7, 8], time_ms=lambda offset: 900 + offset),
        rows([1, 2], partition=1),
        told=told,
    )
    table = TableRows(Snapshot.open(str(log.path)), SCHEMA)
    assert table.first(wanted(0, 99)).offset == 5
    assert table.first(wanted(7, 99)).offset == 7
    assert table.first(wanted(0, 99), at_ms=100) == (5, 100, -1)
    assert table.first(wanted(0, 99), at_ms=908) == (8, 908, -1)
    assert table.first(wanted(0, 99), at_ms=909) == (9, 1000, -1)
    assert table.first(wanted(0, 99), at_ms=1001) is table.first(wanted(10, 99)) is None
    assert table.first(wanted(0, 99, partition=1)).offset == 1
    table.close()


def test_what_overlaps():
    spans = [range(0, 5), range(3, 9), range(8, 10), range(10, 12)]
    found = overlapping([_Span(each.start, each.stop - 1) for each in reversed(spans)])
    assert [[(each.low, each.high) for each in group] for group in found] == [[(0, 4), (3, 8), (8, 9)], [(10, 11)]]


class _Span:
    def __init__(self, low, high):
        self.low, self.high = low, high
