"""What a broker says of another's address, and of which addresses it says nothing."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cluster import probe_broker
from sparklog.broker.context import ApiRequest
from sparklog.errors import ErrorCode
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ProbeBrokerRequest, decode_answer, encode
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint
from sparklog.zk.znodes import BrokerInfo


class Looks:
    def __init__(self, sight):
        self.sight, self.looked_at = sight, []

    async def at(self, endpoint):
        self.looked_at.append(endpoint)
        return self.sight


def ask(looks, broker_id, host, port):
    known = {2: BrokerInfo(2, Endpoint("h", 92))}
    broker = SimpleNamespace(authorizer=AllowEverything(), metadata=SimpleNamespace(brokers=known), looks=looks)
    message = ProbeBrokerRequest(broker_id=broker_id, host=host, port=port)
    request = ApiRequest(ApiKey.PROBE_BROKER, 0, None, Caller("h"), message)
    answer = asyncio.run(probe_broker.handle(broker, request))
    told = decode_answer(message, 0, memoryview(encode(answer, 0)))
    return told.error_code, told.sight


@pytest.mark.parametrize("sight", Sight)
def test_what_is_seen_is_told(sight):
    looks = Looks(sight)
    assert ask(looks, 2, "h", 92) == (ErrorCode.NONE, sight)
    assert looks.looked_at == [("h", 92)]


@pytest.mark.parametrize("asked", [(3, "h", 92), (2, "elsewhere", 92), (2, "h", 22), (-1, "", -1)])
def test_only_where_a_live_broker_is_known_to_be_is_looked(asked):
    looks = Looks(Sight.REFUSED)
    assert ask(looks, *asked) == (ErrorCode.BROKER_NOT_AVAILABLE, Sight.UNKNOWN)
    assert looks.looked_at == []
