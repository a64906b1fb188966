"""The evidence: the same for the same records, different for any difference."""

import pyarrow as pa
import pytest

from sparklog.demo.evidence import Evidence, examine, keeps_order

KEYS = [b"a", None, b"", b"bc"]
VALUES = [b"1", b"22", b"", b"333"]
TIMES = [1, 2, 3, 4]


def evidence(keys=KEYS, values=VALUES, times=TIMES):
    return examine(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(times, pa.int64()))


def test_it_counts_records_and_bytes():
    assert evidence()[:2] == (4, 9)
    assert evidence([], [], [])[:2] == (0, 0)


def test_a_slice_is_the_same_as_a_copy():
    columns = (
        pa.array([b"x", *KEYS, b"y"], pa.binary()),
        pa.array([b"x", *VALUES, b"y"], pa.binary()),
        pa.array([0, *TIMES, 9], pa.int64()),
    )
    assert examine(*(column[1:5] for column in columns)) == evidence()


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": [b"a", b"", b"", b"bc"]},
        {"keys": [b"a", None, b"b", b"c"]},
        {"keys": [None, b"a", b"", b"bc"]},
        {"values": [b"1", b"22", b"3", b"33"]},
        {"values": [b"1", b"22", b"", b"334"]},
        {"values": [b"1", b"22", None, b"333"]},
        {"times": [1, 2, 4, 3]},
    ],
    ids=str,
)
def test_a_change_of_equal_size_shows(changed):
    other = evidence(**changed)
    assert other.records == evidence().records
    assert other.size == evidence().size
    assert other.checksum != evidence().checksum


def test_a_record_less_or_more_shows():
    assert evidence(KEYS[:3], VALUES[:3], TIMES[:3]) != evidence()
    assert evidence([*KEYS, None], [*VALUES, None], [*TIMES, 4]) != evidence()
    assert isinstance(evidence(), Evidence)


@pytest.mark.parametrize(
    ("rows", "ordered"),
    [
        ([], True),
        ([(b"a", 0, 0, 5)], True),
        ([(b"a", 0, 0, 5), (b"b", 0, 1, 4), (b"a", 0, 2, 5), (b"a", 0, 3, 6)], True),
        ([(b"a", 0, 1, 5), (b"a", 0, 0, 4)], True),
        ([(b"a", 0, 0, 5), (b"a", 0, 1, 4)], False),
        ([(b"a", 0, 0, 5), (b"b", 1, 0, 5), (b"a", 1, 1, 6)], False),
        ([(None, 0, 0, 5), (None, 1, 0, 4)], True),
    ],
    ids=["none", "one", "in order", "rows in another order", "back in time", "in two partitions", "no keys"],
)
def test_a_key_keeps_to_its_partition_and_its_time(rows, ordered):
    columns = zip(*rows, strict=True) if rows else [[]] * 4
    types = (pa.binary(), pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    assert keeps_order(pa.table(dict(zip(("key", "partition", "offset", "timestamp"), arrays, strict=True)))) is ordered
