"""A broker that is about to stop: what the controller is asked, and what the broker is told."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cluster import controlled_shutdown
from sparklog.broker.context import ApiRequest
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ControlledShutdownRequest, decode_answer, encode
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition


def handle(answer):
    """What the broker is told, by way of the wire, and what the controller was asked."""
    asked = []

    async def let_go(*arguments):
        asked.append(arguments)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    message = ControlledShutdownRequest(broker_id=4, broker_epoch=104)
    request = ApiRequest(ApiKey.CONTROLLED_SHUTDOWN, 3, "c", Caller("h"), message)
    broker = SimpleNamespace(authorizer=AllowEverything(), controller=SimpleNamespace(let_go=let_go))
    told = asyncio.run(controlled_shutdown.handle(broker, request))
    assert asked == [(4, 104)]
    return decode_answer(message, 3, memoryview(bytes(encode(told, 3))))


@pytest.mark.parametrize("left", [[], [TopicPartition("t", 3), TopicPartition("u", 0)]], ids=["none", "some"])
def test_it_is_told_what_it_leads_still(left):
    told = handle(left)
    assert told.error_code == ErrorCode.NONE
    assert [TopicPartition(each.topic_name, each.partition_index) for each in told.remaining_partitions] == left


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_a_refusal_is_told(code):
    told = handle(ApiError(code, "no"))
    assert (told.error_code, list(told.remaining_partitions)) == (code, [])
