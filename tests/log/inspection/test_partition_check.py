"""What is said of a partition: its segments against one another, its small files and the checkpoints against both."""

from uuid import UUID

import pytest

from sparklog.log.checkpoints import write_topic_id
from sparklog.log.inspection.findings import AHEAD, DAMAGE, RESTORE, Severity, error
from sparklog.log.inspection.partition_check import PartitionCheck, PartitionContext
from sparklog.log.inspection.partition_files import PartitionFiles
from sparklog.log.inspection.segment_facts import EpochRun, SegmentFacts, SegmentJob, TransactionEvent
from sparklog.log.producer_snapshot import BatchMetadata, ProducerEntry, encode_snapshot
from sparklog.record.control import ControlType
from sparklog.structs import uuid_to_text

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
ID = UUID(int=7)
CLEAN = {"was_stopped_cleanly": True}


@pytest.fixture
def home(tmp_path):
    """A partition's directory."""
    (tmp_path / "t-0").mkdir()
    return tmp_path / "t-0"


def segment(home, base, end, limit=None, **facts):
    """A segment that ends before ``end``; the next begins at ``limit``."""
    facts.setdefault("first_offset", base)
    return SegmentFacts(SegmentJob(home, base, limit, False, False), home / f"{base}.log", end, **facts)


def found_in(home, *segments, snapshots=None, **context):
    check = PartitionCheck(PartitionFiles(home, snapshots=snapshots or {}), PartitionContext(**context))
    return list(check.run(segments))


def said(home, *segments, **how):
    """What was found, as (severity, name, what)."""
    return [(each.severity, each.path.name, each.what) for each in found_in(home, *segments, **how)]


def test_of_a_sound_partition_nothing_is_said(home):
    segments = segment(home, 0, 10, 10), segment(home, 10, 20)
    assert said(home, *segments, **CLEAN, recovery_point=20, high_watermark=20, log_start_offset=0) == []
    assert said(home) == []


# What a start makes of damage


def damaged(home, base, end, limit=None, at=None, **facts):
    """A segment with a bad batch at position 50, before which stand two good records."""
    at = base if at is None else at
    facts = {"size": 100, "records": 5, "records_before_damage": 2, "is_whole": False, "damaged_at": at, **facts}
    found = segment(home, base, end, limit, **facts)
    found.report(error(found.path, "bad", DAMAGE, 50, at))
    return found


def advice_of(home, *segments, **context):
    return [each.advice for each in found_in(home, *segments, **context) if each.what == "bad"]


def test_a_start_after_a_crash_cuts_at_the_first_damage_and_keeps_what_stands_behind_it(home):
    segments = (
        damaged(home, 0, 10, 10, at=4),
        damaged(home, 10, 20, 20, size=70, records=3),
        segment(home, 20, 20, size=0),
    )
    first, second = advice_of(home, *segments)
    assert "so the start cuts the log at offset 4. The good records behind the damage, 6, go with it; " in first
    assert first.endswith("the 120 bytes from there on are kept in 0.log.50.corrupt, 10.log.corrupt")
    assert second == "it goes with what a start cuts off at offset 4"


def test_what_is_not_good_is_not_kept(home):
    (only,) = advice_of(home, damaged(home, 0, 10, records=2))
    assert "The good records behind the damage, 0, go with it; the 50 bytes from there on are not kept" in only


@pytest.mark.parametrize(
    ("context", "is_cut"),
    [
        ({}, True),
        ({"recovery_point": 9}, True),
        ({"recovery_point": 10}, False),
        (CLEAN, False),
        (CLEAN | {"recovery_point": 0}, False),
    ],
)
def test_a_start_repairs_nothing_before_the_recovery_point_nor_after_a_clean_stop(home, context, is_cut):
    segments = damaged(home, 0, 10, 10), segment(home, 10, 20)
    (advice,) = advice_of(home, *segments, **context)
    assert ("so the start cuts the log" in advice) == is_cut
    assert (advice == f"{RESTORE}, and a read of them fails") == (not is_cut)


