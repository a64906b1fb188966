"""Opening what a crash, or a careless hand, left: exactly the good prefix is kept, and indexes can always be remade."""

import logging
import os
import shutil
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log.samples import TP, abandon, batch_of, open_log, read_bytes, transactional, whole, write_cleaned

from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogDirFailed, LogError
from sparklog.log.cut import name_some
from sparklog.log.files import segment_path
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_snapshot import ProducerEntry, encode_snapshot
from sparklog.record import layout
from sparklog.record.batch import patch_header
from sparklog.record.records import iter_batches
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import finish

SETTINGS = {"segment.bytes": "2000", "index.interval.bytes": "200", "segment.index.bytes": "4000"}
LARGE = {"max.message.bytes": str(4 << 20)}
COUNT = 30


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


def fill(home, *, close=False):
    """A log of some segments; its batches."""
    log = open_log(home, SETTINGS)
    for number in range(COUNT):
        log.append_as_leader(batch_of(1000 + number, 1000 + number, size=60), 1)
    batches = [bytes(batch.buffer) for batch in iter_batches(whole(log))]
    if close:
        log.close()
    else:
        log.flush()
        abandon(log)
    assert log.segment_count > 2
    return batches


def log_files(home):
    return sorted(home.glob("*.log"))


def reopen(home, **how):
    return open_log(home, SETTINGS, **{"clean": False, **how})


def overwrite(path, position, data):
    with open(path, "rb+") as file:
        file.seek(position)
        file.write(data)


def assert_holds(log, batches):
    """The log holds these batches, can be read at every offset, takes more, and survives another opening."""
    assert whole(log) == b"".join(batches)
    assert log.log_end_offset == 2 * len(batches)
    for offset in range(2 * len(batches)):
        read = read_bytes(log.read(offset, 1, log.end, min_one_batch=True))
        assert read == batches[offset // 2]
    for number in range(len(batches)):
        assert finish(log.offset_for_timestamp(1000 + number)) == (1000 + number, 2 * number)
    assert log.append_as_leader(batch_of(5000), 1).first_offset == 2 * len(batches)
    log.close()
    assert open_log(log.directory, SETTINGS).log_end_offset == 2 * len(batches) + 1


def test_a_log_is_listed_once_for_its_segments_and_twice_for_its_producers(home, monkeypatch):
    """However many kinds of files a crash could have left in it."""
    fill(home, close=True)
    listed = []
    for name in ("listdir", "scandir"):
        listing = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, listing=listing: listed.append(path) or listing(path))
    log = reopen(home, clean=True)
    assert len(listed) == 3
    log.close()


@pytest.mark.parametrize("unused", [0, 1200], ids=["sparklog's indexes", "Kafka's, with an unused tail"])
def test_a_crash_that_lost_nothing_loses_nothing(home, caplog, unused):
    batches = fill(home)
    for suffix in ("index", "timeindex"):
        path = max(home.glob(f"*.{suffix}"))
        os.truncate(path, path.stat().st_size + unused)
    with caplog.at_level(logging.WARNING):
        log = reopen(home)
    assert not caplog.records
    assert (log.recovered_bytes_dropped, log.scanned_bytes) == (0, log.size)
    assert_holds(log, batches)


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 500, b"\0" * 5, b"\xff" * 300, b"garbage", bytes(batch_of(1, 2))[:-1], bytes(batch_of(1, 2))],
    ids=["zeros", "few zeros", "ones", "garbage", "torn batch", "batch of the wrong offset"],
)
def test_recovery_cuts_a_bad_tail(home, tail):
    batches = fill(home)
    with open(log_files(home)[-1], "ab") as file:
        file.write(tail)
    log = reopen(home)
    assert log.recovered_bytes_dropped == len(tail)
    assert_holds(log, batches)


