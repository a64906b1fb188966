import re
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.client.consumer.group.committed import AutoCommit, OffsetAndMetadata, to_commit
from sparklog.client.consumer.offset_reset import EARLIEST_RESET, LATEST_RESET, OffsetReset, parse_reset
from sparklog.client.consumer.subscription import Mode, Position, SubscriptionState
from sparklog.errors import ApiError, ConfigError, ErrorCode, LocalProtocolError
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import IsolationLevel, TopicPartition

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


@pytest.mark.parametrize(("pattern", "error"), [("a(", re.error), (b"b.*", TypeError), (5, TypeError)])
def test_a_pattern_that_is_refused_changes_nothing(state, pattern, error):
    with pytest.raises(error):
        state.subscribe_pattern(pattern)
    assert state.mode is Mode.NONE
    state.subscribe_pattern("a.*")
    with pytest.raises(error):
        state.subscribe_pattern(pattern)
    assert state.wants("apple")
    assert not state.wants("berry")


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


@pytest.mark.parametrize("way", ["seek", "place"])
def test_a_position_that_is_set_is_one_in_whichever_topic_has_the_name_now(state, way):
    state.assign([A0])
    state.seek(A0, Position(3))
    assert state.fetched_from(A0, UUID(int=1))
    assert state.fetched_from(A0, UUID(int=1))
    if way == "seek":
        state.seek(A0, Position(0))
    else:
        state.place(A0, state.state(A0).incarnation, Position(0))
    assert state.fetched_from(A0, UUID(int=2))
    assert not state.fetched_from(A0, UUID(int=3))


def test_records_of_another_topic_are_refused_until_the_position_is_set_anew(state):
    state.assign([A0])
    state.seek(A0, Position(3))
    assert state.fetched_from(A0, UUID(int=1))
    for _ in range(2):
        assert not state.fetched_from(A0, UUID(int=2))
    assert state.fetched_from(A0, ZERO_UUID), "a broker without ids"
    assert not state.fetched_from(A0, UUID(int=2)), "what came without an id says nothing of the topic"
    state.seek(A0, Position(0))
    assert state.fetched_from(A0, UUID(int=2))


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


def test_auto_commit_says_how_long_it_will_be():
    schedule = AutoCommit(5.0, 100.0)
    assert schedule.enabled
    assert [schedule.seconds_left(at) for at in (100.0, 103.0, 105.0, 200.0)] == [5.0, 2.0, 0.0, 0.0]
    schedule.postpone(103.0)
    assert schedule.seconds_left(103.0) == 5.0


def test_without_an_interval_nothing_is_ever_committed_by_itself():
    never = AutoCommit(None, 100.0)
    never.postpone(100.0, 0.0)
    assert not never.enabled
    assert never.seconds_left(1e9) == float("inf")


def test_an_interval_of_nothing_is_due_at_once_and_always():
    schedule = AutoCommit(0.0, 100.0)
    assert schedule.enabled
    assert [schedule.due(100.0), schedule.due(100.0)] == [True, True]


def test_positions_are_committed_with_their_epochs():
    assert to_commit({A0: Position(7, 2)}) == {A0: OffsetAndMetadata(7, 2)}


def test_nothing_is_read_at_first(state):
    assert (state.mode, state.is_group_managed) == (Mode.NONE, False)
    assert (state.topics, state.assignment) == (set(), set())
    assert (state.match(["a"]), state.wants("a")) == (False, False)
    with pytest.raises(LocalProtocolError, match="subscribe"):
        state.check_subscribed()
    with pytest.raises(LocalProtocolError, match="nothing"):
        state.assigned_by_group([A0])


def test_named_topics_are_wanted_and_no_others(state):
    state.subscribe(["a", "b"])
    assert (state.mode, state.topics, state.is_group_managed) == (Mode.TOPICS, {"a", "b"}, True)
    assert (state.wants("a"), state.wants("c")) == (True, False)
    assert not state.match(["c"])
    assert state.topics == {"a", "b"}
    state.subscribe(["c"])
    assert state.topics == {"c"}
    state.check_subscribed()


