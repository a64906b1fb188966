"""What the mapped indexes hold when the disk took a part of an entry, or none."""

import errno

import pytest

from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.testing.files import NO_ERROR, FaultyFiles


def filled(home):
    index = TimeIndex(home / "x.timeindex", 0, 1200, writable=True)
    for number in range(3):
        index.maybe_append(number, number)
    return index


def test_an_entry_of_which_the_disk_took_a_part_is_none(tmp_path):
    """To look at what is not in the file is the end of the process, where the disk is full."""
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
    index = OffsetIndex(tmp_path / "x.index", 0, 800, writable=True)
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