def test_recovery_keeps_the_whole_batches_of_a_tail_torn_anywhere(home):
    batches = fill(home)
    path = log_files(home)[-1]
    inside = [batch for batch in batches if batch in path.read_bytes()]
    before = len(batches) - len(inside)
    size = path.stat().st_size
    for cut in range(size - len(inside[-1]) - 1, size + 1):
        overwrite(path, 0, b"".join(inside))
        os.truncate(path, cut)
        log = reopen(home)
        kept = before + cut // len(inside[0])
        assert whole(log) == b"".join(batches[:kept])
        assert log.log_end_offset == 2 * kept
        abandon(log)


@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize(
    "position", [0, 3, 11, 16, 18, 90], ids=["offset", "offset 2", "length", "magic", "crc", "record"]
)
def test_recovery_ends_the_log_before_a_flipped_byte(home, segment, position):
    batches = fill(home)
    path = log_files(home)[segment]
    victim = len(batches[0]) * 2 + position
    overwrite(path, victim, bytes([path.read_bytes()[victim] ^ 0x08]))
    first = next(index for index, batch in enumerate(batches) if path.name.startswith(f"{2 * index:020d}"))
    log = reopen(home)
    assert log.recovered_bytes_dropped > 0
    assert_holds(log, batches[: first + 2])


def test_what_stands_behind_a_corrupt_block_is_kept_and_said(home, caplog):
    batches = fill(home)
    first, *later = log_files(home)
    before = {path.name: path.read_bytes() for path in (first, *later)}
    size = len(batches[0])
    overwrite(first, size, b"\xff" * 61)
    log = reopen(home)
    assert log.log_end_offset == 2
    assert "corrupt block in the middle" in caplog.text
    assert f"begin again at position {2 * size} (offset 4)" in caplog.text
    log.close()
    assert_holds(reopen(home), batches[:1])
    kept = {path.name: path.read_bytes() for path in home.glob("*.corrupt")}
    rest = b"\xff" * 61 + before[first.name][size + 61 :]
    assert kept == {f"{first.name}.{size}.corrupt": rest} | {
        f"{path.name}.corrupt": before[path.name] for path in later
    }
    gone, end = sum(map(len, kept.values())), 2 * len(batches)
    assert (log.recovered_bytes_dropped, log.scanned_bytes) == (gone, len(before[first.name]))
    (said,) = (line for line in caplog.messages if "the start cut" in line)
    assert said.startswith(f"{home}: the start cut the log at offset 2: offsets 2 to {end - 1} ")
    assert f" (up to {end - 2} records, {gone} bytes) " in said
    assert name_some(sorted(kept)) in said


def test_what_was_kept_before_stays_where_segments_of_the_same_offsets_are_cut_out_again(home, caplog):
    """As where batches are all of one size, and are written again after the first cut."""
    batches = fill(home)
    size = len(batches[0])
    for _ in range(2):
        first, *later = log_files(home)
        overwrite(first, size, b"\xff" * 61)
        log = reopen(home)
        for number in range(1, COUNT):
            log.append_as_leader(batch_of(1000 + number, 1000 + number, size=60), 1)
        log.flush()
        abandon(log)
    for path in later:
        assert (home / f"{path.name}.corrupt").read_bytes() == (home / f"{path.name}.2.corrupt").read_bytes()
        assert f"is kept as {path.name}.2.corrupt" in caplog.text
    assert f"{later[0].name}.2.corrupt" in [line for line in caplog.messages if "the start cut" in line][1]


@pytest.mark.parametrize("start", [0, 1 << 31])
def test_a_log_ends_where_a_segment_has_lost_its_end(home, start):
    log = open_log(home, SETTINGS)
    log.restart_at(start)
    while log.segment_count < 3:
        log.append_as_leader(batch_of(1000), 1)
    first = log._segments.first
    *_, last = first.log.batches()
    abandon(log)
    os.truncate(first.log.path, last.position)
    assert reopen(home, log_start_offset=start).log_end_offset == last.base_offset
    assert all(int(path.stem) <= last.base_offset for path in home.glob("*.snapshot")), "nothing is known beyond it"


