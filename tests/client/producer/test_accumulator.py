"""What waits: when it is due, how much there may be, and when it is given up."""

import pytest
from client.interrupts import interruptions

from sparklog.client.producer.accumulator import RECORD_OVERHEAD, Accumulator
from sparklog.client.producer.config import ProducerConfig
from sparklog.client.producer.sequences import LAST_EPOCH, ProducerId, Verdict
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_records
from sparklog.structs import TopicPartition

_ONE, _TWO = TopicPartition("t", 0), TopicPartition("t", 1)
_ME = ProducerId(1, 0)


def _accumulator(**settings):
    return Accumulator(ProducerConfig.of(bootstrap_servers="h:1", **settings))


def _append(accumulator, tp=_ONE, value=b"x", now=0.0):
    return accumulator.append(tp, 0, None, value, (), now)


def _due(accumulator, now):
    return [queue.tp for queue in accumulator.due(now)]


def test_a_batch_lingers_until_its_time_or_until_it_is_full():
    accumulator = _accumulator(linger_ms=100, batch_size=200)
    _append(accumulator)
    assert _due(accumulator, 0.05) == []
    assert accumulator.next_event(0.05) == pytest.approx(0.05)
    assert _due(accumulator, 0.1) == [_ONE]
    for _ in range(20):
        _append(accumulator)
    assert _due(accumulator, 0.05) == [_ONE]


def test_nothing_lingers_while_somebody_flushes_or_waits_for_room():
    accumulator = _accumulator(linger_ms=100_000)
    _append(accumulator)
    for by in (1, 1, -1):
        accumulator.flushing(by)
        assert _due(accumulator, 0) == [_ONE]
    accumulator.flushing(-1)
    assert _due(accumulator, 0) == []
    accumulator.waiters.append(lambda: None)
    assert _due(accumulator, 0) == [_ONE]


def test_memory_is_bounded_and_given_back():
    accumulator = _accumulator(buffer_memory=10 * (RECORD_OVERHEAD + 1), linger_ms=0)
    futures = [_append(accumulator, tp) for tp in (_ONE, _TWO) * 5]
    assert None not in futures
    assert _append(accumulator) is None
    for queue in list(accumulator.due(0)):
        batch = accumulator.take(queue, _ME)
        assert accumulator.answered(batch, ErrorCode.NONE, 0) is Verdict.DONE
    assert accumulator.used == 0
    assert accumulator.is_empty
    assert _append(accumulator) is not None


def test_what_a_record_is_counted_for_is_never_less_than_it_takes():
    accumulator = _accumulator()
    headers = (("näme" * 50, b"x" * 300), ("n", None))
    accumulator.append(_ONE, 2**40, b"k" * 1000, b"v" * 5000, headers, 0.0)
    accumulator.append(_ONE, 0, b"", b"", (("", b""),), 0.0)
    (queue,) = accumulator.due(1e9)
    assert accumulator.used >= len(queue.waiting[0].records)


def test_a_record_that_is_none_changes_nothing():
    accumulator = _accumulator()
    _append(accumulator)
    with pytest.raises((LocalProtocolError, TypeError)):
        accumulator.append(_ONE, 0, None, "text", (), 0.0)
    (queue,) = accumulator.due(1e9)
    assert queue.waiting[0].count == 1


@pytest.mark.parametrize("name", ["max_request_size", "buffer_memory"])
def test_a_record_that_can_never_go_is_refused_at_once(name):
    with pytest.raises(ApiError, match=name.replace("_", r"\.")):
        _append(_accumulator(**{name: 100}), value=bytes(101))


def test_what_waits_too_long_is_given_up_but_not_what_is_on_the_wire():
    accumulator = _accumulator(linger_ms=0, batch_size=1, delivery_timeout_ms=10_000, request_timeout_ms=1)
    sent, waiting = _append(accumulator), _append(accumulator)
    (queue,) = accumulator.due(0)
    batch = accumulator.take(queue, _ME)
    assert batch.delivery is sent.delivery
    (expired,) = accumulator.expire(10.1)
    assert expired.delivery is waiting.delivery
    assert accumulator.on_wire == 1


