import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.consumer.fetch.buffer import ARROW_SCHEMA, RecordBuffer
from sparklog.client.consumer.fetch.deserializers import Deserializers
from sparklog.client.consumer.fetch.handout import Handout
from sparklog.client.consumer.subscription import Position, SubscriptionState
from sparklog.errors import CorruptRecord, DeserializationError
from sparklog.fetch.scan import Scan
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.layout import HEADER_SIZE
from sparklog.structs import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base, count, epoch=0):
    builder = RecordBatchBuilder(base_offset=base, partition_leader_epoch=epoch)
    for number in range(count):
        builder.append(1, b"k", b"%d" % (base + number))
    return RecordBatch(builder.build())


def reading(*tps, at=0, **deserializers):
    state = SubscriptionState()
    state.assign(tps)
    for tp in tps:
        state.seek(tp, Position(at))
    return state, RecordBuffer(state, Deserializers(**deserializers))


def fill(buffer, tp, *batches, end=None, epoch=0):
    buffer.buffer(tp).add(Scan(list(batches), batches[-1].next_offset if end is None else end, epoch))


def offsets(records, tp=None):
    return [record.offset for record in records if tp is None or record.tp == tp]


def nbytes(buffer):
    return buffer.buffer(A).nbytes + buffer.buffer(B).nbytes


def position(state, tp):
    return state.positions()[tp]


# Layouts: batches of 1 to 4 records with gaps of offsets between them; a gap at the end is what was passed over.
LAYOUTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=6)


def lay_out(layout):
    batches, base = [], 0
    for gap, count in layout:
        base += gap
        batches.append(batch(base, count))
        base += count
    return batches, base


@given(LAYOUTS, LAYOUTS, st.lists(st.tuples(st.booleans(), st.integers(1, 7)), max_size=40), st.integers(0, 5))
def test_each_offset_comes_once_and_in_order_as_records_or_columns(one, other, takes, passed_over):
    state, buffer = reading(A, B)
    expected = {}
    for tp, layout in ((A, one), (B, other)):
        batches, end = lay_out(layout)
        buffer.buffer(tp).add(Scan(batches, end + passed_over, 0))
        expected[tp] = [each.base_offset + n for each in batches for n in range(each.record_count)]
    found = {A: [], B: []}
    for as_columns, limit in [*takes, (False, 100), (False, 100)]:
        if as_columns:
            rows = buffer.take_arrow(1 << 20, limit)
            taken = (
                []
                if rows is None
                else list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
            )
        else:
            taken = [(record.partition, record.offset) for record in buffer.take(limit)]
        assert len(taken) <= limit
        for number, offset in taken:
            found[TopicPartition("t", number)].append(offset)
        for tp in (A, B):
            assert not found[tp] or position(state, tp).offset > found[tp][-1]
            left = expected[tp][len(found[tp]) :]
            assert not left or position(state, tp).offset <= left[0]
    assert found == expected
    assert position(state, A).offset == lay_out(one)[1] + passed_over


@given(st.integers(1, 20))
def test_partitions_share_a_take_evenly(limit):
    tps = [TopicPartition("t", number) for number in range(4)]
    _, buffer = reading(*tps)
    for tp in tps:
        fill(buffer, tp, batch(0, 30))
    for _ in range(3):
        taken = buffer.take(limit)
        counts = [len(offsets(taken, tp)) for tp in tps]
        assert sum(counts) == limit
        assert max(counts) - min(counts) <= 1


@given(st.integers(1, 20))
def test_partitions_share_a_take_of_columns_evenly(limit):
    tps = [TopicPartition("t", number) for number in range(4)]
    _, buffer = reading(*tps)
    for tp in tps:
        fill(buffer, tp, batch(0, 30))
    numbers = buffer.take_arrow(1 << 20, limit)["partition"].to_pylist()
    counts = [numbers.count(tp.partition) for tp in tps]
    assert sum(counts) == limit
    assert max(counts) - min(counts) <= 1


def test_a_take_of_columns_ends_with_the_batch_that_reaches_its_bytes():
    _, buffer = reading(A)
    fill(buffer, A, batch(0, 3), batch(3, 3), batch(6, 3))
    assert buffer.take_arrow(1, 100)["offset"].to_pylist() == [0, 1, 2]
    assert buffer.take_arrow(1 << 20, 100)["offset"].to_pylist() == [3, 4, 5, 6, 7, 8]


