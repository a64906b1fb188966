"""What the check of one segment says of it: the facts its neighbours are held against, and what is wrong, where."""

import struct

import crc32c
import pytest
from log.samples import batch_of, in_a_row, marker_of, transactional

from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.inspection.findings import DAMAGE, RECOVERS, RESTORE, WAIT, Severity
from sparklog.log.inspection.segment_check import check_segment
from sparklog.log.inspection.segment_facts import MOST_FINDINGS, EpochRun, SegmentJob, TransactionEvent
from sparklog.record import layout
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType

CUT_SHORT = bytes(batch_of())[:-1]


def checked(directory, *batches, base=0, limit=None, in_use=False, records=False, index=b"", times=b""):
    """The facts of a segment of these bytes."""
    for suffix, content in ((".log", b"".join(batches)), (".index", index), (".timeindex", times)):
        (directory / f"{base:020d}{suffix}").write_bytes(content)
    return check_segment(SegmentJob(directory, base, limit, in_use, records))


def said(facts):
    """What is wrong with the ``.log`` file, and where: its position and the offset."""
    assert all(each.severity is Severity.ERROR for each in facts.findings if each.path == facts.path)
    return [(each.what, each.position, each.offset) for each in facts.findings if each.path == facts.path]


def changed(batch, *fields):
    """The batch with other fields in its header, and the CRC that these have: (form, place, value) of each."""
    data = bytearray(batch)
    for form, place, value in fields:
        form.pack_into(data, place, value)
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(data[layout.ATTRIBUTES :]))
    return bytes(data)


def counting(batch, count):
    return changed(batch, (layout.INT32, layout.RECORD_COUNT, count))


def of_epoch(batch, epoch):
    return changed(batch, (layout.INT32, layout.PARTITION_LEADER_EPOCH, epoch))


