import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.transactions import allocate_producer_ids
from sparklog.broker.context import ApiRequest
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AllocateProducerIdsRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller


def handle(check, take=None):
    async def run_zk(call, *args):
        return call(*args)

    def taken(broker_id, count):
        assert (broker_id, count) == (2, 1000)
        return range(3000, 4000)

    broker = SimpleNamespace(
        authorizer=AllowEverything(),
        controller=SimpleNamespace(check_broker=check),
        zk=SimpleNamespace(producer_ids=SimpleNamespace(take=take or taken)),
        run_zk=run_zk,
    )
    message = AllocateProducerIdsRequest(broker_id=2, broker_epoch=77)
    request = ApiRequest(ApiKey.ALLOCATE_PRODUCER_IDS, 0, "c", Caller("h"), message)
    return asyncio.run(allocate_producer_ids.handle(broker, request))


def test_the_controller_gives_a_block():
    asked = []
    answer = handle(lambda *who: asked.append(who))
    assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (0, 3000, 1000)
    assert asked == [(2, 77)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_who_is_not_known_gets_none(code):
    def refuse(*_):
        raise ApiError(code, "no")

    answer = handle(refuse, take=lambda *_: pytest.fail("a block was taken for nobody"))
    assert (answer.error_code, answer.producer_id_len) == (code, 0)


def test_zookeeper_may_not_answer():
    def away(*_):
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "away")

    assert handle(lambda *_: None, take=away).error_code == ErrorCode.REQUEST_TIMED_OUT
