from collections import Counter

import pyarrow as pa
import pytest

from sparklog.client.producer.partitioner import Partitioner, misplaced
from sparklog.record.partitioning import partition_for


def _rows_by_partition(shares):
    found = {}
    for share in shares:
        rows = range(share.offset, share.offset + share.length)
        chosen = list(share.rows) if share.rows is not None else list(rows)
        found.setdefault(share.partition, []).extend(chosen)
    return found


def test_the_same_key_goes_to_the_same_partition():
    keys = pa.array([b"a", b"b", b"c"] * 10, pa.binary())
    found = _rows_by_partition(Partitioner(4).shares(keys, 30))
    for row in range(3):
        assert sum(set(range(row, 30, 3)) <= set(rows) for rows in found.values()) == 1


@pytest.mark.parametrize("key", [None, pa.nulls(10, pa.binary())])
def test_keyless_rows_take_turns_in_runs(key):
    partitioner = Partitioner(3)
    first = _rows_by_partition(partitioner.shares(key, 10))
    assert sorted(map(len, first.values())) == [3, 3, 4]
    assert sorted(row for rows in first.values() for row in rows) == list(range(10))
    for rows in first.values():
        assert rows == list(range(rows[0], rows[-1] + 1))


def test_a_few_keyless_rows_at_a_time_still_reach_every_partition():
    partitioner = Partitioner(4)
    seen = Counter(share.partition for _ in range(8) for share in partitioner.shares(None, 1))
    assert seen == {0: 2, 1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("key", [None, pa.nulls(10, pa.binary())])
def test_keyless_rows_go_to_partitions_that_are_available(key):
    partitioner = Partitioner(5)
    found = [_rows_by_partition(partitioner.shares(key, 10, [1, 3])) for _ in range(3)]
    assert [set(each) for each in found] == [{1, 3}] * 3
    assert all(sorted(row for rows in each.values() for row in rows) == list(range(10)) for each in found)


def test_keys_go_where_they_belong_whatever_is_available():
    key = pa.array([b"a", b"b", None], pa.binary())
    usual = _rows_by_partition(Partitioner(4).shares(key, 3))
    found = _rows_by_partition(Partitioner(4).shares(key, 3, [2]))
    assert {row: each for each, rows in found.items() for row in rows if row < 2} == {
        row: each for each, rows in usual.items() for row in rows if row < 2
    }
    assert 2 in found[2]


def test_keyless_rows_among_others_change_partition_from_column_to_column():
    partitioner = Partitioner(2)
    column = pa.array([None, b"a"], pa.binary())
    places = []
    for _ in range(2):
        found = _rows_by_partition(partitioner.shares(column, 2))
        places.append(next(partition for partition, rows in found.items() if 0 in rows))
    assert places == [0, 1]


def test_runs_are_as_even_as_they_can_be_and_go_on_where_the_last_column_ended():
    partitioner = Partitioner(3, first=4)
    assert list(partitioner.shares(None, 10)) == [(1, 0, 3, None), (2, 3, 3, None), (0, 6, 4, None)]
    assert list(partitioner.shares(None, 2)) == [(1, 0, 1, None), (2, 1, 1, None)]
    assert list(partitioner.shares(None, 1)) == [(0, 0, 1, None)]
    assert list(partitioner.shares(None, 0)) == []
    assert list(partitioner.shares(None, 1, [2])) == [(2, 0, 1, None)]


def test_the_turn_begins_at_the_first_partition():
    assert [share.partition for share in Partitioner(3).shares(None, 3)] == [0, 1, 2]
    assert [share.partition for share in Partitioner(3, first=3).shares(None, 3)] == [0, 1, 2]


def test_a_share_of_rows_with_keys_names_rows_of_the_whole_column():
    shares = list(Partitioner(4).shares(pa.array([b"a", b"b", b"c", None] * 5, pa.binary()), 20))
    assert all((share.offset, share.length) == (0, 20) for share in shares)
    assert sorted(row for share in shares for row in share.rows) == list(range(20))


def test_columns_with_keys_alone_take_no_turn():
    partitioner = Partitioner(3)
    list(partitioner.shares(pa.array([b"a", b"b"], pa.binary()), 2))
    assert next(partitioner.shares(None, 1)).partition == 0


def test_keyless_rows_among_others_take_turns_among_what_is_available():
    partitioner, column = Partitioner(5), pa.array([None, b"a"], pa.binary())
    places = []
    for _ in range(4):
        found = _rows_by_partition(partitioner.shares(column, 2, [1, 2, 4]))
        places.append(next(partition for partition, rows in found.items() if 0 in rows))
    assert places == [1, 2, 4, 1]


def test_a_share_tells_which_rows_of_the_columns_are_its_own():
    first, second = Partitioner(2).shares(None, 5)
    assert [first.row(position) for position in range(2)] == [0, 1]
    assert [second.row(position) for position in range(3)] == [2, 3, 4]
    for share in Partitioner(4).shares(pa.array([b"a", b"b", b"c"] * 5, pa.binary()), 15):
        assert [share.row(position) for position in range(len(share.rows))] == list(share.rows)


_KEY = next(b"%d" % number for number in range(99) if partition_for(b"%d" % number, 3) == 1)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.uint64()])
def test_rows_that_name_their_partition_keep_their_place_among_those_that_come_by_key(kind):
    named = pa.array([1, None, 0, None, 1, 2, None], kind)
    keys = pa.array([_KEY] * 7, pa.binary())
    assert _rows_by_partition(Partitioner(3).shares(keys, 7, named=named)) == {0: [2], 1: [0, 1, 3, 4, 6], 2: [5]}