def corrupted(batch):
    """It has the CRC of other bytes."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


# Facts


def test_what_a_sound_segment_holds(tmp_path):
    one, two = in_a_row([batch_of(1, 2), batch_of(3)], 5)
    facts = checked(tmp_path, one, two, base=5)
    assert facts.findings == []
    assert (facts.size, facts.batches, facts.records) == (len(one + two), 2, 3)
    assert (facts.first_offset, facts.next_offset, facts.gaps) == (5, 8, 0)
    assert (facts.is_whole, facts.is_compacted, facts.is_old, facts.damaged_at) == (True, False, False, None)


def test_an_empty_segment_ends_where_it_begins(tmp_path):
    facts = checked(tmp_path, base=5)
    assert (facts.first_offset, facts.next_offset, facts.epochs, facts.findings) == (None, 5, [], [])


def test_each_epoch_has_its_offsets_and_the_place_of_its_first_batch(tmp_path):
    batches = in_a_row([batch_of(1, 2)] * 3, 5)
    facts = checked(tmp_path, *map(of_epoch, batches, (0, 0, 3)), base=5)
    assert facts.epochs == [EpochRun(0, 5, 8, 0), EpochRun(3, 9, 10, 2 * len(batches[0]))]
    assert facts.findings == []


def test_an_epoch_that_falls_is_said_with_its_place(tmp_path):
    batches = in_a_row([batch_of(1, 2)] * 3)
    facts = checked(tmp_path, *map(of_epoch, batches, (3, 2, 4)))
    assert said(facts) == [("the leader epoch falls from 3 to 2", len(batches[0]), 2)]
    assert facts.findings[0].advice == RESTORE
    assert [run.epoch for run in facts.epochs] == [3, 2, 4]


def test_places_where_offsets_lack_are_counted(tmp_path):
    batches = [*in_a_row([batch_of(1), batch_of(1)]), *in_a_row([batch_of(1)], 5), *in_a_row([batch_of(1)], 9)]
    facts = checked(tmp_path, *batches)
    assert (facts.gaps, facts.first_offset, facts.next_offset, facts.findings) == (2, 0, 10, [])


def test_a_segment_whose_first_records_were_cleaned_away_begins_later_than_its_name_says(tmp_path):
    facts = checked(tmp_path, *in_a_row([batch_of(1)], 3))
    assert (facts.first_offset, facts.gaps, facts.next_offset) == (3, 0, 4)


def test_a_batch_that_lacks_records_tells_of_a_compaction(tmp_path):
    two, three = in_a_row([batch_of(1, 2), batch_of(1, 2, 3)])
    assert not checked(tmp_path, two, three).is_compacted
    for count in (0, 1):
        facts = checked(tmp_path, counting(two, count), three)
        assert (facts.is_compacted, facts.records, facts.findings) == (True, count + 3, [])


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker(tmp_path):
    abort = marker_of(1, ControlType.ABORT)
    batches = transactional(1, 0, 2), transactional(1, 2), transactional(2, 0), batch_of(1), abort, transactional(1, 3)
    facts = checked(tmp_path, *in_a_row(batches))
    assert facts.events == [
        TransactionEvent(1, 0, None),
        TransactionEvent(2, 3, None),
        TransactionEvent(1, 5, ControlType.ABORT),
        TransactionEvent(1, 6, None),
    ]
    assert facts.findings == []


def test_what_a_compaction_has_left_of_a_transaction_is_no_event_and_no_damage(tmp_path):
    batches = in_a_row([transactional(1, 0), marker_of(1, ControlType.ABORT)])
    facts = checked(tmp_path, *(counting(each, 0) for each in batches), records=True)
    assert (facts.events, facts.findings) == ([], [])


def test_a_control_batch_outside_of_transactions_is_no_marker(tmp_path):
    builder = RecordBatchBuilder(is_control=True)
    builder.append(1, b"k", b"v")
    facts = checked(tmp_path, builder.build(), records=True)
    assert (facts.events, facts.findings) == ([], [])


# What is wrong with a batch


@pytest.mark.parametrize("count", [-1, 3, 7])
def test_a_batch_of_more_records_than_offsets_or_of_fewer_than_none_is_damage(tmp_path, count):
    first, second, third = in_a_row([batch_of(1, 2)] * 3)
    facts = checked(tmp_path, first, counting(second, count), third)
    assert said(facts) == [(f"a batch claims {count} records and a last offset delta of 1", len(first), 2)]
    assert (facts.batches, facts.records, facts.next_offset) == (2, 4, 6)
    assert (facts.is_whole, facts.damaged_at, facts.records_before_damage) == (False, 2, 2)
    assert facts.findings[0].advice == DAMAGE


def test_a_wrong_crc_is_said_with_both(tmp_path):
    first, second, third = in_a_row([batch_of(1, 2)] * 3)
    bad = corrupted(second)
    claimed, computed = (crc32c.crc32c(each[layout.ATTRIBUTES :]) for each in (second, bad))
    facts = checked(tmp_path, first, bad, third)
    what = f"a batch of {len(bad)} bytes has CRC {claimed}, its bytes have {computed}"
    assert said(facts) == [(what, len(first), 2)]
    assert (facts.damaged_at, facts.records_before_damage, facts.gaps) == (2, 2, 0)


def test_the_offsets_of_a_bad_batch_are_believed_if_they_may_be_true(tmp_path):
    first, last = in_a_row([batch_of(1, 2)] * 2)
    assert checked(tmp_path, first, corrupted(last)).next_offset == 4
    for form, place, value in (
        (layout.INT32, layout.LAST_OFFSET_DELTA, len(last)),
        (layout.INT32, layout.LAST_OFFSET_DELTA, -1),
        (layout.INT64, layout.BASE_OFFSET, 3),
    ):
        absurd = bytearray(corrupted(last))
        form.pack_into(absurd, place, value)
        assert checked(tmp_path, first, absurd).next_offset == 2


def test_the_first_damage_is_the_one_at_which_a_start_cuts(tmp_path):
    batches = in_a_row([batch_of(1, 2)] * 5)
    facts = checked(tmp_path, batches[0], corrupted(batches[1]), batches[2], corrupted(batches[3]), batches[4])
    assert [offset for _, _, offset in said(facts)] == [2, 6]
    assert (facts.damaged_at, facts.records_before_damage, facts.records) == (2, 2, 6)


def test_offsets_that_lack_behind_damage_are_its_fault_and_no_gap(tmp_path):
    batches = [*in_a_row([batch_of(1)] * 2), *in_a_row([batch_of(1)], 6), *in_a_row([batch_of(1)], 9)]
    facts = checked(tmp_path, batches[0], corrupted(batches[1]), *batches[2:])
    assert (len(said(facts)), facts.gaps) == (1, 1)


def test_a_batch_that_begins_before_its_turn_is_damage(tmp_path):
    first, second = in_a_row([batch_of(1, 2)] * 2)
    facts = checked(tmp_path, first, first, second)
    assert said(facts) == [("a batch begins at offset 0, but 2 or more is due", len(first), 0)]
    assert (facts.is_whole, facts.damaged_at, facts.next_offset, facts.batches) == (False, 2, 4, 3)
    assert facts.findings[0].advice == DAMAGE


def test_a_segment_ends_before_the_next_begins(tmp_path):
    batch, another = in_a_row([batch_of(1, 2), batch_of(1, 2)], 10)
    assert checked(tmp_path, batch, base=10, limit=12).findings == []
    facts = checked(tmp_path, batch, another, base=10, limit=13)
    assert said(facts) == [("a batch ends at offset 13, but the segment must end before 13", len(batch), 12)]
    assert (facts.is_whole, facts.damaged_at) == (False, 12)


def test_no_batch_lies_so_far_behind_the_start_that_an_index_could_not_name_it(tmp_path):
    last, beyond = in_a_row([batch_of(1), batch_of(1)], 7 + layout.MAX_INT32)
    assert checked(tmp_path, last, base=7).findings == []
    limit = 7 + layout.MAX_INT32 + 1
    what = f"a batch ends at offset {limit}, but the segment must end before {limit}"
    assert said(checked(tmp_path, last, beyond, base=7)) == [(what, len(last), limit)]


def test_a_marker_that_is_none_is_said_with_its_place(tmp_path):
    builder = RecordBatchBuilder(is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    builder.append(1, b"k", b"v")
    first, second = in_a_row([batch_of(1), builder.build()])
    facts = checked(tmp_path, first, second)
    assert said(facts) == [("control record is too short for an end-of-transaction marker", len(first), 1)]
    assert (facts.findings[0].advice, facts.is_whole, facts.events) == (RESTORE, True, [])


def test_records_beyond_the_offsets_of_their_batch_are_found_on_request(tmp_path):
    first, both = in_a_row([batch_of(1), batch_of(1, 1)])
    half = (len(both) - layout.HEADER_SIZE) // 2
    data = bytearray(both[: layout.HEADER_SIZE] + both[layout.HEADER_SIZE + half :])  # the second record alone
    layout.INT32.pack_into(data, layout.LENGTH, len(data) - layout.LOG_OVERHEAD)
    odd = counting(changed(data, (layout.INT32, layout.LAST_OFFSET_DELTA, 0)), 1)
    assert checked(tmp_path, first, odd).findings == []
    facts = checked(tmp_path, first, odd, records=True)
    ((what, position, offset),) = said(facts)
    assert what.startswith("a batch's CRC is right but its records are not: ")
    assert (position, offset, facts.findings[0].advice) == (len(first), 1, RESTORE)


def test_of_many_findings_the_first_are_said_and_the_others_counted(tmp_path):
    batches = in_a_row([batch_of(1)] * (MOST_FINDINGS + 5))
    assert len(said(checked(tmp_path, *map(corrupted, batches[:MOST_FINDINGS])))) == MOST_FINDINGS
    found = said(checked(tmp_path, *map(corrupted, batches)))
    assert [offset for _, _, offset in found] == [*range(MOST_FINDINGS), None]
    assert found[-1][0] == "5 more findings in this segment"


# What is no batch


@pytest.mark.parametrize(
    ("tail", "kind", "prefix"),
    [
        (CUT_SHORT, "a batch that is cut short", "torn tail: "),
        (b"\0", "a batch that is cut short", "torn tail: "),
        (bytes(layout.HEADER_SIZE), "zeros only", ""),
        (b"?" * layout.HEADER_SIZE, "no batch header", ""),
    ],
    ids=["cut", "one byte", "zeros", "garbage"],
)
@pytest.mark.parametrize("limit", [None, 9])
def test_the_end_of_a_file_that_is_no_batch_is_damage(tmp_path, tail, kind, prefix, limit):
    (first,) = in_a_row([batch_of(1, 2)])
    facts = checked(tmp_path, first, tail, limit=limit)
    what = f"{prefix}the last {len(tail)} bytes are {kind}: {tail[:32].hex(' ', 4)}"
    assert said(facts) == [(what, len(first), 2)]
    assert facts.findings[0].advice == (RECOVERS if limit is None else DAMAGE)
    assert (facts.is_whole, facts.damaged_at, facts.records_before_damage, facts.next_offset) == (False, 2, 2, 2)


@pytest.mark.parametrize("tail", [CUT_SHORT, bytes(100)], ids=["cut", "zeros"])
def test_what_a_broker_is_just_writing_at_the_end_of_the_log_is_no_damage(tmp_path, tail):
    (first,) = in_a_row([batch_of(1, 2)])
    (found,) = checked(tmp_path, first, tail, in_use=True).findings
    assert (found.severity, found.advice, found.position, found.offset) == (Severity.NOTE, WAIT, len(first), 2)
    assert found.what.endswith(": being written")
    assert len(said(checked(tmp_path, first, tail, in_use=True, limit=9))) == 1, "in the middle nothing is written"


def test_no_broker_writes_what_is_no_header(tmp_path):
    facts = checked(tmp_path, *in_a_row([batch_of(1, 2)]), b"?" * 100, in_use=True)
    assert len(said(facts)) == 1


def test_the_check_goes_on_with_the_next_batch_that_is_good_and_not_from_before(tmp_path):
    first, second = in_a_row([batch_of(1, 2)] * 2)
    facts = checked(tmp_path, first, b"?" * 100, first, second)
    resume = 2 * len(first) + 100
    assert said(facts) == [
        (f"{resume - len(first)} bytes are not batches; good ones follow at position {resume}", len(first), 2)
    ]
    assert (facts.batches, facts.records, facts.next_offset) == (2, 4, 4)
    assert facts.findings[0].advice == DAMAGE


def test_of_the_places_that_the_index_names_behind_damage_the_first_good_one_is_taken(tmp_path):
    """Though it does not name the first good batch: that saves a search through the file."""
    first, second, third = in_a_row([batch_of(1, 2)] * 3)
    garbage = b"?" * 100
    in_garbage, at_third = len(first) + 50, len(first) + 100 + len(second)
    index = b"".join(OffsetIndex.FORM.pack(*each) for each in ((1, 0), (3, in_garbage), (5, at_third)))
    facts = checked(tmp_path, first, garbage, second, third, index=index)
    assert [(position, offset) for _, position, offset in said(facts)] == [(len(first), 2)]
    assert f"good ones follow at position {at_third}" in said(facts)[0][0]
    assert [each for each in facts.findings if each.path != facts.path] == [], (
        "what pointed there is not the index's fault"
    )


# Indexes


def test_a_time_index_is_held_against_all_batches_before(tmp_path):
    batches = in_a_row([batch_of(50), batch_of(45)])
    facts = checked(tmp_path, *batches, times=TimeIndex.FORM.pack(45, 1))
    (found,) = facts.findings
    assert found.what == "entry 0 says 45 up to offset 1, but a batch before is at 50"
    assert found.path.suffix == ".timeindex"


def test_an_offset_index_is_held_against_the_place_of_each_batch(tmp_path):
    batches = in_a_row([batch_of(50), batch_of(45), batch_of(45)])
    size = len(batches[0])
    for entries, is_right in ((((1, size), (2, 2 * size)), True), (((1, size + 1),), False), (((0, size),), False)):
        index = b"".join(OffsetIndex.FORM.pack(*each) for each in entries)
        assert (checked(tmp_path, *batches, index=index).findings == []) == is_right


def test_what_the_indexes_say_behind_damage_is_not_said_against_them(tmp_path):
    batches = in_a_row([batch_of(10), batch_of(20), batch_of(30)])
    times = struct.pack(">qiqi", 10, 0, 77, 2)
    assert len(checked(tmp_path, *batches, times=times).findings) == 1
    facts = checked(tmp_path, batches[0], corrupted(batches[1]), batches[2], times=times)
    assert [each.path for each in facts.findings] == [facts.path]
    index = OffsetIndex.FORM.pack(1, len(batches[0]))
    assert len(checked(tmp_path, batches[0], corrupted(batches[1]), batches[2], index=index).findings) == 1


@pytest.mark.parametrize(
    ("limit", "in_use", "is_told"), [(9, False, True), (None, False, False), (9, True, False), (None, True, False)]
)
def test_room_in_an_index_that_takes_no_more_entries_tells_of_a_kill(tmp_path, limit, in_use, is_told):
    facts = checked(tmp_path, *in_a_row([batch_of(1)]), limit=limit, in_use=in_use, index=bytes(16))
    told = [(each.severity, each.path.suffix, each.what) for each in facts.findings]
    what = "2 unused entries at the end, left by a broker that was killed"
    assert told == ([(Severity.NOTE, ".index", what)] if is_told else [])


def test_an_index_that_is_missing_is_noted(tmp_path):
    checked(tmp_path, *in_a_row([batch_of(1)]))
    for suffix in (".index", ".timeindex"):
        (tmp_path / f"{0:020d}{suffix}").unlink()
    facts = check_segment(SegmentJob(tmp_path, 0, None, False, False))
    assert [(each.severity, each.path.suffix, each.what) for each in facts.findings] == [
        (Severity.NOTE, suffix, "the index is missing") for suffix in (".index", ".timeindex")
    ]
    assert (facts.is_whole, facts.records) == (True, 1)


@pytest.mark.parametrize("in_use", [True, False])
def test_a_segment_that_is_gone_is_the_work_of_its_broker_if_one_is_at_work(tmp_path, in_use):
    facts = check_segment(SegmentJob(tmp_path, 0, None, in_use, False))
    (found,) = facts.findings
    what = "gone since the check began" if in_use else "cannot be read: No such file or directory"
    assert (found.path, found.what, found.is_problem) == (tmp_path / f"{0:020d}.log", what, not in_use)
    assert not facts.is_whole


def test_a_file_that_cannot_be_read_is_an_error_whether_or_not_a_broker_is_at_work(tmp_path):
    checked(tmp_path, *in_a_row([batch_of(1)]))
    path = tmp_path / f"{0:020d}.index"
    path.unlink()
    path.symlink_to(path)
    for in_use in (True, False):
        (found,) = check_segment(SegmentJob(tmp_path, 0, None, in_use, False)).findings
        assert (found.path, found.severity, found.what.partition(":")[0]) == (path, Severity.ERROR, "cannot be read")
