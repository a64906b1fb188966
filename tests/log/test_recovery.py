"""Recovering one segment by itself: what is kept, what is cut off or set aside, what is known of it then."""

import errno
import os

import pytest
from log.samples import batch_of, in_a_row, transactional

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull
from sparklog.log.cut import Cut
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.recovery import keep_rest, recover_segment, rest_path
from sparklog.log.scan import DamageKind
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from sparklog.testing.files import FaultyFiles

BASE = 100
SETTINGS = {"index.interval.bytes": "0", "segment.index.bytes": "48"}
BATCHES = in_a_row(
    [batch_of(10, 20), transactional(7, 0, 2), batch_of(90, 30), batch_of(40), transactional(8, 0)], first_offset=BASE
)
SIZES = [len(each) for each in BATCHES]


def segment_of(home, *pieces, settings=None):
    home.mkdir(exist_ok=True)
    (home / f"{BASE:020d}.log").write_bytes(b"".join(pieces))
    return LogSegment(home, BASE, parse(TopicConfig, settings or SETTINGS), active=True)


def recover(segment, limit=None):
    seen = []
    found = recover_segment(segment, limit, lambda where, batch: seen.append((where is segment, batch.producer_id)))
    return found, seen


def test_a_whole_segment_is_kept_and_its_indexes_are_made(tmp_path):
    segment = segment_of(tmp_path, *BATCHES)
    segment.txn_index.append(AbortedTransaction(1, 100, 101, 102))
    found, seen = recover(segment)
    assert found == (108, sum(SIZES), 0, None)
    assert seen == [(True, 7), (True, 8)]
    assert (segment.size, segment.first_timestamp, segment.latest) == (sum(SIZES), 20, (1001, 103))
    assert segment.txn_index.entries() == [], "whoever is shown the batches makes it anew"
    assert list(segment.offset_index.positions()) == [sum(SIZES[:number]) for number in range(1, 5)]
    assert (segment.time_index.entries, segment.time_index.last) == (1, (1001, 103))
    assert segment.find(104).position == sum(SIZES[:2])


def test_the_time_index_keeps_its_last_place_for_the_seal(tmp_path):
    batches = in_a_row([batch_of(number) for number in range(1, 9)], first_offset=BASE)
    segment = segment_of(tmp_path, *batches)
    recover(segment)
    assert (segment.offset_index.entries, segment.time_index.entries) == (6, 4)
    assert segment.time_index.last == (8, 107)


@pytest.mark.parametrize("cut", [1, 30, SIZES[-1] - 1])
def test_a_torn_tail_is_cut_off_and_told_of(tmp_path, caplog, cut):
    segment = segment_of(tmp_path, *BATCHES[:-1], BATCHES[-1][:-cut])
    left = SIZES[-1] - cut
    found, seen = recover(segment)
    assert found[:3] == (107, sum(SIZES) - cut, left)
    assert (found.damage.kind, found.damage.position, found.damage.size) == (
        DamageKind.TORN_TAIL,
        sum(SIZES[:-1]),
        left,
    )
    assert (seen, segment.size, segment.log.path.stat().st_size) == ([(True, 7)], *[sum(SIZES[:-1])] * 2)
    assert caplog.messages == [
        f"{segment.log.path}: torn tail: {left} bytes behind offset 106 are no whole batch and are cut off (position"
        f" {sum(SIZES[:-1])})"
    ]
    assert list(tmp_path.glob("*.corrupt")) == []


def damaged(home):
    """The third batch is bad."""
    bad = bytearray(BATCHES[2])
    bad[-1] ^= 0xFF
    return segment_of(home, *BATCHES[:2], bad, *BATCHES[3:]), bytes(bad)


def test_what_lies_behind_damage_is_kept_beside_it_and_told_of(tmp_path, caplog):
    segment, bad = damaged(tmp_path)
    at, size = sum(SIZES[:2]), sum(SIZES)
    found, seen = recover(segment)
    assert (found.next_offset, found.scanned_bytes, found.dropped_bytes) == (104, size, size - at)
    assert (found.damage.kind, found.damage.next_good.position) == (DamageKind.CORRUPT_MIDDLE, at + SIZES[2])
    assert (seen, segment.size, segment.latest) == ([(True, 7)], at, (1001, 103))
    rest = tmp_path / f"{BASE:020d}.log.{at}.corrupt"
    assert rest_path(segment, at) == rest
    assert rest.read_bytes() == bad + b"".join(BATCHES[3:])
    (said,) = caplog.messages
    assert said.startswith(
        f"{segment.log.path}: corrupt block in the middle: at position {at}, behind offset 103, is no good batch, but"
        f" good ones begin again at position {at + SIZES[2]} (offset 106). The log is cut at the damage; the"
        f" {size - at} bytes behind it are kept in {rest.name} "
    )


def test_what_was_kept_for_an_earlier_damage_at_the_same_place_is_kept_on(tmp_path):
    segment, bad = damaged(tmp_path)
    first, position = bad + b"".join(BATCHES[3:]), sum(SIZES[:2])
    other = bytes([bad[0]]) + bytes(len(bad) - 1)
    for rest in (first, first, other + first, other + first):  # the second and fourth: a recovery that was cut short
        segment.log.truncate(position)
        segment.log.append(memoryview(rest))
        keep_rest(segment, position)
    rest_path(segment, position).write_bytes((other + first)[:-3])
    keep_rest(segment, position)
    found = {path.name: path.read_bytes() for path in tmp_path.glob("*.corrupt")}
    name = f"{BASE:020d}.log.{position}"
    assert found == {f"{name}.2.corrupt": first, f"{name}.corrupt": other + first}


