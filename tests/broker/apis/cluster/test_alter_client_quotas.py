"""AlterClientQuotas: what a client is told where ZooKeeper goes away behind the change."""

import asyncio
from types import SimpleNamespace

from sparklog.broker.apis.cluster import alter_client_quotas
from sparklog.broker.context import ApiRequest
from sparklog.errors import CoordinationError, ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import AlterClientQuotasRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller


def test_what_is_stored_is_told_though_this_broker_cannot_read_it_again_at_once():
    """The broker hung up on the client instead, which could not know whether its quota is set."""
    stored = []

    async def run_zk(_update, path, changes):
        stored.append((path, changes))

    async def take_over(_path):
        raise CoordinationError("ZooKeeper: ConnectionLoss")

    async def handled():
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            run_zk=run_zk,
            settings=SimpleNamespace(take_over=take_over),
            turns=Turns(asyncio.get_running_loop()),
            zk=SimpleNamespace(configs=SimpleNamespace(update=None)),
        )
        entry = AlterClientQuotasRequest.EntryData
        whose = entry.EntityData(entity_type="user", entity_name="alice")
        rate = entry.OpData(key="producer_byte_rate", value=1000.0, remove=False)
        message = AlterClientQuotasRequest(entries=[entry(entity=[whose], ops=[rate])], validate_only=False)
        asked = ApiRequest(alter_client_quotas.API, 1, "c", Caller("h"), message)
        return await alter_client_quotas.handle(broker, asked)

    (answer,) = asyncio.run(handled()).entries
    assert answer.error_code == ErrorCode.NONE
    assert stored == [("users/alice", {"producer_byte_rate": "1000"})]
