"""Which controller is obeyed."""

from types import SimpleNamespace

import pytest

from sparklog.broker.fence import ControllerFence
from sparklog.errors import ErrorCode


@pytest.fixture
def fence():
    fence = ControllerFence()
    fence.broker_epoch = 100
    return fence


def request(controller_epoch, broker_epoch=100):
    return SimpleNamespace(controller_epoch=controller_epoch, broker_epoch=broker_epoch)


def test_the_highest_epoch_heard_of_is_obeyed(fence):
    for epoch, code in ((3, 0), (3, 0), (5, 0), (4, ErrorCode.STALE_CONTROLLER_EPOCH), (5, 0)):
        assert fence.check(request(epoch)) is ErrorCode(code)


def test_what_was_meant_for_a_former_life_is_refused(fence):
    assert fence.check(request(1, 99)) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.check(request(1, 101)) is ErrorCode.NONE
    assert fence.check(request(1, -1)) is ErrorCode.NONE


def test_a_refused_request_raises_no_epoch(fence):
    fence.check(request(9, 99))
    assert fence.check(request(1)) is ErrorCode.NONE