def test_every_batch_that_is_given_up_is_told_of_whatever_is_raised_over_one(monkeypatch, caplog):
    accumulator = _accumulator(linger_ms=0, batch_size=1, delivery_timeout_ms=10_000, request_timeout_ms=1)
    waiting = [_append(accumulator, tp) for tp in (_ONE, _ONE, _TWO)]

    def fail(batch):
        raise ZeroDivisionError

    (first, _) = accumulator.due(0)
    monkeypatch.setattr(first.sequences, "give_up", fail, raising=False)
    assert [batch.delivery for batch in accumulator.expire(10.1)] == [future.delivery for future in waiting]
    assert (accumulator.used, accumulator.is_empty) == (0, True)
    assert caplog.text.count("was not taken out in order") == 2


def test_pauses_double_up_to_the_limit():
    accumulator = _accumulator(linger_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=300)
    _append(accumulator)
    for pause in (0.1, 0.2, 0.3, 0.3):
        (queue,) = accumulator.due(1000)
        accumulator.answered(accumulator.take(queue, _ME), ErrorCode.NETWORK_EXCEPTION, 0)
        assert _due(accumulator, pause - 0.01) == []
        assert _due(accumulator, pause) == [_ONE]


def test_the_partition_served_last_comes_last():
    accumulator = _accumulator(linger_ms=0, batch_size=1)
    for tp in (_ONE, _ONE, _TWO):
        _append(accumulator, tp)
    first = next(accumulator.due(0))
    accumulator.answered(accumulator.take(first, _ME), ErrorCode.NONE, 0)
    assert _due(accumulator, 0) == [_TWO, _ONE]


def _encoded(*values):
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(1, None, value)
    return bytearray(builder.build())


def _take(accumulator, now=0.0):
    """The first batch that is due, as the sender takes it."""
    return accumulator.take(next(accumulator.due(now)), _ME)


def _answer(accumulator, batch, code=ErrorCode.NONE, now=0.0):
    return accumulator.answered(batch, code, now)


def test_a_whole_batch_counts_with_its_bytes_and_fits_to_the_last_one():
    data = _encoded(b"a", b"b")
    accumulator = _accumulator(buffer_memory=2 * len(data), linger_ms=100_000)
    first, second = (accumulator.add_encoded(_ONE, data.copy(), 1.0) for _ in range(2))
    assert (accumulator.used, accumulator.appended) == (2 * len(data), 2 * len(data))
    assert accumulator.add_encoded(_ONE, data.copy(), 1.0) is None
    assert first.order < second.order
    assert (first.tp, first.count, first.created) == (_ONE, 2, 1.0)
    assert _take(accumulator) is first  # nobody joins it, so it does not linger
    assert _answer(accumulator, first) is Verdict.DONE
    assert (accumulator.used, accumulator.appended) == (len(data), 2 * len(data))
    assert accumulator.add_encoded(_ONE, data.copy(), 1.0) is not None


def test_a_whole_batch_larger_than_the_memory_is_refused_at_once():
    data = _encoded(bytes(300))
    with pytest.raises(ApiError) as caught:
        _accumulator(buffer_memory=len(data) - 1).add_encoded(_ONE, data, 0.0)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert _accumulator(buffer_memory=len(data)).add_encoded(_ONE, data, 0.0) is not None


def test_the_halves_of_a_batch_have_the_time_that_it_had():
    accumulator = _accumulator(linger_ms=0, delivery_timeout_ms=120_000)
    for _ in range(2):
        _append(accumulator, now=1.0)
    batch = _take(accumulator, 1.0)
    batch.encode(CompressionType.NONE, False)
    assert _answer(accumulator, batch, ErrorCode.MESSAGE_TOO_LARGE, 50.0) is Verdict.SPLIT
    assert accumulator.expire(120.9) == []
    first = _take(accumulator, 120.9)
    assert accumulator.expire(120.9) == [], "the second is first now, and as old"
    accumulator.returned(first)
    assert [batch.count for batch in accumulator.expire(121.0)] == [1, 1]


