"""The offset index: lookups, growth, cutting."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.offset_index import OffsetIndex

BASE = 1 << 40
ENTRIES = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=30).map(
    lambda pairs: list(zip(sorted({p[0] for p in pairs}), sorted(p[1] for p in pairs), strict=False))
)


def open_index(path, size=800, *, writable=True):
    return OffsetIndex(path, BASE, size, writable=writable)


@settings(deadline=None, max_examples=60)
@given(entries=ENTRIES, asked=st.integers(-1, 2**31), cut=st.integers(-1, 2**31))
def test_the_last_entry_at_or_before_an_offset_is_found(tmp_path_factory, entries, asked, cut):
    path = tmp_path_factory.mktemp("index") / "x.index"
    index = open_index(path)
    for offset, position in entries:
        index.append(BASE + offset, position)
    _assert_finds(index, entries, asked)
    index.truncate_to(BASE + cut)
    kept = [entry for entry in entries if entry[0] < cut]
    _assert_finds(index, kept, asked)
    index.close()
    assert path.stat().st_size == 8 * len(kept)
    _assert_finds(open_index(path, writable=False), kept, asked)


def _assert_finds(index, entries, asked):
    at_most = [(BASE + offset, position) for offset, position in entries if offset <= asked]
    assert index.lookup(BASE + asked) == (at_most[-1] if at_most else (BASE, 0))
    assert index.last == ((BASE + entries[-1][0], entries[-1][1]) if entries else (BASE, 0))
    assert index.entries == len(entries)


def test_the_file_is_kafkas(tmp_path):
    index = open_index(tmp_path / "x.index")
    index.append(BASE + 1, 2)
    index.append(BASE + 0x01020304, 0x05060708)
    index.close()
    assert (tmp_path / "x.index").read_bytes().hex() == "0000000100000002" + "0102030405060708"


def test_offsets_must_rise(tmp_path):
    index = open_index(tmp_path / "x.index")
    index.append(BASE + 5, 0)
    for offset in (5, 4):
        with pytest.raises(LogError, match="after"):
            index.append(BASE + offset, 9)


def test_it_is_full_at_its_size(tmp_path):
    index = open_index(tmp_path / "x.index", 24)
    for number in range(3):
        assert not index.is_full
        index.append(BASE + number, number)
    assert index.is_full


def test_a_sealed_index_can_be_read_and_grown_again(tmp_path):
    index = open_index(tmp_path / "x.index")
    index.append(BASE + 5, 50)
    index.trim()
    assert (tmp_path / "x.index").stat().st_size == 8
    assert index.lookup(BASE + 7) == (BASE + 5, 50)
    index.make_writable()
    index.append(BASE + 9, 90)
    index.close()
    index.close()
    assert (tmp_path / "x.index").stat().st_size == 16


def test_what_a_crash_left_is_known_for_it(tmp_path):
    path = tmp_path / "x.index"
    index = open_index(path)
    index.append(BASE + 5, 50)
    index.flush()
    again = open_index(path)
    with pytest.raises(CorruptRecord, match=r"x\.index"):
        again.sanity_check()
    again.replace(bytes.fromhex("0000000700000040"))
    again.sanity_check()
    assert (again.entries, again.last) == (1, (BASE + 7, 64))


@pytest.mark.parametrize("content", ["000000", "ffffffff00000000", "00000001ffffffff", "0000000100000000" * 2])
def test_entries_that_cannot_be_are_refused(tmp_path, content):
    path = tmp_path / "x.index"
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptRecord, match=r"x\.index"):
        open_index(path, writable=False).sanity_check()
