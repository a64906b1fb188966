"""Rows are divided by the time of their records, in UTC, whatever that time is."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.spark.lake.columns import TableColumns, by_partition, moment_of, source_columns

_LAST_US = 253_402_300_799_999_999
_FIRST_US = -62_135_596_800_000_000


def batch(micros, partition=3):
    rows = len(micros)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(rows), pa.int64()),
            pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.repeat(pa.scalar("clicks"), rows),
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
        ],
        names=["offset", "timestamp", "topic", "partition"],
    )


def divided(micros, *partition_by):
    parts = by_partition(batch(micros), partition_by)
    return [(value, part.column("offset").to_pylist()) for value, part in parts]


def test_one_part_where_nothing_divides():
    assert divided([0, 1, 2]) == [((), [0, 1, 2])]
    assert divided([], "day") == []
    assert divided([5], "topic", "partition") == [(("clicks", "3"), [0])]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["b", None, "a'", "", "b"]), [("a'", [2]), ("b", [0, 4]), (None, [1]), (None, [3])]),
        (pa.array([2, None, -1, 2, 2], pa.int8()), [("-1", [2]), ("2", [0, 3, 4]), (None, [1])]),
        (pa.array([True, None, False, True, True]), [("false", [2]), ("true", [0, 3, 4]), (None, [1])]),
        (pa.array([0, 1, 0, 1, 1], pa.int32()).cast(pa.date32()), [("1970-01-01", [0, 2]), ("1970-01-02", [1, 3, 4])]),
    ],
)
def test_rows_are_divided_by_a_field(column, expected):
    """An empty text is null for Delta."""
    parts = by_partition(batch([0] * 5).append_column("field", column), ("field",))
    found = [(value, part.column("offset").to_pylist()) for (value,), part in parts]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_days_and_hours_are_utcs():
    midnight = 86_400_000_000
    assert divided([midnight - 1, midnight, -1], "day") == [
        (("1969-12-31",), [2]),
        (("1970-01-01",), [0]),
        (("1970-01-02",), [1]),
    ]
    assert divided([-61_000_000_000_000_000], "day", "hour") == [(("0036-12-26", "0036-12-26-11"), [0])]
    assert divided([midnight - 1, 0], "hour") == [(("1970-01-01-00",), [1]), (("1970-01-01-23",), [0])]


@pytest.mark.parametrize("beyond", [_LAST_US + 1, _FIRST_US - 1, (1 << 63) - 1, -(1 << 63)])
def test_a_time_that_no_date_has_is_in_no_partition(beyond):
    assert divided([beyond], "day", "hour") == [((None, None), [0])]
    assert moment_of(beyond) is None


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(10**12), 10**12), max_size=30))
def test_each_row_is_once_in_the_part_of_its_day(micros):
    found = {}
    for (day,), offsets in divided(micros, "day"):
        assert offsets == sorted(offsets)
        for offset in offsets:
            assert offset not in found
            found[offset] = day
    expected = [None if (moment := moment_of(each)) is None else moment.date().isoformat() for each in micros]
    assert [found[number] for number in range(len(micros))] == expected


def test_a_new_table_has_the_columns_it_is_divided_by():
    assert "day" not in TableColumns().of_new_table(["topic"]).names
    assert TableColumns().of_new_table(["hour", "topic"]).names[-1] == "hour"


def test_the_time_is_read_though_the_table_has_no_column_of_it():
    assert source_columns(["value", "day"]).names == ["value", "timestamp"]
    assert moment_of(0) == datetime(1970, 1, 1, tzinfo=UTC)
