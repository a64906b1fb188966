"""Moving replicas: which are to hold a partition, and when the old ones may go. Pure.

The phases, the znodes that each is known by, and what a controller does that finds them, are in
``docs/adr/0020-reassignment.md``. Source: Kafka 3.9, ``KafkaController.onPartitionReassignment``; KIP-455.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sparklog.controller.context import ControllerContext, Departure
from sparklog.controller.eligible import fallen, out_of_sync, standing
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.slices import Steps
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import PartitionState, ReplicaAssignment, TopicAssignment

_SLICE = 20
_NAMED = 100
Targets = Mapping[TopicPartition, tuple[int, ...]]


def reassigned(present: ReplicaAssignment, target: Sequence[int]) -> ReplicaAssignment:
    """The assignment that leads to ``target``, from where the partition was before any move under way."""
    origin = present.origin
    replicas = tuple(dict.fromkeys((*target, *origin)))
    before, wanted = frozenset(origin), frozenset(target)
    adding = tuple(each for each in replicas if each not in before)
    return ReplicaAssignment(replicas, adding, tuple(each for each in replicas if each not in wanted))


def check_target(context: ControllerContext, tp: TopicPartition, target: Sequence[int]) -> None:
    """Raises ApiError(INVALID_REPLICA_ASSIGNMENT) unless a client may ask for these replicas: brokers, each once, and
    those that are new to the partition alive.
    """
    complaint = malformed(target)
    present = context.assignment_of(tp) if tp in context.states else ReplicaAssignment(())
    if complaint is None and (gone := set(reassigned(present, target).adding) - context.brokers.keys()):
        complaint = f"brokers {_named(sorted(gone))} do not live; {sorted(context.brokers)} do"
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)


def malformed(target: Sequence[int]) -> str | None:
    """What is wrong with a list of replicas, whatever brokers there are."""
    if not target:
        return "no replica is named: a partition has one at least"
    if len(set(target)) < len(target):
        return f"a broker stands twice among the replicas {_named(target)}"
    if min(target) < 0:
        return f"{min(target)} in {_named(target)} is no broker's id"
    return None


def _named(brokers: Sequence[int]) -> str:
    """For a message, of which a client reads 32 767 bytes at most."""
    more = f" and {len(brokers) - _NAMED} more" if len(brokers) > _NAMED else ""
    return f"{list(brokers[:_NAMED])}{more}"


def plan(context: ControllerContext, tp: TopicPartition, target: Sequence[int] | None) -> ReplicaAssignment:
    """The assignment to be written; ``target`` None gives up the move under way.

    Raises ApiError: NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, or INVALID_REPLICA_ASSIGNMENT where only
    replicas are in sync that would have to go.
    """
    if target is None and tp not in context.moving:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{tp} is not being reassigned")
    if tp not in context.states or tp.topic in context.deleting:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    present = context.assignment_of(tp)
    planned = reassigned(present, present.origin if target is None else target)
    if not set(context.states[tp].isr) & set(planned.replicas):
        isr = list(context.states[tp].isr)
        text = f"only brokers {isr} have all of {tp}: it would lose records without them; wait until another is in sync"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    return planned


class TakenOver(NamedTuple):
    """What is to be done about what an operator asks for in ZooKeeper."""

    planned: dict[TopicPartition, ReplicaAssignment]
    over: dict[TopicPartition, tuple[int, ...]]
    """Done, or never to be: to be removed there."""
    refused: dict[TopicPartition, str]
    """Those of ``over`` that are never to be, and why."""


def take_over(context: ControllerContext, asked: Targets) -> Steps[TakenOver]:
    """What becomes of each, a partition a step. Brokers that do not live are waited for, as in Kafka."""
    result = TakenOver({}, {}, {})
    for tp, target in asked.items():
        yield
        try:
            complaint = malformed(target)
            if complaint is not None:
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
            planned = plan(context, tp, target)
        except ApiError as error:
            result.over[tp] = target
            result.refused[tp] = error.reason
            continue
        if planned != context.assignment_of(tp):
            result.planned[tp] = planned
        elif not planned.is_moving and tp not in context.departures:
            result.over[tp] = target
    return result


def replan(context: ControllerContext, topic: str, planned: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
    """The topic's assignment with these partitions ``planned`` anew, and all others as ZooKeeper has them."""
    return context.stored(topic).changed(planned)


def began(context: ControllerContext, topic: str, planned: Mapping[int, ReplicaAssignment]) -> None:
    """ZooKeeper has these assignments: the state is to follow, and replicas that were added for nothing are to go."""
    before = {number: context.assignment_of(TopicPartition(topic, number)) for number in planned}
    context.assignments[topic] = context.assignments[topic].changed(planned)
    for number, each in planned.items():
        tp = TopicPartition(topic, number)
        gone = set(before[number].replicas) - set(each.replicas)
        if tp in context.departures:
            gone |= context.departures.pop(tp).gone - set(each.replicas)
        if gone:
            context.departures[tp] = Departure(each, gone)
        (context.moving.add if each.is_moving else context.moving.discard)(tp)
        context.unsettled.add(tp)


def decide(
    context: ControllerContext, wanted: Mapping[TopicPartition, PartitionState]
) -> Steps[dict[TopicPartition, PartitionState]]:
    """The states that moves call for, a slice of partitions a step. One that is ``wanted`` for another reason comes
    first, and counts as told if it fits.
    """
    changes = {}
    for number, tp in enumerate([*context.moving, *(context.unsettled - context.moving)]):
        if number % _SLICE == _SLICE - 1:
            yield
        state = context.states.get(tp)
        if state is None or tp in wanted or tp.topic in context.deleting:
            continue
        change = _ended(context, tp, state) if tp in context.moving else None
        if change is None and tp in context.unsettled:
            change = _settled(context, tp, state)
        if change is not None:
            changes[tp] = change
    return changes


