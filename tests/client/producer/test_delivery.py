"""How a batch ends, and who is told."""

import asyncio

import pytest

from sparklog.client.producer.delivery import BatchFuture, BatchMetadata, Delivery, RecordFuture
from sparklog.errors import ApiError, ClientClosed, ErrorCode, PartlyWritten
from sparklog.structs import TopicPartition

_RAISED = [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError]


def _delivery():
    return Delivery(TopicPartition("t", 0))


def _raising(kind):
    def listener(*_):
        raise kind("from a callback")

    return listener


@pytest.mark.parametrize("kind", _RAISED)
@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_that_raises_is_logged_and_the_others_are_told(kind, fails, caplog):
    delivery, told = _delivery(), []
    future = RecordFuture(delivery, 0, 1)
    future.add_done_callback(_raising(kind))
    delivery.will_tell(lambda: future.tell(_raising(kind)))
    future.add_done_callback(told.append)
    if fails:
        delivery.fail(ClientClosed("closed"))
    else:
        delivery.succeed(5, -1)
    assert told == [future]
    assert caplog.text.count("a delivery callback failed") == 2


@pytest.mark.parametrize("kind", _RAISED)
def test_what_is_called_at_once_may_end_the_program_of_its_caller(kind, caplog):
    delivery = _delivery()
    delivery.succeed(5, -1)
    if issubclass(kind, Exception):
        delivery.on_settled(_raising(kind))
    else:
        with pytest.raises(kind):
            delivery.on_settled(_raising(kind))
    assert ("a delivery callback failed" in caplog.text) is issubclass(kind, Exception)


_TOO_LARGE = ApiError(ErrorCode.MESSAGE_TOO_LARGE, "as told")


def _halves(delivery, middle):
    first, second = _delivery(), _delivery()
    delivery.split(middle, first, second)
    return first, second


def test_a_record_has_the_fate_of_its_own_part():
    delivery = _delivery()
    small, large = RecordFuture(delivery, 0, 1), RecordFuture(delivery, 1, 1)
    first, second = _halves(delivery, 1)
    first.succeed(5, -1)
    second.fail(_TOO_LARGE)
    assert (small.result().offset, small.exception()) == (5, None)
    assert large.exception() is _TOO_LARGE


@pytest.mark.parametrize(("offsets", "told"), [((5, 7, 8), 5), ((5, 8, 9), -1), ((5, 7, 9), -1), ((-1, -1, -1), -1)])
def test_a_batch_in_parts_has_an_offset_only_where_they_join_up(offsets, told):
    delivery = _delivery()
    future = BatchFuture(delivery, 4)
    first, second = _halves(delivery, 2)
    for part, offset in zip((first, *_halves(second, 1)), offsets, strict=True):
        part.succeed(offset, -1)
    assert future.result() == BatchMetadata("t", 0, told, 4)


def test_a_batch_of_which_a_part_fails_says_which_records_are_written():
    delivery = _delivery()
    future = BatchFuture(delivery, 4)
    first, second = _halves(delivery, 2)
    third, fourth = _halves(second, 1)
    first.succeed(0, -1)
    third.fail(_TOO_LARGE)
    fourth.succeed(2, -1)
    with pytest.raises(PartlyWritten) as raised:
        future.result()
    for error in (future.exception(), raised.value):
        assert isinstance(error, PartlyWritten)
        assert (error.code, error.written) == (ErrorCode.MESSAGE_TOO_LARGE, (range(2), range(3, 4)))
        assert "of its records 0 to 3 these are written: 0 to 1, 3; MESSAGE_TOO_LARGE: as told" in str(error)


def test_a_batch_of_which_all_parts_fail_is_nowhere():
    delivery = _delivery()
    future = BatchFuture(delivery, 2)
    for part in _halves(delivery, 1):
        part.fail(_TOO_LARGE)
    assert future.exception() is _TOO_LARGE


def test_listeners_are_called_in_their_order_and_each_once():
    delivery, told = _delivery(), []
    for number in range(3):
        delivery.on_settled(lambda number=number: told.append(number))
    delivery.succeed(5, -1)
    delivery.on_settled(lambda: told.append(3))
    delivery.fail(ClientClosed("closed"))
    assert told == [0, 1, 2, 3]
    assert delivery.error is None


def test_a_listener_that_comes_while_the_batch_is_settled_is_told():
    told = []

    class Overtaken(Delivery):
        """Another thread settles it just when a listener has been added."""

        def __getattribute__(self, name):
            if name == "is_settled" and super().__getattribute__("_listeners"):
                super().__setattr__("is_settled", True)
            return super().__getattribute__(name)

    delivery = Overtaken(TopicPartition("t", 0))
    delivery.on_settled(lambda: told.append(1))
    assert told == [1]


def test_a_wait_that_would_hold_up_who_settles_is_refused():
    delivery = _delivery()
    delivery.is_interrupted = lambda: True
    with pytest.raises(ClientClosed, match="signal handler"):
        RecordFuture(delivery, 0, 1).result()
    delivery.succeed(5, -1)
    assert RecordFuture(delivery, 0, 1).result().offset == 5
