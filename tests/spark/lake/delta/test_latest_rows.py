"""The last row of each key, whatever comes in what portions."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.spark.lake.delta.latest_rows import LatestRows, last_of_each


def rows(keys, first):
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(range(first, first + len(keys)), pa.int64())], names=["key", "offset"]
    )


_KEYS = st.sampled_from([b"", b"a", b"b", b"\0", b"long" * 20])


@given(st.lists(st.lists(_KEYS, max_size=8), max_size=12), st.integers(1, 400))
def test_the_last_offset_of_each_key_stays(batches, limit_bytes):
    latest, expected, offset = LatestRows(limit_bytes), {}, 0
    for keys in batches:
        latest.add(rows(keys, offset))
        expected |= {key: offset + place for place, key in enumerate(keys)}
        offset += len(keys)
    taken = latest.take()
    found = [] if taken is None else list(zip(*taken.to_pydict().values(), strict=True))
    assert dict(found) == expected
    assert [place for _, place in found] == sorted(expected.values())
    assert latest.take() is None


def test_it_is_full_by_its_keys_not_by_its_rows():
    latest = LatestRows(2_000)
    for number in range(200):
        latest.add(rows([b"same"] * 10, number * 10))
    assert not latest.is_full
    for number in range(60):
        latest.add(rows([b"%d" % each for each in range(number * 10, number * 10 + 10)], number * 10))
    assert latest.is_full


def test_no_rows():
    assert last_of_each(pa.chunked_array([], pa.binary())).tolist() == []
