"""The transaction index of a segment, held against the transactions that its log holds."""

from pathlib import Path

import pytest

from sparklog.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from sparklog.log.inspection.segment_facts import SegmentFacts, SegmentJob, TransactionEvent
from sparklog.log.inspection.transaction_check import TransactionCheck
from sparklog.record.control import ControlType

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
NAME = f"{10:020d}.txnindex"


def facts_of(directory, *events, base=10, end=30, limit=None, in_use=False):
    """A segment with these events: (producer, offset of the first batch, None) or (producer, offset, its marker)."""
    job = SegmentJob(directory, base, limit, in_use, False)
    return SegmentFacts(job, Path(f"{base}.log"), end, events=[TransactionEvent(*each) for each in events])


def index_of(directory, *entries):
    index = TransactionIndex(directory / NAME, 10)
    for entry in entries:
        index.append(AbortedTransaction(*entry))
    index.close()
    return directory / NAME


def said(check, facts, index):
    found = list(check.segment(facts, index))
    assert all(each.is_problem and each.path.name == NAME for each in found)
    return [(each.what, each.offset) for each in found]


ONE = ((1, 12, None), (1, 15, ABORT))


def test_an_aborted_transaction_is_listed_from_its_first_batch_to_its_marker(tmp_path):
    check = TransactionCheck(10, has_all=True)
    assert said(check, facts_of(tmp_path, *ONE), index_of(tmp_path, (1, 12, 15, 16))) == []


def test_the_stable_offset_is_where_the_oldest_open_transaction_begins(tmp_path):
    events = (1, 11, None), (2, 12, None), (3, 13, None), (2, 15, ABORT), (1, 16, COMMIT), (3, 17, ABORT)
    check = TransactionCheck(10, has_all=True)
    assert said(check, facts_of(tmp_path, *events), index_of(tmp_path, (2, 12, 15, 11), (3, 13, 17, 18))) == []


def test_a_transaction_may_begin_in_a_segment_before(tmp_path):
    check = TransactionCheck(0, has_all=True)
    assert said(check, facts_of(tmp_path, (1, 3, None), (1, 4, None), base=0, end=10, limit=10), None) == []
    assert said(check, facts_of(tmp_path, (1, 15, ABORT)), index_of(tmp_path, (1, 3, 15, 16))) == []


@pytest.mark.parametrize("entry", [(2, 12, 15, 16), (1, 11, 15, 16), (1, 12, 15, 15)])
def test_an_entry_that_the_log_has_otherwise_is_named_with_both(tmp_path, entry):
    producer, first, last, stable = entry
    check = TransactionCheck(10, has_all=True)
    assert said(check, facts_of(tmp_path, *ONE), index_of(tmp_path, entry)) == [
        (
            f"lists producer {producer} from {first} to {last} (last stable offset {stable}); "
            "the log has producer 1 from 12 to 15 (last stable offset 16)",
            15,
        )
    ]


@pytest.mark.parametrize("ended", [COMMIT, None])
def test_an_entry_that_the_log_has_not_is_named(tmp_path, ended):
    events = [(1, 12, None)] + ([] if ended is None else [(1, 15, ended)])
    check = TransactionCheck(10, has_all=True)
    assert said(check, facts_of(tmp_path, *events), index_of(tmp_path, (1, 12, 15, 16))) == [
        ("lists an aborted transaction that ends at offset 15; the log has no such", 15)
    ]


@pytest.mark.parametrize(("marker", "is_inside"), [(9, False), (10, True), (29, True), (30, False)])
def test_a_marker_lies_in_the_segment_of_its_entry(tmp_path, marker, is_inside):
    check = TransactionCheck(0, has_all=False)
    found = said(check, facts_of(tmp_path), index_of(tmp_path, (1, 5, marker, marker)))
    wrong = (f"lists a marker at offset {marker}, which is not in the segment", marker)
    assert found == ([] if is_inside else [wrong])


def test_an_aborted_transaction_that_is_not_listed_would_be_read(tmp_path):
    check = TransactionCheck(10, has_all=True)
    events = *ONE, (2, 17, None), (2, 19, ABORT)
    assert said(check, facts_of(tmp_path, *events), index_of(tmp_path, (1, 12, 15, 16))) == [
        ("the aborted transaction of producer 2 is not listed, so it would be read", 17)
    ]
    check = TransactionCheck(10, has_all=True)
    assert [offset for _, offset in said(check, facts_of(tmp_path, *events), None)] == [12, 17]


@pytest.mark.parametrize(
    ("limit", "in_use", "is_missed"), [(None, False, True), (None, True, False), (30, True, True), (30, False, True)]
)
def test_in_the_last_segment_of_a_broker_at_work_an_entry_may_be_about_to_be_written(
    tmp_path, limit, in_use, is_missed
):
    check = TransactionCheck(10, has_all=True)
    assert bool(said(check, facts_of(tmp_path, *ONE, limit=limit, in_use=in_use), None)) == is_missed


def test_where_batches_lack_nothing_is_held_against_their_transactions(tmp_path):
    check = TransactionCheck(10, has_all=False)
    assert said(check, facts_of(tmp_path, *ONE), index_of(tmp_path, (2, 17, 19, 20))) == []


@pytest.mark.parametrize(
    ("entry", "is_held"), [((1, 9, 15, 16), False), ((1, 12, 15, 9), False), ((1, 10, 15, 10), True)]
)
def test_what_reaches_before_the_log_is_held_against_nothing(tmp_path, entry, is_held):
    check = TransactionCheck(10, has_all=True)
    assert bool(said(check, facts_of(tmp_path, *ONE), index_of(tmp_path, entry))) == is_held


def test_a_marker_without_a_transaction_ends_none(tmp_path):
    check = TransactionCheck(10, has_all=True)
    assert said(check, facts_of(tmp_path, (1, 15, ABORT), (1, 16, ABORT)), None) == []


def test_an_index_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / NAME).write_bytes(b"half")
    (found,) = TransactionCheck(10, has_all=True).segment(facts_of(tmp_path, *ONE), tmp_path / NAME)
    assert (found.path, found.is_problem) == (tmp_path / NAME, True)
    assert found.what.startswith("cannot be read: ")
    assert found.what.endswith("ends in the middle of an entry")
