"""What waits: when it is due, how much there may be, and when it is given up."""

import pytest

from sparklog.client.accumulator import RECORD_OVERHEAD, Accumulator
from sparklog.client.producer_config import ProducerConfig
from sparklog.client.sequences import ProducerId, Verdict
from sparklog.errors import ApiError, ErrorCode, LocalProtocolError
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
    accumulator.flushing(1)
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
