"""What the indexes hold when the disk took a part of an entry, or none; and which descriptors they keep."""

import errno
import os
from bisect import bisect_right
from itertools import accumulate
from random import Random

import pytest

from sparklog.errors import CorruptRecord
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.testing.files import NO_ERROR, FaultyFiles


def filled(home):
    index = TimeIndex(home / "x.timeindex", 0, 1200)
    for number in range(3):
        index.maybe_append(number, number)
    return index


def test_an_entry_of_which_the_disk_took_a_part_is_none(tmp_path):
    index = filled(tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, half=True, error=errno.ENOSPC), pytest.raises(OSError, match="No space"):
        index.maybe_append(9, 9)
    assert (index.entries, index.last) == (3, (2, 2))
    index.maybe_append(7, 8)
    assert index.last == (7, 8)
    index.close()
    assert (tmp_path / "x.timeindex").stat().st_size == 4 * 12


def test_an_entry_is_written_to_its_end(tmp_path):
    index = filled(tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, half=True, error=NO_ERROR):
        index.maybe_append(1 << 60, 9)
    assert index.last == (1 << 60, 9)


@pytest.mark.parametrize("error", [errno.ENOSPC, NO_ERROR])
def test_entries_that_replace_others_are_all_there_or_none_is(tmp_path, error):
    index = OffsetIndex(tmp_path / "x.index", 0, 800)
    for number in range(8):
        index.append(number, number)
    entries = b"".join(OffsetIndex.FORM.pack(number, 10 * number) for number in range(20))
    with FaultyFiles(tmp_path, fail_at=0, half=True, error=error, steps=["pwrite"]):
        if error != NO_ERROR:
            with pytest.raises(OSError, match="No space"):
                index.replace(entries)
            assert (index.entries, index.last) == (0, (0, 0))
            return
        index.replace(entries)
    assert (index.entries, index.last) == (20, (19, 190))


def descriptors(path):
    """How many this process has of a file."""
    return sum(os.path.realpath(each.path) == str(path) for each in os.scandir("/proc/self/fd"))


def test_an_index_without_entries_keeps_no_descriptor(tmp_path):
    path = tmp_path / "x.index"
    index = OffsetIndex(path, 0, 800)
    assert (path.exists(), descriptors(path)) == (True, 0)
    index.append(5, 50)
    assert descriptors(path) == 1
    index.truncate_to(0)
    index.cut()
    assert (path.stat().st_size, descriptors(path), index.last) == (0, 0, (0, 0))
    index.append(3, 30)
    assert (index.lookup(9), descriptors(path)) == ((3, 30), 1)
    index.close()
    assert descriptors(path) == 0


def test_entries_that_somebody_has_cut_off_are_missed(tmp_path):
    path = tmp_path / "x.index"
    index = OffsetIndex(path, 0, 800)
    for number in range(8):
        index.append(number, number)
    os.truncate(path, 12)
    with pytest.raises(CorruptRecord, match=r"x\.index has lost entries"):
        index.lookup(6)


def test_a_reader_leaves_nothing_behind_that_a_truncation_has_made_untrue(tmp_path):
    """What it reads may be of before; only the thread that truncates knows."""
    index = OffsetIndex(tmp_path / "x.index", 0, 8192)
    for number in range(1, 1001):
        index.append(number, number)
    index.close()
    index = OffsetIndex(tmp_path / "x.index", 0, 8192)
    read = index._entry

    def truncated_meanwhile(number):
        found = read(number)
        index._entry = read
        index.truncate_to(501)
        index.append(2000, 2000)
        return found

    index._entry = truncated_meanwhile
    assert index.last.offset == 1000
    assert (index.entries, index.last) == (501, (2000, 2000))
    assert index.lookup(1999) == (500, 500)
    assert index.lookup(2000) == (2000, 2000)


@pytest.mark.parametrize("count", [1, 2, 128, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("spread", ["even", "early", "late", "uneven"])
def test_a_search_finds_every_entry_and_what_lies_between(tmp_path, count, spread):
    chance = Random(f"{count} {spread}")
    step = {"even": lambda _: 3, "early": lambda n: 1 + n // 10, "late": lambda n: 1 + (count - n) // 10}
    keys = list(accumulate(step.get(spread, lambda _: chance.choice((1, 2, 1000)))(n) for n in range(count)))
    index = OffsetIndex(tmp_path / "x.index", 100, 8 * count)
    for number, key in enumerate(keys):
        index.append(100 + key, 7 * number)
    asked = keys if count < 1000 else [keys[0], keys[-1], *chance.sample(keys, 200)]
    for key in [-1, 0, *(each + beside for each in asked for beside in (-1, 0, 1))]:
        number = bisect_right(keys, key) - 1
        assert index.lookup(100 + key) == ((100 + keys[number], 7 * number) if number >= 0 else (100, 0))
