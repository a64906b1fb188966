"""The changes of ISRs that this broker, as leader, has the controller write (AlterPartition).

Invariants: one request is under way at a time; what is proposed meanwhile goes with the next. A proposal is asked for
until the controller has written it, or certainly never will: an answer that was lost may have been a yes, and until
that is known the leader counts on both (``replica/in_sync``). What the leader proposes no more, for the controller
decided something else since, is dropped.
Source: Kafka 3.9, ``AlterPartitionManager.scala``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.clock import Clock
from sparklog.errors import ConnectionFailed, ErrorCode, SparklogError
from sparklog.net.peers import Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from sparklog.rate_limit import RateLimitedLogger
from sparklog.replica.in_sync import Proposal
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_LANE = "isr"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_NEVER = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST})
"""The controller has not written the change, and will not."""
_Topic = AlterPartitionRequest.TopicData


class IsrChanges:
    """Begins with the first proposal; belongs to the loop's thread."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        peers: Peers,
        clock: Clock,
        broker_epoch: Callable[[], int | None],
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._proposals: dict[TopicPartition, Proposal] = {}
        self._proposed = asyncio.Event()
        self._pause_s = 0.0
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)
        self._task = asyncio.ensure_future(self._run())

    def propose(self, tp: TopicPartition, proposal: Proposal) -> None:
        """Have the controller write it."""
        self._proposals[tp] = proposal
        self._proposed.set()

    async def close(self) -> None:
        """Ask for nothing any more."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            await self._proposed.wait()
            self._proposed.clear()
            try:
                is_settled = await self._ask()
            except SparklogError as error:
                self._warnings.warn("controller", f"the ISR of some partitions is not written yet: {error}")
                is_settled = False
            except Exception:
                _logger.exception("the ISR of some partitions is not written yet")
                is_settled = False
            if is_settled:
                self._pause_s = 0.0
                continue
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            await asyncio.sleep(self._pause_s)
            self._proposed.set()

    async def _ask(self) -> bool:
        """Whether nothing is left that is to be asked again."""
        asked = {tp: each for tp, each in self._proposals.items() if self._replicas.proposes(tp, each)}
        self._proposals = dict(asked)
        if not asked:
            return True
        controller = self._metadata.brokers.get(self._metadata.controller_id)
        epoch = self._broker_epoch()
        if controller is None or epoch is None:
            raise ConnectionFailed("there is no controller now")
        request, names = self._request(asked, epoch)
        answer = await self._peers.request(controller.endpoint, _LANE, ApiKey.ALTER_PARTITION, lambda _: request)
        if answer.error_code:
            raise ConnectionFailed(f"broker {controller.id} answered {ErrorCode(answer.error_code).name}")
        self._take(asked, names, answer)
        return not self._proposals.keys() & asked.keys()

    def _request(
        self, asked: dict[TopicPartition, Proposal], broker_epoch: int
    ) -> tuple[AlterPartitionRequest, dict[UUID, str]]:
        topics: dict[UUID, _Topic] = {}
        names: dict[UUID, str] = {}
        for tp, proposal in asked.items():
            topic_id = self._replicas.topic_id(tp)
            if topic_id is None:  # a request names topics by their ids alone
                self._drop(tp, proposal)
                self._replicas.give_up(tp, proposal)
                continue
            names[topic_id] = tp.topic
            members = zip(proposal.isr, proposal.broker_epochs, strict=True)
            topics.setdefault(topic_id, _Topic(topic_id=topic_id, partitions=[])).partitions.append(
                _Topic.PartitionData(
                    partition_index=tp.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[
                        _Topic.PartitionData.BrokerState(
                            broker_id=each, broker_epoch=broker_epoch if each == self._replicas.broker_id else epoch
                        )
                        for each, epoch in members
                    ],
                    leader_recovery_state=0,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        broker_id = self._replicas.broker_id
        request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))
        return request, names

    def _take(
        self, asked: dict[TopicPartition, Proposal], names: dict[UUID, str], answer: AlterPartitionResponse
    ) -> None:
        for topic in answer.topics:
            for each in topic.partitions:
                tp = TopicPartition(names.get(topic.topic_id or UUID(int=0), ""), each.partition_index)
                proposal = asked.get(tp)
                if proposal is None or self._replicas.topic_id(tp) != topic.topic_id:
                    continue  # of another topic of the name; its first proposals may well be the same
                code = ErrorCode(each.error_code)
                if code is ErrorCode.NONE:
                    self._drop(tp, proposal)
                    self._replicas.settle(tp, proposal, tuple(each.isr), each.partition_epoch)
                elif code in _NEVER:
                    self._drop(tp, proposal)
                    self._replicas.give_up(tp, proposal)
                else:
                    self._warnings.warn(f"{tp}", f"the ISR {list(proposal.isr)} of {tp} is not written: {code.name}")

    def _drop(self, tp: TopicPartition, proposal: Proposal) -> None:
        if self._proposals.get(tp) == proposal:
            del self._proposals[tp]
