"""How a batch ends, and who is told."""

import asyncio

import pytest

from sparklog.client.producer.delivery import Delivery, RecordFuture
from sparklog.errors import ClientClosed
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