def test_another_pattern_begins_with_no_topic(state):
    state.subscribe_pattern("a.*")
    assert (state.mode, state.is_group_managed) == (Mode.PATTERN, True)
    state.match(["a1"])
    state.subscribe_pattern(re.compile("b.*"))
    assert state.topics == frozenset()
    assert state.match(["a1", "b1"])
    assert state.topics == {"b1"}
    assert state.match([])
    assert state.topics == frozenset()


def test_who_unsubscribes_wants_nothing_more(state):
    state.subscribe_pattern("a.*")
    state.match(["a1"])
    state.assigned_by_group([A0])
    state.unsubscribe()
    assert (state.mode, state.topics, state.assignment, state.wants("a1")) == (Mode.NONE, frozenset(), set(), False)
    assert not state.match(["a1"])
    state.assign([A0, A1])
    assert (state.is_group_managed, list(state.states)) == (False, [A0, A1])
    state.assign([A1])
    assert state.assignment == {A1}


def test_who_holds_what_is_no_longer_assigned_sees_it(state):
    state.assign([A0, A1])
    held, kept = state.state(A0), state.state(A1).incarnation
    before = held.incarnation
    state.assign([A1, B0])
    assert held.incarnation != before
    assert state.is_current(A1, kept)
    assert not state.is_current(A0, before)
    assert len({held.incarnation, kept, state.state(B0).incarnation, before}) == 4


def test_what_is_not_assigned_is_refused_but_for_what_is_revoked(state):
    state.assign([A0])
    for call in (
        lambda: state.pause([A0, A1]),
        lambda: state.resume([A1]),
        lambda: state.seek(A1, Position(1)),
        lambda: state.request_reset(A1, LATEST_RESET),
    ):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert state.paused == frozenset()  # all or none
    state.give_up([A1, A0])
    state.seek(A0, Position(0))
    assert state.fetchable() == []
    state.assign([A0])
    assert state.fetchable() == [A0]


def test_each_partition_is_paused_and_resumed_by_itself(state):
    state.assign([A0, A1])
    for tp in (A0, A1):
        state.seek(tp, Position(1))
    assert state.fetchable() == [A0, A1]
    state.pause([A1])
    assert (state.paused, state.fetchable()) == ({A1}, [A0])
    state.resume([A1])
    assert (state.paused, state.fetchable()) == (frozenset(), [A0, A1])


def test_a_look_up_places_the_position_once(state):
    state.assign([A0])
    state.request_reset(A0, EARLIEST_RESET)
    assert state.without_position() == []
    incarnation = state.state(A0).incarnation
    assert state.place(A0, incarnation, Position(3, 1))
    assert (state.positions(), state.to_reset(), state.fetchable()) == ({A0: Position(3, 1)}, {}, [A0])
    assert not state.place(A0, incarnation, Position(4))
    assert not state.place(A1, incarnation, Position(4))
    assert state.positions() == {A0: Position(3, 1)}


def test_another_position_is_validated_anew_and_not_for_the_old_one(state):
    state.assign([A0])
    state.seek(A0, Position(5, 2))
    asked = state.state(A0).incarnation
    state.leader_changed(A0, 3)
    state.seek(A0, Position(7, 2))
    assert (state.to_validate(), state.fetchable()) == ([], [A0])
    state.leader_changed(A0, 3)
    state.validated(A0, asked, 3)  # the answer about the position before
    assert state.to_validate() == [A0]
    state.validated(A0, state.state(A0).incarnation, 3)
    state.seek(A0, Position(8, 2))
    state.leader_changed(A0, 3)
    assert state.to_validate() == [A0]


def test_the_leader_of_epoch_zero_is_one_and_one_without_an_epoch_is_not(state):
    state.leader_changed(A0, 3)  # not assigned: nothing to do
    state.assign([A0])
    state.leader_changed(A0, 3)  # no position yet
    state.seek(A0, Position(5, 0))
    state.leader_changed(A0, -1)
    assert state.to_validate() == []
    state.leader_changed(A0, 0)
    assert state.to_validate() == [A0]


def test_a_position_without_an_epoch_is_not_validated_when_it_gets_one_under_the_same_leader(state):
    state.assign([A0])
    state.seek(A0, Position(5))
    state.leader_changed(A0, 3)
    state.consumed(A0, Position(6, 3))
    state.leader_changed(A0, 3)
    assert state.to_validate() == []
    state.leader_changed(A0, 4)
    assert state.to_validate() == [A0]


