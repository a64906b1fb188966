"""Moves of replicas: the rules one by one, and whole moves with the controller dying between any two steps."""

from dataclasses import replace
from itertools import count

import pytest

from sparklog.controller import election, reassignment
from sparklog.controller.context import ControllerContext
from sparklog.controller.isr_change import IsrChange, judge
from sparklog.controller.reassignment import check_target, in_progress, plan, reassigned, take_over
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import NO_LEADER, Endpoint, TopicPartition
from sparklog.testing.steps import counted, finish
from sparklog.zk import znodes
from sparklog.zk.znodes import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment

TP = TopicPartition("t", 0)
EPOCH = 9
STILL = ReplicaAssignment((1, 2))
MOVING = ReplicaAssignment((3, 2, 1), adding=(3,), removing=(1,))


def context_of(assignment=STILL, isr=(1, 2), leader=1, live=(1, 2, 3, 4)):
    context = ControllerContext(EPOCH, 0, brokers={each: BrokerInfo(each, Endpoint("h", each)) for each in live})
    context.assign(TopicAssignment("t", {}).changed({0: assignment}))
    context.states[TP] = PartitionState(leader, 5, tuple(isr), 1, version=3)
    context.look_for_moves(TP)
    return context


@pytest.mark.parametrize(
    ("present", "target", "expected"),
    [
        (STILL, (3, 4), ReplicaAssignment((3, 4, 1, 2), (3, 4), (1, 2))),
        (STILL, (2, 3), ReplicaAssignment((2, 3, 1), (3,), (1,))),
        (STILL, (2, 1), ReplicaAssignment((2, 1))),
        (STILL, (1, 2, 3), ReplicaAssignment((1, 2, 3), (3,))),
        (STILL, (2,), ReplicaAssignment((2, 1), (), (1,))),
        (MOVING, (2, 1), ReplicaAssignment((2, 1))),
        (MOVING, (4, 2), ReplicaAssignment((4, 2, 1), (4,), (1,))),
        (MOVING, (3, 2), MOVING),
    ],
)
def test_an_assignment_leads_to_its_target_from_where_the_partition_was(present, target, expected):
    """Kafka's ``ReplicaAssignment.reassignTo`` gives these."""
    assert reassigned(present, target) == expected
    assert set(expected.target) == set(target)
    assert set(expected.origin) == set(present.origin)


@pytest.mark.parametrize("target", [(), (1, 1), (-1,), (1, 7)])
def test_a_target_that_cannot_be_is_refused(target):
    with pytest.raises(ApiError) as refused:
        check_target(context_of(), TP, target)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


class Compared(int):
    """A broker's id that counts how often any is compared."""

    times = 0

    def __eq__(self, other):
        Compared.times += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_each_of_many_replicas_is_looked_at_some_times_and_the_refusal_can_be_read():
    """A client that names nineteen thousand held up all others for more than a second."""
    many = tuple(Compared(each) for each in range(2000))
    with pytest.raises(ApiError) as refused:
        check_target(context_of(), TP, many)
    assert Compared.times < 10 * len(many)
    assert "[0, 5, 6, 7" in refused.value.reason
    assert "1896 more do not live" in refused.value.reason


@pytest.mark.parametrize("target", [(1,) * 20_000, (*range(20_000), -1)])
def test_a_refusal_names_some_of_many_replicas(target):
    with pytest.raises(ApiError) as refused:
        check_target(context_of(), TP, target)
    assert len(refused.value.reason) < 1000


def test_a_broker_that_is_a_replica_already_need_not_live():
    check_target(context_of(live=(1, 3)), TP, (2, 3))


