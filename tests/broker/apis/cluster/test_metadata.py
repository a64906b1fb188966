"""The Metadata API of a broker that has just started."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from broker.test_metadata_cache import tell, update

from sparklog.broker.apis.cluster import metadata
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.topics import PATIENCE_S
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import MetadataRequest, decode_response
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish


def asked(topics=()):
    message = MetadataRequest(
        topics=None if topics is None else [*topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ApiRequest(ApiKey.METADATA, 12, "c", Caller("h"), message)


def broker(cache) -> Any:
    return SimpleNamespace(
        authorizer=AllowEverything(), metadata=cache, cluster_id="id", turns=Turns(asyncio.get_running_loop())
    )


def handled(asking, request) -> Any:
    """The steps of the answer."""
    return metadata.handle(asking, request)


def test_clients_wait_until_the_broker_has_heard_of_the_cluster():
    async def body():
        cache = MetadataCache()
        answering = asyncio.ensure_future(finish(handled(broker(cache), asked())))
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
        answer = finish(handled(broker(cache), asked()))
        assert [each.node_id for each in answer.brokers] == [1, 2]

    asyncio.run(body())


def test_all_topics_are_encoded_once_until_the_next_change():
    async def body():
        cache = MetadataCache()
        tell(cache, update())
        first, second, given_up = (handled(broker(cache), asked(None)) for _ in range(3))
        next(first)
        next(given_up)
        given_up.close()
        answer = finish(second)
        assert finish(first).body is answer.body, "whoever has the turn goes on with the one that was begun"
        assert finish(handled(broker(cache), asked(None))).body is answer.body
        tell(cache, update())
        assert finish(handled(broker(cache), asked(None))).body is not answer.body

    asyncio.run(body())


def test_a_client_waits_for_all_topics_that_are_to_be_made_no_longer_than_for_one():
    async def body():
        cache, clock, asked_for = MetadataCache(), ManualClock(), []
        tell(cache, update())

        async def ensure(name, patience_s):
            asked_for.append((name, patience_s))
            clock.advance(0.6 * PATIENCE_S)
            return ErrorCode.NONE

        asking = broker(cache)
        asking.turns = Turns(asyncio.get_running_loop(), clock)
        asking.quotas = ClientQuotas(BrokerConfig(), clock)
        asking.config = SimpleNamespace(auto_create_topics_enable=True)
        asking.topics = SimpleNamespace(ensure=ensure, is_making=lambda _: False, partition_count=lambda _: 1)
        request = asked([MetadataRequest.MetadataRequestTopic(name=f"new{number}") for number in range(4)])
        request.message.allow_auto_topic_creation = True
        answer = await finish(handled(asking, request))
        assert [name for name, _ in asked_for] == ["new0", "new1"]
        shares = [patience / PATIENCE_S for _, patience in asked_for]
        assert shares == pytest.approx([1, 0.4])
        late = [each.error_code for each in answer.topics][2:]
        assert late == [ErrorCode.LEADER_NOT_AVAILABLE] * 2

    asyncio.run(body())


def test_a_topic_is_told_once_whatever_id_stands_beside_its_name():
    async def body():
        cache, topic_id = MetadataCache(), UUID(int=7)
        tell(cache, update(topics=[("t", topic_id, {0: 1})]))
        named = MetadataRequest.MetadataRequestTopic
        topics = [named(name="t", topic_id=UUID(int=number)) for number in range(1, 4)]
        topics += [named(name=None, topic_id=topic_id), named(name=None, topic_id=UUID(int=8)), named(name="u")]
        answer = finish(handled(broker(cache), asked(topics)))
        assert [(each.name, each.error_code) for each in answer.topics] == [
            ("t", ErrorCode.NONE),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ("u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    asyncio.run(body())


def test_no_client_is_sent_to_a_leader_that_refuses_connections():
    """librdkafka looks for another leader only a second after it was told of one that does not answer."""

    async def body():
        cache = MetadataCache()
        tell(cache, update(topics=[("t", UUID(int=7), {0: 1, 1: 2})]))
        cache.doubt(1)
        topics = [MetadataRequest.MetadataRequestTopic(name="t")]
        answer = finish(handled(broker(cache), asked(topics)))
        told = [(each.error_code, each.leader_id) for each in answer.topics[0].partitions]
        assert told == [(ErrorCode.LEADER_NOT_AVAILABLE, -1), (ErrorCode.NONE, 2)]
        assert [each.node_id for each in answer.brokers] == [1, 2], "it is one of the cluster still"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("version", "error"),
    [(6, ErrorCode.LISTENER_NOT_FOUND), (12, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)],
)
def test_a_leader_without_the_listener_of_the_client_is_told_as_such(version, error):
    async def body():
        cache = MetadataCache()
        request = update(topics=[("t", UUID(int=7), {0: 1, 1: 2})])
        endpoint = request.UpdateMetadataBroker.UpdateMetadataEndpoint
        outside = endpoint(port=9100, host="outside", listener="OUTSIDE", security_protocol=0)
        request.live_brokers[1].endpoints.append(outside)
        tell(cache, request)
        message = asked([MetadataRequest.MetadataRequestTopic(name="t")]).message
        request = ApiRequest(ApiKey.METADATA, version, "c", Caller("h", listener="OUTSIDE"), message)
        answer = finish(handled(broker(cache), request))
        told = [(each.error_code, each.leader_id) for each in answer.topics[0].partitions]
        assert told == [(error, -1), (ErrorCode.NONE, 2)]
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(2, "outside", 9100)]

    asyncio.run(body())


def told_of_all(asking):
    body = finish(handled(asking, asked(None))).body
    return names_in(body), body


def names_in(body):
    told: Any = decode_response(ApiKey.METADATA, 12, memoryview(body))
    return [each.name for each in told.topics]


def test_of_all_topics_those_alone_are_told_that_the_caller_may_describe():
    async def body():
        cache = MetadataCache()
        tell(cache, update(topics=[("t", UUID(int=7), {0: 1}), ("u", UUID(int=8), {0: 1})]))
        everybody, some, all_of_them = broker(cache), broker(cache), broker(cache)
        some.authorizer = ListedRights("DESCRIBE topic u")
        all_of_them.authorizer = ListedRights("DESCRIBE topic t", "DESCRIBE topic u")
        whole = told_of_all(everybody)
        assert whole[0] == ["t", "u"]
        assert told_of_all(some)[0] == ["u"]
        assert told_of_all(all_of_them)[1] is whole[1], "who may hear of all is told what all others are"
        assert some.authorizer.questions == ["(DESCRIBE topic t)", "(DESCRIBE topic u)"]

    asyncio.run(body())


def test_a_topic_that_comes_while_rights_are_asked_for_is_not_told():
    async def body():
        cache = MetadataCache()
        tell(cache, update(topics=[("t", UUID(int=7), {0: 1})]))
        asking = broker(cache)
        asking.authorizer = ListedRights("DESCRIBE topic t")
        steps = handled(asking, asked(None))
        next(steps)
        tell(cache, update(topics=[("t", UUID(int=7), {0: 1}), ("secret", UUID(int=8), {0: 1})]))
        assert names_in(finish(steps).body) == ["t"]

    asyncio.run(body())


def test_an_id_beside_a_name_does_not_tell_whose_it_is():
    async def body():
        cache, topic_id = MetadataCache(), UUID(int=7)
        tell(cache, update(topics=[("t", topic_id, {0: 1})]))
        asking = broker(cache)
        asking.authorizer = ListedRights()
        named = MetadataRequest.MetadataRequestTopic
        answer = finish(handled(asking, asked([named(name="t"), named(name=None, topic_id=topic_id)])))
        assert [(each.name, each.topic_id) for each in answer.topics] == [("t", ZERO_UUID), (None, topic_id)]

    asyncio.run(body())
