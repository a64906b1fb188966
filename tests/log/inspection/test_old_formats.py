"""The check of a segment of messages from before the record batch."""

import pytest
from log.inspection.damage import GOLDEN

from sparklog.log.inspection.dump import dump_file
from sparklog.log.inspection.dump_batches import DumpOptions
from sparklog.log.inspection.findings import RESTORE, Severity
from sparklog.log.inspection.segment_check import check_segment
from sparklog.log.inspection.segment_facts import SegmentJob

PLAIN = (GOLDEN / "kafka-legacy" / "magic-1-none.log").read_bytes()
WRAPPED = (GOLDEN / "kafka-legacy" / "magic-1-gzip.log").read_bytes()


def checked(directory, data, *, records=False):
    """The facts, what is wrong (what, position, offset), and the notes."""
    (directory / f"{0:020d}.log").write_bytes(data)
    facts = check_segment(SegmentJob(directory, 0, None, False, records))
    found = [each for each in facts.findings if each.path == facts.path]
    wrong = [each for each in found if each.severity is Severity.ERROR]
    assert all(each.advice == RESTORE for each in wrong)
    return (
        facts,
        [(each.what, each.position, each.offset) for each in wrong],
        [each.what for each in found if each not in wrong],
    )


@pytest.fixture
def messages(tmp_path):
    """Position and offset of each message in ``PLAIN``."""
    (tmp_path / f"{9:020d}.log").write_bytes(PLAIN)
    shown = dump_file(tmp_path / f"{9:020d}.log", DumpOptions())
    return [(each.fields["position"], each.fields["offset"]) for each in shown]


def test_what_a_sound_segment_of_an_old_format_holds(tmp_path, messages):
    facts, wrong, notes = checked(tmp_path, PLAIN)
    assert (wrong, notes) == ([], ["format magic 1, from before Kafka 0.11"])
    assert (facts.is_old, facts.is_whole, facts.size) == (True, True, len(PLAIN))
    assert (facts.batches, facts.records) == (len(messages), len(messages))
    assert (facts.first_offset, facts.next_offset) == (0, messages[-1][1] + 1)


def test_the_records_of_a_wrapper_are_counted_on_request(tmp_path, messages):
    facts, wrong, _ = checked(tmp_path, WRAPPED)
    assert (facts.records, wrong) == (facts.batches, [])
    whole, wrong, _ = checked(tmp_path, WRAPPED, records=True)
    assert (whole.batches, whole.records, wrong) == (facts.batches, whole.next_offset, [])
    assert whole.records > whole.batches


def test_a_message_of_a_wrong_crc_is_named_and_the_check_goes_on(tmp_path, messages):
    position, offset = messages[1]
    data = bytearray(PLAIN)
    data[messages[2][0] - 1] ^= 1
    facts, wrong, _ = checked(tmp_path, data)
    assert [(at, of) for _, at, of in wrong] == [(position, offset)]
    assert (facts.batches, facts.is_whole) == (len(messages), False)


def test_offsets_that_fall_are_named(tmp_path, messages):
    due = messages[-1][1] + 1
    facts, wrong, _ = checked(tmp_path, PLAIN + PLAIN[: messages[1][0]])
    assert wrong == [(f"offset 0 where {due} or more is due", len(PLAIN), 0)]
    assert facts.batches == len(messages) + 1


def test_a_message_that_is_cut_short_is_a_torn_tail(tmp_path, messages):
    last, offset = messages[-1]
    facts, wrong, _ = checked(tmp_path, PLAIN[:-1])
    what = f"torn tail: the last {len(PLAIN) - 1 - last} bytes are a message that is cut short"
    assert wrong == [(what, last, offset)]
    assert (facts.is_whole, facts.batches, facts.next_offset) == (False, len(messages) - 1, offset)