def test_a_half_that_is_too_large_still_is_halved_again():
    accumulator = _accumulator(linger_ms=0)
    for value in (b"a", b"b", b"c", b"d"):
        _append(accumulator, value=value)
    for _ in range(2):
        batch = _take(accumulator)
        batch.encode(CompressionType.NONE, False)
        assert _answer(accumulator, batch, ErrorCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    sent = []
    for _ in range(3):
        batch = _take(accumulator)
        data = batch.encode(CompressionType.NONE, False)
        sent.append([each.value for each in iter_records(RecordBatch(data))])
        assert _answer(accumulator, batch) is Verdict.DONE
    assert sent == [[b"a"], [b"b"], [b"c", b"d"]]
    assert accumulator.is_empty


def test_records_behind_a_whole_batch_begin_another():
    accumulator = _accumulator(linger_ms=0)
    _append(accumulator)
    whole = accumulator.add_encoded(_ONE, _encoded(b"a"), 0.0)
    _append(accumulator)
    (queue,) = accumulator.due(0)
    assert [batch.count for batch in queue.waiting] == [1, 1, 1]
    assert queue.waiting[1] is whole
    assert sorted(queue.waiting, key=lambda batch: batch.order) == queue.waiting
    assert len({batch.order for batch in queue.waiting}) == 3


@pytest.mark.parametrize("name", ["max_request_size", "buffer_memory"])
def test_a_record_just_as_large_as_allowed_is_taken(name):
    accumulator = _accumulator(**{name: RECORD_OVERHEAD + 100})
    assert accumulator.append(_ONE, 0, b"k" * 60, bytes(40), (), 0.0) is not None
    assert (accumulator.used, accumulator.appended) == (RECORD_OVERHEAD + 100,) * 2
    with pytest.raises(ApiError) as caught:
        accumulator.append(_ONE, 0, b"k" * 60, bytes(41), (), 0.0)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("name", ["max_request_size", "buffer_memory"])
def test_a_record_just_as_large_as_allowed_waits_for_room(name):
    settings = {"buffer_memory": RECORD_OVERHEAD + 100, name: RECORD_OVERHEAD + 100}
    accumulator = _accumulator(linger_ms=0, **settings)
    _append(accumulator)
    assert _append(accumulator, value=bytes(100)) is None
    _answer(accumulator, _take(accumulator))
    assert _append(accumulator, value=bytes(100)) is not None


def test_what_is_appended_counts_ever_what_is_used_until_it_is_settled():
    accumulator = _accumulator(linger_ms=0, batch_size=1)
    _append(accumulator)
    _append(accumulator)
    size = RECORD_OVERHEAD + 1
    assert (accumulator.used, accumulator.appended) == (2 * size, 2 * size)
    _answer(accumulator, _take(accumulator))
    assert (accumulator.used, accumulator.appended) == (size, 2 * size)
    _append(accumulator)
    assert (accumulator.used, accumulator.appended) == (2 * size, 3 * size)


def test_headers_count_against_the_memory():
    headers = (("name", b"v" * 100), ("other", None))
    accumulator = _accumulator(buffer_memory=RECORD_OVERHEAD + 100)
    with pytest.raises(ApiError):
        accumulator.append(_ONE, 0, None, None, headers, 0.0)
    assert accumulator.append(_ONE, 0, None, None, (), 0.0) is not None


def test_the_sender_is_told_of_each_batch_begun_and_of_each_flush():
    accumulator = _accumulator(batch_size=2 * RECORD_OVERHEAD)
    assert accumulator.has_news is False
    for act, is_news in [
        (lambda: _append(accumulator), True),
        (lambda: _append(accumulator), False),  # it joins the first
        (lambda: _append(accumulator, value=bytes(2 * RECORD_OVERHEAD)), True),
        (lambda: accumulator.add_encoded(_ONE, _encoded(b"a"), 0.0), True),
        (lambda: accumulator.flushing(1), True),
        (accumulator.incomplete, True),
    ]:
        accumulator.has_news = False
        act()
        assert accumulator.has_news is is_news


def test_a_batch_takes_records_up_to_its_size():
    accumulator = _accumulator(batch_size=200, linger_ms=0)
    _append(accumulator, value=b"x" * 20)
    (queue,) = accumulator.due(0)
    room = 200 - len(queue.open.records) - RECORD_OVERHEAD
    _append(accumulator, value=bytes(room))
    assert [batch.count for batch in queue.waiting] == [2]
    assert len(queue.waiting[0].records) <= 200
    _append(accumulator, value=bytes(100))
    assert [batch.count for batch in queue.waiting] == [2, 1]


def test_the_next_event_is_the_soonest_of_what_is_due_and_what_expires():
    accumulator = _accumulator(linger_ms=2000, delivery_timeout_ms=10_000, request_timeout_ms=1)
    assert accumulator.next_event(0.0) is None
    _append(accumulator, _TWO, now=1.0)
    _append(accumulator, _ONE, now=0.0)
    assert accumulator.next_event(0.0) == pytest.approx(2.0)
    assert accumulator.next_event(2.5) == pytest.approx(0.5)  # the first is due; the second is not
    assert accumulator.next_event(3.0) == pytest.approx(7.0)  # both are: what comes by itself is that one expires
    assert accumulator.next_event(11.5) == 0.0
    while not accumulator.is_empty:
        _answer(accumulator, _take(accumulator, 11.0))
    assert accumulator.next_event(0.0) is None


def test_what_is_on_the_wire_is_no_event():
    accumulator = _accumulator(linger_ms=0)
    _append(accumulator, _ONE)
    _take(accumulator)
    _append(accumulator, _TWO, now=5.0)
    assert accumulator.next_event(0.0) == pytest.approx(5.0)


def test_a_retry_waits_for_its_pause_whatever_else_is_due():
    accumulator = _accumulator(linger_ms=0, retry_backoff_ms=100)
    _append(accumulator)
    batch = _take(accumulator)
    assert batch.attempts == 1
    assert _answer(accumulator, batch, ErrorCode.NOT_ENOUGH_REPLICAS, 7.0) is Verdict.RETRY
    accumulator.flushing(1)
    assert _due(accumulator, 7.05) == []
    assert accumulator.next_event(7.05) == pytest.approx(0.05)
    assert _due(accumulator, 7.11) == [_ONE]
    assert (accumulator.on_wire, accumulator.is_waiting, accumulator.is_empty) == (0, True, False)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_is_sent_again_as_often_as_retries_say(idempotent):
    accumulator = _accumulator(linger_ms=0, retries=2, enable_idempotence=idempotent)
    _append(accumulator)
    verdicts = [_answer(accumulator, _take(accumulator, 1e6), ErrorCode.NETWORK_EXCEPTION) for _ in range(3)]
    assert verdicts == [Verdict.RETRY, Verdict.RETRY, Verdict.FAIL]
    assert (accumulator.used, accumulator.is_empty) == (0, True)
    assert accumulator.needs_new_epoch(_ME) is idempotent  # a stamp that may be missing


def test_what_could_not_be_put_on_the_wire_waits_again_without_a_pause():
    accumulator = _accumulator(linger_ms=0, batch_size=1)
    _append(accumulator)
    _append(accumulator)
    batch = _take(accumulator)
    assert (accumulator.on_wire, accumulator.is_waiting) == (1, True)
    accumulator.returned(batch)
    assert (accumulator.on_wire, batch.attempts) == (0, 0)
    assert _take(accumulator) is batch


def test_without_numbers_a_retry_waits_for_the_older_ones_on_the_wire_and_new_ones_for_nobody():
    accumulator = _accumulator(linger_ms=0, batch_size=1, enable_idempotence=False)
    for _ in range(3):
        _append(accumulator)
    first, second = _take(accumulator), _take(accumulator)
    assert first.order < second.order
    _answer(accumulator, second, ErrorCode.NETWORK_EXCEPTION)
    (queue,) = accumulator.due(1e3)
    assert accumulator.take(queue, None) is None  # it would come before the first, were that to be sent again
    _answer(accumulator, first)
    assert accumulator.take(queue, None) is second
    assert accumulator.take(queue, None) is not None
    assert accumulator.on_wire == 2


def test_what_has_no_id_yet_is_not_sent_with_numbers():
    accumulator = _accumulator(linger_ms=0)
    _append(accumulator)
    (queue,) = accumulator.due(0)
    assert accumulator.take(queue, None) is None
    assert (accumulator.on_wire, accumulator.is_waiting) == (0, True)
    batch = accumulator.take(queue, _ME)
    assert batch.stamp == (1, 0, 0)
    assert queue.open is None
    assert (accumulator.on_wire, accumulator.is_waiting, accumulator.is_empty) == (1, False, False)


def test_time_is_over_at_the_limit_and_not_before():
    accumulator = _accumulator(linger_ms=0, batch_size=1, delivery_timeout_ms=10_000, request_timeout_ms=1)
    first = _append(accumulator, now=1.0)
    _append(accumulator, now=2.0)
    _append(accumulator, _TWO, now=1.0)
    assert accumulator.expire(10.99) == []
    expired = accumulator.expire(11.0)
    assert [batch.tp for batch in expired] == [_ONE, _TWO]
    assert expired[0].delivery is first.delivery
    assert accumulator.used == RECORD_OVERHEAD + 1
    assert _due(accumulator, 1e3) == [_ONE]
    assert [batch.tp for batch in accumulator.expire(12.0)] == [_ONE]
    assert (accumulator.used, accumulator.is_empty) == (0, True)


def test_records_do_not_join_a_batch_that_was_given_up():
    accumulator = _accumulator(delivery_timeout_ms=10_000, request_timeout_ms=1)
    _append(accumulator)
    (expired,) = accumulator.expire(1e3)
    again = _append(accumulator, now=1e3)
    assert again.delivery is not expired.delivery
    assert accumulator.used == RECORD_OVERHEAD + 1


def test_all_that_waits_can_be_dropped_and_what_is_under_way_stays():
    accumulator = _accumulator(linger_ms=0, batch_size=1)
    for tp in (_ONE, _ONE, _TWO):
        _append(accumulator, tp)
    batch = _take(accumulator)
    dropped = accumulator.drop_waiting()
    assert sorted(each.tp for each in dropped) == [_ONE, _TWO]
    assert (accumulator.used, accumulator.on_wire, accumulator.is_waiting) == (RECORD_OVERHEAD + 1, 1, False)
    assert not accumulator.needs_new_epoch(_ME)  # they had no numbers
    _answer(accumulator, batch)
    assert accumulator.is_empty


def test_what_a_flush_waits_for_takes_no_more_records():
    accumulator = _accumulator(linger_ms=0, batch_size=200)
    for tp in (_ONE, _TWO):
        _append(accumulator, tp)
    sent = _take(accumulator)
    _append(accumulator, sent.tp)
    batches = accumulator.incomplete()
    assert len(batches) == 3
    assert sent in batches
    for tp in (_ONE, _TWO):
        assert _append(accumulator, tp).delivery not in [batch.delivery for batch in batches]


def test_each_who_waits_for_room_is_called_once():
    accumulator = _accumulator()
    accumulator.waiters += [one := object(), other := object()]
    assert accumulator.pop_waiters() == [one, other]
    assert accumulator.pop_waiters() == []
    assert accumulator.waiters == []


@pytest.mark.parametrize(("epoch", "is_used_up"), [(LAST_EPOCH - 1, False), (LAST_EPOCH, True)])
def test_another_id_is_needed_when_the_last_epoch_is_spoiled(epoch, is_used_up):
    accumulator, me = _accumulator(linger_ms=0), ProducerId(1, epoch)
    _append(accumulator, _TWO)
    _append(accumulator)
    for queue in list(accumulator.due(0)):
        batch = accumulator.take(queue, me)
        _answer(accumulator, batch, ErrorCode.INVALID_RECORD if batch.tp == _ONE else ErrorCode.NONE)
    assert accumulator.needs_new_epoch(me)
    assert not accumulator.needs_new_id(me)  # nothing is there to be sent
    _append(accumulator)
    assert accumulator.needs_new_id(me) is is_used_up
    assert not accumulator.needs_new_id(ProducerId(2, 0))


def test_a_record_is_sent_with_its_key_and_headers_whether_it_begins_a_batch_or_joins_one():
    accumulator = _accumulator(linger_ms=0)
    for number in range(2):
        accumulator.append(_ONE, 5 + number, b"k%d" % number, b"v", (("h", b"%d" % number),), 0.0)
    data = _take(accumulator).encode(CompressionType.NONE, False)
    found = [(each.timestamp, each.key, each.value, *each.headers) for each in iter_records(RecordBatch(data))]
    assert found == [
        (5, b"k0", b"v", ("h", b"0")),
        (6, b"k1", b"v", ("h", b"1")),
    ]


@pytest.mark.parametrize(
    ("value", "kind"), [(b"x" * 1000, CompressionType.GZIP), (b"x", CompressionType.NONE)], ids=["long", "short"]
)
def test_a_batch_is_compressed_where_that_makes_it_smaller(value, kind):
    accumulator = _accumulator(linger_ms=0)
    _append(accumulator, value=value)
    batch = RecordBatch(_take(accumulator).encode(CompressionType.GZIP, False))
    batch.validate()
    assert batch.compression is kind
    assert [each.value for each in iter_records(batch)] == [value]


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [({}, Verdict.RETRY), ({"transactional_id": "x"}, Verdict.GAP)],
    ids=["alone", "transaction"],
)
def test_a_transaction_with_a_gap_is_spoiled_where_a_producer_alone_goes_on(settings, verdict):
    accumulator = _accumulator(linger_ms=0, **settings)
    _append(accumulator)
    assert _answer(accumulator, _take(accumulator), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) is verdict
    assert accumulator.is_empty is (verdict is Verdict.GAP)