@pytest.mark.parametrize(
    ("tp", "target", "code"),
    [
        (TP, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("u", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("u", 0), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 1), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_does_not_move_is_not_given_up_and_what_is_not_there_not_moved(tp, target, code):
    with pytest.raises(ApiError) as refused:
        plan(context_of(), tp, target)
    assert refused.value.code is code


def test_a_topic_that_is_being_deleted_is_not_moved():
    context = context_of()
    context.deleting = {"t"}
    with pytest.raises(ApiError) as refused:
        plan(context, TP, (3,))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    context.unsettled.add(TP)
    assert not finish(reassignment.decide(context, {}))


@pytest.mark.parametrize("target", [None, (2, 4)])
def test_a_move_is_not_given_up_while_only_what_was_added_has_all(target):
    with pytest.raises(ApiError) as refused:
        plan(context_of(MOVING, isr=(3,), leader=3), TP, target)
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "[3]" in refused.value.reason


def decided(context, wanted=None):
    return finish(reassignment.decide(context, wanted or {})).get(TP)


@pytest.mark.parametrize(
    ("isr", "leader", "live", "expected"),
    [
        ((1, 2, 3), 1, (1, 2, 3), (3, (2, 3))),
        ((1, 2, 3), 2, (1, 2, 3), (2, (2, 3))),
        ((1, 2, 3), 1, (1, 2), (2, (2, 3))),
        ((2, 3), 3, (1, 2, 3), (3, (2, 3))),
        ((1, 2, 3), 1, (1,), None),
        ((1, 2), 1, (1, 2, 3), None),
        ((1, 3), 1, (1, 2, 3), None),
    ],
    ids=str,
)
def test_a_move_ends_when_all_of_the_target_are_in_sync_and_one_can_lead(isr, leader, live, expected):
    context = context_of(MOVING, isr=isr, leader=leader, live=live)
    context.unsettled.clear()
    found = decided(context)
    assert (found and (found.leader, found.isr)) == expected
    if found:
        assert (found.leader_epoch, found.controller_epoch, found.version) == (6, EPOCH, 3)


def test_one_that_is_about_to_stop_does_not_take_over_if_another_can():
    context = context_of(MOVING, isr=(1, 2, 3))
    context.leaving = {3}
    assert decided(context).leader == 2
    context.leaving = {2, 3}
    assert decided(context).leader == 3


def test_brokers_are_told_of_a_move_under_another_epoch_once():
    context = context_of(MOVING)
    told = decided(context)
    assert (told.leader, told.leader_epoch, told.isr) == (1, 6, (1, 2))
    reassignment.took_effect(context, {TP: told})
    assert decided(context) is None
    assert in_progress(context, TP) == MOVING


def test_what_is_decided_for_another_reason_comes_first_and_tells_the_brokers_too():
    context = context_of(MOVING)
    other = replace(context.states[TP], leader=2, leader_epoch=6, isr=(2,))
    assert decided(context, {TP: other}) is None
    reassignment.took_effect(context, {TP: other})
    assert TP not in context.unsettled


@pytest.mark.parametrize(
    ("isr", "leader", "expected"),
    [((1, 2, 3), 3, (1, (1, 2))), ((2, 3), 3, (2, (2,))), ((1, 2, 3), 1, (1, (1, 2))), ((3,), 3, None)],
    ids=str,
)
def test_a_replica_that_is_none_any_more_leads_nothing_if_another_has_all(isr, leader, expected):
    """As a controller finds it that takes over when a move has just been given up."""
    found = decided(context_of(STILL, isr=isr, leader=leader))
    assert (found and (found.leader, found.isr)) == expected


def test_no_live_replica_in_sync_means_no_leader_until_one_is_back():
    assert decided(context_of(STILL, isr=(1, 3), leader=3, live=(3,))).leader == NO_LEADER


def test_a_replica_that_has_gone_is_not_elected_when_it_is_made_anew():
    """It was eligible; with its files went what it had."""
    context = context_of(ReplicaAssignment((1, 2), (), (2,)), isr=(1,))
    context.min_isrs["t"] = 2
    context.states[TP] = replace(context.states[TP], eligible=(2,), min_isr=2)
    for present in (None, ReplicaAssignment((1, 2), adding=(2,))):
        if present is not None:
            reassignment.began(context, "t", {0: present})
        told = decided(context)
        context.write({TP: told})
        reassignment.took_effect(context, {TP: told})
    assert (told.isr, told.eligible) == ((1,), ())
    del context.brokers[1]
    assert finish(election.decide(context))[TP].leader == NO_LEADER


def test_a_move_does_not_end_with_a_state_that_counts_on_a_replica_that_goes():
    """Decided as it leaves the ISR, for it has died: it would be counted on with nothing when it is a replica again."""
    context = context_of(ReplicaAssignment((1, 2), (), (2,)))
    context.min_isrs["t"] = 2
    del context.brokers[2]
    wanted = finish(election.decide(context))
    assert wanted[TP].eligible == (2,)
    for _ in range(2):
        states = {tp: replace(state, version=state.version + 1) for tp, state in wanted.items()}
        context.write(states)
        reassignment.took_effect(context, states)
        wanted = finish(election.decide(context))
        wanted |= finish(reassignment.decide(context, wanted))
    assert not wanted
    assert context.replicas(TP) == (1,)
    assert (context.states[TP].isr, context.states[TP].eligible) == ((1,), ())


@pytest.mark.parametrize("live", [(), (3,)], ids=["both are dead", "one is left that is to go"])
def test_a_move_that_is_given_up_while_its_replicas_are_dead_ends_with_one_that_can_lead(live):
    """Who was added for nothing has its files set aside: were it waited for, there would be no leader for good."""
    context = context_of(MOVING, isr=(1, 3), live=live)
    reassignment.began(context, "t", {0: ReplicaAssignment((1, 2))})
    for back in ((), (3,), (1, 3)):
        context.brokers |= {each: BrokerInfo(each, Endpoint("h", each)) for each in back}
        wanted = finish(election.decide(context))
        wanted |= finish(reassignment.decide(context, wanted))
        states = {tp: replace(state, version=state.version + 1) for tp, state in wanted.items()}
        context.write(states)
        reassignment.took_effect(context, states)
    assert (context.states[TP].leader, context.states[TP].isr) == (1, (1,))
    assert reassignment.departing(context) == {3: [TP]}


def test_who_is_eligible_stays_so_when_others_are_added():
    context = context_of(isr=(1,))
    context.min_isrs["t"] = 2
    context.states[TP] = replace(context.states[TP], eligible=(2,), min_isr=2)
    reassignment.began(context, "t", {0: ReplicaAssignment((1, 2, 3), adding=(3,))})
    assert decided(context).eligible == (2,)


def test_a_move_is_listed_until_zookeeper_has_its_end():
    context = context_of(MOVING, isr=(1, 2, 3))
    reassignment.took_effect(context, {TP: decided(context)})
    assert context.replicas(TP) == (3, 2)
    assert in_progress(context, TP) == MOVING
    assert not reassignment.departed(context)
    assert reassignment.departing(context) == {1: [TP]}
    context.departures[TP].gone.clear()
    assert reassignment.departed(context) == {"t": {0: ReplicaAssignment((3, 2))}}
    reassignment.finished(context, [TP])
    assert in_progress(context, TP) is None


def test_what_moves_in_many_partitions_is_looked_at_in_steps():
    context = ControllerContext(EPOCH, 0)
    number = 1000
    context.assign(TopicAssignment("t", {}).changed(dict.fromkeys(range(number), MOVING)))
    for each in context.partitions_of("t"):
        context.states[each] = PartitionState(1, 5, (1, 2), 1)
    assert counted(reassignment.decide(context, {}))[0] >= number // 50


def test_what_zookeeper_asks_for_is_taken_over_and_forgotten_when_it_is_so():
    context = context_of()
    asked = {TP: (3, 2), TopicPartition("u", 0): (1,), TopicPartition("t", 4): (1,)}
    found = finish(take_over(context, asked))
    assert found.planned == {TP: MOVING}
    assert found.over == {tp: asked[tp] for tp in (TopicPartition("u", 0), TopicPartition("t", 4))}
    assert set(found.refused) == set(found.over)
    assert finish(take_over(context_of(MOVING), {TP: (3, 2)})) == ({}, {}, {})
    assert finish(take_over(context, {TP: (1, 2)})).over == {TP: (1, 2)}
    assert finish(take_over(context, {TP: (7, 1)})).planned, "a broker that does not live is waited for, as in Kafka"
    assert finish(take_over(context, {TP: ()})).refused


class Crash(Exception):
    """The controller's."""


class World:
    """ZooKeeper, and brokers that copy when they are told to. ``files``: who has all of the partition."""

    def __init__(self, replicas, live=(1, 2, 3, 4, 5)):
        self.topic = znodes.encode_topic(TopicAssignment("t", {0: tuple(replicas)}))
        self.state = PartitionState(replicas[0], 0, tuple(replicas), 1, version=0)
        self.live = set(live)
        self.files = set(replicas)
        self.told = {}
        self.epoch = 1

    def elect_controller(self):
        self.epoch += 1
        context = ControllerContext(self.epoch, 0)
        context.brokers = {each: BrokerInfo(each, Endpoint("h", each)) for each in self.live}
        context.assign(self.assignment)
        context.states[TP] = self.state
        context.look_for_moves(TP)
        return context

    @property
    def assignment(self):
        return znodes.decode_topic("t", self.topic)

    def write_state(self, state):
        assert self.state.version == state.version
        assert state.leader_epoch > self.state.leader_epoch
        self.state = replace(state, version=state.version + 1)
        return self.state

    def check(self):
        assert set(self.state.isr) <= self.files, "who is in sync has all"
        assert self.state.leader in (*self.state.isr, NO_LEADER)
        assert self.state.isr

    def look(self, context, fresh, wishes):
        """What one look of the controller does; it may die wherever this stops."""
        for target in wishes:
            try:
                planned = {0: plan(context, TP, target)}
            except ApiError as refused:
                if target is not None or refused.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                    raise
                continue
            yield
            self.topic = znodes.with_replicas("", self.topic, reassignment.replan(context, "t", planned))
            yield
            reassignment.began(context, "t", planned)
        wanted = finish(election.decide(context))
        wanted |= finish(reassignment.decide(context, wanted))
        yield
        written = {tp: self.write_state(state) for tp, state in wanted.items()}
        context.write(written)
        reassignment.took_effect(context, written)
        for broker in sorted(self.live):
            if fresh or (written and broker in context.online(TP)):
                yield
                self.tell(context, broker)
        for broker in reassignment.departing(context):
            yield
            self.delete(broker)
            context.departures[TP].gone.discard(broker)
        for topic, completed in reassignment.departed(context).items():
            yield
            new = context.stored(topic).changed(completed)
            self.topic = znodes.with_replicas("", self.topic, new)
            yield
            reassignment.finished(context, [TP])

    def tell(self, context, broker):
        if broker in context.replicas(TP):
            self.told[broker] = context.states[TP], context.replicas(TP)
        elif broker not in self.assignment.partitions[0]:
            self.delete(broker)

    def delete(self, broker):
        self.told.pop(broker, None)
        self.files.discard(broker)
        self.check()

    def replicate(self, context):
        """What followers are told to copy they copy; the leader has them join."""
        known, replicas = self.told.get(self.state.leader, (None, ()))
        if known is None or known.leader_epoch != self.state.leader_epoch:
            return
        for each in replicas:
            state = self.told.get(each, (None,))[0]
            if each in self.live and state is not None and state.leader_epoch == known.leader_epoch:
                self.files.add(each)
                isr = (*self.state.isr, each)
                if each not in self.state.isr:
                    change = IsrChange(known.leader, known.leader_epoch, isr, (-1,) * len(isr), self.state.version)
                    verdict = judge(context, TP, change)
                    if isinstance(verdict, PartitionState):
                        self.state = replace(verdict, version=verdict.version + 1)
                        context.found({TP: self.state})


def play(world, wishes, crash_at):
    """Moves as the wishes say, one after the other, each when the one before is begun; whether the controller died."""
    context, is_fresh, steps, has_died = world.elect_controller(), True, count(), False
    todo = list(wishes)
    for _ in range(30):
        due = todo[:1]
        try:
            for _ in world.look(context, is_fresh, due):
                world.check()
                if next(steps) == crash_at:
                    raise Crash
            is_fresh = False
            todo = todo[1:]
        except Crash:
            has_died = True
            context, is_fresh = world.elect_controller(), True
        world.check()
        world.replicate(context)
    return context, has_died


MOVES: dict[str, tuple[tuple[int, ...], list[tuple[int, ...] | None]]] = {
    "elsewhere": ((1, 2), [(3, 4)]),
    "the leader goes": ((1, 2), [(2, 3)]),
    "another order": ((1, 2, 3), [(3, 2, 1)]),
    "more": ((1,), [(1, 2, 3)]),
    "fewer": ((1, 2, 3), [(2,)]),
    "another target meanwhile": ((1, 2), [(3, 4), (4, 5)]),
    "given up": ((1, 2), [(3, 4), None]),
    "given up and begun again": ((1, 2), [(3, 4), None, (3, 1)]),
    "back and forth": ((1, 2), [(3, 4), (1, 2), (3, 4)]),
    "the same twice": ((1, 2), [(3, 4), (3, 4)]),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_move_ends_well_wherever_the_controller_dies(move):
    origin, wishes = MOVES[move]
    for crash_at in count():
        world = World(origin)
        context, has_died = play(world, wishes, crash_at)
        final = world.assignment.of(0)
        assert not final.is_moving
        assert not context.departures
        assert not context.unsettled
        may_be = [wishes[-1]] if wishes[-1] is not None else [origin, *(wishes[:-1] if has_died else ())]
        assert set(final.replicas) in map(set, may_be), f"died at step {crash_at}"
        assert set(world.state.isr) == world.files == set(final.replicas)
        assert set(world.told) == set(final.replicas)
        assert {state.leader_epoch for state, _ in world.told.values()} == {world.state.leader_epoch}
        if not has_died:
            break


@pytest.mark.parametrize("dead", [{3}, {4}, {1}, {2}, {1, 2}, {3, 4}], ids=str)
def test_a_move_waits_for_its_target_and_not_for_who_goes(dead):
    world = World((1, 2))
    world.live -= dead
    if dead == {1, 2}:
        world.state = replace(world.state, leader=NO_LEADER)
    play(world, [(3, 4)], -1)
    final = world.assignment.of(0)
    if dead & {3, 4} or dead == {1, 2}:
        assert final.is_moving, "a replica of the target has not all of it"
        world.live |= dead
        play(world, [], -1)
        final = world.assignment.of(0)
    assert final == ReplicaAssignment((3, 4))
    assert set(world.state.isr) == {3, 4}