def test_what_was_cleaned_while_the_topic_was_compacted_has_lost_no_end(home, caplog):
    """The policy is ``delete`` now, and a crash has come before the recovery point reached the disk."""
    log = open_log(home, {**SETTINGS, "cleanup.policy": "compact"})
    while log.segment_count < 5:
        log.append_as_leader(batch_of(1000, key=b"k"), 1)
    first, second, third, *_ = log.segment_facts()
    kept = next(iter(log._segments.first.log.batches()))
    write_cleaned(home, 0, [bytes(log._segments.first.log.read(kept.position, kept.size))], log.config)
    log.replace_segments([0], [first.base_offset, second.base_offset])
    expected, end = whole(log), log.log_end_offset
    abandon(log)
    other = shutil.copytree(home, home.with_name("other"))
    again = reopen(home, cleaned_to=third.base_offset)
    assert (whole(again), again.log_end_offset) == (expected, end)
    assert not caplog.records
    assert reopen(other).log_end_offset == kept.base_offset + 1, "of a log that never was cleaned it is damage"


def without_a_segment(home):
    _, gone, after, *_ = log_files(home)
    for path in home.glob(f"{gone.stem}.*"):
        path.unlink()
    return int(after.stem)


def with_a_flipped_byte(home):
    _, hit, after, *_ = log_files(home)
    overwrite(hit, 100, b"\xff\xff")
    return int(after.stem)


def with_a_lost_end(home):
    hit, after, *_ = log_files(home)
    os.truncate(hit, hit.stat().st_size - 1)
    return int(after.stem)


