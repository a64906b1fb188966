"""What a file says of its columns is true of every row, and as Delta's protocol writes it."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from sparklog.spark.lake.statistics import FileStatistics, is_measured


def told(*values, kind=None):
    found = FileStatistics()
    for each in values:
        found.add(pa.table({"a": pa.array(each, kind)}))
    stats = json.loads(found.to_json())
    return tuple(stats[name].get("a") for name in ("minValues", "maxValues", "nullCount"))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [3, None, -(2**63)], (-(2**63), 3, 1)),
        (pa.int64(), [None, None], (None, None, 2)),
        (pa.float64(), [1.5, -2.0], (-2.0, 1.5, 0)),
        (pa.float64(), [1.5, float("nan")], (None, None, 0)),
        (pa.float32(), [1.5, float("inf")], (None, None, 0)),
        (pa.decimal128(6, 2), [Decimal("1.25"), Decimal("-3.50")], (-3.5, 1.25, 0)),
        (pa.decimal128(38, 0), [Decimal(10**37 + 1), Decimal(1)], (1.0, None, 0)),
        (pa.string(), ["b", "a" * 40, None], ("a" * 32, "b", 1)),
        (pa.string(), ["b" * 32, "b" * 33], ("b" * 32, "b" * 32 + "\U0010ffff", 0)),
        (pa.string(), ["b" * 32 + "\U0010ffff", "a"], ("a", None, 0)),
        (pa.date32(), [date(2024, 2, 29), date(1, 1, 1)], ("0001-01-01", "2024-02-29", 0)),
        (pa.date32(), pa.array([0, 3_000_000], pa.int32()), (None, None, 0)),
        (
            pa.timestamp("us", "UTC"),
            [datetime(2024, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)],
            ("2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.002Z", 0),
        ),
        (pa.timestamp("us"), [datetime(2024, 1, 1)], ("2024-01-01T00:00:00.000", "2024-01-01T00:00:00.000", 0)),
        (pa.timestamp("us", "UTC"), pa.array([0, 2**62], pa.int64()), (None, None, 0)),
        (pa.bool_(), [True, None], (None, None, 1)),
        (pa.binary(), [b"a"], (None, None, 0)),
        (pa.list_(pa.int64()), [[1], None], (None, None, None)),
        (
            pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int64()))]),
            [{"x": 1, "l": []}, None, {"x": 5}],
            ({"x": 1}, {"x": 5}, {"x": 1}),
        ),
    ],
)
def test_the_ends_and_the_nulls_of_a_column(kind, values, expected):
    column = values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)
    assert told(column) == expected
    assert told(column[:1], column[1:]) == expected


@given(st.lists(st.text(alphabet=st.sampled_from("a\x7fé\uffff\U0010ffff"), max_size=40), min_size=1))
def test_no_text_is_outside_of_the_ends(texts):
    least, greatest, _ = told(pa.array(texts))
    assert all(least <= each and (greatest is None or each <= greatest) for each in texts)


def test_what_is_measured():
    assert is_measured(pa.int8())
    assert is_measured(pa.string())
    assert is_measured(pa.date32())
    assert not is_measured(pa.binary())
    assert not is_measured(pa.struct([("x", pa.int64())]))