def _check_interrupted(accumulator, before, interrupted):
    """What went before an interrupted call, and what comes behind it, is sent and counted; its own is or is not."""
    _append(accumulator, value=b"behind")
    batches = []
    while accumulator.used or accumulator.is_waiting:
        assert accumulator.has_news
        batches.append(_take(accumulator))
        assert _answer(accumulator, batches[-1]) is Verdict.DONE
    assert accumulator.used == 0
    found = []
    for batch in batches:
        data = RecordBatch(batch.encode(CompressionType.NONE, False))
        data.validate()
        records = list(iter_records(data))
        assert data.max_timestamp == max(each.timestamp for each in records)
        found += [each.value for each in records]
    assert found in ([*before, b"behind"], [*before, *interrupted, b"behind"])


@pytest.mark.source
@pytest.mark.parametrize("before", [[], [b"1"], [b"1", b"2"]])
@pytest.mark.parametrize("batch_size", [1, 10_000], ids=["full", "open"])
def test_a_record_whose_adding_is_interrupted_is_added_or_is_not(before, batch_size):
    def begun():
        accumulator = _accumulator(linger_ms=0, batch_size=batch_size)
        for value in before:
            _append(accumulator, value=value)
        return accumulator, lambda: accumulator.append(_ONE, 7, b"key", b"x", (("h", b"1"),), 0.0)

    for accumulator in interruptions(begun):
        _check_interrupted(accumulator, before, [b"x"])


@pytest.mark.source
def test_a_whole_batch_whose_adding_is_interrupted_is_added_or_is_not():
    def begun():
        accumulator = _accumulator(linger_ms=0)
        _append(accumulator, value=b"1")
        return accumulator, lambda: accumulator.add_encoded(_ONE, _encoded(b"a", b"b"), 0.0)

    for accumulator in interruptions(begun):
        _check_interrupted(accumulator, [b"1"], [b"a", b"b"])


@pytest.mark.source
def test_a_batch_goes_without_what_an_interrupted_record_left_in_it():
    def begun():
        accumulator = _accumulator(linger_ms=0)
        _append(accumulator, value=b"1")
        return accumulator, lambda: _append(accumulator, value=b"2")

    for accumulator in interruptions(begun):
        batch = RecordBatch(_take(accumulator).encode(CompressionType.NONE, False))
        batch.validate()
        assert [each.value for each in iter_records(batch)] in ([b"1"], [b"1", b"2"])