@pytest.mark.parametrize("harm", [without_a_segment, with_a_flipped_byte, with_a_lost_end])
def test_what_lacks_before_the_start_of_the_log_cuts_nothing(home, caplog, harm):
    batches = fill(home)
    start = harm(home)
    other = shutil.copytree(home, home.with_name("other"))
    assert reopen(other, log_start_offset=start - 1).log_end_offset < start, "a hole that reaches the start is damage"
    caplog.clear()
    for _ in range(2):
        log = reopen(home, log_start_offset=start)
        assert (log.log_start_offset, log.log_end_offset) == (start, 2 * COUNT)
        for offset in range(start, 2 * COUNT):
            assert read_bytes(log.read(offset, 1, log.end, min_one_batch=True)) == batches[offset // 2]
        assert log.segment_count == len(log_files(home))
        assert log._segments.first.base_offset == start, "so nothing lacks in what is left"
        abandon(log)
    assert "the start cut the log" not in caplog.text


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_segment_that_lacks_in_the_middle_is_told_of(home, caplog, clean, policy):
    """It lies below the recovery point, so nothing is cut: what is behind it was on the disk."""
    settings, how = {**SETTINGS, "cleanup.policy": policy}, {"clean": clean, "recovery_point": 2 * COUNT}
    fill(home, close=True)
    open_log(home, settings, **how).close()
    assert "lacks offsets" not in caplog.text
    _, gone, *_ = log_files(home)
    start = without_a_segment(home)
    log = open_log(home, settings, **how)
    said = f"{home} lacks offsets {int(gone.stem)} to {start - 1}, between one segment and the next (1 place)"
    (record,) = (each for each in caplog.records if said in each.message)
    assert record.levelno == (logging.WARNING if policy == "compact" else logging.ERROR)
    assert log.log_end_offset == 2 * COUNT
    abandon(log)
    caplog.clear()
    how["log_start_offset" if clean else "cleaned_to"] = start
    abandon(open_log(home, settings, **how))
    assert "lacks offsets" not in caplog.text, "what was deleted lacks by right, and what was cleaned"


@pytest.mark.parametrize("clean", [True, False])
def test_what_ends_before_what_was_on_the_disk_is_told_of(home, caplog, clean):
    """Its last segment was removed, or is an older one."""
    fill(home, close=True)
    last = log_files(home)[-1]
    end = int(last.stem)
    said = f"{home} ends at offset {end}, but offsets up to {2 * COUNT - 1} were on the disk"
    known = {"clean": clean, "recovery_point": 2 * COUNT}
    abandon(reopen(home, **known))
    assert said not in caplog.text
    last.unlink()
    abandon(reopen(home, **known))
    assert caplog.text.count(said) == 1


def test_what_ends_before_its_start_begins_anew_there(home, caplog):
    """The start was checkpointed, and a crash lost what had been written up to it."""
    fill(home)
    log = reopen(home, log_start_offset=2 * COUNT + 5)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (2 * COUNT + 5, 2 * COUNT + 5, 1)
    assert f"{home} ends at offset {2 * COUNT}, before its start; it begins anew at {2 * COUNT + 5}" in caplog.text
    assert {path.stem for path in home.iterdir() if path.suffix in (".log", ".index", ".snapshot")} == {
        f"{2 * COUNT + 5:020d}"
    }
    assert log.producer_count == 0
    assert log.append_as_leader(batch_of(1), 3).first_offset == 2 * COUNT + 5
    log.close()
    assert reopen(home, log_start_offset=2 * COUNT + 5).log_end_offset == 2 * COUNT + 6


@pytest.mark.parametrize("seed", range(12))
def test_what_is_flushed_into_a_log_that_a_start_began_anew_outlives_a_power_cut(tmp_path, home, seed):
    """A follower goes on in the epoch that is known: nothing else would have the name of its segment on the disk."""
    log = open_log(home)
    log.append_as_leader(batch_of(1), 0)
    log.close()
    with FaultyFiles(home) as files:
        log = open_log(home, clean=False, log_start_offset=10)
        records = batch_of(2)
        patch_header(records, 0, 10, 0)
        log.append_as_follower(records)
        log.flush()
        point = log.recovery_point
    files.cut(tmp_path / "cut", seed)
    assert point == 11
    with_all = open_log(tmp_path / "cut", clean=False, recovery_point=point, log_start_offset=10)
    assert (with_all.log_end_offset, whole(with_all)) == (11, bytes(records))


def test_what_ends_before_its_start_forgets_its_producers(home):
    log = open_log(home)
    log.append_as_leader(transactional(7, 0), 1, AppendOrigin.COORDINATOR)
    log.roll()
    abandon(log)
    log = reopen(home, log_start_offset=5)
    assert (log.log_end_offset, log.producer_count, log.first_unstable_offset) == (5, 0, None)
    assert not list(home.glob("*.snapshot"))


def test_a_log_that_ends_at_its_start_stays(home):
    fill(home)
    log = reopen(home, log_start_offset=2 * COUNT)
    assert (log.log_start_offset, log.log_end_offset) == (2 * COUNT, 2 * COUNT)
    assert log.segment_count > 2


def test_an_empty_segment_that_the_one_before_it_reaches_beyond_goes(home, caplog):
    """A roll that the disk refused left it, and appending went on in the old one."""
    batches = fill(home)
    path = segment_path(home, 2 * COUNT - 1, ".log")
    path.touch()
    path.with_suffix(".index").touch()
    kept = [int(each.stem) for each in log_files(home)[:-1]]
    log = reopen(home)
    assert list(log._segments.bases) == kept
    assert f"{path} is removed: it is empty, and {log_files(home)[-1].name} reaches beyond it" in caplog.text
    assert not list(home.glob(f"{path.stem}*"))
    assert_holds(log, batches)


def test_a_batch_larger_than_a_block_of_the_scan_is_recovered(home):
    log = open_log(home, LARGE)
    log.append_as_leader(batch_of(1000, size=3 << 20), 1)
    log.append_as_leader(batch_of(1001), 1)
    expected = whole(log)
    abandon(log)
    again = open_log(home, LARGE, clean=False)
    assert (whole(again), again.log_end_offset) == (expected, 2)


def test_a_large_batch_that_is_torn_is_cut_off(home):
    log = open_log(home, LARGE)
    log.append_as_leader(batch_of(1000), 1)
    expected = whole(log)
    log.append_as_leader(batch_of(1001, size=3 << 20), 1)
    abandon(log)
    (path,) = log_files(home)
    os.truncate(path, path.stat().st_size - 1)
    again = open_log(home, LARGE, clean=False)
    assert (whole(again), again.log_end_offset) == (expected, 1)


def test_what_stands_behind_damage_and_cannot_be_kept_is_not_cut_off(home):
    batches = fill(home)
    first = log_files(home)[0]
    overwrite(first, len(batches[0]), b"\xff" * 61)
    before = first.read_bytes()
    kept = home / f"{first.name}.{len(batches[0])}.corrupt"
    kept.symlink_to("/dev/full")
    with pytest.raises(DiskFull, match=f"{first} is damaged, and the {len(before) - len(batches[0])} bytes behind"):
        reopen(home)
    assert first.read_bytes() == before
    assert not kept.is_symlink()
    assert reopen(home).log_end_offset == 2


def test_of_many_files_the_first_are_named():
    assert name_some(["a"]) == "a"
    assert name_some(["a", "b", "c"]) == "a, b, c"
    assert name_some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_a_torn_tail_is_said_to_be_one_and_not_kept(home, caplog):
    fill(home)
    with open(log_files(home)[-1], "ab") as file:
        file.write(b"\0" * 100)
    reopen(home).close()
    assert "torn tail: 100 bytes behind offset" in caplog.text
    assert ": 100 bytes that are no whole batch are gone" in caplog.messages[-1]
    assert not list(home.glob("*.corrupt"))


@pytest.mark.parametrize("is_just_below", [True, False])
def test_what_lies_below_the_recovery_point_is_not_read_again(home, is_just_below):
    batches = fill(home)
    first, second, *_ = log_files(home)
    overwrite(first, 90, b"?")  # a record, so only its CRC tells
    log = reopen(home, recovery_point=int(second.stem) if is_just_below else 2 * COUNT)
    assert log.log_end_offset == 2 * COUNT
    assert log.size == sum(map(len, batches))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "odd", "negative", "beyond the file", "not rising"])