def test_nobody_waits_for_more_than_one_take_of_the_others():
    tps = [TopicPartition("t", number) for number in range(3)]
    _, buffer = reading(*tps)
    for tp in tps:
        fill(buffer, tp, batch(0, 30))
    assert [record.partition for _ in range(6) for record in buffer.take(1)] == [0, 1, 2, 0, 1, 2]
    turns = [buffer.take_arrow(1 << 20, 1)["partition"].to_pylist() for _ in range(3)]
    assert turns == [[0], [1], [2]]


def test_a_reader_begins_in_the_middle_of_a_batch():
    state, buffer = reading(A, at=2)
    fill(buffer, A, batch(0, 5))
    assert offsets(buffer.take(10)) == [2, 3, 4]
    assert position(state, A).offset == 5


def test_the_position_has_the_epoch_of_what_stands_before_it():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 2, epoch=3), batch(2, 2, epoch=4), end=9, epoch=5)
    buffer.take(2)
    assert position(state, A) == Position(2, 3)
    buffer.take(1)
    assert position(state, A) == Position(3, 4)
    buffer.take(1)
    assert position(state, A) == Position(9, 5)  # what was passed over counts with its own epoch


def test_the_position_has_the_epoch_of_the_last_row_that_was_taken():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 2, epoch=3), batch(2, 2, epoch=4), end=9, epoch=5)
    for at in (Position(1, 3), Position(2, 3), Position(3, 4), Position(9, 5)):
        buffer.take_arrow(1 << 20, 1)
        assert position(state, A) == at


def test_what_holds_no_record_is_passed_over():
    state, buffer = reading(A)
    buffer.buffer(A).add(Scan([], 7, 0))
    assert buffer.take(1) == []
    assert position(state, A).offset == 7


def test_a_seek_throws_away_what_was_fetched():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 5))
    state.seek(A, Position(1))
    assert buffer.buffer(A).fetch_position == 1
    assert buffer.take(10) == []
    assert buffer.buffer(A).fetch_position == 1


def test_what_is_paused_or_given_up_is_not_handed_over():
    state, buffer = reading(A, B)
    for tp in (A, B):
        fill(buffer, tp, batch(0, 2))
    state.pause([A])
    state.give_up([B])
    assert buffer.take(10) == []
    assert buffer.take_arrow(1 << 20, 10) is None
    state.resume([A])
    assert offsets(buffer.take(10), A) == [0, 1]


def test_what_is_not_assigned_any_more_is_forgotten():
    state, buffer = reading(A, B)
    for tp in (A, B):
        fill(buffer, tp, batch(0, 2))
    state.assign([B])
    assert offsets(buffer.take(10), A) == []
    assert buffer.is_empty(A)


