"""Which partitions DescribeProducers tells of: those that are here, led or followed."""

from types import SimpleNamespace
from typing import Any

from sparklog.broker.apis.transactions import describe_producers
from sparklog.broker.context import ApiRequest
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.protocol.messages import DescribeProducersRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

FOLLOWED, ELSEWHERE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def not_led():
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads it")


def partition(tp):
    if tp == ELSEWHERE:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here")
    entry = ProducerEntry(7, epoch=1, last_timestamp=1000, coordinator_epoch=2, transaction_first_offset=40)
    return SimpleNamespace(check_leader=not_led, producers=[entry])


def test_a_follower_tells_what_it_remembers():
    broker: Any = SimpleNamespace(authorizer=AllowEverything(), replicas=SimpleNamespace(partition=partition))
    asked = [DescribeProducersRequest.TopicRequest(name="clicks", partition_indexes=[0, 1])]
    request = ApiRequest(describe_producers.API, 0, "me", Caller("h"), DescribeProducersRequest(topics=asked))
    (topic,) = finish(describe_producers.handle(broker, request)).topics
    here, elsewhere = topic.partitions
    assert here.error_code == ErrorCode.NONE
    (producer,) = here.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.current_txn_start_offset) == (7, 1, 40)
    assert elsewhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
