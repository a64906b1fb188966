"""What the transaction index holds when the disk took a part of an entry, or refused to cut one off."""

import errno
import os

import pytest

from sparklog.log.indexes.transaction_index import AbortedTransaction, TransactionIndex, read_aborted
from sparklog.testing.files import NO_ERROR, FaultyFiles

ENTRIES = [AbortedTransaction(1, 0, 9, 10), AbortedTransaction(2, 3, 12, 13), AbortedTransaction(1, 11, 20, 21)]
SIZE = 34


@pytest.fixture
def index(tmp_path):
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    for entry in ENTRIES[:2]:
        index.append(entry)
    return index


def test_an_entry_of_which_the_disk_took_a_part_is_none(index, tmp_path):
    with FaultyFiles(tmp_path, fail_at=0, half=True, error=errno.ENOSPC), pytest.raises(OSError, match="No space"):
        index.append(ENTRIES[2])
    assert read_aborted(index.path) == index.entries() == ENTRIES[:2]
    index.append(ENTRIES[2])
    assert read_aborted(index.path) == index.entries() == ENTRIES


def test_an_entry_is_written_to_its_end(index, tmp_path):
    with FaultyFiles(tmp_path, fail_at=0, half=True, error=NO_ERROR):
        index.append(ENTRIES[2])
    assert read_aborted(index.path) == index.entries() == ENTRIES


def refused(tmp_path):
    return FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=["ftruncate"])


def test_what_the_disk_did_not_cut_off_counts_as_gone(index, tmp_path):
    with refused(tmp_path):
        with pytest.raises(OSError, match="No space"):
            index.cut(SIZE)
        assert index.entries() == ENTRIES[:1]
        for write in (lambda: index.append(ENTRIES[2]), index.flush):
            with pytest.raises(OSError, match="No space"):
                write()
        assert index.entries() == ENTRIES[:1]
    index.flush()
    assert read_aborted(index.path) == ENTRIES[:1]
    index.append(ENTRIES[2])
    assert read_aborted(index.path) == index.entries() == [ENTRIES[0], ENTRIES[2]]


def test_an_index_that_was_let_go_has_nothing_left_to_cut(index, tmp_path):
    with refused(tmp_path), pytest.raises(OSError, match="No space"):
        index.cut(SIZE)
    index.close()
    index.flush()


def test_an_index_that_nobody_holds_any_more_keeps_no_descriptor(tmp_path):
    path = tmp_path / "x.txnindex"

    def descriptors():
        return sum(os.path.realpath(each.path) == str(path) for each in os.scandir("/proc/self/fd"))

    index = TransactionIndex(path, 0)
    assert descriptors() == 0
    index.append(ENTRIES[0])
    assert descriptors() == 1
    del index
    assert descriptors() == 0
    index = TransactionIndex(path, 0)
    assert descriptors() == 1
    index.close()
    assert descriptors() == 0
