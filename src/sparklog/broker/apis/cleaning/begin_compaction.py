"""BeginCompaction: grant the cleaning of logs of this broker to a client, for a while; or grant it for longer.

One cleaning a log at a time: where it is being cleaned, by whomever, the answer says so, and grants nothing. What is
granted comes with a token and with all that is to be known of the log, as JSON (``compaction/split.py``). A log in
which nothing may be cleaned is no error, nor is one that another cleans; a message says so. Tokens that are unknown
come back as lapsed.
"""

from __future__ import annotations

import asyncio

from sparklog.broker.apis.cleaning.describe_compaction import NOT_COMPACTED
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import BeginCompactionRequest, BeginCompactionResponse
from sparklog.replica.cleaning import NothingToClean
from sparklog.replica.cleaning_grants import CleanedAlready
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.BEGIN_COMPACTION
VERSIONS = range(0, 1)
_NO_TOKEN = -1
_Topic = BeginCompactionResponse.GrantedTopicResult
_Partition = _Topic.GrantedPartition


async def handle(broker: BrokerContext, request: ApiRequest[BeginCompactionRequest]) -> BeginCompactionResponse:
    message = request.message
    rights = Rights(broker, request, Operation.ALTER)
    lapsed = _renew(broker, rights, message)
    topics = []
    for topic in message.topics:
        granted = []
        async for number in broker.turns.paced(topic.partitions):
            granted.append(await _granted(broker, rights, TopicPartition(topic.name, number), message))
        topics.append(_Topic(name=topic.name, partitions=granted))
    return BeginCompactionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics, lapsed=lapsed)


def _renew(broker: BrokerContext, rights: Rights, message: BeginCompactionRequest) -> list[int]:
    """The tokens that have lapsed, and those for topics that the caller may not alter."""
    grants, renewed, lapsed = broker.cleaning_grants, list[int](), list[int]()
    for token in message.renewed:
        topic = grants.topic_of(token)
        (renewed if topic is None or rights.allows(topic) else lapsed).append(token)
    return lapsed + grants.renew(renewed, message.duration_ms / 1000)


async def _granted(
    broker: BrokerContext, rights: Rights, tp: TopicPartition, message: BeginCompactionRequest
) -> _Partition:
    code, said, token, target = ErrorCode.NONE, None, _NO_TOKEN, b""
    try:
        rights.check(tp.topic)
        policy = broker.held(tp).config.cleanup_policy
        if "compact" not in policy:
            raise ApiError(NOT_COMPACTED, f"its cleanup.policy is {','.join(policy)}")
        token, found = await broker.cleaning_grants.begin(
            tp, rolls=message.rolls_active, duration_s=message.duration_ms / 1000
        )
        target = await asyncio.to_thread(lambda: found.to_json().encode())  # it may have many producers
    except ApiError as error:
        code, said = error.code, error.reason
    except (NothingToClean, CleanedAlready) as nothing:
        said = str(nothing)
    except CorruptRecord as error:
        code, said = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    except LogError as error:
        code, said = ErrorCode.OPERATION_NOT_ATTEMPTED, str(error)
    return _Partition(partition_index=tp.partition, error_code=code, error_message=said, token=token, target=target)