def test_recovery_fixes_a_corrupt_index(home, clean, suffix, damage):
    batches = fill(home, close=clean)
    for path in home.glob(f"*{suffix}"):
        _damage(path, damage)
    log = reopen(home, clean=clean, recovery_point=2 * COUNT)
    assert_holds(log, batches)


def _damage(path, damage):
    entry = 8 if path.suffix == ".index" else 12
    match damage:
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "odd":
            path.write_bytes(b"\0" * (entry * 2 + 3))
        case "negative":
            path.write_bytes(b"\xff" * entry * 3)
        case "beyond the file":
            path.write_bytes(b"\x7f" * entry)
        case _:
            path.write_bytes((b"\0\0\0\1" * 3)[:entry] + (b"\0\0\0\0" * 3)[:entry])


def test_a_lost_index_is_made_again_and_not_done_without(home):
    fill(home, close=True)
    sizes = {path.name: path.stat().st_size for path in home.glob("*.index")}
    assert all(sizes.values())
    for path in home.glob("*.index"):
        path.unlink()
    reopen(home, clean=True).close()
    assert {path.name: path.stat().st_size for path in home.glob("*.index")} == sizes


def test_a_clean_log_is_not_read_to_be_opened(home):
    fill(home, close=True)
    overwrite(log_files(home)[0], 90, b"?")
    assert reopen(home, clean=True).log_end_offset == 2 * COUNT


def test_a_clean_log_that_is_torn_all_the_same_is_cut(home):
    batches = fill(home, close=True)
    path = log_files(home)[-1]
    os.truncate(path, path.stat().st_size - 1)
    log = reopen(home, clean=True)
    assert_holds(log, batches[:-1])


def test_a_roll_cut_short_leaves_an_empty_segment(home):
    batches = fill(home)
    segment_path(home, 2 * COUNT, ".log").touch()
    log = reopen(home)
    assert log.end == (2 * COUNT, 2 * COUNT, 0), "it begins where the one before it ends"
    assert_holds(log, batches)