def test_the_last_segment_is_scanned_whatever_the_recovery_point(home):
    (advice,) = advice_of(home, segment(home, 0, 10, 10), damaged(home, 10, 20), recovery_point=20)
    assert "so the start cuts the log at offset 10" in advice


@pytest.mark.parametrize(("start", "is_over"), [(None, False), (9, False), (10, True), (15, True)])
def test_damage_before_the_start_of_the_log_harms_nothing(home, start, is_over):
    segments = damaged(home, 0, 10, 10), segment(home, 10, 20)
    (advice,) = advice_of(home, *segments, log_start_offset=start)
    assert (advice == "nothing: it lies before the start of the log, and is to be removed") == is_over


def test_damage_before_the_start_of_the_log_is_not_where_a_start_cuts(home):
    segments = damaged(home, 0, 10, 10), damaged(home, 10, 20, at=12)
    first, second = advice_of(home, *segments, log_start_offset=10)
    assert first.startswith("nothing: ")
    assert "so the start cuts the log at offset 12" in second


def test_what_becomes_of_damage_under_a_broker_at_work_is_not_foretold(home):
    assert advice_of(home, damaged(home, 0, 10), in_use=True) == [DAMAGE]


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, (NOTE, "nothing: the next start rebuilds it from the .log file")),
        (CLEAN, (ERROR, AHEAD)),
        ({"in_use": True}, (ERROR, AHEAD)),
    ],
)
def test_an_index_ahead_of_its_log_is_made_anew_by_a_start_after_a_crash(home, context, expected):
    only = segment(home, 0, 10)
    only.report(error(home / "0.index", "ahead", AHEAD))
    (found,) = found_in(home, only, **context)
    assert ((found.severity, found.advice), found.path.name) == (expected, "0.index")


# Segments against one another


def test_offsets_that_are_in_no_segment_are_a_warning(home):
    segments = segment(home, 0, 10, 13), segment(home, 13, 20)
    (found,) = found_in(home, *segments)
    assert (found.severity, found.path.name, found.offset) == (WARNING, "13.log", 10)
    assert found.what == "offsets 10 to 12 are in no segment"


@pytest.mark.parametrize(
    ("before", "after", "context"),
    [
        ({"gaps": 1}, {}, {}),
        ({}, {"is_compacted": True}, {}),
        ({}, {}, {"is_compacted": True}),
        ({"is_whole": False}, {}, {}),
        ({}, {}, {"log_start_offset": 13}),
    ],
    ids=["gaps", "a batch lacks records", "cleaned", "damage", "before the start"],
)
def test_a_hole_between_segments_has_other_reasons_too(home, before, after, context):
    segments = segment(home, 0, 10, 13, **before), segment(home, 13, 20, **after)
    assert not [each for each in said(home, *segments, **context) if "are in no segment" in each[2]]


def test_a_hole_reaches_to_where_the_records_of_the_next_segment_begin(home):
    segments = segment(home, 0, 10, 10), segment(home, 10, 20, first_offset=15)
    assert said(home, *segments) == [(WARNING, "10.log", "offsets 10 to 14 are in no segment")]
    empty = segment(home, 0, 10, 12), segment(home, 12, 12, first_offset=None)
    assert said(home, *empty) == [(WARNING, "12.log", "offsets 10 to 11 are in no segment")]


def test_the_start_of_the_log_within_a_segment_does_not_excuse_the_hole_before_the_next(home):
    segments = segment(home, 0, 10, 13), segment(home, 13, 20)
    assert len(said(home, *segments, log_start_offset=12)) == 1


def test_places_where_offsets_lack_are_added_up(home):
    segments = segment(home, 0, 10, 10, gaps=2), segment(home, 10, 20, gaps=1)
    assert said(home, *segments) == [(NOTE, "t-0", "offsets are missing in 3 places")]


