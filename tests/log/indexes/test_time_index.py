"""The time index: lookups, the slot kept for the last entry, cutting."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.indexes.time_index import TimeIndex

BASE = 1 << 40


def open_index(path, size=1200):
    return TimeIndex(path, BASE, size)


@settings(deadline=None, max_examples=60)
@given(timestamps=st.lists(st.integers(-1, 50), max_size=30), asked=st.integers(-2, 60), cut=st.integers(0, 70))
def test_only_later_timestamps_are_added_and_the_last_at_or_before_one_is_found(
    tmp_path_factory, timestamps, asked, cut
):
    path = tmp_path_factory.mktemp("index") / "x.timeindex"
    index, entries = open_index(path), []
    for number, timestamp in enumerate(timestamps):
        index.maybe_append(timestamp, BASE + 2 * number)
        if timestamp > max((entry[0] for entry in entries), default=-1):
            entries.append((timestamp, BASE + 2 * number))
    _assert_finds(index, entries, asked)
    index.truncate_to(BASE + cut)
    kept = [entry for entry in entries if entry[1] < BASE + cut]
    _assert_finds(index, kept, asked)
    index.close()
    assert path.stat().st_size == 12 * len(kept)
    _assert_finds(open_index(path), kept, asked)


def _assert_finds(index, entries, asked):
    at_most = [entry for entry in entries if entry[0] <= asked]
    assert index.lookup(asked) == (at_most[-1] if at_most else (-1, BASE))
    assert index.last == (entries[-1] if entries else (-1, BASE))


def test_the_file_is_kafkas(tmp_path):
    index = open_index(tmp_path / "x.timeindex")
    index.maybe_append(0x0102030405060708, BASE + 0x090A0B0C)
    index.close()
    assert (tmp_path / "x.timeindex").read_bytes().hex() == "0102030405060708090a0b0c"


def test_one_slot_is_kept_for_the_last_entry(tmp_path):
    index = open_index(tmp_path / "x.timeindex", 36)
    for number in range(5):
        index.maybe_append(number, BASE + number)
    assert index.is_full
    assert index.last == (1, BASE + 1)
    index.maybe_append(9, BASE + 9, beyond_full=True)
    index.maybe_append(10, BASE + 10, beyond_full=True)
    assert index.last == (9, BASE + 9)


@pytest.mark.parametrize("size", [0, 11, 12])
def test_an_index_without_room_takes_nothing_and_breaks_nothing(tmp_path, size):
    index = open_index(tmp_path / "x.timeindex", size)
    assert index.is_full
    index.maybe_append(1, BASE)
    assert index.entries == 0