def test_a_position_never_goes_back_by_reading(state):
    state.assign([A0])
    state.seek(A0, Position(5))
    incarnation = state.state(A0).incarnation
    state.consumed(A0, Position(5, 1))
    assert state.positions() == {A0: Position(5, 1)}
    with pytest.raises(AssertionError):
        state.consumed(A0, Position(4, 1))
    assert state.is_current(A0, incarnation)


def test_how_far_behind_a_reader_is(state):
    state.assign([A0, A1, B0])
    state.seek(A0, Position(5))
    state.seek(A1, Position(5))
    for tp in (A0, B0):
        state.state(tp).high_watermark, state.state(tp).last_stable_offset = 12, 8
    assert state.lag(IsolationLevel.READ_UNCOMMITTED) == {A0: 7, A1: None, B0: None}
    assert state.lag(IsolationLevel.READ_COMMITTED) == {A0: 3, A1: None, B0: None}
    state.seek(A0, Position(9))
    assert state.lag(IsolationLevel.READ_COMMITTED)[A0] == 0


def test_positions_of_some(state):
    state.assign([A0, A1])
    state.seek(A0, Position(0))
    assert state.positions() == state.positions([A0, A1, B0]) == {A0: Position(0)}
    assert state.positions([A1]) == state.positions([]) == {}
    assert state.positions()[A0].epoch == -1


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P2D", 2 * 86_400_000),
        ("PT3H", 3 * 3_600_000),
        ("PT4M", 240_000),
        ("PT5S", 5000),
        ("pt0.0015s", 2),
        (" P1DT1H1M1S ", 86_400_000 + 3_600_000 + 60_000 + 1000),
        ("P0D", 0),
    ],
)
def test_how_old_a_record_may_be(text, milliseconds):
    assert parse_reset(f" By_Duration:{text}") == OffsetReset("by_duration", milliseconds)


@pytest.mark.parametrize("text", ["P1H", "PT1D", "1D", "P1D2H", "PT1.5M", "PT0.0000000001S"])
def test_what_is_no_duration_is_told_what_one_is(text):
    with pytest.raises(ConfigError, match=f"'{text}' is not a duration; write it as P7D, PT36H or PT90.5S"):
        parse_reset(f"by_duration:{text}")


def test_a_policy_goes_by_its_name_and_what_is_none_is_told_those_there_are():
    assert [str(parse_reset(text)) for text in (" Earliest ", "none", "by_duration:P1D")] == [
        "earliest",
        "none",
        "by_duration",
    ]
    with pytest.raises(ConfigError, match="'first': must be one of earliest, latest, none, or by_duration"):
        parse_reset("first")


def test_what_is_known_of_a_partition_that_was_just_assigned(state):
    state.assign([A0])
    found = state.state(A0)
    known = found.position, found.reset, found.high_watermark, found.last_stable_offset, found.log_start_offset
    assert known == (None, None, None, None, None)
    assert (found.paused, found.giving_up, found.needs_validation, found.is_fetchable) == (False,) * 4
    assert (found.validated_epoch, found.topic_id) == (-1, ZERO_UUID)


def test_a_reset_forgets_what_was_validated_and_of_which_topic_it_was(state):
    state.assign([A0])
    state.seek(A0, Position(5, 2))
    state.fetched_from(A0, UUID(int=1))
    state.leader_changed(A0, 3)
    before = state.state(A0).incarnation
    state.request_reset(A0, LATEST_RESET)
    found = state.state(A0)
    assert (found.position, found.reset, found.needs_validation, found.topic_id) == (
        None,
        LATEST_RESET,
        False,
        ZERO_UUID,
    )
    assert found.incarnation != before
    assert state.positions() == {}
    state.seek(A0, Position(1))
    assert state.to_reset() == {}


def test_a_topic_is_named_by_the_user_and_not_by_a_pattern_or_by_others_of_the_group():
    subscription = SubscriptionState()
    subscription.subscribe(["a"])
    assert (subscription.names("a"), subscription.names("b")) == (True, False)
    subscription.unsubscribe()
    subscription.assign([TopicPartition("a", 0)])
    assert subscription.names("a")
    subscription.unsubscribe()
    subscription.subscribe_pattern("a")
    subscription.match(["a"])
    assert not subscription.names("a")
