"""CreatePartitions: more partitions for topics; answered by the controller, once they have leaders or time is up.

All are made before those of one topic are waited for: leaders that do not come use up the time of none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sparklog.broker.client_quotas import Changes
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.broker.handling.permissions import check_state_is_kept
from sparklog.broker.topics import cannot_hold, check_replication_factor
from sparklog.controller.assignment import assign_replicas, check_partition_count
from sparklog.controller.reassignment import in_progress
from sparklog.errors import ApiError, ErrorCode
from sparklog.net.tasks import to_its_end
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS
from sparklog.zk.znodes import TopicAssignment

API = ApiKey.CREATE_PARTITIONS
VERSIONS = range(0, 4)
_FIRST_STRICT = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(broker: BrokerContext, request: ApiRequest[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    message = request.message
    changes = broker.quotas.changes(request.caller, request.client_id, is_strict=request.version >= _FIRST_STRICT)
    times = Counter(topic.name for topic in message.topics)
    until = broker.turns.time() + message.timeout_ms / 1000
    topics = [*{each.name: each for each in message.topics}.values()]
    outcomes: list[ApiError | None] = []
    async for topic in broker.turns.paced(topics):
        try:
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands twice in the request")
            _check_asked(broker, request, topic.name)
            await _grow(broker, topic, changes, validate_only=message.validate_only)
            outcomes.append(None)
        except ApiError as error:
            outcomes.append(error)
    results = [
        _result(topic.name, outcome if outcome or message.validate_only else await _led(broker, topic, until))
        async for topic, outcome in broker.turns.paced(zip(topics, outcomes, strict=True))
    ]
    return CreatePartitionsResponse(throttle_time_ms=changes.throttle_ms, results=results)


def _result(topic: str, error: ApiError | None) -> _Result:
    code, text = (ErrorCode.NONE, None) if error is None else (error.code, error.reason)
    return _Result(name=topic, error_code=code, error_message=text)


def _check_asked(broker: BrokerContext, request: ApiRequest[CreatePartitionsRequest], topic: str) -> None:
    """Raises ApiError where the topic is not to be looked for."""
    if not broker.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    check(broker, request, Operation.ALTER, Resource(ResourceType.TOPIC, topic))


async def _grow(
    broker: BrokerContext,
    topic: CreatePartitionsRequest.CreatePartitionsTopic,
    changes: Changes,
    *,
    validate_only: bool,
) -> None:
    context = broker.controller.context
    if context is None:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    if topic.name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"groups find their partition of {topic.name} by its number")
    check_state_is_kept(broker.config, topic.name, "given more partitions")
    present = context.assignments.get(topic.name)
    if present is None or topic.name in context.deleting:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
    if any(in_progress(context, tp) for tp in context.partitions_of(topic.name)):
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"replicas of topic {topic.name!r} are being moved")
    racks = {each.id: each.rack for each in broker.metadata.brokers.values()}
    grown = _plan(racks, topic, present)
    if validate_only:
        return
    changes.take(len(grown.partitions) - len(present.partitions))
    await to_its_end(_write(broker, grown, context.epoch_version))


async def _led(
    broker: BrokerContext, topic: CreatePartitionsRequest.CreatePartitionsTopic, until: float
) -> ApiError | None:
    """None once brokers lead the partitions that were made; why not, where the time is up before."""

    def is_ready() -> bool:
        known = broker.metadata.topic(topic.name)
        return known is not None and len(known.partitions) >= topic.count and broker.metadata.is_ready(topic.name)

    if await broker.metadata.wait_for(is_ready, until - broker.turns.time()):
        return None
    refusals = broker.controller.refusals(topic.name)
    outcome = cannot_hold(refusals) if refusals else "have no leaders yet"
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the partitions were made, but {outcome}")


async def _write(broker: BrokerContext, grown: TopicAssignment, epoch_version: int) -> None:
    """The controller is to look whatever becomes of it: nothing else tells it of more partitions, and they may be
    there though ZooKeeper's answer is lost, or the client has hung up.
    """
    try:
        await broker.run_zk(broker.zk.topics.add_partitions, grown, epoch_version)
    finally:
        broker.controller.look_at(grown.topic)


def _plan(
    racks: Mapping[int, str | None],
    topic: CreatePartitionsRequest.CreatePartitionsTopic,
    present: TopicAssignment,
) -> TopicAssignment:
    """The old partitions and the new, on the brokers that have ``racks``. Raises ApiError if they cannot be."""
    brokers, count = sorted(racks), len(present.partitions)
    if topic.count <= count:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} may only grow, from {count} on")
    check_partition_count(topic.count)
    replicas = present.partitions[0]
    if topic.assignments is None:
        start = next((place for place, broker in enumerate(brokers) if broker >= replicas[0]), 0)
        spread = assign_replicas(
            brokers, topic.count - count, len(replicas), start=start, shift=start, first_number=count, racks=racks
        )
        added = [*spread.values()]
    else:
        added = [tuple(each.broker_ids) for each in topic.assignments]
        _check(added, topic.count - count, len(replicas), brokers)
    return TopicAssignment(topic.name, present.partitions | dict(enumerate(added, count)), present.topic_id)


def _check(added: list[tuple[int, ...]], wanted: int, replication_factor: int, brokers: list[int]) -> None:
    """Raises ApiError(INVALID_REPLICA_ASSIGNMENT) unless the assignment that the client chose holds together."""
    complaint = None
    if len(added) != wanted:
        complaint = f"{len(added)} assignments for {wanted} more partitions"
    elif unknown := {broker for replicas in added for broker in replicas} - set(brokers):
        complaint = f"brokers {sorted(unknown)} do not live; {brokers} do"
    elif any(len(set(replicas)) != len(replicas) for replicas in added):
        complaint = "a broker stands twice among the replicas of a partition"
    elif any(len(replicas) != replication_factor for replicas in added):
        complaint = f"every partition of the topic has {replication_factor} replicas"
    if complaint:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
    check_replication_factor(replication_factor)
