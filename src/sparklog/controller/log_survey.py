"""Asks brokers where the logs of their replicas end (GetReplicaLogInfo), where nobody stands that has everything.

Invariants: a broker is asked only about partitions of which all that are last known to have everything are online, and
have no leader to copy from, so that what it tells stays true; it counts for the registration under which it was told.
A broker that does not offer the request (Kafka's) has told by that: ``UNTOLD``. A log that it cannot serve it tells
nothing of, and that replica is waited for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from sparklog.controller.context import ControllerContext
from sparklog.controller.eligible import UNTOLD, LogEnd, fallen, standing
from sparklog.errors import ApiError, ErrorCode, SparklogError
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import BrokerInfo

_LANE = "logs"
_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 0.5
_AT_ONCE = 1000
"""Partitions a request; a broker answers for as many in some milliseconds."""
NOTHING = LogEnd(-1, 0)
"""Of a replica of which nothing is on the broker's disks."""


def candidates(context: ControllerContext, tp: TopicPartition) -> tuple[int, ...]:
    """Those of whose logs the longest is to lead; none while somebody stands, or one of them is not online."""
    state, restarted = context.states[tp], context.restarted.get(tp, ())
    if standing(state, restarted):
        return ()
    found = fallen(state, context.replicas(tp), restarted)
    return found if {*found} <= {*context.online(tp)} else ()


class LogSurvey:
    """``on_answer`` is called when a broker has told, or is to be asked again. Belongs to the loop's thread."""

    def __init__(self, peers: Peers, on_answer: Callable[[], None]) -> None:
        self._peers = peers
        self._on_answer = on_answer
        self._asking: dict[int, asyncio.Task[None]] = {}

    def ask(self, context: ControllerContext, partitions: Collection[TopicPartition]) -> None:
        """Have the brokers tell into ``context.log_ends`` what it lacks of these partitions."""
        wanted = defaultdict[int, list[TopicPartition]](list)
        for tp in partitions:
            for each in candidates(context, tp):
                if each not in context.log_ends.get(tp, ()):
                    wanted[each].append(tp)
        for broker_id, lacking in wanted.items():
            if broker_id not in self._asking:
                task = asyncio.ensure_future(self._ask(context, context.brokers[broker_id], lacking))
                self._asking[broker_id] = task

    async def _ask(self, context: ControllerContext, broker: BrokerInfo, partitions: Sequence[TopicPartition]) -> None:
        try:
            for start in range(0, len(partitions), _AT_ONCE):
                some = partitions[start : start + _AT_ONCE]
                told = await self._ends(broker, some, _request(context, broker, some))
                if context.brokers.get(broker.id) == broker:
                    for tp, end in told.items():
                        context.log_ends.setdefault(tp, {})[broker.id] = end
        except (SparklogError, TimeoutError):
            await asyncio.sleep(_ASK_AGAIN_S)
        finally:
            self._asking.pop(broker.id, None)
        self._on_answer()

    async def _ends(
        self, broker: BrokerInfo, partitions: Sequence[TopicPartition], request: GetReplicaLogInfoRequest
    ) -> dict[TopicPartition, LogEnd]:
        """Raises SparklogError or TimeoutError."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await self._peers.request(
                    broker.endpoint, _LANE, ApiKey.GET_REPLICA_LOG_INFO, lambda _: request
                )
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return dict.fromkeys(partitions, UNTOLD)
            raise
        if answer.error_code or answer.broker_epoch != broker.epoch:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, f"{broker.endpoint} is not broker {broker.id} as it registered"
            )
        return _told(answer)

    async def close(self) -> None:
        """Nothing is asked any more."""
        asking = list(self._asking.values())
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._peers.close()


def _request(
    context: ControllerContext, broker: BrokerInfo, partitions: Sequence[TopicPartition]
) -> GetReplicaLogInfoRequest:
    numbers = defaultdict[str, list[int]](list)
    for tp in partitions:
        numbers[tp.topic].append(tp.partition)
    asked = GetReplicaLogInfoRequest.TopicLogs
    topics = [
        asked(name=topic, topic_id=context.assignments[topic].topic_id or ZERO_UUID, partitions=each)
        for topic, each in numbers.items()
        if topic in context.assignments
    ]
    return GetReplicaLogInfoRequest(broker_id=broker.id, topics=topics)


def _told(answer: GetReplicaLogInfoResponse) -> dict[TopicPartition, LogEnd]:
    """Without those that the broker cannot serve."""
    told = {}
    for topic in answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            if each.error_code == ErrorCode.NONE:
                told[tp] = LogEnd(each.last_written_leader_epoch, each.log_end_offset)
            elif each.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                told[tp] = NOTHING
    return told
