"""What clients are told, as the controller last said it."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.broker.coordinator_log import CoordinatorLog
from sparklog.broker.metadata_cache import MetadataCache, PartitionMetadata, describe
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import FULL, INCREMENTAL, UpdateMetadataRequest, decode_request, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))
DELETING = -2


def update(brokers=(1, 2), topics=(), epoch=1, type=0):
    """An UpdateMetadata; ``topics`` are (name, id, {partition: leader})."""
    request = UpdateMetadataRequest
    endpoint = request.UpdateMetadataBroker.UpdateMetadataEndpoint
    partition = request.UpdateMetadataTopicState.UpdateMetadataPartitionState
    message = request(
        controller_id=1,
        controller_epoch=epoch,
        broker_epoch=0,
        type=type,
        live_brokers=[
            request.UpdateMetadataBroker(
                id=id_,
                endpoints=[endpoint(port=9000 + id_, host="h", listener="PLAINTEXT", security_protocol=0)],
                rack=None,
            )
            for id_ in brokers
        ],
        topic_states=[
            request.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_id,
                partition_states=[
                    partition(
                        partition_index=number,
                        controller_epoch=1,
                        leader=leader,
                        leader_epoch=0,
                        isr=[leader],
                        zk_version=0,
                        replicas=[leader],
                        offline_replicas=[],
                    )
                    for number, leader in partitions.items()
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )
    return decode_request(ApiKey.UPDATE_METADATA, 8, memoryview(encode(message, 8)))


def tell(cache, request):
    return cache.update(request, finish(describe(request.topic_states)))


@pytest.fixture
def cache():
    return MetadataCache()


def leader_of(cache, topic, partition):
    found = cache.leader(TopicPartition(topic, partition))
    return found.id if found else None


def test_an_update_tells_which_partitions_it_deletes(cache):
    assert tell(cache, update(topics=[("t", ONE, {0: 1, 1: 2}), ("u", TWO, {0: 1})])) == []
    deleted = tell(cache, update(topics=[("t", ONE, {0: DELETING, 1: DELETING}), ("u", TWO, {0: 2})]))
    assert deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_of_a_topic_that_bears_another_id_all_that_was_is_gone(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 2})]))
    assert tell(cache, update(topics=[("t", TWO, {0: 1})])) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert (cache.name_of(ONE), cache.name_of(TWO)) == (None, "t")
    assert tell(cache, update(topics=[("t", TWO, {1: 1})])) == []


def test_a_whole_update_leaves_no_topic_that_it_does_not_name(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 2}), ("u", TWO, {0: 1})]))
    version = cache.topics_version
    assert tell(cache, update(topics=[("u", TWO, {0: 2})], type=INCREMENTAL)) == []
    assert {each.name for each in cache.topics()} == {"t", "u"}
    assert tell(cache, update(topics=[("u", TWO, {0: 2})], type=FULL)) == []
    assert {each.name for each in cache.topics()} == {"u"}
    assert (cache.name_of(ONE), cache.name_of(TWO), leader_of(cache, "u", 0)) == (None, "u", 2)
    assert cache.topics_version > version


@pytest.mark.parametrize(("again", "gone"), [(ONE, []), (THREE, [TopicPartition("t", 0), TopicPartition("t", 1)])])
def test_what_was_of_a_topic_that_a_whole_update_left_out_is_gone_when_another_bears_its_name(cache, again, gone):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 2})]))
    tell(cache, update(type=FULL))
    assert tell(cache, update(topics=[("t", again, {0: 1})])) == gone
    assert tell(cache, update(topics=[("t", again, {1: 1})])) == []
    assert (cache.name_of(again), sorted(cache.topic("t").partitions)) == ("t", [0, 1])


def test_nothing_is_coordinated_before_the_cluster_is_known(cache):
    """How many partitions there are is known then, and not what the settings say that there would be."""
    leads_all = SimpleNamespace(leads=lambda tp: True, broker_id=1)
    log = CoordinatorLog("t", 50, leads_all, cache)
    assert not cache.has_been_told
    assert not log.is_leader(0)
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 1})]))
    assert cache.has_been_told
    assert log.is_leader(0)
    assert log.partition_count == 2


def test_leaders_are_known_while_their_brokers_live(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 2, 2: -1})]))
    assert [leader_of(cache, "t", number) for number in range(4)] == [1, 2, None, None]
    assert not cache.is_ready("t")
    tell(cache, update(topics=[("t", ONE, {2: 1})]))
    assert cache.is_ready("t")
    tell(cache, update(brokers=[1]))
    assert [leader_of(cache, "t", number) for number in range(3)] == [1, None, 1]
    assert leader_of(cache, "unknown", 0) is None


def test_an_update_changes_only_what_it_names(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 1}), ("u", TWO, {0: 1})]))
    tell(cache, update(topics=[("t", ONE, {1: 2})], epoch=5))
    assert [leader_of(cache, "t", 0), leader_of(cache, "t", 1), leader_of(cache, "u", 0)] == [1, 2, 1]
    assert (cache.controller_id, cache.controller_epoch) == (1, 5)


def test_a_topic_goes_with_its_last_partition(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 1})]))
    tell(cache, update(topics=[("t", ONE, {0: DELETING})]))
    assert list(cache.topic("t").partitions) == [1]
    tell(cache, update(topics=[("t", ONE, {1: DELETING})]))
    assert cache.topic("t") is None
    assert cache.name_of(ONE) is None
    assert cache.topics() == []


def test_a_topic_made_again_is_another_topic(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1, 1: 1})]))
    tell(cache, update(topics=[("t", TWO, {0: 2})]))
    assert list(cache.topic("t").partitions) == [0]
    assert cache.name_of(TWO) == "t"
    assert cache.name_of(ONE) is None, "who asks for the old topic must not get the new one's records"


def test_a_topic_without_an_id_has_no_name_by_id(cache):
    tell(cache, update(topics=[("t", ZERO_UUID, {0: 1})]))
    assert [cache.name_of(nothing) for nothing in (ZERO_UUID, None)] == [None, None]
    assert cache.topic("t").topic_id == ZERO_UUID


def test_waiting_ends_with_the_update_that_brings_it_or_with_the_time(cache):
    async def wait():
        assert await cache.wait_for(lambda: True, 0)
        waiting = asyncio.ensure_future(cache.wait_for(lambda: cache.is_ready("t"), 10))
        others = asyncio.ensure_future(cache.wait_for(lambda: cache.is_ready("u"), 0.05))
        await asyncio.sleep(0)
        tell(cache, update(topics=[("x", TWO, {0: 1})]))
        await asyncio.sleep(0)
        assert not waiting.done()
        tell(cache, update(topics=[("t", ONE, {0: 1})]))
        assert await waiting
        assert not await others
        assert not cache._waiting, "they may ask again and again, and no update may come"

    asyncio.run(wait())


def test_its_version_changes_with_topics_only(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1})]))
    before = cache.topics_version
    tell(cache, update(brokers=(1,)))
    assert cache.topics_version == before
    tell(cache, update(topics=[("t", ONE, {1: 1})]))
    assert cache.topics_version > before


def test_a_replica_is_offline_when_the_controller_says_so_or_its_broker_is_gone(cache):
    cache.brokers = {1: None, 2: None}
    assert cache.offline(PartitionMetadata(1, 0, [1], [1, 2, 3], [2])) == [2, 3]
    assert cache.offline(PartitionMetadata(1, 0, [1], [1], [])) == []


def test_clients_are_sent_where_the_newer_of_two_words_says(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1})]))  # under leader epoch 0
    tp = TopicPartition("t", 0)
    for followed, led_by in (((-1, -1), (1, 0)), ((3, 2), (2, 3)), ((3, -1), None), ((3, 9), None)):
        hint = cache.leader_hint(tp, followed, "PLAINTEXT")
        assert (hint and (hint.broker_id, hint.epoch)) == led_by, followed
    assert cache.leader_hint(TopicPartition("u", 0), (-1, -1), "PLAINTEXT") is None


def test_clients_are_not_sent_to_a_broker_that_is_doubted(cache):
    tell(cache, update(topics=[("t", ONE, {0: 1})]))
    cache.answers[1, False, False] = before = object()
    cache.doubt(1)
    assert cache.answers == {}, "what was encoded is out of date"
    assert not cache.takes_clients(1)
    assert cache.takes_clients(2)
    assert cache.leader_hint(TopicPartition("t", 0), (-1, -1), "PLAINTEXT") is None
    assert leader_of(cache, "t", 0) == 1, "between brokers the controller's word counts"
    tell(cache, update(topics=[("t", ONE, {0: 1})]))
    assert not cache.takes_clients(1), "the controller may not know it yet"
    cache.answers[1, False, False] = before
    cache.believe(2)
    assert cache.answers
    cache.believe(1)
    assert cache.takes_clients(1)
    assert cache.answers == {}
