"""ElectLeaders: give partitions their preferred leader, or any; with one replica each, it leads whenever it lives."""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.controller.context import ControllerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ElectLeadersRequest, ElectLeadersResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.structs import TopicPartition

API = ApiKey.ELECT_LEADERS
VERSIONS = range(0, 3)
_PREFERRED, _UNCLEAN = 0, 1
_FIRST_VERSION_WITH_TYPE = 1
_Result = ElectLeadersResponse.ReplicaElectionResult
Verdict = tuple[ErrorCode, str | None]


def handle(broker: BrokerContext, request: ApiRequest[ElectLeadersRequest]) -> Steps[ElectLeadersResponse]:
    message, context = request.message, broker.controller.context
    kind = message.election_type if request.version >= _FIRST_VERSION_WITH_TYPE else _PREFERRED
    if kind not in (_PREFERRED, _UNCLEAN):
        return (yield from _answer(ErrorCode.INVALID_REQUEST, {}))
    everywhere = message.topic_partitions is None
    if message.topic_partitions is None:
        asked = list(context.states) if context else []
    else:
        asked = [TopicPartition(each.topic, number) for each in message.topic_partitions for number in each.partitions]
    if context is None:
        no_controller: Verdict = ErrorCode.NOT_CONTROLLER, "this broker is not the controller"
        return (yield from _answer(ErrorCode.NOT_CONTROLLER, dict.fromkeys(asked, no_controller)))
    verdicts = dict(zip(asked, (yield from each_of(partial(_judge, context, kind), asked)), strict=True))
    if everywhere:  # then only what was done, or could not be, is told
        verdicts = {tp: each for tp, each in verdicts.items() if each[0] is not ErrorCode.ELECTION_NOT_NEEDED}
    return (yield from _answer(ErrorCode.NONE, verdicts))


def _judge(context: ControllerContext, kind: int, tp: TopicPartition) -> Verdict:
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
