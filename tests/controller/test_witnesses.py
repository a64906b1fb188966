"""Whether a broker is gone: nobody is believed alone, and nobody has to be asked that cannot tell."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product

import pytest

from sparklog.controller import witnesses as witnesses_module
from sparklog.controller.witnesses import Unasked, Witnesses, verdict
from sparklog.errors import ErrorCode
from sparklog.net.peers import Peers
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ProbeBrokerResponse
from sparklog.structs import Endpoint
from sparklog.testing.scripted import HangUp, ScriptedCluster
from sparklog.zk.znodes import BrokerInfo

WORDS = [*Sight, Unasked.NOT_OFFERED]
GONE = BrokerInfo(9, Endpoint("127.0.0.1", 9), epoch=5)
US = BrokerInfo(1, Endpoint("127.0.0.1", 10))


@pytest.mark.parametrize("words", [each for count in range(4) for each in product(WORDS, repeat=count)])
def test_the_rule(words):
    found = verdict(words, 0)
    if Sight.REACHED in words:
        assert found is False
    elif Sight.REFUSED in words:
        assert found is True
    elif Sight.UNKNOWN in words:
        assert found is False
    else:
        assert found is None  # nobody that was asked can tell: ask others, if there are any
    awaiting = verdict(words, 1)
    assert awaiting == found or (awaiting is None and found is False)


@asynccontextmanager
async def asked(*words):
    """Whether brokers that say this confirm it."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(ScriptedCluster()) for _ in words]
        for cluster, word in zip(clusters, words, strict=True):
            if word is not Unasked.NOT_OFFERED:
                cluster.on[ApiKey.PROBE_BROKER] = answering(word)
        peers = Peers("us")
        live = [BrokerInfo(10 + number, each.brokers[0].endpoint) for number, each in enumerate(clusters)]
        try:
            yield clusters, await Witnesses(US.id, peers).confirm(GONE, [US, GONE, *live])
        finally:
            await peers.close()


def answering(word):
    async def answer(asked):
        message = asked.message
        assert (message.broker_id, message.host, message.port) == (GONE.id, *GONE.endpoint)
        if word is HangUp:
            raise HangUp
        if word is NEVER:
            await asyncio.Event().wait()
        error = ErrorCode.BROKER_NOT_AVAILABLE if word is NO_SUCH_BROKER else ErrorCode.NONE
        return ProbeBrokerResponse(throttle_time_ms=0, error_code=error, sight=0 if error else word)

    return answer


NO_SUCH_BROKER, NEVER = "it knows of no such broker there", "it does not answer"


@pytest.mark.parametrize(
    ("words", "is_gone"),
    [
        ([], True),
        ([Sight.REFUSED], True),
        ([Sight.REACHED], False),
        ([Sight.UNKNOWN], False),
        ([HangUp], False),
        ([NO_SUCH_BROKER], False),
        ([17], False),
        ([HangUp, Sight.REFUSED], True),
        ([NEVER, Sight.REFUSED], True),
        ([Unasked.NOT_OFFERED], True),
        ([Unasked.NOT_OFFERED, Sight.UNKNOWN], False),
        ([Unasked.NOT_OFFERED, Sight.REFUSED], True),
        ([*[Unasked.NOT_OFFERED] * 3, Sight.REACHED], False),
        ([*[Unasked.NOT_OFFERED] * 3, Sight.REFUSED], True),
        ([Unasked.NOT_OFFERED] * 4, True),
    ],
)
def test_what_others_say(words, is_gone):
    async def main():
        async with asked(*words) as (_, found):
            assert found is is_gone

    asyncio.run(main())


def test_one_that_does_not_answer_in_time_confirms_nothing(monkeypatch):
    monkeypatch.setattr(witnesses_module, "_TIMEOUT_S", 0.05)

    async def main():
        async with asked(NEVER) as (_, found):
            assert found is False

    asyncio.run(main())


def test_of_many_only_some_are_asked():
    async def main():
        async with asked(*[Sight.REFUSED] * 6) as (clusters, found):
            assert found is True
            assert [len(each.asked(ApiKey.PROBE_BROKER)) for each in clusters[3:]] == [0, 0, 0]

    asyncio.run(main())
