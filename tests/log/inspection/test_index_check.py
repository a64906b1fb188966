"""Which entries of an index are right for the batches of its segment, and what is said of one that is not."""

from pathlib import Path

import pytest
from log.samples import batch_of, in_a_row

from sparklog.log.inspection.findings import AHEAD, REBUILT
from sparklog.log.inspection.index_check import IndexFile, OffsetIndexCheck, TimeIndexCheck
from sparklog.record.batch import RecordBatch

PATH, BASE, LOG_SIZE = Path("/x.index"), 100, 300
BATCHES = ((0, 104), (100, 109), (200, 114))
"""Position and last offset of each."""


def offset_index(*entries, odd_bytes=0):
    """A check of these entries: (offset relative to the base, position)."""
    return OffsetIndexCheck(IndexFile(PATH, list(entries), 0, odd_bytes), BASE, LOG_SIZE)


def said(check):
    found = check.findings()
    assert all(each.path == PATH and each.is_problem for each in found)
    return [each.what for each in found]


def shown(check, batches=BATCHES):
    """The check, shown these batches."""
    for position, last_offset in batches:
        check.batch(position, last_offset)
    return check


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [(4, 0)],
        [(9, 100)],
        [(9, 100), (14, 200)],
        [(4, 0), (9, 100), (14, 200)],
        [(14, 100)],  # several batches were appended at once
        [(9, 0), (14, 200)],
    ],
)
def test_an_entry_is_right_where_a_batch_begins_and_names_the_last_offset_of_it_or_of_a_later_one(entries):
    assert said(shown(offset_index(*entries))) == []


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([(9, 101)], "points to position 101 for offset 109, which is behind that offset (position 100)"),
        ([(9, 99)], "points to position 99 for offset 109, which is in no batch's first byte"),
        ([(14, 201)], "points to position 201 for offset 114, which is behind that offset (position 200)"),
        ([(4, 100)], "points to position 100 for offset 104, which is behind that offset (position 0)"),
        ([(8, 100)], "names offset 108, which is not the last of a batch (109 is)"),
        ([(5, 100)], "names offset 105, which is not the last of a batch (109 is)"),
        ([(12, 100)], "names offset 112, which is not the last of a batch (114 is)"),
        ([(-1, 0)], "(offset 99, position 0) does not rise"),
        ([(4, -1)], "(offset 104, position -1) does not rise"),
    ],
)
def test_a_wrong_entry_of_an_offset_index_is_named_with_what_is_there(entries, what):
    assert said(shown(offset_index(*entries))) == [f"entry 0 {what}"]


@pytest.mark.parametrize("second", [(9, 200), (8, 200), (14, 100), (14, 99)])
def test_offsets_and_positions_both_rise(second):
    text = f"offset {BASE + second[0]}, position {second[1]}"
    assert said(shown(offset_index((9, 100), second))) == [f"entry 1 ({text}) does not rise"]


def test_an_entry_that_does_not_rise_is_not_what_the_next_is_held_against():
    assert said(shown(offset_index((9, 100), (30, 50), (14, 200)))) == [
        "entry 1 (offset 130, position 50) does not rise"
    ]


@pytest.mark.parametrize("entry", [(14, 300), (15, 299)])
def test_what_the_log_does_not_reach_is_ahead_of_it(entry):
    (found,) = shown(offset_index((9, 100), entry)).findings()
    where = f"offset {BASE + entry[0]}, position {entry[1]}"
    assert (found.what, found.advice) == (f"entry 1 ({where}) lies beyond the end of the log", AHEAD)


def test_of_wrong_entries_the_first_of_each_kind_is_said_with_how_many_more_there_are():
    check = shown(offset_index((3, 0), (8, 100), (13, 200), (20, 300), (21, 400), odd_bytes=5))
    assert [(each.what, each.advice) for each in check.findings()] == [
        ("the file ends in the middle of an entry (5 bytes too many)", REBUILT),
        ("entry 3 (offset 120, position 300) lies beyond the end of the log; 1 more entries are wrong", AHEAD),
        ("entry 0 names offset 103, which is not the last of a batch (104 is); 2 more entries are wrong", REBUILT),
    ]


def test_a_batch_that_no_entry_waits_for_need_not_be_told():
    check = offset_index((9, 100), (14, 200))
    assert (check.due_position, check.due_offset) == (100, 109)
    check.batch(100, 108)
    assert check.due_position > LOG_SIZE, "it has been reached; only its offset is waited for"
    assert check.due_offset == 109
    check.batch(150, 109)
    assert (check.due_position, check.due_offset) == (200, 114)


