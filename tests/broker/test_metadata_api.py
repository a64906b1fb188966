"""The Metadata API of a broker that has just started."""

import asyncio
from types import SimpleNamespace

from broker.test_metadata_cache import tell, update

from sparklog.broker.apis import metadata
from sparklog.broker.context import ApiRequest
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest
from sparklog.testing.steps import finish


def asked(topics=()):
    message = MetadataRequest(
        topics=None if topics is None else [*topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ApiRequest(ApiKey.METADATA, 12, "c", "h", message)


def broker(cache):
    return SimpleNamespace(metadata=cache, cluster_id="id", turns=Turns(asyncio.get_running_loop()))


def test_clients_wait_until_the_broker_has_heard_of_the_cluster():
    async def body():
        cache = MetadataCache()
        answering = asyncio.ensure_future(finish(metadata.handle(broker(cache), asked())))
        await asyncio.sleep(0)
        assert not answering.done(), "an answer without brokers leaves a client nobody to ask again"
        tell(cache, update())
        answer = await answering
        assert ([each.node_id for each in answer.brokers], answer.controller_id) == ([1, 2], 1)

    asyncio.run(body())


def test_a_broker_that_knows_the_cluster_answers_at_once():
    async def body():
        cache = MetadataCache()
        tell(cache, update())
        answer = finish(metadata.handle(broker(cache), asked()))
        assert [each.node_id for each in answer.brokers] == [1, 2]

    asyncio.run(body())


def test_all_topics_are_encoded_once_until_the_next_change():
    async def body():
        cache = MetadataCache()
        tell(cache, update())
        first, second, given_up = (metadata.handle(broker(cache), asked(None)) for _ in range(3))
        next(first)
        next(given_up)
        given_up.close()
        answer = finish(second)
        assert finish(first).body is answer.body, "whoever has the turn goes on with the one that was begun"
        assert finish(metadata.handle(broker(cache), asked(None))).body is answer.body
        tell(cache, update())
        assert finish(metadata.handle(broker(cache), asked(None))).body is not answer.body

    asyncio.run(body())
