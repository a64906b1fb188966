import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.client.offset_reset import EARLIEST_RESET, LATEST_RESET, OffsetReset, parse_reset
from sparklog.client.offsets_to_commit import AutoCommit, OffsetAndMetadata, to_commit
from sparklog.client.subscription import Mode, Position, SubscriptionState
from sparklog.errors import ApiError, ConfigError, LocalProtocolError
from sparklog.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EVERY = (A0, A1, B0)


@pytest.fixture
def state():
    return SubscriptionState()


def test_one_way_to_read_at_a_time(state):
    state.subscribe(["a"])
    for other in (lambda: state.assign([A0]), lambda: state.subscribe_pattern("a.*")):
        with pytest.raises(LocalProtocolError, match="call unsubscribe"):
            other()
    state.unsubscribe()
    state.assign([A0])
    with pytest.raises(LocalProtocolError, match="by hand"):
        state.assigned_by_group([A0])
    assert state.mode is Mode.ASSIGNED


def test_a_pattern_matches_whole_names_and_says_when_that_changes(state):
    state.subscribe_pattern("log-[a-z]+")
    assert state.match(["log-a", "log-1", "a-log-b", "log-b2"])
    assert state.topics == {"log-a"}
    assert not state.match(["log-a", "x"])
    assert state.match(["log-a", "log-b"])
    assert state.wants("log-z")
    assert not state.wants("x-log-z")


def test_an_answer_for_an_earlier_incarnation_is_refused(state):
    state.assign([A0])
    before = state.state(A0).incarnation
    state.seek(A0, Position(7))
    assert not state.place(A0, before, Position(3))
    assert state.positions() == {A0: Position(7)}
    before = state.state(A0).incarnation
    state.unsubscribe()
    state.assign([A0])
    assert not state.place(A0, before, Position(3))
    assert state.positions() == {}


def test_what_stays_keeps_its_position_its_pause_and_its_incarnation(state):
    state.subscribe(["a"])
    state.assigned_by_group([A0, A1])
    state.seek(A0, Position(5, 2))
    state.pause([A0])
    kept = state.state(A0).incarnation
    state.give_up([A1])
    state.assigned_by_group([A0])
    assert (state.state(A0).incarnation, state.paused, state.positions()) == (kept, {A0}, {A0: Position(5, 2)})
    with pytest.raises(ApiError, match="a-1 is not assigned"):
        state.state(A1)


def test_what_is_being_given_up_is_not_fetched_and_keeps_its_position(state):
    state.assign([A0, A1])
    for tp in (A0, A1):
        state.seek(tp, Position(1))
    state.give_up([A0])
    assert state.fetchable() == [A1]
    assert state.positions() == {A0: Position(1), A1: Position(1)}


def test_a_position_with_an_epoch_is_validated_once_for_each_new_leader(state):
    state.assign([A0])
    state.seek(A0, Position(5, 2))
    state.leader_changed(A0, 3)
    assert (state.to_validate(), state.fetchable()) == ([A0], [])
    state.validated(A0, state.state(A0).incarnation, 3)
    state.leader_changed(A0, 3)
    assert (state.to_validate(), state.fetchable()) == ([], [A0])
    state.leader_changed(A0, 4)
    assert state.to_validate() == [A0]


def test_a_position_without_an_epoch_cannot_be_validated(state):
    state.assign([A0])
    state.seek(A0, Position(5))
    state.leader_changed(A0, 3)
    assert state.to_validate() == []


def test_a_negative_offset_is_refused(state):
    state.assign([A0])
    with pytest.raises(LocalProtocolError, match="offset -1"):
        state.seek(A0, Position(-1))


def test_reset_forgets_the_position(state):
    state.assign([A0, A1])
    assert state.without_position() == [A0, A1]
    state.request_reset(A0, LATEST_RESET)
    assert (state.without_position(), state.to_reset()) == ([A1], {A0: LATEST_RESET})