def test_damage_in_the_log_is_not_the_fault_of_its_index():
    given_up = offset_index((3, 0), (8, 100), (13, 200))
    given_up.batch(0, 104)
    given_up.give_up()
    assert said(shown(given_up, BATCHES[1:])) == [
        "entry 0 names offset 103, which is not the last of a batch (104 is)"
    ], "what was said before stays said"
    skipped = offset_index((4, 0), (9, 100), (14, 200))
    skipped.batch(0, 104)
    skipped.skip_to(200)
    assert (skipped.due_position, skipped.due_offset) == (200, 114)
    assert said(shown(skipped, BATCHES[2:])) == []
    reached = offset_index((14, 100), (20, 200))
    reached.batch(100, 109)
    reached.skip_to(100)
    assert reached.due_position == 200, "the batches up to the offset of the first may be lost"


def test_it_is_known_where_batches_should_begin_behind_a_place():
    check = offset_index((4, 0), (9, 100), (14, 200))
    assert check.positions_beyond(-1) == [0, 100, 200]
    assert check.positions_beyond(100) == [200]
    check.batch(0, 104)
    assert check.positions_beyond(-1) == [100, 200]


def test_without_an_index_there_is_nothing_to_say():
    check = OffsetIndexCheck(None, BASE, LOG_SIZE)
    assert (check.findings(), check.positions_beyond(-1)) == ([], [])
    assert min(check.due_position, check.due_offset) > 1 << 60


# The time index


@pytest.fixture
def batches():
    """Offsets 100 to 102, 103 to 104, 105 to 107, of which the middle one is the latest."""
    return [
        RecordBatch(data) for data in in_a_row([batch_of(10, 30, 20), batch_of(50, 40), batch_of(35, 35, 45)], BASE)
    ]


def timed(batches, *entries):
    """What is said of these entries: (timestamp, offset relative to the base)."""
    check, latest = TimeIndexCheck(IndexFile(PATH, list(entries), 0, 0), BASE, LOG_SIZE), -1
    for batch in batches:
        check.batch(batch, latest)
        latest = max(latest, batch.max_timestamp)
    return said(check)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [(30, 2)],
        [(30, 2), (50, 4)],
        [(50, 4)],
        [(30, 1)],  # older Kafkas named the very record
        [(30, 1), (50, 3)],
    ],
)
def test_a_time_is_right_with_the_batch_that_is_the_latest_up_to_there(batches, entries):
    assert timed(batches, *entries) == []


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ((29, 2), "says 29 at offset 102, but the batch there is at 30"),
        ((31, 2), "says 31 at offset 102, but the batch there is at 30"),
        ((50, 3), None),
        ((30, 0), "names offset 100, which is not the last of a batch (102 is)"),
        ((45, 7), "says 45 up to offset 107, but a batch before is at 50"),
        ((51, 8), "(timestamp 51, offset 108) lies beyond the end of the log"),
        ((-1, 2), "(timestamp -1, offset 102) does not rise"),
        ((30, -1), "(timestamp 30, offset 99) does not rise"),
    ],
)
def test_a_wrong_entry_of_a_time_index_is_named_with_what_is_there(batches, entry, what):
    assert timed(batches, entry) == ([] if what is None else [f"entry 0 {what}"])


@pytest.mark.parametrize("second", [(30, 4), (29, 4), (50, 2), (50, 1)])
def test_times_and_offsets_both_rise(batches, second):
    text = f"timestamp {second[0]}, offset {BASE + second[1]}"
    assert timed(batches, (30, 2), second) == [f"entry 1 ({text}) does not rise"]


def test_an_offset_in_a_hole_is_in_no_batch():
    first, second = (RecordBatch(data) for data in (*in_a_row([batch_of(10)], BASE), *in_a_row([batch_of(20)], 105)))
    assert timed([first, second], (20, 3)) == ["entry 0 names offset 103, which is in no batch"]


def test_of_two_batches_that_are_equally_late_either_may_be_named():
    both = [RecordBatch(data) for data in in_a_row([batch_of(30), batch_of(30)], BASE)]
    assert timed(both, (30, 0)) == timed(both, (30, 1)) == []


def test_times_behind_damage_are_not_the_fault_of_their_index(batches):
    check = TimeIndexCheck(IndexFile(PATH, [(29, 2), (77, 4)], 0, 0), BASE, LOG_SIZE)
    check.batch(batches[0], -1)
    check.give_up()
    check.batch(batches[1], 30)
    assert said(check) == ["entry 0 says 29 at offset 102, but the batch there is at 30"]