def test_a_file_named_by_no_offset_is_refused_by_name(home):
    fill(home)
    (home / "backup.log").touch()
    with pytest.raises(LogError, match=r"backup\.log is not named by an offset"):
        reopen(home)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [b"garbage", b"0\n1\n", b"", None])
def test_epochs_that_cannot_be_read_are_found_again_in_the_batches(home, caplog, clean, content):
    log = open_log(home, SETTINGS)
    for epoch in (3, 3, 5):
        log.append_as_leader(batch_of(1, 2), epoch)
    known = log.epochs.entries
    log.close()
    path = home / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    assert reopen(home, clean=clean).epochs.entries == known == ((3, 0), (5, 4))
    said = [line for line in caplog.messages if line.endswith("; the epochs are taken from the batches instead")]
    assert [str(path) in line for line in said] == ([True] if content else [])


@pytest.mark.parametrize(
    ("cleaned", "later", "known", "found"),
    [
        ((1, 1, 3, 3, 5), (), ((3, 2), (5, 3)), ((3, 2), (5, 3))),
        ((1, 1, 3, 3), (), ((3, 2),), ((3, 2),)),
        ((5, 5, 5, 5, 5), (), ((5, 5),), ((5, 4),)),
        ((1, 1, 1, 1, 1), (1, 3), ((1, 5), (3, 6)), ((1, 4), (3, 6))),
        ((1, 1, 1, 1, 1), (1, 1, 3), ((1, 5), (3, 6)), ((1, 4), (3, 6))),
        ((1, 1, 3), (4, 6), ((4, 3), (6, 4)), ((3, 2), (4, 3), (6, 4))),
        ((1, 1, 3), (), (), ((3, 2),)),
    ],
    ids=[
        "they begin earlier",
        "the first does",
        "at the end",
        "cut to a later start",
        "the next stay",
        "one was cut away",
        "all were",
    ],
)
def test_a_crash_moves_no_epoch_of_a_compacted_log(home, cleaned, later, known, found):
    """A cleaning left the last of the first records: in the batches an epoch may begin later than it is known to.

    The epochs may also have been cut to a start of the log that a crash has taken back: these are found again.
    """
    log = open_log(home, {**SETTINGS, "cleanup.policy": "compact"})
    for epoch in cleaned:
        log.append_as_leader(batch_of(1, key=b"k"), epoch)
    log.roll()
    *_, last = log._segments.first.log.batches()
    write_cleaned(home, 0, [bytes(log._segments.first.log.read(last.position, last.size))], log.config)
    log.replace_segments([0], [0])
    for epoch in later:
        log.append_as_leader(batch_of(1, key=b"l"), epoch)
    log.flush()
    abandon(log)
    lines = (f"{epoch} {start}\n" for epoch, start in known)
    (home / "leader-epoch-checkpoint").write_text(f"0\n{len(known)}\n{''.join(lines)}")
    assert reopen(home).epochs.entries == found


@pytest.mark.parametrize(("clean", "found"), [(True, ((1, 20),)), (False, ((1, 0),))])
def test_epochs_that_begin_behind_the_start_are_believed_after_a_clean_stop(home, clean, found):
    fill(home, close=True)
    (home / "leader-epoch-checkpoint").write_text("0\n1\n1 20\n")
    assert reopen(home, clean=clean).epochs.entries == found