def _ended(context: ControllerContext, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
    """The state with which the move ends: one of the target leads, and no other is in sync. None if it must wait."""
    target = context.assignment_of(tp).target
    if not set(target) <= set(state.isr):
        return None
    leader = _leader(context, tp, target, state)
    if leader == NO_LEADER:
        return None
    return _next(context, tp, leader, tuple(each for each in state.isr if each in target), target)


def _settled(context: ControllerContext, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
    """The same under another epoch, without those that are replicas no more. None if that would leave none in sync."""
    replicas = context.replicas(tp)
    isr = tuple(each for each in state.isr if each in replicas)
    if not isr:
        return None
    return _next(context, tp, _leader(context, tp, isr, state, replicas), isr, replicas)


def _leader(
    context: ControllerContext,
    tp: TopicPartition,
    candidates: Sequence[int],
    state: PartitionState,
    replicas: Sequence[int] = (),
) -> int:
    """The one that leads, if it is a candidate that may; else the first in the order of ``replicas`` that may."""
    may = {*context.online(tp)} & {*candidates} & {*standing(state)}
    able = [each for each in replicas or candidates if each in may]
    able = [each for each in able if each not in context.leaving] or able
    return state.leader if state.leader in able else able[0] if able else int(NO_LEADER)


def _next(
    context: ControllerContext, tp: TopicPartition, leader: int, isr: tuple[int, ...], replicas: Sequence[int]
) -> PartitionState:
    """A replica that is eligible stays so, unless it is to go: it may be a replica again later, with nothing."""
    state, min_isr, restarted = context.states[tp], context.min_isr(tp), context.restarted.get(tp, ())
    others = out_of_sync(state, isr, replicas, min_isr, restarted)
    last_known = fallen(state, replicas, restarted) if leader == NO_LEADER else others.last_known
    return replace(
        state,
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=context.epoch,
        zxid=-1,
        eligible=others.eligible,
        last_known=last_known,
        min_isr=min_isr,
    )


def took_effect(context: ControllerContext, written: Mapping[TopicPartition, PartitionState]) -> None:
    """ZooKeeper has these states: where a move ends with one, its brokers are told of the target alone from now on."""
    ended: dict[str, dict[int, ReplicaAssignment]] = {}
    for tp, state in written.items():
        if not set(state.isr) <= set(context.replicas(tp)) or state.leader not in (*context.replicas(tp), NO_LEADER):
            continue
        context.unsettled.discard(tp)
        if tp in context.moving and _is_over(context.assignment_of(tp), state):
            ended.setdefault(tp.topic, {})[tp.partition] = ReplicaAssignment(context.assignment_of(tp).target)
    for topic, completed in ended.items():
        for number in completed:
            tp = TopicPartition(topic, number)
            stored, waiting = context.assignment_of(tp), context.departures.get(tp)
            gone = set(stored.removing) | (set() if waiting is None else waiting.gone)
            context.departures[tp] = Departure(stored, gone)
            context.moving.discard(tp)
        context.assignments[topic] = context.assignments[topic].changed(completed)


def _is_over(assignment: ReplicaAssignment, state: PartitionState) -> bool:
    """A replica that is to go is not counted on any more, for its files go.

    A state that was decided for another reason may still count on it.
    """
    target = set(assignment.target)
    others = {*state.eligible, *state.last_known}
    return set(state.isr) == target and state.leader in target and others <= target


def departing(context: ControllerContext) -> dict[int, list[TopicPartition]]:
    """The replicas to be deleted by live brokers that have yet to be asked, by broker. What a broker that does not live
    has is a stray when it is back.
    """
    found: dict[int, list[TopicPartition]] = {}
    for tp, departure in context.departures.items():
        departure.gone.intersection_update(context.brokers)
        if tp not in context.unsettled and tp.topic not in context.deleting:
            for broker_id in departure.gone - departure.asked:
                found.setdefault(broker_id, []).append(tp)
    return found


def departed(context: ControllerContext) -> dict[str, dict[int, ReplicaAssignment]]:
    """What ZooKeeper is to have of partitions that are nowhere any more where they are not to be, by topic.

    Those that ZooKeeper has as they are need nothing, and are forgotten here.
    """
    found: dict[str, dict[int, ReplicaAssignment]] = {}
    for tp, departure in list(context.departures.items()):
        if departure.gone or tp.topic in context.deleting or tp in context.unsettled:
            continue
        final = context.assignment_of(tp)
        if departure.stored == final:
            del context.departures[tp]
        else:
            found.setdefault(tp.topic, {})[tp.partition] = final
    return found


def finished(context: ControllerContext, partitions: Iterable[TopicPartition]) -> None:
    """ZooKeeper has the assignments of these as brokers have been told."""
    for tp in partitions:
        context.departures.pop(tp, None)


def in_progress(context: ControllerContext, tp: TopicPartition) -> ReplicaAssignment | None:
    """The move of the partition, as clients are told of it; None if it does not move."""
    if tp in context.moving:
        return context.assignment_of(tp)
    departure = context.departures.get(tp)
    return departure.stored if departure is not None and departure.stored.is_moving else None
