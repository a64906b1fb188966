"""The offset index: lookups, growth, cutting."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.indexes.offset_index import OffsetIndex

BASE = 1 << 40
ENTRIES = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=30).map(
    lambda pairs: list(zip(sorted({p[0] for p in pairs}), sorted(p[1] for p in pairs), strict=False))
)


def open_index(path, size=800):
    return OffsetIndex(path, BASE, size)


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
    _assert_finds(open_index(path), kept, asked)


@pytest.mark.parametrize("entries", [1, 255, 256, 257, 258, 1000, 4096])
def test_every_entry_of_a_long_index_is_found(tmp_path, entries):
    """Blocks are read at once: each entry is in one of them, at its beginning, or at its end."""
    index = open_index(tmp_path / "x.index", 8 * entries)
    for number in range(entries):
        index.append(BASE + 2 * number + 1, 3 * number)
    for number in range(entries):
        assert index.lookup(BASE + 2 * number + 1) == index.lookup(BASE + 2 * number + 2)
        assert index.lookup(BASE + 2 * number + 2) == (BASE + 2 * number + 1, 3 * number)
        assert index.first_at_position(3 * number) == BASE + 2 * number + 1
    assert index.lookup(BASE) == (BASE, 0)
    assert list(index.positions()) == list(range(0, 3 * entries, 3))


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


def test_an_index_that_was_cut_can_be_read_and_grown_again(tmp_path):
    index = open_index(tmp_path / "x.index")
    index.append(BASE + 5, 50)
    index.append(BASE + 8, 80)
    index.truncate_to(BASE + 8)
    index.cut()
    assert (tmp_path / "x.index").stat().st_size == 8
    assert index.lookup(BASE + 7) == (BASE + 5, 50)
    index.append(BASE + 9, 90)
    index.close()
    index.close()
    assert (tmp_path / "x.index").stat().st_size == 16


def test_what_a_crash_of_kafka_left_is_known_for_it(tmp_path):
    """Its file was made as large as it may become."""
    path = tmp_path / "x.index"
    path.write_bytes(bytes.fromhex("0000000500000032") + bytes(792))
    again = open_index(path)
    with pytest.raises(CorruptRecord, match=r"x\.index"):
        again.sanity_check()
    again.replace(bytes.fromhex("0000000700000040"))
    again.sanity_check()
    assert (again.entries, again.last) == (1, (BASE + 7, 64))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("000000", " ends in the middle of an entry"),
        ("ffffffff00000000", r": entry 0 is \(-1, 0\)"),
        ("00000001ffffffff", r": entry 0 is \(1, -1\)"),
        ("0000000100000000" * 2, " does not increase; a crash left its unused tail"),
        ("0000000200000000" + "0000000100000000", r": entry 1 is \(1, 0\)"),
        ("0000000200000000" + "ffffffff00000000", r": entry 1 is \(-1, 0\)"),
        ("0000000000000000" * 2, " does not increase; a crash left its unused tail"),
    ],
)
def test_entries_that_cannot_be_are_refused(tmp_path, content, complaint):
    path = tmp_path / "x.index"
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptRecord, match=rf"x\.index{complaint}$"):
        open_index(path).sanity_check()


@pytest.mark.parametrize("content", ["", "0000000000000000", "0000000000000000" + "0000000100000000"])
def test_entries_that_may_be_are_taken(tmp_path, content):
    path = tmp_path / "x.index"
    path.write_bytes(bytes.fromhex(content))
    open_index(path).sanity_check()


def test_the_first_entry_at_or_beyond_a_position_is_found(tmp_path):
    index = open_index(tmp_path / "x.index")
    assert index.first_at_position(0) is None
    for offset, position in ((5, 50), (9, 90)):
        index.append(BASE + offset, position)
    found = [index.first_at_position(position) for position in (0, 50, 51, 90, 91)]
    assert found == [BASE + 5, BASE + 5, BASE + 9, BASE + 9, None]


def test_as_many_entries_fit_as_are_whole_in_its_size(tmp_path):
    for size, most in ((24, 3), (25, 3), (31, 3), (7, 0), (0, 0)):
        path = tmp_path / f"{size}.index"
        index = open_index(path, size)
        assert (path.stat().st_size, index.max_entries, index.is_full) == (0, most, most == 0)


def test_what_does_not_fit_an_index_is_left_out_of_it(tmp_path):
    path = tmp_path / "x.index"
    index = open_index(path, 24)
    index.append(BASE + 90, 9)
    index.replace(bytes.fromhex("0000000100000010000000020000002000000003000000300000000400000040"))
    assert (index.entries, index.last, index.is_full) == (3, (BASE + 3, 48), True)
    index.replace(bytes.fromhex("0000000100000010"))
    index.append(BASE + 7, 70)
    index.close()
    assert path.read_bytes().hex() == "0000000100000010" + "0000000700000046"


def test_the_offset_that_does_not_rise_is_named(tmp_path):
    index = open_index(tmp_path / "x.index")
    index.append(BASE + 5, 0)
    with pytest.raises(LogError, match=rf"x\.index: offset {BASE + 5} after {BASE + 5}$"):
        index.append(BASE + 5, 9)


def test_an_index_whose_file_is_gone_has_nothing_to_flush(tmp_path):
    path = tmp_path / "x.index"
    index = open_index(path)
    index.flush()
    path.unlink()
    index.flush()
    assert index.lookup(BASE + 5) == (BASE, 0)