def test_a_crash_before_the_first_epoch_was_written_does_not_lose_it(home):
    fill(home)
    (home / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert reopen(home).epochs.entries == ((1, 0),)


def test_batches_that_bear_no_epoch_have_none(home):
    log = open_log(home)
    records = batch_of(1)
    patch_header(records, 0, 0, -1)
    log.append_as_follower(records)
    log.close()
    (home / "leader-epoch-checkpoint").unlink(missing_ok=True)
    log = reopen(home)
    assert (log.log_end_offset, log.epochs.entries) == (1, ())


def test_epochs_beyond_the_end_are_forgotten(home):
    batches = fill(home)
    (home / "leader-epoch-checkpoint").write_text(f"0\n2\n1 0\n3 {2 * COUNT - 2}\n")
    path = log_files(home)[-1]
    os.truncate(path, path.stat().st_size - len(batches[-1]))
    log = reopen(home)
    assert log.epochs.latest == (1, 0)
    assert (home / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"


@settings(deadline=None, max_examples=settings().max_examples)
@given(damage=st.lists(st.tuples(st.integers(0, 6000), st.integers(1, 255)), min_size=1, max_size=4), data=st.data())
def test_whatever_is_damaged_a_good_prefix_is_kept(tmp_path_factory, damage, data):
    home = tmp_path_factory.mktemp("log") / "t-0"
    batches = fill(home)
    files = sorted(path for path in home.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".snapshot"))
    for position, flip in damage:
        path = data.draw(st.sampled_from(files), label="file")
        content = path.read_bytes()
        if content:
            position %= len(content)
            overwrite(path, position, bytes([content[position] ^ flip]))
    log = reopen(home)
    kept = list(iter_batches(whole(log), partial_tail=False))
    for number, batch in enumerate(kept):
        batch.validate()
        # Base offset and leader epoch lie outside the CRC; all else is as it was.
        assert bytes(batch.buffer)[16:] == batches[number][16:]
    offsets = [batch.base_offset for batch in kept]
    assert offsets == sorted(set(offsets))
    assert log.append_as_leader(batch_of(1), 1).first_offset == log.log_end_offset - 1
    log.close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_bad", [True, False])
def test_indexes_of_few_entries_are_made_anew_by_a_start_that_believes_them(home, is_clean, is_bad):
    settings = {"index.interval.bytes": "100000"}
    log = open_log(home, settings)
    for _ in range(2):
        for _ in range(300):
            log.append_as_leader(batch_of(), 0)
        log.roll()
    log.close()
    for path in (*home.glob("*.index"), *home.glob("*.timeindex")):
        os.truncate(path, 0)
    if is_bad:
        path = home / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[100 * len(batch_of()) + layout.MAGIC] ^= 1
        path.write_bytes(data)
    log = open_log(home, settings, clean=is_clean, recovery_point=600)
    assert log.log_end_offset == 600
    assert [segment.offset_index.entries > 3 for segment in log._segments] == [not is_bad, True, False]
    assert is_bad or not any(segment.awaits_index_flush for segment in log._segments)


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_a_snapshot_says_beyond_what_a_crash_has_left_is_forgotten(home, is_clean):
    """It may know of batches that are lost: the log goes on from there with others."""
    fill(home)
    snapshot = segment_path(home, 2 * COUNT, ".snapshot")
    snapshot.write_bytes(encode_snapshot([ProducerEntry(7, 0)]))
    for path in home.glob("*.index"):
        path.unlink()
    log = reopen(home, clean=is_clean)
    assert snapshot.exists() is is_clean
    assert log.producer_count == 0
    abandon(log)


STRANGE = {
    "a pipe": os.mkfifo,
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}
OPENED = (*(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")), "partition.metadata")


@pytest.mark.parametrize("name", [*OPENED, "leader-epoch-checkpoint"])
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_what_is_no_file_is_never_opened(home, strange, name):
    """A pipe is waited for without an end, and the rest looks like a broken disk."""
    fill(home, close=True)
    (home / name).unlink(missing_ok=True)
    strange(home / name)
    with pytest.raises(LogError, match=f"{home / name} is no file, or a link to nothing; move it away") as caught:
        reopen(home)
    assert not isinstance(caught.value, LogDirFailed)


def test_a_link_to_another_disk_is_followed_and_one_to_nothing_told_of(home, tmp_path):
    batches = fill(home, close=True)
    elsewhere = home.rename(tmp_path / "elsewhere")
    home.symlink_to(elsewhere)
    assert_holds(reopen(home), batches)
    elsewhere.rename(tmp_path / "away")
    with pytest.raises(LogError, match=f"{home} is a link to nothing: mount what it leads to, or move it away"):
        Log(home, TP, TopicConfig(), ManualClock(), lambda work: work())
