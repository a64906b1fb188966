"""Which replica leads: pure decisions from a context, to be written to ZooKeeper and sent to brokers by ``runtime``.

Invariants: a leader is a replica that lives and was not refused; without ``unclean.leader.election.enable``, and unless
an operator asks for it, it comes from the ISR, and where none of that lives, from the eligible; the leader epoch rises
with every change of leader, ISR or eligible replicas that is made here; a broker that has started again, and may have
lost its end, is neither in sync nor eligible, as long as there is one that is, dead or alive; where all that stood have
started again, all of them are waited for, and the one with the longest log leads; an ISR is never empty.
Source: Kafka 3.9, ``PartitionStateMachine`` and ``Election``; Kafka 4.1, ``PartitionChangeBuilder``; KIP-966, whose
"balanced" recovery is the one by the longest log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sparklog.controller.context import ControllerContext
from sparklog.controller.eligible import UNTOLD, LogEnd, fallen, out_of_sync, standing
from sparklog.protocol.slices import Steps
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import PartitionState

_SLICE = 20
"""So many partitions are looked at in some 20 µs."""
NOT_ASKED: Mapping[int, LogEnd] = MappingProxyType({})
"""Nobody has told where its log ends."""


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
    min_isr: int = 1,
    ends: Mapping[int, LogEnd] = NOT_ASKED,
) -> PartitionState | None:
    """The state after brokers came or went: None if it may stay as it is.

    One that is ``leaving`` gives its place up, unless no other is in sync. One that has ``restarted``, and may have
    lost what was not on its disk, gives it up also to one that is gone. Where all have, ``ends`` tells who leads.
    """
    if not restarted and not leaving and state.leader in live and all(each in live for each in state.isr):
        return None
    left = _left(state, replicas, restarted)
    isr = _in_sync(state, replicas, live, leaving, left)
    eligible, last_known = tuple[int, ...](), tuple[int, ...]()
    if isr:
        leader = state.leader if state.leader in isr else next((each for each in replicas if each in isr), NO_LEADER)
        eligible, last_known = out_of_sync(state, isr, replicas, min_isr, restarted)
    elif left:
        isr, eligible = _nobody(state, replicas, left)
        leader, last_known = int(NO_LEADER), fallen(state, replicas, restarted)
    else:
        last_known = fallen(state, replicas, restarted) or state.isr[-1:]
        found = longest(last_known, live, ends)
        leader, isr = (int(NO_LEADER), last_known[:1]) if found is None else (found, (found,))
        if found is not None:
            last_known = out_of_sync(replace(state, last_known=last_known), isr, replicas, min_isr).last_known
    known = (state.leader, state.isr, state.eligible, state.last_known)
    if known == (leader, isr, eligible, last_known) and not {*restarted} & {*standing(state)}:
        return None
    epoch = state.leader_epoch + 1
    return PartitionState(
        leader,
        epoch,
        isr,
        controller_epoch,
        state.version,
        eligible=eligible,
        last_known=last_known,
        min_isr=min_isr,
    )


def _left(state: PartitionState, replicas: Sequence[int], restarted: Collection[int]) -> list[int]:
    """Those that stand, the ISR first. One that is a replica no more, for its move was given up, counts only where no
    other does: it can never lead, and would be waited for in vain.
    """
    members = standing(state, restarted)
    return [each for each in members if each in replicas] or [each for each in members if each in state.isr]


def _in_sync(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    leaving: Collection[int],
    left: Collection[int],
) -> tuple[int, ...]:
    """The members of the ISR that go on; without any, the first of the eligible that lives."""
    isr = [each for each in state.isr if each in left and each in live]
    if isr:
        return tuple(each for each in isr if each not in leaving) or tuple(isr)
    eligible = [each for each in replicas if each in state.eligible and each in left and each in live]
    staying = [each for each in eligible if each not in leaving]
    return tuple((staying or eligible)[:1])


def _nobody(
    state: PartitionState, replicas: Sequence[int], left: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ISR and the eligible while none of those that are ``left`` lives. Kafka's znode wants an ISR that is not
    empty: the last of them is it.
    """
    last = [each for each in left if each in state.isr][-1:] or left[-1:]
    return tuple(last), tuple(each for each in replicas if each in left and each not in last)


def longest(candidates: Sequence[int], live: Collection[int], ends: Mapping[int, LogEnd]) -> int | None:
    """Which of those that are last known to have everything leads: the one with the longest log, the first among
    equals. None until all of them live and have told. Where one cannot tell, the first leads: it led last.
    """
    first = candidates[0]
    if not all(each in live for each in candidates):
        return None
    if len(candidates) == 1:
        return first
    if not all(each in ends for each in candidates):
        return None
    if any(ends[each] == UNTOLD for each in candidates):
        return first
    return max(candidates, key=lambda each: (ends[each], each == first))


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
        may_lead = (
            first in standing(state)
            and first in state.isr
            and first in context.online(tp)
            and first not in context.leaving
        )
        if state.leader != first and may_lead and tp.topic not in context.deleting:
            epoch = state.leader_epoch + 1
            changes[tp] = replace(state, leader=first, leader_epoch=epoch, controller_epoch=context.epoch)
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
                else elect(
                    state,
                    replicas,
                    online,
                    context.epoch,
                    context.leaving,
                    context.restarted.get(tp, ()),
                    context.min_isr(tp),
                    context.log_ends.get(tp, NOT_ASKED),
                )
            )
            if change is not None:
                changes[tp] = change
            looked_at += 1
            if looked_at % _SLICE == 0:
                yield
    return changes
