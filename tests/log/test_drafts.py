"""Segments that another process has written are taken over only if a log can stand on them."""

import os
import struct

import pytest
from log.samples import SMALL, batch_of, in_a_row, open_log, whole, write_cleaned

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.drafts import adopt_drafts, check_drafts
from sparklog.log.files import draft_suffix, offered_suffix, remove_drafts
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_batches

SETTINGS = SMALL | {"cleanup.policy": "compact", "index.interval.bytes": "200"}
TAG = "mine"


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "t-0", SETTINGS)
    while log.segment_count < 4:
        log.append_as_leader(batch_of(1000 + log.log_end_offset, size=100, key=b"k"), 0)
    yield log
    log.close()


@pytest.fixture
def draft(log):
    """The path of the draft of the first two segments' rewrite, its base offset and its end."""
    first, _, third, *_ = log._segments.bases
    kept = [bytes(batch.buffer) for batch in iter_batches(whole(log)) if batch.base_offset < third][::2]
    write_cleaned(log.directory, first, kept, log.config)
    for path in log.directory.glob("*.cleaned"):
        path.rename(path.with_name(path.name.removesuffix(".cleaned") + draft_suffix(TAG)))
    return log.directory / f"{first:020d}.log{draft_suffix(TAG)}", first, third


def check(log, draft):
    _, first, end = draft
    check_drafts(log.directory, [first], end, TAG, log.config)


def test_a_sound_one_is_taken(log, draft):
    check(log, draft)
    adopt_drafts(log.directory, [draft[1]], TAG)
    log.replace_segments([draft[1]], log._segments.bases[:2])


def drafted(log, base, batches):
    """The sizes of the indexes of a draft of these batches."""
    write_cleaned(log.directory, base, batches, log.config)
    for path in log.directory.glob("*.cleaned"):
        path.rename(path.with_name(path.name.removesuffix(".cleaned") + draft_suffix(TAG)))
    name = f"{base:020d}.{{}}{draft_suffix(TAG)}"
    return [(log.directory / name.format(kind)).stat().st_size for kind in ("index", "timeindex")]


@pytest.mark.parametrize(("time", "size"), [(1000, 12), (1, 12), (0, 12), (-1, 0)])
def test_one_that_has_no_index_entries_is_taken(log, time, size):
    """It is of one batch; its latest time is the one entry of the time index, if it has one."""
    first, second, *_ = log._segments.bases
    assert drafted(log, first, in_a_row([batch_of(time, key=b"k")], first)) == [0, size]
    check_drafts(log.directory, [first], second, TAG, log.config)


@pytest.mark.parametrize(("most", "sizes"), [(400, [8 * 8, 12 * 8]), (47, [8 * 5, 12 * 3])], ids=["not full", "full"])
def test_one_whose_every_batch_is_to_be_indexed_is_taken(tmp_path, most, sizes):
    """The last entry of a full time index has a place of its own."""
    log = open_log(tmp_path / "t-1", SETTINGS | {"index.interval.bytes": "0", "segment.index.bytes": str(most)})
    while log.segment_count < 5:
        log.append_as_leader(batch_of(1000 + log.log_end_offset, size=100, key=b"k"), 0)
    bases = log._segments.bases
    kept = [bytes(batch.buffer) for batch in iter_batches(whole(log))][:9]
    assert RecordBatch(kept[-1]).next_offset <= bases[-1]
    assert drafted(log, 0, kept) == sizes
    check_drafts(log.directory, [0], bases[-1], TAG, log.config)
    log.close()


def test_one_is_looked_at_and_not_opened_to_be_written(log, draft, monkeypatch):
    opened, real = [], os.open

    def noted(path, flags, *more, **how):
        opened.append(flags & os.O_ACCMODE)
        return real(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", noted)
    check(log, draft)
    assert set(opened) == {os.O_RDONLY}


def test_one_that_lost_its_end(log, draft):
    os.truncate(draft[0], draft[0].stat().st_size - 7)
    with pytest.raises(CorruptRecord, match="no whole batch that belongs there"):
        check(log, draft)


def test_one_that_lost_its_last_batch(log, draft):
    """Every batch is whole, but the indexes tell of more."""
    data = draft[0].read_bytes()
    last = [batch.size_in_bytes for batch in iter_batches(data)][-1]
    os.truncate(draft[0], len(data) - last)
    with pytest.raises(CorruptRecord, match="not the index of its segment"):
        check(log, draft)


@pytest.mark.parametrize("at", [3, 18, 100])
def test_one_of_which_a_byte_is_another(log, draft, at):
    data = bytearray(draft[0].read_bytes())
    data[at] ^= 0xFF
    draft[0].write_bytes(data)
    with pytest.raises(CorruptRecord, match="no whole batch"):
        check(log, draft)


@pytest.mark.parametrize("offset", [10**6, -1])
def test_one_with_other_offsets(log, draft, offset):
    data = bytearray(draft[0].read_bytes())
    data[:8] = struct.pack(">q", offset)
    draft[0].write_bytes(data)
    with pytest.raises(CorruptRecord, match="no whole batch"):
        check(log, draft)


def test_one_that_reaches_into_the_next_segment(log, draft):
    with pytest.raises(CorruptRecord, match="no whole batch"):
        check_drafts(log.directory, [draft[1]], draft[2] - 3, TAG, log.config)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("content", [b"", b"abc", b"\0" * 24, b"\xff" * 24])
def test_one_with_a_wrong_index(log, draft, kind, content):
    path = draft[0].with_name(draft[0].name.replace(".log.", f".{kind}."))
    assert path.read_bytes() != content
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match="not the index of its segment"):
        check(log, draft)


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("/etc/hostname"), os.mkfifo])
def test_what_is_no_file(log, draft, kind, make):
    path = draft[0].with_name(draft[0].name.replace(".log.", f".{kind}."))
    path.unlink()
    make(path)
    with pytest.raises(CorruptRecord, match="is no file"):
        check(log, draft)


def test_one_that_is_not_there(log, draft):
    draft[0].unlink()
    with pytest.raises(FileNotFoundError):
        check(log, draft)
    with pytest.raises(LogError, match="cannot be in a file's name"):
        check_drafts(log.directory, [draft[1]], draft[2], "../x", log.config)


def test_drafts_are_removed_and_nothing_else_is(log, draft):
    other = draft[0].with_name(draft[0].name.replace(draft_suffix(TAG), offered_suffix(TAG)))
    other.touch()
    before = {path.name for path in log.directory.iterdir()}
    remove_drafts(log.directory)
    assert before - {path.name for path in log.directory.iterdir()} == {
        draft[0].name.replace(".log.", f".{kind}.") for kind in ("log", "index", "timeindex")
    }
    remove_drafts(log.directory)


@pytest.mark.parametrize("tag", ["x" * 64, "aZ09"])
def test_what_may_be_a_tag(tag):
    assert draft_suffix(tag) == f".{tag}.draft.tmp"
    assert offered_suffix(tag) == f".{tag}.offer.tmp"


@pytest.mark.parametrize("tag", ["x" * 65, "", "\u0665", "a-b"])
def test_what_is_no_tag(tag):
    for suffix in (draft_suffix, offered_suffix):
        with pytest.raises(LogError, match="cannot be in a file's name: up to 64 letters and digits"):
            suffix(tag)
