"""What the controller says of the cluster, and what follows from it here."""

import asyncio
import itertools
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
from sparklog.structs import TopicPartition
from sparklog.testing.steps import counted


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


def tells_of(topic, leader):
    """An UpdateMetadata that names broker 1, and the leader of the topic's only partition."""
    message, form = told_of(1), UpdateMetadataRequest.UpdateMetadataTopicState
    state = form.UpdateMetadataPartitionState(
        partition_index=0, leader=leader, isr=[], replicas=[], offline_replicas=[]
    )
    message.topic_states = [form(topic_name=topic, partition_states=[state])]
    return message


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


def test_a_deleted_topic_is_forgotten_to_the_end_though_the_controller_hangs_up():
    """The next controller may not know that it was there."""
    steps_left = list(range(10))

    def forget_topics(deleted):
        assert deleted == [TopicPartition("t", 0)]
        return forgetting()

    def forgetting():
        while steps_left:
            steps_left.pop()
            yield

    async def run_zk(call, topic):
        return None

    async def run():
        clock = itertools.count(step=1)  # each step takes all the time that there is
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            fence=Fence(),
            metadata=MetadataCache(),
            peers=SimpleNamespace(retain=lambda live: None),
            groups=SimpleNamespace(forget_topics=forget_topics),
            zk=SimpleNamespace(topics=SimpleNamespace(standing=None)),
            run_zk=run_zk,
            turns=Turns(asyncio.get_running_loop(), SimpleNamespace(monotonic=lambda: next(clock))),
        )

        def serve(message):
            steps = update_metadata.handle(broker, ApiRequest(ApiKey.UPDATE_METADATA, 8, "c", Caller("h"), message))
            _, answer = counted(steps)
            return asyncio.ensure_future(answer)

        await serve(tells_of("t", 1))
        serving = serve(tells_of("t", -2))
        while len(steps_left) == 10:
            await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()
        for _ in range(100):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert not steps_left
