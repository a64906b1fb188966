"""Fetch sessions: what is left out is known, nothing starves, and who gives way to whom."""

import random
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.broker import fetch_sessions
from sparklog.broker.fetch_sessions import FetchSessions, IncrementalFetch, SessionlessFetch
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest, ForgottenPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import OffsetAndEpoch

EVICTION_MS = 1000
NAMES = {UUID(int=number): f"t{number}" for number in range(1, 4)}
FOLLOWER = 7


def asked(partition=0, offset=0, topic="t1", topic_id=ZERO_UUID):
    return FetchPartition(topic, topic_id, partition, offset, 1 << 20)


def by_id(partition=0, number=1):
    return asked(partition, topic="", topic_id=UUID(int=number))


def request(*partitions, session=0, epoch=0, forgotten=(), replica=-1):
    return FetchRequest(
        0, 1, 1 << 20, list(partitions), replica_id=replica, session_id=session, session_epoch=epoch,
        forgotten=[ForgottenPartition(each.topic, each.topic_id, each.partition) for each in forgotten],
    )  # fmt: skip


def told(each, high_watermark=5, records=False, error=ErrorCode.NONE, log_start=0, topic=None):
    found = FetchedPartition(each.topic if topic is None else topic, each.topic_id, each.partition, error)
    if error is ErrorCode.NONE:
        found.high_watermark, found.log_start_offset = high_watermark, log_start
        found.records = [b"batch"] if records else []
    return found


class Sessions:
    """``FetchSessions`` with a clock and names to hand."""

    def __init__(self, slots=10, seed=1):
        self.now = 0
        self.names = dict(NAMES)
        self.sessions = FetchSessions(slots, EVICTION_MS, random.Random(seed).randrange)

    def begin(self, message, *, uses_ids=False):
        return self.sessions.begin(message, self.now, uses_ids=uses_ids)

    def answer(self, message, *, uses_ids=False, tell=told):
        fetch = self.begin(message, uses_ids=uses_ids)
        return fetch.answer([tell(each) for each in fetch.asked])

    def refused(self, message, *, uses_ids=False):
        with pytest.raises(ApiError) as caught:
            self.begin(message, uses_ids=uses_ids)
        return caught.value.code

    def grant(self, size=1, replica=-1):
        return self.answer(request(*map(asked, range(size)), replica=replica)).session_id


@pytest.fixture
def sessions():
    return Sessions()


def numbers(answer):
    return [each.partition for each in answer.partitions]


def test_a_full_fetch_is_granted_a_session_and_answered_whole(sessions):
    answer = sessions.answer(request(asked(0), asked(1)))
    assert answer.session_id > 0
    assert (answer.error, numbers(answer)) == (ErrorCode.NONE, [0, 1])


