"""The client's half of a fetch session, against a broker's half of a few lines."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ErrorCode
from sparklog.fetch.session import FetchSession
from sparklog.protocol.hot.fetch import FetchPartition, ForgottenPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import TopicPartition


def asked(number, offset=0, topic_id=ZERO_UUID):
    return FetchPartition("t", topic_id, number, offset, 100)


def wanted(**offsets):
    return {TopicPartition("t", int(name[1:])): asked(int(name[1:]), at) for name, at in offsets.items()}


def numbers(partitions):
    return [each.partition for each in partitions]


def test_the_first_request_names_everything_and_asks_for_a_session():
    plan = FetchSession().plan(wanted(p0=0, p1=5))
    assert (plan.session_id, plan.epoch, numbers(plan.partitions), plan.forgotten) == (0, 0, [0, 1], [])
    assert plan.is_full


def test_later_ones_name_what_is_new_or_has_changed_and_what_to_forget():
    session = FetchSession()
    session.plan(wanted(p0=0, p1=5, p2=7))
    session.answered(ErrorCode.NONE, 9)
    plan = session.plan(wanted(p0=3, p1=5, p4=0))
    assert (plan.session_id, plan.epoch, numbers(plan.partitions)) == (9, 1, [0, 4])
    assert plan.forgotten == [ForgottenPartition("t", ZERO_UUID, 2)]
    session.answered(ErrorCode.NONE, 9)
    plan = session.plan(wanted(p0=3, p1=5, p4=0))
    assert (plan.epoch, plan.partitions, plan.forgotten) == (2, [], [])


def test_a_broker_without_sessions_is_always_asked_for_everything():
    session = FetchSession()
    for _ in range(3):
        plan = session.plan(wanted(p0=1))
        assert (plan.session_id, plan.epoch, numbers(plan.partitions)) == (0, 0, [0])
        session.answered(ErrorCode.NONE, 0)


def test_a_lost_session_begins_anew():
    for error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        session = FetchSession()
        session.plan(wanted(p0=1))
        session.answered(ErrorCode.NONE, 9)
        session.plan(wanted(p0=1))
        session.answered(error, 0)
        plan = session.plan(wanted(p0=1))
        assert (plan.session_id, plan.epoch, numbers(plan.partitions)) == (0, 0, [0])


def test_a_topic_made_again_is_forgotten_and_named_anew():
    session, tp = FetchSession(), TopicPartition("t", 0)
    old, new = UUID(int=1), UUID(int=2)
    session.plan({tp: asked(0, 5, old)})
    session.answered(ErrorCode.NONE, 9)
    plan = session.plan({tp: asked(0, 5, new)})
    assert plan.partitions == [asked(0, 5, new)]
    assert plan.forgotten == [ForgottenPartition("t", old, 0)]


WISHES = st.dictionaries(st.integers(0, 4), st.integers(0, 3)).map(
    lambda offsets: {TopicPartition("t", number): asked(number, at) for number, at in offsets.items()}
)


@given(st.lists(st.tuples(WISHES, st.sampled_from(["granted", "refused", "lost", "unanswered"]))), st.booleans())
def test_the_broker_reads_what_is_wanted_whatever_happens_to_the_session(steps, says_what_is_touched):
    session = FetchSession()
    brokers, next_id, before = {}, 0, {}
    for wishes, outcome in steps:
        touched = [tp for tp in wishes.keys() | before.keys() if wishes.get(tp) != before.get(tp)]
        plan = session.plan(wishes, touched if says_what_is_touched else None)
        before = wishes
        if plan.is_full:
            reads = {each.partition: each for each in plan.partitions}
        else:
            reads = brokers[plan.session_id, plan.epoch]
            for each in plan.forgotten:
                del reads[each.partition]
            reads.update({each.partition: each for each in plan.partitions})
        assert reads == {tp.partition: each for tp, each in wishes.items()}
        if outcome == "granted":
            if plan.is_full:
                next_id += 1
            session_id = next_id if plan.is_full else plan.session_id
            brokers[session_id, plan.epoch + 1] = dict(reads)
            session.answered(ErrorCode.NONE, session_id)
        elif outcome == "refused":
            session.answered(ErrorCode.NONE, 0)
        elif outcome == "lost":
            session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        else:
            session.reset()


def _granted(session_id=9):
    session = FetchSession()
    session.plan(wanted(p0=1))
    session.answered(ErrorCode.NONE, session_id)
    return session


def _is_anew(session):
    plan = session.plan(wanted(p0=1))
    return (plan.session_id, plan.epoch, numbers(plan.partitions), plan.forgotten) == (0, 0, [0], [])


def test_any_error_ends_the_session_even_if_the_answer_bears_its_id():
    session = _granted()
    session.answered(ErrorCode.UNKNOWN_SERVER_ERROR, 9)
    assert session.remembered == {}
    assert _is_anew(session)
    first = FetchSession()
    first.plan(wanted(p0=1))
    first.answered(ErrorCode.UNKNOWN_SERVER_ERROR, 9)
    assert _is_anew(first)


def test_an_answer_of_another_session_begins_anew():
    session = _granted(9)
    session.plan(wanted(p0=1))
    session.answered(ErrorCode.NONE, 8)
    assert _is_anew(session)


def test_a_session_that_the_broker_takes_back_begins_anew():
    session = _granted(9)
    session.plan(wanted(p0=1))
    session.answered(ErrorCode.NONE, 0)
    assert _is_anew(session)


def test_what_is_remembered_is_what_was_planned_last():
    session = _granted()
    session.plan(wanted(p1=2))
    assert session.remembered == wanted(p1=2)
    session.reset()
    assert session.remembered == {}


def test_only_a_request_of_the_first_epoch_is_full():
    session = _granted()
    assert not session.plan(wanted(p0=1)).is_full
    session.reset()
    assert session.plan(wanted(p0=1)).is_full


def test_the_epoch_after_the_last_is_one():
    session = _granted()
    session._epoch = 2**31 - 2
    assert session.plan(wanted(p0=1)).epoch == 2**31 - 2
    session.answered(ErrorCode.NONE, 9)
    assert session.plan(wanted(p0=1)).epoch == 2**31 - 1
    session.answered(ErrorCode.NONE, 9)
    plan = session.plan(wanted(p0=1))
    assert (plan.session_id, plan.epoch, plan.partitions) == (9, 1, [])