def test_no_batch_reaches_the_next_segment(tmp_path):
    segment = segment_of(tmp_path, *BATCHES)
    assert recover(segment, 108)[0].damage is None
    found, _ = recover(segment, 107)
    assert (found.next_offset, found.dropped_bytes) == (107, SIZES[-1])
    assert segment.size == sum(SIZES[:-1])


@pytest.mark.parametrize("beyond", [0, 1])
def test_no_batch_of_the_last_segment_lies_further_from_its_base_than_an_index_can_say(tmp_path, beyond):
    far = BASE + MAX_RELATIVE_OFFSET + beyond
    near, distant = in_a_row([batch_of(1)], BASE), in_a_row([batch_of(2)], far)
    segment = segment_of(tmp_path, *near, *distant)
    assert recover(segment)[0].next_offset == (BASE + 1 if beyond else far + 1)
    assert segment.size == len(near[0]) * (1 if beyond else 2)


def test_an_empty_segment_has_nothing_to_recover(tmp_path):
    segment = segment_of(tmp_path)
    assert recover(segment) == ((BASE, 0, 0, None), [])
    assert (segment.latest, segment.first_timestamp) == ((-1, BASE), None)


def test_what_is_kept_is_on_the_disk_before_it_is_cut_off(tmp_path, monkeypatch):
    segment, _ = damaged(tmp_path / "t-0")
    steps = []
    for name in ("fsync", "fdatasync", "ftruncate"):
        real = getattr(os, name)

        def step(fd, *more, name=name, real=real):
            steps.append((name, os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
            real(fd, *more)

        monkeypatch.setattr(os, name, step)
    recover(segment)
    log = segment.log.path.name
    assert [each for each in steps if each[1] not in ("", f"{BASE:020d}.index", f"{BASE:020d}.timeindex")] == [
        ("fsync", f"{log}.{sum(SIZES[:2])}.corrupt"),
        ("fsync", "t-0"),
        ("ftruncate", log),
        ("fdatasync", log),
    ]


@pytest.mark.parametrize("step", range(4))
def test_where_it_cannot_be_kept_nothing_is_cut_off(tmp_path, step):
    """To keep it takes an open, a write, and two syncs."""
    segment, _ = damaged(tmp_path)
    before = segment.log.path.read_bytes()
    at = sum(SIZES[:2])
    with (
        FaultyFiles(tmp_path, fail_at=step, error=errno.ENOSPC),
        pytest.raises(DiskFull, match=r"is damaged, and the \d+ bytes behind the damage cannot be kept: No space"),
    ):
        keep_rest(segment, at)
    assert segment.log.path.read_bytes() == before
    assert not rest_path(segment, at).exists()


def test_a_long_rest_is_kept_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("sparklog.log.recovery._COPY", 7)
    segment, _ = damaged(tmp_path)
    keep_rest(segment, 5)
    assert rest_path(segment, 5).read_bytes() == segment.log.path.read_bytes()[5:]


# What is said of all that an opening cuts out of a log


def test_a_cut_is_told_with_all_that_it_took(tmp_path, caplog):
    first, _ = damaged(tmp_path)
    second = LogSegment(tmp_path, 200, first.config, active=True, create=True)
    rest = in_a_row([batch_of(1, 2, 3)], first_offset=200)[0]
    second.log.append(memoryview(rest))
    third = LogSegment(tmp_path, 300, first.config, active=True, create=True)
    found, _ = recover(first)
    cut = Cut(found.next_offset)
    cut.take_rest(first, found)
    assert (cut.size, cut.kept, cut.end) == (found.damage.size, [rest_path(first, found.damage.position).name], 108)
    cut.take_segment(second)
    cut.take_segment(third)
    size = found.damage.size + len(rest)
    assert (cut.size, cut.kept[1:], cut.end) == (size, [f"{200:020d}.log.corrupt"], 203), "the third is empty"
    caplog.clear()
    cut.say(tmp_path)
    assert caplog.messages == [
        f"{tmp_path}: the start cut the log at offset 104: offsets 104 to 202 (up to 99 records, {size} bytes) are in"
        f" it no longer; what was behind the damage is kept in {', '.join(cut.kept)} (see sparklog log dump)"
    ]


def test_a_torn_tail_is_told_as_one_and_no_cut_is_not(tmp_path, caplog):
    segment = segment_of(tmp_path, *BATCHES[:-1], BATCHES[-1][:-5])
    found, _ = recover(segment)
    cut = Cut(found.next_offset)
    cut.take_rest(segment, found)
    caplog.clear()
    cut.say(tmp_path)
    assert caplog.messages == [
        f"{tmp_path}: the start cut the log at offset 107: {SIZES[-1] - 5} bytes that are no whole batch are gone"
    ]
    caplog.clear()
    whole = Cut(107)
    whole.take_rest(segment, recover(segment)[0])
    whole.say(tmp_path)
    assert (whole, caplog.messages) == (Cut(107), [])