def test_an_epoch_that_falls_between_two_segments_is_an_error(home):
    runs = [EpochRun(1, 0, 4, 0), EpochRun(3, 5, 9, 60)], [EpochRun(2, 10, 14, 0), EpochRun(4, 15, 19, 60)]
    segments = segment(home, 0, 10, 10, epochs=runs[0]), segment(home, 10, 20, epochs=runs[1])
    found = next(each for each in found_in(home, *segments) if each.path.name == "10.log")
    assert found.what == "the leader epoch falls from 3 in the segment before to 2"
    assert (found.severity, found.position, found.offset) == (ERROR, 0, 10)
    rising = segment(home, 0, 10, 10, epochs=runs[0][:1]), segment(home, 10, 20, epochs=runs[0][:1])
    assert not [each for each in said(home, *rising) if "falls" in each[2]]


ABORTED = [TransactionEvent(1, 2, None), TransactionEvent(1, 5, ControlType.ABORT)]


@pytest.mark.parametrize(
    ("before", "between", "is_missed"),
    [
        ({}, 10, True),
        ({"is_old": True}, 10, False),
        ({"is_whole": False}, 10, False),
        ({"gaps": 1}, 10, False),
        ({}, 13, False),
    ],
    ids=["all there", "an old format", "damage", "gaps", "a hole"],
)
def test_an_aborted_transaction_must_be_listed_where_the_log_has_all(home, before, between, is_missed):
    segments = segment(home, 0, 10, between, events=ABORTED, **before), segment(home, between, 20)
    assert any("is not listed" in what for _, _, what in said(home, *segments)) == is_missed


# Snapshots of the producers


def batch_at(first, last):
    return BatchMetadata(-1, -1, first, last, 1000)


def snapshot(home, offset, *producers):
    path = home / f"{offset:020d}.snapshot"
    path.write_bytes(encode_snapshot(producers))
    return {offset: path}


@pytest.mark.parametrize(
    ("producer", "what"),
    [
        (ProducerEntry(7, 0, (batch_at(3, 9),)), None),
        (ProducerEntry(7, 0, (batch_at(3, 10),)), "producer 7 is said to have written offset 10, beyond the snapshot"),
        (ProducerEntry(7, 0, (batch_at(3, 9),), transaction_first_offset=9), None),
        (
            ProducerEntry(7, 0, (batch_at(3, 9),), transaction_first_offset=10),
            "producer 7 is said to have written offset 9, beyond the snapshot",
        ),
        (ProducerEntry(7, 0), None),
        (ProducerEntry(7, 0, (batch_at(3, 4), batch_at(5, 6))), None),
        (
            ProducerEntry(7, 0, (batch_at(3, 5), batch_at(5, 6))),
            "the batches remembered of producer 7 do not stand in their order",
        ),
    ],
)
def test_a_snapshot_knows_of_nothing_beyond_it_and_of_each_producer_in_order(home, producer, what):
    found = said(home, segment(home, 0, 10), snapshots=snapshot(home, 10, producer))
    assert found == ([] if what is None else [(ERROR, f"{10:020d}.snapshot", what)])


@pytest.mark.parametrize(
    ("offset", "facts", "context", "is_told"),
    [
        (10, {}, {}, False),
        (11, {}, {}, True),
        (11, {"is_whole": False}, {}, False),
        (11, {}, {"in_use": True}, False),
    ],
)
def test_a_snapshot_beyond_the_end_of_a_whole_log_is_a_warning(home, offset, facts, context, is_told):
    found = said(home, segment(home, 0, 10, **facts), snapshots=snapshot(home, offset), **context)
    what = WARNING, f"{offset:020d}.snapshot", "lies beyond the end of the log (10)"
    assert found == ([what] if is_told else [])


