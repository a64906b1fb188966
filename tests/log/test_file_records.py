"""The file of batches: what is in it, and what a disk that refuses leaves of it."""

import errno
import os

import pytest
from log.samples import batch_of

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.file_records import FileRecords
from sparklog.record.batch import patch_header


@pytest.fixture
def records(tmp_path):
    file = FileRecords(tmp_path / "x.log", create=True)
    for base, count in ((0, 2), (2, 1), (3, 3)):
        batch = batch_of(*range(100, 100 + count))
        patch_header(batch, 0, base, 7)
        file.append(batch)
    return file


def test_batches_are_found_one_after_another(records):
    found = list(records.batches())
    assert [(b.base_offset, b.last_offset, b.leader_epoch, b.max_timestamp) for b in found] == [
        (0, 1, 7, 101),
        (2, 2, 7, 100),
        (3, 5, 7, 102),
    ]
    assert found[-1].end == records.size
    assert list(records.batches(found[1].position)) == found[1:]
    assert records.batch_at(records.size) is None


def test_what_is_no_batch_is_refused_with_its_place(records):
    with pytest.raises(CorruptRecord, match=r"x\.log: no whole batch at position 1 "):
        records.batch_at(1)
    with pytest.raises(CorruptRecord, match="3 bytes at position"):
        records.batch_at(records.size - 3)


def test_a_file_that_holds_something_is_not_created_over(records):
    with pytest.raises(FileExistsError):
        FileRecords(records.path, create=True)


def test_an_empty_file_that_a_failed_roll_left_is_taken_over(tmp_path):
    (tmp_path / "x.log").touch()
    assert FileRecords(tmp_path / "x.log", create=True).size == 0


@pytest.mark.parametrize("taken", [0, 1, 40])
def test_a_full_disk_leaves_the_file_as_it_was(records, monkeypatch, taken):
    before = records.path.read_bytes()
    write = os.pwrite

    def fill_up(fd, data, position):
        if position > records.size or not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:taken], position)

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fill_up)
        with pytest.raises(OSError, match="No space"):
            records.append(batch_of())
    assert records.path.read_bytes() == before
    assert records.size == len(before)
    assert records.append(batch_of()) == len(before)


def test_a_write_that_stops_half_way_is_continued(records, monkeypatch):
    write, batch, size = os.pwrite, batch_of(size=500), records.size
    monkeypatch.setattr("os.pwrite", lambda fd, data, position: write(fd, data[:7], position))
    records.append(batch)
    assert records.path.read_bytes()[size:] == bytes(batch)


def test_a_slice_keeps_the_file(records):
    piece, content, path = records.slice(3, 50), records.path.read_bytes(), records.path
    del records
    path.unlink()
    assert os.pread(piece.file.fileno(), piece.size, piece.position) == content[3:53]


def test_truncation_is_to_what_there_is(records):
    size = records.size
    for wrong in (-1, size + 1):
        with pytest.raises(LogError, match="cannot truncate"):
            records.truncate(wrong)
    records.truncate(size - 5)
    assert records.path.stat().st_size == records.size == size - 5