@pytest.mark.parametrize("key", [None, pa.nulls(7, pa.binary()), pa.array([b"a", None, b"b", None, None, b"c", b"d"])])
def test_keyless_rows_among_those_that_name_their_partition_are_shared_out(key):
    named = pa.array([1, None, 0, None, 1, 2, None], pa.int32())
    found = _rows_by_partition(Partitioner(3).shares(key, 7, named=named))
    assert sorted(row for rows in found.values() for row in rows) == list(range(7))
    assert all(rows == sorted(rows) for rows in found.values())
    assert all(row in found[partition] for row, partition in enumerate(named.to_pylist()) if partition is not None)


def test_rows_that_all_name_one_partition_are_not_copied():
    (share,) = Partitioner(3).shares(None, 4, named=pa.array([2] * 4, pa.int32()))
    assert share == (2, 0, 4, None)


def test_a_column_that_names_no_partition_decides_nothing():
    keys = pa.array([_KEY] * 2, pa.binary())
    assert _rows_by_partition(Partitioner(3).shares(keys, 2, named=pa.nulls(2))) == {1: [0, 1]}


@pytest.mark.parametrize(
    ("named", "row"),
    [
        (pa.array([0, None, 2], pa.int8()), None),
        (pa.nulls(3), None),
        (pa.array([None, 0, 3, -1], pa.int64()), 2),
        (pa.array([0, -1], pa.int16()), 1),
        (pa.array([2**64 - 1], pa.uint64()), 0),
    ],
)
def test_the_first_row_that_names_what_is_not_there(named, row):
    assert misplaced(named, 3) == row


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_keys_of_every_kind_of_text_and_bytes_beside_named_partitions(kind):
    values = [b"a", b"b", None, b"d"] if pa.types.is_binary_view(kind) else ["a", "b", None, "d"]
    named = pa.array([None, 1, 3, None], pa.int32())
    found = _rows_by_partition(Partitioner(4).shares(pa.array(values, kind), 4, named=named))
    expected = {1: [1], 3: [2]}
    for row, key in ((0, b"a"), (3, b"d")):
        expected.setdefault(partition_for(key, 4), []).append(row)
    assert found == {partition: sorted(rows) for partition, rows in expected.items()}
