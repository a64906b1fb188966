"""The file of batches: what is in it, and what a disk that refuses leaves of it."""

import errno
import os
import threading

import pytest
from log.samples import batch_of

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.file_records import FileRecords, end_offset
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
    with pytest.raises(CorruptRecord, match=rf"x\.log: 3 bytes at position {records.size - 3} are no batch header"):
        records.batch_at(records.size - 3)


def test_a_file_that_holds_something_is_not_created_over(records):
    with pytest.raises(FileExistsError):
        FileRecords(records.path, create=True)


def test_a_file_that_is_gone_is_not_made_by_looking_at_it(tmp_path):
    for writable in (True, False):
        with pytest.raises(FileNotFoundError):
            FileRecords(tmp_path / "x.log", writable=writable)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_only_read_is_not_written(records):
    content = records.path.read_bytes()
    with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument"):
        FileRecords(records.path, writable=False).append(batch_of())
    assert records.path.read_bytes() == content


def test_the_end_of_a_file_is_behind_its_last_batch(tmp_path):
    path = tmp_path / "00000000000000000007.log"
    file = FileRecords(path, create=True)
    assert end_offset(path) == 7
    for base in (7, 9):
        batch = batch_of(1, 2)
        patch_header(batch, 0, base, 0)
        file.append(batch)
    assert end_offset(path) == 11
    path.write_bytes(path.read_bytes()[:-1])
    assert end_offset(path, damaged=True) == 9
    with pytest.raises(CorruptRecord):
        end_offset(path)


@pytest.mark.parametrize(("at", "value"), [(16, b"\x01"), (16, b"\x03"), (8, (48).to_bytes(4, "big")), (23, b"\xff")])
def test_a_header_that_cannot_be_is_no_batch(records, at, value):
    position = [*records.batches()][1].position
    with open(records.path, "r+b") as file:
        file.seek(position + at)
        file.write(value)
    with pytest.raises(CorruptRecord, match=rf"x\.log: no whole batch at position {position} \(magic \d, size \d+\)"):
        records.batch_at(position)


def test_a_batch_of_a_header_alone_is_whole(tmp_path):
    """As compaction leaves one of which only the sequence is to be remembered."""
    file = FileRecords(tmp_path / "x.log", create=True)
    empty = batch_of()[:61]
    empty[8:12] = (49).to_bytes(4, "big")
    file.append(empty)
    assert file.batch_at(0).size == 61


def test_every_byte_is_written(tmp_path):
    file = FileRecords(tmp_path / "x.log", create=True)
    assert file.append(memoryview(b"abc")) == 0
    assert file.append(memoryview(b"de")) == 3
    assert (file.path.read_bytes(), file.size) == (b"abcde", 5)


def test_bytes_are_read_as_many_as_there_are(records):
    content = records.path.read_bytes()
    assert bytes(records.read(3, 10)) == content[3:13]
    assert bytes(records.read(records.size - 2, 10)) == content[-2:]
    buffer = bytearray(10)
    assert bytes(records.read_into(buffer, 3)) == content[3:13]
    assert bytes(records.read_into(buffer, records.size - 2)) == content[-2:]


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


def test_a_flush_does_not_cut_off_what_is_being_written(records, monkeypatch):
    before, batch = records.size, batch_of()
    write, cut = os.pwrite, os.ftruncate
    looked, written = threading.Event(), threading.Event()

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        patch.setattr("os.ftruncate", refuse)
        with pytest.raises(OSError, match="Input/output"):
            records.append(batch)

    def cut_late(fd, size):
        if threading.current_thread() is flusher:
            looked.set()
            written.wait(0.2)  # where the append waits for the flush it will not have written by then
        cut(fd, size)

    monkeypatch.setattr("os.ftruncate", cut_late)
    flusher = threading.Thread(target=records.flush)
    flusher.start()
    assert looked.wait(30)
    monkeypatch.setattr("os.pwrite", lambda *args: (write(*args), written.set())[0])
    assert records.append(batch) == before
    flusher.join(30)
    assert records.path.read_bytes()[before:] == bytes(batch)
    assert records.size == before + len(batch)


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
        with pytest.raises(LogError, match=rf"x\.log: cannot truncate {size} bytes to {wrong}$"):
            records.truncate(wrong)
    records.truncate(size - 5)
    assert records.path.stat().st_size == records.size == size - 5
