"""What the controller says of the cluster, and what follows from it here."""

import asyncio
from types import SimpleNamespace

from broker.apis.replicas.test_leader_and_isr import Fence

from sparklog.broker.apis.cluster import update_metadata
from sparklog.broker.context import ApiRequest
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.errors import ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import UpdateMetadataRequest
from sparklog.protocol.slices import done
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller


def told_of(*brokers):
    """An UpdateMetadata that names these brokers as alive, and no partition."""
    form = UpdateMetadataRequest.UpdateMetadataBroker
    live = [
        form(
            id=id_, endpoints=[form.UpdateMetadataEndpoint(port=1, host="h", listener="PLAINTEXT", security_protocol=0)]
        )
        for id_ in brokers
    ]
    return UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=live, topic_states=[])


def looks_after(*requests):
    """How often the partitions are looked at, when these have come one after another."""
    looks = []

    def leave_out_lagging():
        looks.append(1)
        yield from done(None)

    async def run():
        background, codes = [], []
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            fence=Fence(),
            metadata=MetadataCache(),
            peers=SimpleNamespace(retain=lambda live: None),
            replicas=SimpleNamespace(leave_out_lagging=leave_out_lagging),
            turns=Turns(asyncio.get_running_loop()),
            in_background=lambda work, what: background.append(asyncio.ensure_future(work)),
        )
        for message in requests:
            steps = update_metadata.handle(broker, ApiRequest(ApiKey.UPDATE_METADATA, 8, "c", Caller("h"), message))
            try:
                while True:
                    next(steps)
            except StopIteration as end:
                codes.append((await end.value).error_code)
        await asyncio.gather(*background)
        assert codes == [ErrorCode.NONE] * len(requests)

    asyncio.run(run())
    return len(looks)


def test_what_waits_for_a_broker_is_looked_at_when_that_is_gone():
    assert looks_after(told_of(1, 2), told_of(1)) == 1


def test_a_broker_that_comes_is_no_cause_for_a_look():
    assert looks_after(told_of(1), told_of(1, 2), told_of(1, 2)) == 0
