"""What the controller knows of the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from sparklog.controller.eligible import LogEnd, standing
from sparklog.errors import ErrorCode
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment


@dataclass
class Departure:
    """What is left to be done for a partition that has moved, or whose move was given up."""

    stored: ReplicaAssignment
    """What ZooKeeper has until every broker of ``gone`` has answered."""
    gone: set[int]
    """The brokers that are to delete their replica, and have not answered yet."""
    asked: set[int] = field(default_factory=set)
    """Those of them that have been asked."""


@dataclass
class ControllerContext:
    """A mirror of ZooKeeper, for as long as this controller's ``epoch`` lasts, and what the brokers answered.

    A replica is online when its broker lives and has not refused it. Clients are told of a leader once it has answered
    that it leads; of what an earlier controller decided they are told as it stands.
    """

    epoch: int
    epoch_version: int
    """Version of the ``/controller_epoch`` znode; every write is conditional on it."""
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    assignments: dict[str, TopicAssignment] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    """Brokers that are about to stop, and are to lead nothing that another can."""
    restarted: dict[TopicPartition, set[int]] = field(default_factory=dict)
    """Members of an ISR, and eligible replicas, that have started again since that was written, and may have lost what
    was not on their disks.
    """
    log_ends: dict[TopicPartition, dict[int, LogEnd]] = field(default_factory=dict)
    """Where the logs of replicas end where nobody stands, as their brokers told under their present registrations."""
    lives: dict[int, int] = field(default_factory=dict)
    """For each broker the life of which every partition state takes account, as ZooKeeper has it."""
    foreign_terms: range = range(0)
    """The epochs of Kafka's controllers since ``lives`` were noted: they note none."""
    min_isrs: dict[str, int] = field(default_factory=dict)
    """``min.insync.replicas`` of each topic."""
    offline: dict[int, dict[TopicPartition, ErrorCode]] = field(default_factory=lambda: defaultdict(dict))
    """The partitions that a live broker cannot hold, as it answered last, and why."""
    awaited: set[TopicPartition] = field(default_factory=set)
    """Those whose leader has yet to answer that it leads."""
    new: set[TopicPartition] = field(default_factory=set)
    """Those made in this term, which no broker has held yet."""
    moving: set[TopicPartition] = field(default_factory=set)
    """Those whose replicas are on the move; known from ``assignments``."""
    unsettled: set[TopicPartition] = field(default_factory=set)
    """Those whose replicas have changed since the state was written, as far as this controller knows: their brokers
    are to be told, under another leader epoch.
    """
    departures: dict[TopicPartition, Departure] = field(default_factory=dict)
    """Those that have moved as far as their brokers know, but not yet ZooKeeper."""
    _names: dict[UUID, str] = field(default_factory=dict)

    def assign(self, assignment: TopicAssignment) -> None:
        """ZooKeeper has this assignment of a topic."""
        topic = assignment.topic
        if topic in self.assignments:
            self._forget_assignment(topic)
        self.assignments[topic] = assignment
        if assignment.topic_id is not None:
            self._names[assignment.topic_id] = topic
        self.moving |= {TopicPartition(topic, number) for number in (*assignment.adding, *assignment.removing)}

    def _forget_assignment(self, topic: str) -> None:
        before = self.assignments.pop(topic)
        if before.topic_id is not None:
            self._names.pop(before.topic_id, None)
        for number in before.partitions:
            tp = TopicPartition(topic, number)
            self.moving.discard(tp)
            self.departures.pop(tp, None)

    def assignment_of(self, tp: TopicPartition) -> ReplicaAssignment:
        """The replicas as brokers are told. Raises KeyError if there is no such partition."""
        return self.assignments[tp.topic].of(tp.partition)

    def look_for_moves(self, tp: TopicPartition) -> None:
        """Whether the brokers may have yet to be told of the partition's replicas, for all that ZooKeeper says."""
        state, replicas = self.states[tp], self.replicas(tp)
        if tp in self.moving or not {*state.isr} <= {*replicas} or state.leader not in (*replicas, NO_LEADER):
            self.unsettled.add(tp)

    def stored(self, topic: str) -> TopicAssignment:
        """The topic's assignment as ZooKeeper has it."""
        departures = {tp.partition: self.departures.get(tp) for tp in self.partitions_of(topic)}
        stored = {number: each.stored for number, each in departures.items() if each is not None}
        return self.assignments[topic].changed(stored) if stored else self.assignments[topic]

    def replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        return self.assignments[tp.topic].partitions[tp.partition]

    def holders(self, tp: TopicPartition) -> set[int]:
        """The brokers that have files of the partition: its replicas, and those that it has moved away from."""
        departure = self.departures.get(tp)
        return {*self.replicas(tp)} if departure is None else {*self.replicas(tp)} | departure.gone

    def online(self, tp: TopicPartition) -> list[int]:
        """The replicas that may lead."""
        return [id_ for id_ in self.replicas(tp) if id_ in self.brokers and tp not in self.offline.get(id_, ())]

    def is_refused(self, tp: TopicPartition) -> bool:
        """Whether a live broker cannot hold the partition."""
        return any(tp in refused for refused in self.offline.values())

    def announced_leader(self, tp: TopicPartition) -> int:
        """The leader that clients are told of."""
        return int(NO_LEADER) if tp in self.awaited else self.states[tp].leader

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in self.assignments[topic].partitions]

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Every partition with a state that has a replica on the broker, those being deleted left out."""
        return [tp for tp in self.states if tp.topic not in self.deleting and broker_id in self.replicas(tp)]

    def write(self, states: dict[TopicPartition, PartitionState]) -> None:
        """These states are in ZooKeeper now, by this controller's hand."""
        for tp, state in states.items():
            if tp not in self.states:
                self.new.add(tp)
            self.states[tp] = state
            self.restarted.pop(tp, None)
            if state.leader != NO_LEADER:
                self.log_ends.pop(tp, None)
            self._await(tp)

    def is_news(self, tp: TopicPartition, state: PartitionState) -> bool:
        """Whether ZooKeeper has had this state of the partition after the one that is known."""
        known = self.states.get(tp)
        return known is None or state.version > known.version

    def found(self, states: dict[TopicPartition, PartitionState]) -> None:
        """ZooKeeper had these states when it was asked, or when their leaders had an ISR written. What is known to be
        newer stays: two writes may be told of in another order than they were made.
        """
        for tp, state in states.items():
            if self.is_news(tp, state):
                self.states[tp] = self._believed(tp, state)
                self.restarted.get(tp, set()).intersection_update(standing(state))

    def named(self, topic_id: UUID | None) -> str | None:
        """The name of the topic that bears this id."""
        return None if topic_id is None else self._names.get(topic_id)

    def min_isr(self, tp: TopicPartition) -> int:
        """How many replicas in sync the partition wants before anything counts: no more than it has."""
        return min(self.min_isrs.get(tp.topic, 1), len(self.replicas(tp)))

    def take_settings(self, min_isrs: Mapping[str, int]) -> set[str]:
        """What topics have for ``min.insync.replicas`` now; those where that is less than before.

        Of these no replica is eligible: a leader may have heard first, and gone on without them.
        """
        lowered = {topic for topic, wanted in min_isrs.items() if wanted < self.min_isrs.get(topic, wanted)}
        self.min_isrs.update(min_isrs)
        for tp in [tp for topic in lowered & self.assignments.keys() for tp in self.partitions_of(topic)]:
            if tp in self.states:
                self.states[tp] = self._believed(tp, self.states[tp])
        return lowered

    def _believed(self, tp: TopicPartition, state: PartitionState) -> PartitionState:
        return state if self.min_isrs.get(tp.topic, 1) >= state.min_isr else replace(state, eligible=())

    def account(self) -> dict[int, int]:
        """``lives`` as they are to be written: those of which a partition state has yet to take account left out."""
        pending = set[int]().union(*self.restarted.values())
        return self.lives | {id_: info.life for id_, info in self.brokers.items() if id_ not in pending}

    def begin_anew(self, broker_id: int) -> None:
        """The broker has started or lost its session: what it answered before says nothing any more. In another life
        than the states take account of it may have lost what was not on its disk.
        """
        has_lost = self.lives.get(broker_id) != self.brokers[broker_id].life
        self.offline.pop(broker_id, None)
        self.leaving.discard(broker_id)
        for ends in self.log_ends.values():
            ends.pop(broker_id, None)
        for tp in self.partitions_on(broker_id):
            if self.states[tp].leader == broker_id:
                self._await(tp)
            if has_lost and broker_id in standing(self.states[tp]):
                self.restarted.setdefault(tp, set()).add(broker_id)

    def look_for_lives(self, before: Mapping[int, BrokerInfo], partitions: Iterable[TopicPartition]) -> None:
        """Which of those that stand in the partitions have begun another life since the brokers were ``before``,
        when their states were on the way to ZooKeeper.
        """
        other = {id_ for id_, each in self.brokers.items() if id_ in before and before[id_].life != each.life}
        for tp in partitions:
            if tp in self.states and (since := other.intersection(standing(self.states[tp]))):
                self.restarted.setdefault(tp, set()).update(since)

    def look_for_restarts(self, tp: TopicPartition) -> None:
        """Which of those that stood when the state was written have begun another life since, when nobody was there to
        see it. A partition with a single replica has nobody who could find out.
        """
        state = self.states[tp] = self._believed(tp, self.states[tp])
        live = [self.brokers[each] for each in standing(state) if each in self.brokers]
        since = {each.id for each in live if self._began_since(each, state)}
        if since and len(self.replicas(tp)) > 1:
            self.restarted.setdefault(tp, set()).update(since)

    def _began_since(self, broker: BrokerInfo, state: PartitionState) -> bool:
        if 0 <= state.zxid < broker.life:
            return True
        is_noted = state.controller_epoch not in self.foreign_terms
        return is_noted and self.lives.get(broker.id, broker.life) != broker.life

    def took(self, broker_id: int, tp: TopicPartition) -> bool:
        """The broker holds the partition as its state says; whether that is news."""
        was_offline = tp in self.offline.get(broker_id, ())
        self.offline[broker_id].pop(tp, None)
        was_awaited = self.states[tp].leader == broker_id and tp in self.awaited
        if was_awaited:
            self.awaited.discard(tp)
        self.new.discard(tp)
        return was_offline or was_awaited

    def refused(self, broker_id: int, tp: TopicPartition, why: ErrorCode) -> None:
        """The broker cannot hold the partition."""
        self.offline[broker_id][tp] = why

    def refusals(self, topic: str) -> dict[int, ErrorCode]:
        """The brokers that cannot hold partitions of the topic, each with a reason of its own."""
        found = {}
        for broker_id, partitions in self.offline.items():
            for tp, why in partitions.items():
                if tp.topic == topic:
                    found[broker_id] = why
        return found

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        for tp in self.partitions_of(topic):
            self.states.pop(tp, None)
            self.restarted.pop(tp, None)
            self.log_ends.pop(tp, None)
            self.awaited.discard(tp)
            self.new.discard(tp)
            self.unsettled.discard(tp)
            for each in self.offline.values():
                each.pop(tp, None)
        self._forget_assignment(topic)
        self.min_isrs.pop(topic, None)
        self.deleting.discard(topic)

    def _await(self, tp: TopicPartition) -> None:
        if self.states[tp].leader == NO_LEADER:
            self.awaited.discard(tp)
        else:
            self.awaited.add(tp)