class Life(RuleBasedStateMachine):
    """Any order of calls keeps the invariants of the module."""

    def __init__(self):
        super().__init__()
        self.state = SubscriptionState()
        self.state.subscribe(["a", "b"])
        self.handed = {}
        self.asked = []

    @rule(partitions=st.sets(st.sampled_from(EVERY)))
    def rebalance(self, partitions):
        for tp in set(self.handed) - partitions:
            del self.handed[tp]
        self.state.assigned_by_group(partitions)

    @rule(tp=st.sampled_from(EVERY))
    def ask(self, tp):
        if tp in self.state.assignment:
            self.asked.append((tp, self.state.state(tp).incarnation))

    @precondition(lambda self: self.asked)
    @rule(offset=st.integers(0, 9), data=st.data())
    def answer(self, offset, data):
        tp, incarnation = data.draw(st.sampled_from(self.asked))
        current = tp in self.state.assignment and self.state.state(tp).incarnation == incarnation
        assert self.state.place(tp, incarnation, Position(offset)) == current
        if current:
            self.handed[tp] = offset

    @rule(tp=st.sampled_from(EVERY), offset=st.integers(0, 9))
    def seek(self, tp, offset):
        if tp in self.state.assignment:
            self.state.seek(tp, Position(offset))
            self.handed[tp] = offset

    @rule(tp=st.sampled_from(EVERY), more=st.integers(0, 3))
    def consume(self, tp, more):
        if tp in self.state.fetchable():
            self.handed[tp] += more
            self.state.consumed(tp, Position(self.handed[tp], 1))

    @rule(tp=st.sampled_from(EVERY), epoch=st.integers(0, 3))
    def new_leader(self, tp, epoch):
        self.state.leader_changed(tp, epoch)

    @rule(tp=st.sampled_from(EVERY))
    def reset(self, tp):
        if tp in self.state.assignment:
            self.state.request_reset(tp, EARLIEST_RESET)
            self.handed.pop(tp, None)

    @rule(tp=st.sampled_from(EVERY), paused=st.booleans())
    def pause(self, tp, paused):
        if tp in self.state.assignment:
            (self.state.pause if paused else self.state.resume)([tp])

    @invariant()
    def positions_are_what_was_handed_over(self):
        assert {tp: at.offset for tp, at in self.state.positions().items()} == self.handed

    @invariant()
    def every_partition_waits_for_one_thing_only(self):
        waiting = [*self.state.without_position(), *self.state.to_reset(), *self.state.positions()]
        assert sorted(waiting) == sorted(self.state.assignment)
        assert not set(self.state.fetchable()) & (set(self.state.to_validate()) | self.state.paused)


TestLife = Life.TestCase


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", EARLIEST_RESET),
        ("LATEST", LATEST_RESET),
        ("none", OffsetReset("none")),
        ("by_duration:P1DT2H", OffsetReset("by_duration", 26 * 3_600_000)),
        ("by_duration:PT1M1.5S", OffsetReset("by_duration", 61_500)),
    ],
)
def test_reset_policies(text, reset):
    assert parse_reset(text) == reset


@pytest.mark.parametrize(
    "text",
    ["", "first", "earliest:P1D", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-P1D"],
)
def test_impossible_policies_are_refused(text):
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        parse_reset(text)


def test_what_a_policy_asks_for():
    assert EARLIEST_RESET.timestamp(5) == -2
    assert LATEST_RESET.timestamp(5) == -1
    assert OffsetReset("none").timestamp(5) is None
    assert OffsetReset("by_duration", 3).timestamp(5) == 2
    assert OffsetReset("by_duration", 9).timestamp(5) == 0


def test_auto_commit_is_due_once_an_interval():
    schedule = AutoCommit(5.0, 100.0)
    assert [schedule.due(at) for at in (104.9, 105.0, 105.1, 110.0)] == [False, True, False, True]
    schedule.postpone(110.0, 0.1)
    assert [schedule.due(at) for at in (110.05, 110.2)] == [False, True]
    assert not AutoCommit(None, 0.0).due(1e9)


def test_positions_are_committed_with_their_epochs():
    assert to_commit({A0: Position(7, 2)}) == {A0: OffsetAndMetadata(7, 2)}
