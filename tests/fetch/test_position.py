import pytest

from sparklog.errors import CorruptRecord, ErrorCode, RemoteProtocolError
from sparklog.fetch.position import FetchPosition, FetchPositions, Refusal, fed, refusal_of
from sparklog.protocol.hot.fetch import FetchedPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import NO_EPOCH, IsolationLevel, TopicPartition

TP = TopicPartition("t", 0)
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def batch(base, count=2, epoch=4, *, control=False):
    builder = RecordBatchBuilder(base_offset=base, partition_leader_epoch=epoch, is_control=control)
    for _ in range(count):
        builder.append(1, b"\0\0\0\0", b"v")
    return builder.build()


def answer(*batches, high_watermark=100, stable=100):
    found = FetchedPartition("t", ZERO_UUID, 0, ErrorCode.NONE, high_watermark, stable)
    if batches:
        found.records.append(memoryview(b"".join(batches)))
    return found


def standing(offset=0, isolation=UNCOMMITTED, **settings):
    return FetchPosition(TP, offset, isolation, **settings)


def test_it_stands_behind_the_last_batch_that_came():
    position = standing(1)
    found = position.take(answer(batch(0), batch(2)), had_room=False)
    assert [each.base_offset for each in found.batches] == [0, 2]
    assert (found.next_offset, found.epoch, position.offset) == (4, 4, 4)


def test_what_the_reader_does_not_see_is_passed_over():
    position = standing()
    found = position.take(answer(batch(0, 1, control=True)), had_room=False)
    assert (found.batches, position.offset) == ([], 1)


def test_a_gap_below_the_end_is_believed_when_shown_twice():
    position = standing(5)
    assert position.take(answer(), had_room=True).next_offset == 5
    found = position.take(answer(), had_room=True)
    assert (found.batches, found.next_offset, found.epoch, position.offset) == ([], 100, NO_EPOCH, 100)


@pytest.mark.parametrize(("isolation", "end"), [(UNCOMMITTED, 100), (COMMITTED, 60)])
def test_a_gap_ends_where_the_reader_may_see_no_more(isolation, end):
    position = standing(isolation=isolation)
    for _ in range(2):
        position.take(answer(stable=60), had_room=True)
    assert position.offset == end


def test_an_answer_that_others_may_have_filled_shows_no_gap():
    position = standing()
    for _ in range(3):
        position.take(answer(), had_room=False)
    assert position.offset == 0
    position.take(answer(), had_room=True)
    assert position.offset == 0
    position.take(answer(), had_room=True)
    assert position.offset == 100


@pytest.mark.parametrize("end", [3, 5])
def test_nothing_at_the_end_is_no_gap(end):
    position = standing(5)
    for _ in range(3):
        position.take(answer(high_watermark=end), had_room=True)
    assert position.offset == 5


def test_what_showed_a_gap_is_forgotten_when_the_end_is_no_longer_beyond_it():
    position = standing(5)
    position.take(answer(), had_room=True)
    position.take(answer(high_watermark=5), had_room=True)
    position.take(answer(), had_room=True)
    assert position.offset == 5


def test_each_gap_is_shown_twice():
    position = standing()
    position.take(answer(), had_room=True)
    position.take(answer(batch(0)), had_room=True)
    position.take(answer(), had_room=True)
    assert position.offset == 2


def test_damage_moves_nothing():
    position, damaged = standing(), bytearray(batch(0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord, match="t-0 at offset 0"):
        position.take(answer(bytes(damaged)), had_room=True)
    assert position.offset == 0
    standing(check_crcs=False).take(answer(bytes(damaged)), had_room=True)


def test_records_that_are_no_whole_batch_are_no_gap():
    position = standing()
    with pytest.raises(RemoteProtocolError, match="partition t-0 at offset 0: an answer without a whole batch"):
        position.take(answer(batch(0)[:-1]), had_room=True)
    assert position.offset == 0


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (ErrorCode.NONE, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Refusal.MOVED),
        (ErrorCode.OFFSET_NOT_AVAILABLE, Refusal.MOVED),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Refusal.OUT_OF_RANGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Refusal.OTHER),
        (ErrorCode.CORRUPT_MESSAGE, Refusal.OTHER),
    ],
)
def test_what_an_error_code_asks_for(code, refusal):
    assert refusal_of(code) is refusal


def test_the_partitions_with_records_are_counted():
    assert fed([answer(), answer()]) == fed([]) == 0
    assert fed([answer(), answer(batch(0)[:-1]), answer(batch(0))]) == 2


def test_a_part_of_a_batch_beside_others_is_neither_a_gap_nor_a_mistake():
    position = standing()
    for _ in range(3):
        position.take(answer(batch(0)[:-1]), had_room=False)
    assert position.offset == 0


def test_a_reader_that_was_placed_elsewhere_has_a_new_position():
    positions = FetchPositions(UNCOMMITTED)
    at_five = positions.at(TP, 5)
    at_five.take(answer(), had_room=True)
    assert positions.at(TP, 5) is at_five
    positions.at(TP, 6)
    assert positions.at(TP, 5).take(answer(), had_room=True).next_offset == 5
