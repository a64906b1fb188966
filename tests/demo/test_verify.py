"""Verifying: what was read is what was sent, or it says what differs."""

import pyarrow as pa
import pytest

from sparklog.demo.evidence import examine
from sparklog.demo.verify import Verified, verify
from sparklog.errors import DataSourceError

PARTITIONS = 3
ROWS = 60
FIELDS = ("key", "value", "partition", "offset", "timestamp")


def sent_rows():
    """Rows with the fields of what Spark reads; every key stays in one partition, and one key is null."""
    return [
        {
            "key": None if number % 10 == 9 else b"plane %d" % (number % PARTITIONS),
            "value": b"flight %d" % number,
            "partition": number % PARTITIONS,
            "offset": number // PARTITIONS,
            "timestamp": (1_357_016_400_000 + 60_000 * number) * 1000,
        }
        for number in range(ROWS)
    ]


def table(rows):
    types = (pa.binary(), pa.binary(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"))
    return pa.table(
        {name: pa.array([row[name] for row in rows], kind) for name, kind in zip(FIELDS, types, strict=True)}
    )


def evidence(rows):
    return {
        partition: examine(
            pa.array([row["key"] for row in rows if row["partition"] == partition], pa.binary()),
            pa.array([row["value"] for row in rows if row["partition"] == partition], pa.binary()),
            pa.array([row["timestamp"] // 1000 for row in rows if row["partition"] == partition], pa.int64()),
        )
        for partition in range(PARTITIONS)
    }


def test_the_same_records_are_found_right_in_whatever_order_the_rows_come():
    rows = sent_rows()
    assert verify(table(rows[::-1]), evidence(rows)) == Verified(ROWS, PARTITIONS, PARTITIONS)


def test_a_partition_may_be_empty():
    rows = [row for row in sent_rows() if row["partition"] != 1]
    assert verify(table(rows), evidence(rows)) == Verified(ROWS * 2 // 3, PARTITIONS - 1, PARTITIONS)


def lose(rows):
    del rows[30]


def lose_the_last(rows):
    del rows[-1]


def duplicate(rows):
    rows.append(dict(rows[30]))


def swap(rows):
    rows[30]["offset"], rows[33]["offset"] = rows[33]["offset"], rows[30]["offset"]


def change_a_byte(rows):
    rows[30]["value"] = b"flight 3O"


def change_the_time(rows):
    rows[30]["timestamp"] += 1000


def empty_a_null_key(rows):
    rows[9]["key"] = b""


def move(rows):
    rows[30]["partition"] = 1


@pytest.mark.parametrize(
    "damage", [lose, lose_the_last, duplicate, swap, change_a_byte, change_the_time, empty_a_null_key, move]
)
def test_damage_is_found_and_its_partition_named(damage):
    rows = sent_rows()
    sent = evidence(rows)
    damage(rows)
    with pytest.raises(DataSourceError, match=r"what was read is not what was sent: partition [0-2]: sent Evidence"):
        verify(table(rows), sent)


def test_offsets_may_have_gaps():
    rows = sent_rows()
    sent = evidence(rows)
    for row in rows[30:]:
        row["offset"] += 5
    assert verify(table(rows), sent).records == ROWS


def test_a_key_out_of_order_is_found_even_if_it_was_sent_so():
    rows = sent_rows()
    rows[30]["timestamp"] = rows[0]["timestamp"] - 1000
    with pytest.raises(DataSourceError, match="records of a key are not in the order"):
        verify(table(rows), evidence(rows))
