"""Who leads: pure decisions from a context, to be written to ZooKeeper and sent to brokers by ``runtime``.

Invariants: a leader is a replica that lives and was not refused; without ``unclean.leader.election.enable``, and unless
an operator asks for it, it comes from the ISR; the leader epoch rises with every change of leader or ISR that is made
here, and when the leader has started again; a broker that has started again is in sync no more, unless no other is; the
last member of an ISR stays in it even when it dies, for only it is known to hold all that was acknowledged.
Source: Kafka 3.9, ``PartitionStateMachine`` and ``Election``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from sparklog.controller.context import ControllerContext
from sparklog.protocol.slices import Steps
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import PartitionState

_SLICE = 20
"""So many partitions are looked at in some 20 µs."""


def initial_state(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The first state of a new partition: its live replicas are in sync. None if no replica lives."""
    isr = tuple(replica for replica in replicas if replica in live)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def elect(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    leaving: Collection[int] = (),
    restarted: Collection[int] = (),
) -> PartitionState | None:
    """The state after brokers came or went: None if it may stay as it is. One that is ``leaving`` gives its place up,
    unless no other is in sync. So does one that has ``restarted``, also to one that is gone: it may have lost what was
    not on its disk. Where all have, the leader goes on alone, under another epoch.
    """
    if restarted:
        return _elect_after_restart(state, replicas, live, controller_epoch, leaving, restarted)
    if any(replica in live and replica not in leaving for replica in state.isr):
        live = [replica for replica in live if replica not in leaving]
    isr = tuple(replica for replica in state.isr if replica in live) or state.isr[-1:]
    candidates = [replica for replica in replicas if replica in live and replica in isr]
    keeps_leader = state.leader in live and state.leader in isr
    leader = state.leader if keeps_leader else (candidates[0] if candidates else NO_LEADER)
    if leader == state.leader and isr == state.isr:
        return None
    return PartitionState(leader, state.leader_epoch + 1, isr, controller_epoch, state.version)


def _elect_after_restart(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    controller_epoch: int,
    leaving: Collection[int],
    restarted: Collection[int],
) -> PartitionState:
    kept = tuple(each for each in state.isr if each not in restarted)
    if not kept:
        kept = (state.leader,) if state.leader in state.isr else state.isr[-1:]
    without = PartitionState(state.leader, state.leader_epoch, kept, controller_epoch, state.version)
    found = elect(without, replicas, live, controller_epoch, leaving) or without
    return PartitionState(found.leader, state.leader_epoch + 1, found.isr, controller_epoch, state.version)


def elect_unclean(context: ControllerContext, tp: TopicPartition) -> PartitionState | None:
    """The state in which a replica leads that is not in sync, for none that is lives; None if none lives at all.

    What it does not have is lost, also what was acknowledged.
    """
    state, online = context.states[tp], context.online(tp)
    if not online:
        return None
    return PartitionState(online[0], state.leader_epoch + 1, (online[0],), context.epoch, state.version)


def prefer(context: ControllerContext, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """The states in which those of the partitions are led by their first replica that may be, and are not."""
    changes = {}
    for tp in partitions:
        state, first = context.states[tp], context.replicas(tp)[0]
        may_lead = first in state.isr and first in context.online(tp) and first not in context.leaving
        if state.leader != first and may_lead and tp.topic not in context.deleting:
            changes[tp] = PartitionState(first, state.leader_epoch + 1, state.isr, context.epoch, state.version)
    return changes


def imbalanced(context: ControllerContext, percentage: int) -> Steps[list[TopicPartition]]:
    """The partitions of each broker that leads so many fewer than it should: those that it should lead and does not.
    None while replicas move. A step looks at ``_SLICE`` partitions.

    Source: Kafka 3.9, ``KafkaController.checkAndTriggerAutoLeaderRebalance``.
    """
    preferred: Counter[int] = Counter()
    elsewhere: dict[int, list[TopicPartition]] = {}
    for number, (tp, state) in enumerate(list(context.states.items())):
        if number % _SLICE == _SLICE - 1:
            yield
        if tp.topic in context.deleting or tp.topic not in context.assignments:
            continue
        first = context.replicas(tp)[0]
        preferred[first] += 1
        if state.leader != first:
            elsewhere.setdefault(first, []).append(tp)
    if context.moving or context.departures:
        return []
    too_many = [each for first, each in elsewhere.items() if 100 * len(each) > percentage * preferred[first]]
    return [tp for each in too_many for tp in each]


def leaderless(
    context: ControllerContext, wanted: Mapping[TopicPartition, PartitionState]
) -> Steps[list[TopicPartition]]:
    """The partitions without a leader, when what is ``wanted`` is written, of which a replica lives all the same."""
    found = []
    for number, (tp, state) in enumerate(list(context.states.items())):
        if number % _SLICE == _SLICE - 1:
            yield
        left = wanted.get(tp, state).leader == NO_LEADER and tp.topic in context.assignments
        if left and tp.topic not in context.deleting and context.online(tp):
            found.append(tp)
    return found


def decide(context: ControllerContext) -> Steps[dict[TopicPartition, PartitionState]]:
    """Every partition state that ought to change, with the version over which it is to be written.

    A step looks at ``_SLICE`` partitions, at each as it is in that step. What a broker refuses meanwhile of those that
    were looked at before is left for the next look, for which that refusal is the cause.
    """
    live = context.brokers.keys()
    changes = {}
    looked_at = 0
    for topic, assignment in context.assignments.items():
        if topic in context.deleting:
            continue
        for number, replicas in assignment.partitions.items():
            tp = TopicPartition(topic, number)
            state = context.states.get(tp)
            online = context.online(tp) if context.is_refused(tp) else live
            change = (
                initial_state(replicas, online, context.epoch)
                if state is None
                else elect(state, replicas, online, context.epoch, context.leaving, context.restarted.get(tp, ()))
            )
            if change is not None:
                changes[tp] = change
            looked_at += 1
            if looked_at % _SLICE == 0:
                yield
    return changes
