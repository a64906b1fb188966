"""The Metadata API of a broker that has just started."""

import asyncio
from types import SimpleNamespace

from broker.test_metadata_cache import update

from sparklog.broker.apis import metadata
from sparklog.broker.context import ApiRequest
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest


def asked():
    message = MetadataRequest(
        topics=[],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ApiRequest(ApiKey.METADATA, 12, "c", "h", message)


def test_clients_wait_until_the_broker_has_heard_of_the_cluster():
    async def body():
        cache = MetadataCache()
        answering = asyncio.ensure_future(metadata.handle(SimpleNamespace(metadata=cache, cluster_id="id"), asked()))
        await asyncio.sleep(0)
        assert not answering.done(), "an answer without brokers leaves a client nobody to ask again"
        cache.update(update())
        answer = await answering
        assert ([each.node_id for each in answer.brokers], answer.controller_id) == ([1, 2], 1)

    asyncio.run(body())


def test_a_broker_that_knows_the_cluster_answers_at_once():
    async def body():
        cache = MetadataCache()
        cache.update(update())
        answering = asyncio.ensure_future(metadata.handle(SimpleNamespace(metadata=cache, cluster_id="id"), asked()))
        await asyncio.sleep(0)
        assert answering.done()

    asyncio.run(body())
