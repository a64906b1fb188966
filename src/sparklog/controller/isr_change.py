"""Which changes of an ISR a leader may have (AlterPartition): pure.

Source: Kafka 3.9, ``KafkaController.processAlterPartition``; KIP-497, KIP-841, KIP-903.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from sparklog.controller.context import ControllerContext
from sparklog.controller.eligible import out_of_sync
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

UNKNOWN_EPOCH = -1


class IsrChange(NamedTuple):
    """What a leader asks for."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of the members, as the leader knows them; -1 where it does not."""
    partition_epoch: int
    """The version of the state that the leader knows."""
    topic_id: UUID | None = None
    """The topic that the leader means; None where it does not say. When the change is judged the name may be another
    topic's, whose first states are numbered alike.
    """


def judge(context: ControllerContext, tp: TopicPartition, change: IsrChange) -> PartitionState | ErrorCode:
    """The state to be written; NONE where it stands so already, or the code to refuse it with."""
    state = context.states.get(tp)
    if state is None or tp.topic in context.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.topic_id not in (None, context.assignments[tp.topic].topic_id):
        return ErrorCode.UNKNOWN_TOPIC_ID
    outdated = _outdated(state, change)
    if outdated is not None:
        return outdated
    if change.leader not in change.isr or len(set(change.isr)) < len(change.isr):
        return ErrorCode.INVALID_REQUEST
    if not set(change.isr) <= {*context.replicas(tp), *state.isr}:  # who was to go may be in sync still
        return ErrorCode.INVALID_REQUEST
    if (set(change.isr) - set(state.isr)) & context.leaving:  # it would be elected out again at once
        return ErrorCode.INELIGIBLE_REPLICA
    if not all(_is_online(context, tp, *each) for each in zip(change.isr, change.broker_epochs, strict=True)):
        return ErrorCode.INELIGIBLE_REPLICA
    restarted, min_isr = context.restarted.get(tp, ()), context.min_isr(tp)
    others = out_of_sync(state, change.isr, context.replicas(tp), min_isr, restarted)
    return replace(
        state,
        isr=change.isr,
        controller_epoch=context.epoch,
        eligible=others.eligible,
        last_known=others.last_known,
        min_isr=min_isr,
    )


def _outdated(state: PartitionState, change: IsrChange) -> ErrorCode | None:
    """What is answered to a leader that asks over another state than this one; None to one that asks over this."""
    if change.leader_epoch > state.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows of decisions that this controller does not
    if change.leader_epoch < state.leader_epoch or change.leader != state.leader:
        return ErrorCode.FENCED_LEADER_EPOCH
    if set(change.isr) == set(state.isr) and change.partition_epoch <= state.version:
        return ErrorCode.NONE  # the answer was lost
    if change.partition_epoch != state.version:
        is_behind = change.partition_epoch < state.version
        return ErrorCode.INVALID_UPDATE_VERSION if is_behind else ErrorCode.NOT_CONTROLLER
    return None


def _is_online(context: ControllerContext, tp: TopicPartition, member: int, epoch: int) -> bool:
    broker = context.brokers.get(member)
    return broker is not None and epoch in (UNKNOWN_EPOCH, broker.epoch) and member in context.online(tp)