def test_a_deserializer_that_raises_stops_before_the_record():
    state, buffer = reading(A, value=lambda data: 1 // (int(data) - 2))
    fill(buffer, A, batch(0, 5))
    assert offsets(buffer.take(10)) == [0, 1]
    for _ in range(2):
        with pytest.raises(DeserializationError, match="offset 2 of partition t-0"):
            buffer.take(10)
        assert position(state, A).offset == 2


def test_a_record_that_could_not_be_read_is_tried_again_also_as_the_first_of_its_batch():
    broken = {b"2"}

    def read(data):
        if data in broken:
            raise ValueError(data)
        return data

    state, buffer = reading(A, value=read)
    fill(buffer, A, batch(2, 4))
    for _ in range(2):
        with pytest.raises(DeserializationError, match="offset 2 of partition t-0"):
            buffer.take(10)
    assert position(state, A).offset == 0
    broken.clear()
    assert offsets(buffer.take(10)) == [2, 3, 4, 5]


def test_a_record_that_could_not_be_read_behind_another_of_its_take_is_tried_again():
    broken = {b"1"}

    def read(data):
        if data in broken:
            raise ValueError(data)
        return data

    state, buffer = reading(A, value=read)
    fill(buffer, A, batch(0, 4))
    assert offsets(buffer.take(2)) == [0]
    assert position(state, A).offset == 1
    broken.clear()
    assert offsets(buffer.take(10)) == [1, 2, 3]


def test_a_damaged_batch_stops_before_it():
    state, buffer = reading(A)
    data = bytearray(batch(2, 2).buffer)
    data[HEADER_SIZE] ^= 0x54  # the first record's length
    fill(buffer, A, batch(0, 2), RecordBatch(data))
    assert offsets(buffer.take(10)) == [0, 1]
    for take in (lambda: buffer.take(10), lambda: buffer.take_arrow(1 << 20, 10)):
        with pytest.raises(CorruptRecord, match="partition t-0 at offset 2"):
            take()
    assert position(state, A).offset == 2


@given(LAYOUTS, LAYOUTS, st.integers(0, 30))
def test_a_handout_moves_positions_with_what_was_given(one, other, given_out):
    state, buffer = reading(A, B)
    for tp, layout in ((A, one), (B, other)):
        batches, end = lay_out(layout)
        buffer.buffer(tp).add(Scan(batches, end + 2, 0))
    before = state.positions()
    records = buffer.take(100)
    after = state.positions()
    handout = Handout(state, records)
    for expected, record in zip(records[:given_out], handout, strict=False):
        assert record == expected
        assert position(state, record.tp).offset > record.offset
        for later in records[records.index(record) + 1 :]:
            assert position(state, later.tp).offset <= later.offset
    handout.give_back()
    for tp in (A, B):
        mine = offsets(records, tp)
        handed = offsets(records[:given_out], tp)
        if len(handed) == len(mine):
            assert position(state, tp) == after[tp]
        elif handed:
            assert position(state, tp).offset == handed[-1] + 1
        else:
            assert before[tp].offset <= position(state, tp).offset <= mine[0]


@pytest.mark.parametrize("form", ["records", "columns"])
def test_what_was_taken_last_and_is_given_back_is_fetched_again(form):
    state, buffer = reading(A, B)
    fill(buffer, A, batch(0, 3), batch(3, 3))
    fill(buffer, B, batch(0, 1))
    assert offsets(buffer.take(2)) == [0, 0]
    after = state.positions()
    for _ in range(2):
        assert (buffer.take(3) if form == "records" else buffer.take_arrow(1 << 20, 3)) is not None
        assert position(state, A).offset == 4
        buffer.give_back()
        assert state.positions() == after
        assert not buffer.take(3)
        fill(buffer, A, batch(0, 3), batch(3, 3))
    assert offsets(buffer.take(3)) == [1, 2, 3]


def test_what_is_given_back_late_moves_no_partition_that_has_other_plans():
    state, buffer = reading(A, B)
    fill(buffer, A, batch(0, 3))
    fill(buffer, B, batch(0, 3))
    buffer.take(6)
    state.seek(A, Position(9))
    state.assign([A])
    buffer.give_back()
    assert state.positions() == {A: Position(9)}


def test_a_handout_ends_with_a_seek():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 5))
    handout = Handout(state, buffer.take(5))
    given = iter(handout)
    assert next(given).offset == 0
    state.seek(A, Position(4))
    assert list(given) == []
    handout.give_back()
    assert position(state, A).offset == 4


@pytest.mark.parametrize("resumed", [False, True], ids=["stays", "resumed"])
def test_a_handout_gives_nothing_more_of_what_is_paused_and_loses_nothing_of_it(resumed):
    state, buffer = reading(A, B)
    fill(buffer, A, batch(0, 1), batch(1, 1))
    fill(buffer, B, batch(0, 1), batch(1, 1))
    records = [*buffer.take(2), *buffer.take(2)]
    assert [record.tp for record in records] == [A, B, A, B]
    handout = Handout(state, records)
    given = iter(handout)
    state.pause([A])
    assert next(given) == records[1], "of the other partition"
    if resumed:
        state.resume([A])
    assert list(given) == [records[3]]
    assert not handout.is_given
    handout.give_back()
    assert (position(state, A).offset, position(state, B).offset) == (0, 2)
    state.resume([A])
    fill(buffer, A, batch(0, 1), batch(1, 1))
    assert offsets(buffer.take(5), A) == [0, 1]


def test_a_handout_ends_when_its_partition_is_taken_away():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 5))
    handout = Handout(state, buffer.take(5))
    given = iter(handout)
    next(given)
    state.unsubscribe()
    assert list(given) == []
    handout.give_back()