@pytest.mark.parametrize("in_use", [True, False])
def test_after_a_snapshot_that_is_gone_or_garbage_the_next_is_looked_at(home, in_use):
    gone = {3: home / "gone.snapshot"}
    (home / "bad.snapshot").write_bytes(b"torn")
    good = snapshot(home, 9, ProducerEntry(7, 0, (batch_at(3, 9),)))
    found = said(home, segment(home, 0, 10), snapshots=good | {6: home / "bad.snapshot"} | gone, in_use=in_use)
    assert [(severity, name) for severity, name, _ in found] == [
        *([] if in_use else [(ERROR, "gone.snapshot")]),
        (ERROR, "bad.snapshot"),
        (ERROR, f"{9:020d}.snapshot"),
    ]


# Leader epochs


def with_epochs(home, *pairs):
    lines = "".join(f"{epoch} {start}\n" for epoch, start in pairs)
    (home / "leader-epoch-checkpoint").write_text(f"0\n{len(pairs)}\n{lines}")


def of_epochs(home, *runs):
    """A segment of 0 to 20 that is of these epochs: (epoch, first offset, last offset)."""
    return segment(home, 0, 20, epochs=[EpochRun(epoch, first, last, 70) for epoch, first, last in runs])


@pytest.mark.parametrize(
    "runs", [[(0, 0, 4), (2, 5, 19)], [(0, 0, 4)], [(2, 5, 19)], [(2, 7, 9)], [(-1, 0, 9)], [(1, 5, 4)]]
)
def test_batches_are_of_the_epoch_that_the_checkpoint_says(home, runs):
    with_epochs(home, (0, 0), (2, 5))
    assert said(home, of_epochs(home, *runs), **CLEAN) == []


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ((0, 0, 5), "offsets 0 to 5 bear leader epoch 0; the checkpoint has that epoch from 0 to 4"),
        ((2, 4, 9), "offsets 4 to 9 bear leader epoch 2; the checkpoint has that epoch from 5 to the end"),
        ((1, 3, 9), "offsets 3 to 9 bear leader epoch 1; the checkpoint knows no such epoch"),
    ],
)
def test_batches_of_another_epoch_than_the_checkpoint_says_are_named_with_their_place(home, run, why):
    with_epochs(home, (0, 0), (2, 5))
    (found,) = found_in(home, of_epochs(home, run))
    assert (found.severity, found.path.name) == (ERROR, "leader-epoch-checkpoint")
    assert (found.what, found.offset) == (f"{why} (0.log, position 70)", run[1])


def test_every_run_is_held_against_the_checkpoint(home):
    with_epochs(home, (0, 0))
    assert len(said(home, of_epochs(home, (0, 0, 4), (1, 5, 9), (2, 10, 14)))) == 2


@pytest.mark.parametrize("pairs", [[(0, 0), (0, 5)], [(0, 5), (1, 5)], [(1, 0), (0, 5)], [(0, 5), (1, 4)], [(-1, 0)]])
def test_epochs_and_their_starts_both_rise(home, pairs):
    with_epochs(home, *pairs)
    assert said(home, segment(home, 0, 20)) == [
        (ERROR, "leader-epoch-checkpoint", "epochs and start offsets must both rise")
    ]


def test_the_checkpoint_lacks_only_where_the_log_has_epochs(home):
    assert said(home, of_epochs(home, (-1, 0, 9))) == []
    what = "missing or empty, though the log has leader epochs"
    assert said(home, of_epochs(home, (0, 0, 9))) == [(WARNING, "leader-epoch-checkpoint", what)]


@pytest.mark.parametrize(
    ("start", "facts", "context", "is_told"),
    [
        (20, {}, {}, False),
        (21, {}, {}, True),
        (21, {}, {"in_use": True}, False),
        (21, {"is_whole": False}, {}, False),
    ],
)
def test_an_epoch_that_begins_beyond_the_end_of_a_whole_log_is_a_warning(home, start, facts, context, is_told):
    with_epochs(home, (0, 0), (4, start))
    what = WARNING, "leader-epoch-checkpoint", f"epoch 4 begins at {start}, beyond the log's end (20)"
    assert said(home, segment(home, 0, 20, **facts), **context) == ([what] if is_told else [])


