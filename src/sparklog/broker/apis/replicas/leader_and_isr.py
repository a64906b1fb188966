"""LeaderAndIsr: the controller says which partitions this broker leads or follows.

The settings of topics with partitions that are not here are fetched first, however long that takes ZooKeeper, and the
logs that are not there are made off the loop. A topic whose settings cannot be read is refused: under others its
records might be deleted. Settings that changed meanwhile are read again when a log is taken over, though the controller
has hung up by then.

Each partition is taken over in the turn of the loop in which the fence is asked: a controller that is replaced
meanwhile changes nothing more, and is told so for each partition that is left; what was made for it is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from uuid import UUID

from sparklog.broker import partition_changes, strays
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.handling.forgetting import forget
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.making import MadePartition, NewPartition
from sparklog.log.files import check_partition, is_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

API = ApiKey.LEADER_AND_ISR
VERSIONS = range(5, 8)
_logger = logging.getLogger(__name__)
_ASK_AGAIN_S = 0.2
_AskedTopic = LeaderAndIsrRequest.LeaderAndIsrTopicState
_Topic = LeaderAndIsrResponse.LeaderAndIsrTopicError


async def handle(broker: BrokerContext, request: ApiRequest[LeaderAndIsrRequest]) -> LeaderAndIsrResponse:
    answer = await _serve(broker, request)
    await forget(broker.turns, request.message.topic_states)
    return answer


async def _serve(broker: BrokerContext, request: ApiRequest[LeaderAndIsrRequest]) -> LeaderAndIsrResponse:
    message = request.message
    code = refusal(broker, request, Operation.CLUSTER_ACTION) or await broker.fence.admit(message)
    if code is not ErrorCode.NONE:
        return LeaderAndIsrResponse(error_code=code, topics=[])
    await strays.make_way(broker, message)
    changes = broker.settings.changes_taken_over
    configs = await _settings(broker, message)
    if isinstance(configs, ErrorCode):
        return LeaderAndIsrResponse(error_code=configs, topics=[])
    asked = ((topic, each) for topic in message.topic_states for each in topic.partition_states)
    answers = {id(topic): _Topic(topic_id=topic.topic_id, partition_errors=[]) for topic in message.topic_states}
    for some in partition_changes.slices(asked):
        new = [found for each in some if (found := _new(broker, *each, configs)) is not None]
        applies = [partial(_apply, broker, message, *each, configs, changes) for each in some]
        codes = await partition_changes.apply_slice(broker, new, applies)
        for (topic, each), code in zip(some, codes, strict=True):
            error = _Topic.LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=code)
            answers[id(topic)].partition_errors.append(error)
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=list(answers.values()))


async def _settings(broker: BrokerContext, message: LeaderAndIsrRequest) -> dict[str, TopicConfig] | ErrorCode:
    """Those of each topic that has a valid name and a partition that is not here yet, if they can be read; the fence's
    code if it refuses the request while ZooKeeper is away. A partition that is here has them and hears of changes.
    """
    configs = dict[str, TopicConfig]()
    is_told = False
    for name in _begun(broker, message):
        while name not in configs and is_topic_name(name):
            try:
                configs[name] = await broker.topic_config(name)
            except ApiError as error:
                if error.code is ErrorCode.INVALID_CONFIG:
                    _logger.error("topic %s is not served: %s", name, error)
                    break
                if not is_told:
                    _logger.warning("what the controller says waits for the settings of topic %s: %s", name, error)
                is_told = True
                await asyncio.sleep(_ASK_AGAIN_S)
                code = broker.fence.check(message)
                if code is not ErrorCode.NONE:
                    return code
    return configs


def _begun(broker: BrokerContext, message: LeaderAndIsrRequest) -> list[str]:
    """The topics of which a partition is named that is not here."""
    named = {
        topic.topic_name: None
        for topic in message.topic_states
        if not all(
            broker.replicas.holds(TopicPartition(topic.topic_name, each.partition_index))
            for each in topic.partition_states
        )
    }
    return [name for name in named if name]


def _new(
    broker: BrokerContext,
    topic: _AskedTopic,
    each: _AskedTopic.LeaderAndIsrPartitionState,
    configs: Mapping[str, TopicConfig],
) -> NewPartition | None:
    """What is to be known of a partition if it is to be made; None if there can be no such partition."""
    tp = TopicPartition(topic.topic_name, each.partition_index)
    if tp.topic not in configs:
        return None
    with suppress(ApiError):
        check_partition(tp)
        epoch = each.leader_epoch if each.leader == broker.replicas.broker_id else -1
        return NewPartition(tp, configs[tp.topic], _id_of(topic), epoch, bool(each.is_new))
    return None


def _id_of(topic: _AskedTopic) -> UUID | None:
    """None if the controller does not say it."""
    return None if topic.topic_id == ZERO_UUID else topic.topic_id


def _apply(
    broker: BrokerContext,
    message: LeaderAndIsrRequest,
    topic: _AskedTopic,
    each: _AskedTopic.LeaderAndIsrPartitionState,
    configs: Mapping[str, TopicConfig],
    changes: int,
    made: dict[TopicPartition, MadePartition],
) -> ErrorCode:
    """Take over one partition, what was ``made`` of it with it; the fence is asked in the same turn of the loop. So is
    whether settings have changed since ``configs`` were read, after so many ``changes``: what changes later finds it.
    """
    code = broker.fence.check(message)
    if code is not ErrorCode.NONE:
        return code
    tp = TopicPartition(topic.topic_name, each.partition_index)
    try:
        check_partition(tp)
    except ApiError as refused:
        return refused.code
    if tp.topic not in configs and not broker.replicas.holds(tp):
        return ErrorCode.INVALID_CONFIG
    led = broker.replicas.leads(tp)
    isr, version = tuple(each.isr), each.partition_epoch
    state = PartitionState(each.leader, each.leader_epoch, isr, each.controller_epoch, version)
    error = broker.replicas.apply(
        tp,
        state,
        configs.get(tp.topic),
        _id_of(topic),
        replicas=each.replicas,
        is_new=each.is_new,
        made=made.pop(tp, None),
    )
    if tp.topic in configs and broker.settings.changes_taken_over != changes:
        broker.settings.look_again_at((tp.topic,))
    _move_coordinator(broker, tp, led)
    broker.fetchers.look_at(tp)
    return error


def _move_coordinator(broker: BrokerContext, tp: TopicPartition, led: bool) -> None:
    """The leader of a coordinator's partition coordinates what it holds."""
    leads = broker.replicas.leads(tp)
    if leads and not led:
        broker.coordinate(tp)
    elif led and not leads:
        broker.stop_coordinating(tp)
