from collections import Counter

import pyarrow as pa
import pytest

from sparklog.client.partitioner import Partitioner


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


def test_keyless_rows_among_others_change_partition_from_column_to_column():
    partitioner = Partitioner(2)
    column = pa.array([None, b"a"], pa.binary())
    places = []
    for _ in range(2):
        found = _rows_by_partition(partitioner.shares(column, 2))
        places.append(next(partition for partition, rows in found.items() if 0 in rows))
    assert places == [0, 1]