def test_a_final_fetch_gets_no_session_and_ends_the_one_it_names(sessions):
    session = sessions.grant()
    answer = sessions.answer(request(asked(0), session=session, epoch=-1))
    assert (answer.session_id, numbers(answer), len(sessions.sessions)) == (0, [0], 0)
    assert sessions.refused(request(session=session, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_that_names_a_session_takes_its_place(sessions):
    old = sessions.grant()
    new = sessions.answer(request(asked(0), session=old)).session_id
    assert new not in (0, old)
    assert len(sessions.sessions) == 1


def test_only_what_has_changed_is_told(sessions):
    session = sessions.answer(request(*map(asked, range(5)))).session_id
    assert sessions.answer(request(session=session, epoch=1)).partitions == []
    news = {
        1: {"records": True},
        2: {"high_watermark": 6},
        3: {"log_start": 1},
        4: {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
    }
    answer = sessions.answer(request(session=session, epoch=2), tell=lambda e: told(e, **news.get(e.partition, {})))
    assert numbers(answer) == [1, 2, 3, 4]
    assert answer.session_id == session
    back = sessions.answer(request(session=session, epoch=3))
    assert numbers(back) == [2, 3, 4], "2 and 3 went back, and 4 has no error any more"


def test_an_error_is_told_every_time(sessions):
    session = sessions.grant()
    for epoch in (1, 2, 3):
        failed = sessions.answer(
            request(session=session, epoch=epoch), tell=lambda e: told(e, error=ErrorCode.KAFKA_STORAGE_ERROR)
        )
        assert numbers(failed) == [0]


def test_when_an_error_is_over_it_is_told_though_nothing_has_moved(sessions):
    session = sessions.grant()
    failed = told(asked(), error=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    failed.high_watermark, failed.log_start_offset = 5, 0
    sessions.answer(request(session=session, epoch=1), tell=lambda _: failed)
    assert numbers(sessions.answer(request(session=session, epoch=2))) == [0]
    assert numbers(sessions.answer(request(session=session, epoch=3))) == []


def test_partitions_are_added_changed_and_forgotten(sessions):
    session = sessions.answer(request(asked(0), asked(1))).session_id
    fetch = sessions.begin(
        request(asked(1, offset=9), asked(2), session=session, epoch=1, forgotten=[asked(0), asked(99)])
    )
    assert [(each.partition, each.offset) for each in fetch.asked] == [(1, 9), (2, 0)]
    assert numbers(fetch.answer([told(each) for each in fetch.asked])) == [2], "only the new one is news"


def test_who_forgets_everything_has_no_session_any_more(sessions):
    session = sessions.grant()
    answer = sessions.answer(request(session=session, epoch=1, forgotten=[asked(0)]))
    assert (answer.session_id, answer.partitions, len(sessions.sessions)) == (0, [], 0)


@pytest.mark.parametrize("epoch", [2, 5, -2, 2**31 - 1])
def test_another_epoch_than_the_next_is_refused_and_changes_nothing(sessions, epoch):
    session = sessions.grant()
    assert sessions.refused(request(asked(1), session=session, epoch=epoch)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert [each.partition for each in sessions.begin(request(session=session, epoch=1)).asked] == [0]
    assert sessions.refused(request(session=session, epoch=1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_after_the_last_epoch_comes_the_first(sessions):
    session = sessions.grant()
    fetch = sessions.begin(request(session=session, epoch=1))
    fetch._session.epoch = 2**31 - 1
    sessions.begin(request(session=session, epoch=2**31 - 1))
    assert isinstance(sessions.begin(request(session=session, epoch=1)), IncrementalFetch)


@pytest.mark.parametrize("session", [0, 1, -1, 2**31 - 1])
def test_a_session_that_nobody_has_is_not_found(sessions, session):
    assert sessions.refused(request(session=session, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("uses_ids", [False, True])
def test_a_session_keeps_to_names_or_ids(sessions, uses_ids):
    session = sessions.answer(request(by_id() if uses_ids else asked()), uses_ids=uses_ids).session_id
    code = sessions.refused(request(session=session, epoch=1), uses_ids=not uses_ids)
    assert code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.begin(request(session=session, epoch=1), uses_ids=uses_ids).asked, "it is as it was"


def test_an_answer_that_comes_after_the_next_request_is_refused(sessions):
    session = sessions.answer(request(asked(0), asked(1))).session_id
    slow = sessions.begin(request(session=session, epoch=1))
    sessions.begin(request(session=session, epoch=2, forgotten=[asked(0)]))
    late = slow.answer([told(each, records=True) for each in slow.asked])
    assert (late.error, late.session_id, late.partitions) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session, [])


def test_an_answer_that_comes_after_everything_was_forgotten_is_refused(sessions):
    session = sessions.grant()
    slow = sessions.begin(request(session=session, epoch=1))
    sessions.begin(request(session=session, epoch=2, forgotten=[asked(0)]))
    late = slow.answer([told(each) for each in slow.asked])
    assert late.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_what_gave_records_goes_behind_what_did_not(sessions):
    session = sessions.answer(request(*map(asked, range(4)))).session_id
    served = []
    for epoch in range(1, 9):  # each answer has room for one partition only, and all have records
        fetch = sessions.begin(request(session=session, epoch=epoch))
        first = fetch.asked[0].partition
        served.append(first)
        fetch.answer([told(each, records=each.partition == first) for each in fetch.asked])
    assert served == [0, 1, 2, 3] * 2


def test_a_topic_that_becomes_known_gets_its_name_and_keeps_it(sessions):
    unknown = lambda each: told(each, error=ErrorCode.UNKNOWN_TOPIC_ID)  # noqa: E731
    session = sessions.answer(request(by_id(number=9)), uses_ids=True, tell=unknown).session_id
    assert sessions.begin(request(session=session, epoch=1), uses_ids=True).asked[0].topic == ""
    found = lambda each: told(each, topic="late")  # noqa: E731
    sessions.answer(request(session=session, epoch=2), uses_ids=True, tell=found)
    again = request(by_id(number=9), session=session, epoch=3)
    assert sessions.begin(again, uses_ids=True).asked[0].topic == "late", "it is this topic that was deleted"


def test_two_ids_of_one_name_are_two_partitions(sessions):
    named = lambda each: told(each, topic="t")  # noqa: E731
    session = sessions.answer(request(by_id(number=1)), uses_ids=True, tell=named).session_id
    fetch = sessions.begin(request(by_id(number=2), session=session, epoch=1), uses_ids=True)
    assert [each.topic_id.int for each in fetch.asked] == [1, 2]


def test_a_partition_that_stands_twice_counts_once(sessions):
    fetch = sessions.begin(request(asked(0, offset=1), asked(1), asked(0, offset=2)))
    assert [(each.partition, each.offset) for each in fetch.asked] == [(0, 2), (1, 0)]


# Who gives way


def live(sessions, *ids):
    return [each for each in ids if each in sessions.sessions._by_use]


def test_without_room_there_is_no_session_and_the_fetch_is_answered_all_the_same():
    sessions = Sessions(slots=1)
    first = sessions.grant(size=5)
    answer = sessions.answer(request(*map(asked, range(9))))
    assert (answer.session_id, len(answer.partitions)) == (0, 9)
    assert live(sessions, first)
    assert Sessions(slots=0).grant() == 0


def test_a_larger_one_takes_the_place_of_the_smallest_that_is_no_longer_young():
    sessions = Sessions(slots=2)
    small, large = sessions.grant(size=2), sessions.grant(size=4)
    sessions.now = EVICTION_MS + 1
    for each in (small, large):
        sessions.answer(request(session=each, epoch=1))
    assert sessions.grant(size=2) == 0, "of the same size"
    assert sessions.grant(size=3) > 0
    assert live(sessions, small, large) == [large]


def test_disuse_ends_a_session_when_its_place_is_wanted():
    sessions = Sessions(slots=2)
    idle, busy = sessions.grant(size=9), sessions.grant(size=1)
    sessions.now = EVICTION_MS
    sessions.answer(request(session=busy, epoch=1))
    assert sessions.grant(size=1) == 0, "not unused for long enough"
    sessions.now = EVICTION_MS + 1
    assert sessions.grant(size=1) > 0
    assert live(sessions, idle, busy) == [busy]


def test_a_follower_takes_the_place_of_any_client_and_never_the_other_way_round():
    sessions = Sessions(slots=2)
    young, second = sessions.grant(size=9), sessions.grant(size=3)
    follower = sessions.grant(size=1, replica=FOLLOWER)
    assert follower > 0
    assert live(sessions, young, second) == [young], "the smallest client, however young"
    other = sessions.grant(size=1, replica=FOLLOWER)
    assert live(sessions, young) == []
    assert sessions.grant(size=9, replica=FOLLOWER) == 0, "of two followers the young stays"
    for _ in range(3):
        sessions.now += EVICTION_MS
        for each, epoch in ((follower, 1), (other, 1)):
            fetch = sessions.sessions._by_use[each]
            sessions.answer(request(session=each, epoch=fetch.epoch if epoch else 0))
    assert sessions.grant(size=100) == 0, "no client outranks a follower"
    assert sessions.grant(size=2, replica=FOLLOWER) > 0, "but a larger follower does, in time"


def test_a_session_is_ranked_by_its_size_of_now():
    sessions = Sessions(slots=2)
    first, second = sessions.grant(size=1), sessions.grant(size=3)
    sessions.now = EVICTION_MS + 1
    sessions.answer(request(*map(asked, range(6)), session=first, epoch=1))
    sessions.answer(request(session=second, epoch=1))
    assert sessions.grant(size=4) > 0
    assert live(sessions, first, second) == [first]


def test_all_sessions_together_have_a_limit(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    sessions = Sessions()
    first = sessions.grant(size=6)
    assert sessions.grant(size=5) == 0
    assert sessions.grant(size=4) > 0
    grown = request(asked(77), session=first, epoch=1)
    assert sessions.refused(grown) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.sessions.partition_count == 4


def test_the_room_of_sessions_that_nobody_uses_is_given_to_others(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    sessions = Sessions()
    dead, alive = sessions.grant(size=6), sessions.grant(size=4)
    sessions.now = EVICTION_MS
    sessions.answer(request(session=alive, epoch=1))
    assert sessions.grant(size=5) == 0, "not unused for long enough"
    sessions.now = EVICTION_MS + 1
    new = sessions.grant(size=5)
    assert live(sessions, dead, alive, new) == [alive, new]
    sessions.now = 2 * EVICTION_MS + 2
    assert sessions.answer(request(*map(asked, range(10)), session=new, epoch=1)).error is ErrorCode.NONE
    assert live(sessions, alive, new) == [new], "also to one that grows"
    assert sessions.sessions.partition_count == 10


def test_a_follower_gets_the_room_of_the_largest_client(monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MAX_PARTITIONS", 10)
    sessions = Sessions()
    small, large, other = sessions.grant(size=2), sessions.grant(size=5), sessions.grant(size=3)
    follower = sessions.grant(size=2, replica=FOLLOWER)
    assert live(sessions, small, large, other, follower) == [small, other, follower]
    assert sessions.grant(size=8, replica=FOLLOWER) > 0
    assert live(sessions, small, other, follower) == [follower]
    assert sessions.grant(size=1) == sessions.grant(size=1, replica=FOLLOWER) == 0, "followers keep theirs"


@pytest.mark.parametrize("replica", [-1, FOLLOWER])
def test_who_may_not_read_all_that_it_names_is_granted_no_session(sessions, replica):
    def tell(each):
        return told(each, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED if each.partition == 2 else ErrorCode.NONE)

    answer = sessions.answer(request(*map(asked, range(4)), replica=replica), tell=tell)
    assert (answer.session_id, numbers(answer)) == (0, [0, 1, 2, 3])
    assert sessions.answer(request(replica=replica)).session_id == 0, "nor who names nothing"
    assert len(sessions.sessions) == 0


class Client(RuleBasedStateMachine):
    """A client that keeps to the protocol while partitions change: what it was told is always what is so."""

    def __init__(self):
        super().__init__()
        self.sessions = Sessions(slots=2)
        self.truth = {number: [5, 0, ErrorCode.NONE] for number in range(4)}
        self.view = {}
        self.wanted = {}
        self.pending = {}
        self.gone = []
        self.session, self.epoch = 0, 0

    @rule(number=st.integers(0, 3), high=st.integers(0, 3), start=st.integers(0, 2), fails=st.booleans())
    def change(self, number, high, start, fails):
        self.truth[number] = [high, start, ErrorCode.NOT_LEADER_OR_FOLLOWER if fails else ErrorCode.NONE]

    @rule(number=st.integers(0, 3), offset=st.integers(0, 5))
    def want(self, number, offset):
        self.wanted[number] = self.pending[number] = offset
        self.gone = [each for each in self.gone if each != number]

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def unwant(self, data):
        number = data.draw(st.sampled_from(sorted(self.wanted)))
        del self.wanted[number]
        self.pending.pop(number, None)
        self.gone.append(number)

    @rule(size=st.integers(1, 9), later=st.integers(0, EVICTION_MS * 2), follower=st.booleans())
    def others_come(self, size, later, follower):
        self.sessions.now += later
        self.sessions.grant(size, FOLLOWER if follower else -1)

    @precondition(lambda self: self.wanted)
    @rule(room=st.integers(0, 4))
    def fetch(self, room):
        full = self.session == 0
        named = self.wanted if full else self.pending
        message = request(
            *(asked(number, offset) for number, offset in named.items()),
            session=self.session,
            epoch=self.epoch,
            forgotten=[] if full else map(asked, self.gone),
        )
        if self.session and not live(self.sessions, self.session):
            assert self.sessions.refused(message) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self.session = self.epoch = 0
            return
        fetch = self.sessions.begin(message)
        for number in self.gone:  # the broker has heard of it; what is wanted again before that is not told anew
            self.view.pop(number, None)
        assert {each.partition: each.offset for each in fetch.asked} == self.wanted
        fetched = []
        for each in fetch.asked:
            high, start, error = self.truth[each.partition]
            found = told(each, high, records=room > 0, error=error, log_start=start)
            room -= bool(found.records)
            fetched.append(found)
        answer = fetch.answer(fetched)
        assert answer.error is ErrorCode.NONE
        for each in answer.partitions:
            self.view[each.partition] = (each.high_watermark, each.log_start_offset, each.error)
        self.session = answer.session_id
        self.epoch = self.epoch + 1 if self.session else 0
        self.pending, self.gone = {}, []
        for number in self.wanted:
            high, start, error = self.truth[number]
            known = (high, start, error) if error is ErrorCode.NONE else (-1, -1, error)
            assert self.view[number] == known

    @invariant()
    def bounded(self):
        sessions = self.sessions.sessions
        assert len(sessions) <= 2
        held = sessions._by_use.values()
        assert sessions.partition_count == sum(len(each.partitions) for each in held)
        assert sessions._yielding_to_all == sorted(each.rank for each in held if each.ripe)
        yielding = sorted(each.rank for each in held if each.ripe or not each.privileged)
        assert sessions._yielding_to_followers == yielding


TestClient = Client.TestCase


@given(
    st.lists(
        st.tuples(st.integers(-2, 3), st.integers(-2, 4), st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3))),
        max_size=30,
    )
)
def test_hostile_requests_break_nothing(messages):
    sessions = Sessions(slots=2)
    chance = random.Random(1)
    sessions.sessions._draw = lambda _: chance.randrange(3)
    in_hand = []
    for session, epoch, partitions, forgotten in messages:
        try:
            fetch = sessions.begin(
                request(*map(asked, partitions), session=session, epoch=epoch, forgotten=map(asked, forgotten))
            )
        except ApiError:
            continue
        in_hand.append(fetch)
        if len(in_hand) > 2:
            late = in_hand.pop(0)
            late.answer([told(each, records=True) for each in late.asked])
    for late in in_hand:
        late.answer([told(each) for each in late.asked])
    assert len(sessions.sessions) <= 2


def test_a_fetch_without_a_session_asks_for_each_partition_as_it_was_named_last():
    fetch = Sessions().begin(FetchRequest(0, 1, 1, [asked(0, offset=1), asked(1), asked(0, offset=2)]))
    assert isinstance(fetch, SessionlessFetch)
    assert [(each.partition, each.offset) for each in fetch.asked] == [(0, 2), (1, 0)]


def test_a_session_has_no_more_partitions_than_a_request_may_name(sessions, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MOST_ELEMENTS", 3)
    session = sessions.grant(size=2)
    sessions.answer(request(asked(2), session=session, epoch=1))
    assert sessions.refused(request(asked(3), session=session, epoch=2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions.sessions), sessions.sessions.partition_count) == (0, 0)


def in_pieces(sessions, message, *, uses_ids=False):
    """One in hand that is named and held, as where others are served in between."""
    fetch = sessions.sessions.open(message, sessions.now, uses_ids=uses_ids)
    assert fetch.hold()
    for each in message.partitions:
        fetch.name([each], [])
    for each in message.forgotten:
        fetch.name([], [each])
    return fetch.begin()


def test_a_session_in_pieces_is_the_same_as_in_one(sessions):
    pieces = Sessions()
    one, other = sessions.grant(size=3), pieces.grant(size=3)
    messages = [
        ({}, {0: {"records": True}, 1: {"high_watermark": 6}}),
        ({"partitions": [asked(5), asked(1, offset=4)], "forgotten": [asked(2)]}, {5: {"records": True}}),
        ({}, {}),
        ({}, {1: {"error": ErrorCode.KAFKA_STORAGE_ERROR}, 0: {"log_start": 3}}),
    ]
    for epoch, (named, news) in enumerate(messages, 1):
        tell = lambda each, news=news: told(each, **news.get(each.partition, {}))  # noqa: E731
        how = {"epoch": epoch, "forgotten": named.get("forgotten", ())}
        whole = sessions.answer(request(*named.get("partitions", ()), session=one, **how), tell=tell)
        fetch = in_pieces(pieces, request(*named.get("partitions", ()), session=other, **how))
        for each in fetch.asked:
            fetch.take([tell(each)])
        answer = fetch.answer([])
        fetch.release(is_whole=True)
        assert answer.partitions == whole.partitions


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_session_that_is_held_is_nobody_elses(sessions, epoch):
    session = sessions.grant(size=2)
    fetch = in_pieces(sessions, request(session=session, epoch=1))
    fetch.take([told(fetch.asked[0], records=True)])
    assert sessions.refused(request(session=session, epoch=epoch)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    answer = fetch.answer([told(fetch.asked[1])])
    fetch.release(is_whole=True)
    assert numbers(answer) == [0]
    assert sessions.answer(request(session=session, epoch=2)).error is ErrorCode.NONE


def test_a_session_whose_request_is_given_up_half_way_is_over(sessions):
    session = sessions.grant(size=2)
    fetch = in_pieces(sessions, request(session=session, epoch=1))
    fetch.take([told(fetch.asked[0], records=True)])
    fetch.release(is_whole=False)
    assert sessions.refused(request(session=session, epoch=2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.sessions.partition_count == 0


def test_who_waited_while_the_session_went_on_does_not_get_it_again(sessions):
    session = sessions.grant()
    slow = in_pieces(sessions, request(session=session, epoch=1))
    slow.release(is_whole=True)
    sessions.answer(request(session=session, epoch=2))
    assert not slow.hold()
    assert slow.answer([]).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_gives_way_while_its_request_is_named_is_not_found():
    sessions = Sessions(slots=1)
    session = sessions.grant()
    fetch = sessions.sessions.open(request(session=session, epoch=1), 0, uses_ids=False)
    fetch.hold()
    assert sessions.grant(replica=FOLLOWER) > 0
    with pytest.raises(ApiError) as caught:
        fetch.begin()
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fetch.release(is_whole=False)
    assert len(sessions.sessions) == 1


@pytest.mark.parametrize("news", [{"diverging": OffsetAndEpoch(3, 1)}, {"preferred_read_replica": 2}])
def test_what_the_client_is_to_do_first_is_news(sessions, news):
    """Though nothing else has changed: it would ask the same for ever."""
    session = sessions.grant(2, FOLLOWER)

    def tell(each):
        return replace(told(each), **news) if each.partition == 1 else told(each)

    assert numbers(sessions.answer(request(session=session, epoch=1), tell=tell)) == [1]
    assert numbers(sessions.answer(request(session=session, epoch=2))) == []


def test_a_session_knows_which_high_watermark_was_told_last(sessions):
    session = sessions.grant(1, FOLLOWER)
    fetch = sessions.begin(request(session=session, epoch=1))
    assert not fetch.is_behind(asked(), 5)
    assert fetch.is_behind(asked(), 6)
    fetch.answer([told(asked(), 6)])
    assert not sessions.begin(request(session=session, epoch=2)).is_behind(asked(), 6)
    assert not sessions.begin(request(asked())).is_behind(asked(), 6), "all is told at its end"