LATE = NOTE, "leader-epoch-checkpoint", "the first epoch begins at 6, the log at 5"


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ({"log_start_offset": 6}, []),
        ({"log_start_offset": 5}, [LATE]),
        ({"log_start_offset": 0}, [LATE]),
        ({"log_start_offset": None}, []),
    ],
)
def test_epochs_that_begin_late_are_found_again_by_a_start_after_a_crash(home, context, found):
    """Where the log begins by its checkpoint or with its first segment; if that is not known, they may be right."""
    with_epochs(home, (0, 6))
    only = segment(home, 5, 20, epochs=[EpochRun(0, 5, 19, 0)])
    assert said(home, only, **context) == found


@pytest.mark.parametrize(("context", "count"), [({}, 1), ({"in_use": True}, 0)])
def test_epochs_that_begin_late_after_a_clean_stop_are_an_error(home, context, count):
    """A broker at work may have moved the start meanwhile."""
    with_epochs(home, (0, 6))
    only = segment(home, 5, 20, epochs=[EpochRun(0, 5, 19, 0)])
    found = said(home, only, **CLEAN, **context, log_start_offset=5)
    assert [severity for severity, _, _ in found] == [ERROR] * count


# The topic id, and the checkpoints of the log directory


@pytest.mark.parametrize(
    ("version", "topic_id", "is_sound"),
    [("version: 0\n", ID, True), ("version: 1\n", ID, False), ("", ID, False), ("version: 0\n", UUID(int=0), False)],
)
def test_a_topic_id_is_of_version_0_and_not_zero(home, version, topic_id, is_sound):
    (home / "partition.metadata").write_text(f"{version}topic_id: {uuid_to_text(topic_id)}")
    found = said(home, segment(home, 0, 10))
    what = ERROR, "partition.metadata", "not of version 0, or the topic id is zero"
    assert found == ([] if is_sound else [what])


def test_the_topic_id_is_known_when_the_check_is_over(home):
    write_topic_id(home, ID)
    check = PartitionCheck(PartitionFiles(home), PartitionContext())
    assert (list(check.run([])), check.topic_id) == ([], ID)


@pytest.mark.parametrize(
    ("context", "what"),
    [
        ({"recovery_point": 10}, None),
        ({"recovery_point": 11}, "the recovery point is 11, but the log ends at 10"),
        ({"recovery_point": -1}, "the recovery point is -1, but the log ends at 10"),
        ({"high_watermark": 10}, None),
        ({"high_watermark": 11}, "the high watermark is 11, but the log ends at 10"),
        ({"high_watermark": -1}, "the high watermark is -1, but the log ends at 10"),
        ({"log_start_offset": 10}, None),
        ({"log_start_offset": 11}, "the log is said to start at 11, but it ends at 10"),
    ],
)
@pytest.mark.parametrize("in_use", [False, True])
def test_no_checkpoint_says_more_than_the_log_holds(home, context, what, in_use):
    found = said(home, segment(home, 0, 10), **context, in_use=in_use)
    assert found == ([] if what is None else [(NOTE if in_use else ERROR, "t-0", what)])


def test_of_a_partition_without_segments_the_checkpoints_say_nothing(home):
    assert said(home, recovery_point=5, high_watermark=5, log_start_offset=5) == []


@pytest.mark.parametrize(
    ("start", "context", "is_lost"), [(4, CLEAN, True), (5, CLEAN, False), (0, CLEAN, False), (4, {}, False)]
)
def test_a_log_that_was_stopped_cleanly_has_all_from_its_start_on(home, start, context, is_lost):
    found = said(home, segment(home, 5, 10), log_start_offset=start, **context)
    what = ERROR, "t-0", f"the log is said to start at {start}, but its segments begin at 5"
    assert found == ([what] if is_lost else [])


def test_where_it_is_wrong_is_said_with_each_finding_of_the_checkpoints(home):
    found = found_in(home, segment(home, 0, 10), recovery_point=11, high_watermark=12, log_start_offset=13)
    assert [each.offset for each in found] == [10, 10, 13]
    assert [each.path for each in found] == [home] * 3