def test_columns_name_the_partition_of_each_row_and_hold_all_of_a_record():
    state, buffer = reading(A, B, at=1)
    builder = RecordBatchBuilder()
    for number in range(3):
        builder.append(5000 + number, b"k%d" % number, None if number == 2 else b"v", [("h", b"%d" % number)])
    fill(buffer, A, RecordBatch(builder.build()))
    fill(buffer, B, batch(0, 2))
    rows = buffer.take_arrow(1 << 20, 100)
    assert rows.schema.equals(ARROW_SCHEMA)
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows.to_pylist()] == [
        ("t", 0, 1),
        ("t", 0, 2),
        ("t", 1, 1),
    ]
    first, second, _ = rows.to_pylist()
    assert (first["key"], first["value"], second["value"], first["timestampType"]) == (b"k1", b"v", None, 0)
    assert first["headers"] == [{"key": "h", "value": b"1"}]
    assert first["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 5, 1000, tzinfo=datetime.UTC)
    assert state.positions() == {A: Position(3, 0), B: Position(2, 0)}
    assert pa.types.is_int32(rows.schema.field("partition").type)


def test_what_waits_is_counted_in_bytes_until_its_batch_was_handed_over():
    _, buffer = reading(A, B)
    first, second, other = batch(0, 3), batch(3, 2), batch(0, 4)
    assert (nbytes(buffer), buffer.is_empty(A)) == (0, True)
    fill(buffer, A, first)
    fill(buffer, A, second)
    fill(buffer, B, other)
    sizes = [each.size_in_bytes for each in (first, second, other)]
    assert (nbytes(buffer), buffer.is_empty(A), buffer.is_empty(B)) == (sum(sizes), False, False)
    assert (len(buffer.take(3)), nbytes(buffer)) == (3, sum(sizes)), "two of one batch, and one of the other"
    buffer.take(1)
    buffer.take(1)
    assert nbytes(buffer) == sizes[1] + sizes[2]
    buffer.take(100)
    assert (nbytes(buffer), buffer.is_empty(A), buffer.is_empty(B)) == (0, True, True)


def test_which_answer_brought_what_waits_is_known():
    _, buffer = reading(A)
    assert buffer.buffer(A).fed_by == 0
    buffer.buffer(A).add(Scan([batch(0, 1)], 1, 0), 7)
    assert (buffer.buffer(A).fed_by, buffer.buffer(A).fetch_position) == (7, 1)
    buffer.buffer(A).add(Scan([batch(1, 1)], 2, 0))
    assert buffer.buffer(A).fed_by == 0


def test_a_take_of_nothing_gives_nothing_and_moves_nothing():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 3))
    assert buffer.take(0) == []
    assert state.positions() == {A: Position(0)}
    assert offsets(buffer.take(9)) == [0, 1, 2]


def test_keys_and_values_are_each_read_by_their_own_and_none_by_neither():
    def builder_of(*pairs):
        builder = RecordBatchBuilder()
        for key, value in pairs:
            builder.append(1, key, value)
        return RecordBatch(builder.build())

    _, buffer = reading(A, key=bytes.decode, value=len)
    fill(buffer, A, builder_of((b"a", b"xyz"), (None, b"x"), (b"b", None)))
    assert [(record.key, record.value) for record in buffer.take(9)] == [("a", 3), (None, 1), ("b", None)]
    _, buffer = reading(A, key=bytes.decode)
    fill(buffer, A, builder_of((b"a", b"xyz")))
    assert [(record.key, record.value) for record in buffer.take(9)] == [("a", b"xyz")]


def test_a_key_that_cannot_be_read_is_told_of_with_its_place():
    state, buffer = reading(A, key=int)
    fill(buffer, A, batch(7, 1))
    with pytest.raises(DeserializationError, match="offset 7 of partition t-0") as raised:
        buffer.take(1)
    assert isinstance(raised.value.__cause__, ValueError)
    assert position(state, A).offset == 0


def test_what_was_given_back_is_given_back_once():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 3), batch(3, 1))
    buffer.take(3)
    buffer.give_back()
    assert position(state, A).offset == 0
    state.seek(A, Position(3))
    buffer.give_back()
    assert position(state, A).offset == 3


def test_a_partition_that_moved_has_its_turn_once_as_before():
    state, buffer = reading(A, B)
    for _ in range(3):
        for tp in (A, B):
            state.seek(tp, Position(0))
            fill(buffer, tp, batch(0, 2))
    assert [record.partition for record in buffer.take(4)] == [0, 0, 1, 1]
    assert buffer.take(4) == []


def test_positions_follow_a_handout_with_their_epochs():
    state, buffer = reading(A)
    fill(buffer, A, batch(0, 2, epoch=3), batch(2, 1, epoch=4), end=9, epoch=5)
    handout = Handout(state, buffer.take(9))
    assert position(state, A) == Position(0, 5)
    seen = [position(state, A) for _ in handout]
    assert seen == [Position(1, 3), Position(2, 3), Position(9, 5)]
    assert handout.is_given


def test_a_handout_that_was_given_asks_for_nothing_again():
    state, buffer = reading(A, B)
    fill(buffer, A, batch(0, 2))
    fill(buffer, B, batch(0, 2))
    handout = Handout(state, buffer.take(4))
    before = {tp: state.state(tp).incarnation for tp in (A, B)}
    given = iter(handout)
    for _ in range(3):
        assert not handout.is_given
        next(given)
    handout.give_back()
    assert state.state(A).incarnation == before[A], "all of it was given"
    assert (state.state(B).incarnation != before[B], position(state, B)) == (True, Position(1, 0))
    again = state.state(B).incarnation
    handout.give_back()
    assert (state.state(B).incarnation, handout.is_given) == (again, True)
