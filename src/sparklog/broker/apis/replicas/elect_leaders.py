"""ElectLeaders: give partitions their first replica as leader, if it is in sync; or any, if they have none."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.controller.context import ControllerContext
from sparklog.controller.election import elect_unclean, prefer
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import NO_LEADER, TopicPartition

API = ApiKey.ELECT_LEADERS
VERSIONS = range(0, 3)
_PREFERRED, _UNCLEAN = 0, 1
_FIRST_VERSION_WITH_TYPE = 1
_Result = ElectLeadersResponse.ReplicaElectionResult
Verdict = tuple[ErrorCode, str | None]


def handle(
    broker: BrokerContext, request: ApiRequest[ElectLeadersRequest]
) -> Steps[ElectLeadersResponse] | Awaitable[ElectLeadersResponse]:
    refused = refusal(broker, request, Operation.ALTER)
    if refused is not ErrorCode.NONE:
        return _answer(refused, dict.fromkeys(_asked(request.message, None), (refused, None)))
    message, context = request.message, broker.controller.context
    kind = message.election_type if request.version >= _FIRST_VERSION_WITH_TYPE else _PREFERRED
    if context is not None and kind in (_PREFERRED, _UNCLEAN):
        return _elect(broker, message, context, kind)
    return _answering(message, context, kind, set())


async def _elect(
    broker: BrokerContext, message: ElectLeadersRequest, context: ControllerContext, kind: int
) -> ElectLeadersResponse:
    asked = _asked(message, context)
    elect = broker.controller.elect_preferred if kind == _PREFERRED else broker.controller.elect_unclean
    wanted = [tp async for tp in broker.turns.paced(asked) if _is_due(context, kind, tp)]
    in_office: ControllerContext | None = context
    try:
        if wanted:
            await elect(wanted)
    except ApiError:
        in_office = None
    moved = {tp for tp in wanted if tp in context.states and not _is_due(context, kind, tp)}
    return await broker.turns.drive(_answering(message, in_office, kind, moved), lambda: "an ElectLeaders")


def _asked(message: ElectLeadersRequest, context: ControllerContext | None) -> list[TopicPartition]:
    if message.topic_partitions is None:
        return list(context.states) if context else []
    return [TopicPartition(each.topic, number) for each in message.topic_partitions for number in each.partitions]


def _is_due(context: ControllerContext, kind: int, tp: TopicPartition) -> bool:
    """Whether another is to lead, and may."""
    if tp not in context.states or tp.topic in context.deleting:
        return False
    if kind == _PREFERRED:
        return bool(prefer(context, [tp]))
    return context.states[tp].leader == NO_LEADER and elect_unclean(context, tp) is not None


def _answering(
    message: ElectLeadersRequest, context: ControllerContext | None, kind: int, moved: set[TopicPartition]
) -> Steps[ElectLeadersResponse]:
    if kind not in (_PREFERRED, _UNCLEAN):
        return (yield from _answer(ErrorCode.INVALID_REQUEST, {}))
    asked = _asked(message, context)
    if context is None:
        no_controller: Verdict = ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
        return (yield from _answer(ErrorCode.NOT_CONTROLLER, dict.fromkeys(asked, no_controller)))
    judge = partial(_judge, context, kind, moved)
    verdicts = dict(zip(asked, (yield from each_of(judge, asked)), strict=True))
    if message.topic_partitions is None:  # then only what was done, or could not be, is told
        verdicts = {tp: each for tp, each in verdicts.items() if each[0] is not ErrorCode.ELECTION_NOT_NEEDED}
    return (yield from _answer(ErrorCode.NONE, verdicts))


def _judge(context: ControllerContext, kind: int, moved: set[TopicPartition], tp: TopicPartition) -> Verdict:
    if tp in moved:
        return ErrorCode.NONE, None
    state = context.states.get(tp)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    if tp.topic in context.deleting:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {tp.topic} is being deleted"
    if state.leader in context.brokers and (kind == _UNCLEAN or state.leader == context.replicas(tp)[0]):
        return ErrorCode.ELECTION_NOT_NEEDED, "the leader is the one that it should be"
    if kind == _UNCLEAN:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {tp} lives: {context.replicas(tp)}"
    return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {context.replicas(tp)[0]} cannot lead {tp} now"


def _answer(code: ErrorCode, verdicts: dict[TopicPartition, Verdict]) -> Steps[ElectLeadersResponse]:
    topics: dict[str, list[_Result.PartitionResult]] = {}
    for tp, (verdict, text) in verdicts.items():
        topics.setdefault(tp.topic, []).append(
            _Result.PartitionResult(partition_id=tp.partition, error_code=verdict, error_message=text)
        )
        yield
    results = yield from each_of(lambda each: _Result(topic=each[0], partition_result=each[1]), topics.items())
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)
