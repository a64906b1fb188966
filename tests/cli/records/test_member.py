"""What a member of a group commits: what was printed, and no more."""

import pyarrow as pa
import pytest

from sparklog.cli.interruption import interruptible
from sparklog.cli.records.member import Member
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetch.buffer import ARROW_SCHEMA
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class Polls:
    """A consumer that gives these answers: rows by partition, None, or what is raised or called."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self._at = {A: 0, B: 0}
        self.assignment = frozenset({A, B})
        self.committed = []
        self.refusals = []
        self.config = ConsumerConfig.of({"group.id": "g", "bootstrap.servers": "here:1"})
        self.callbacks = {}

    def subscribe(self, topics, **callbacks):
        self.callbacks = callbacks

    def poll_arrow(self, _timeout, _max_bytes, max_rows):
        answer = self._answers.pop(0)
        if callable(answer):
            answer = answer(self)
        if isinstance(answer, BaseException):
            raise answer
        return None if answer is None else self._batch(answer, max_rows)

    def _batch(self, counts, max_rows):
        rows = []
        for tp, count in counts.items():
            rows += [
                (b"k", b"v", *tp, self._at[tp] + number, 1_700_000_000_000_000, 0, None) for number in range(count)
            ]
        rows = rows[:max_rows]
        for row in rows:
            self._at[TopicPartition(*row[2:4])] = row[4] + 1
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)

    def positions(self):
        return {tp: OffsetAndMetadata(at) for tp, at in self._at.items()}

    def commit(self, offsets):
        if self.refusals and (refusal := self.refusals.pop(0)):
            raise refusal
        self.committed.append({tp: at.offset for tp, at in offsets.items()})


@pytest.fixture
def clock():
    return ManualClock()


def rounds(member, **more):
    with interruptible(()) as interruption:
        for tp, columns in member.rounds(["offset", "timestamp"], interruption, **more):
            yield tp, columns["offset"].to_pylist()


def test_rounds_are_of_one_partition_each_and_times_are_ms(clock):
    member = Member(Polls({A: 2, B: 1}), clock)
    with interruptible(()) as interruption:
        (first, second) = member.rounds(["timestamp", "value", "headers"], interruption, 3)
    assert first[0] == A
    assert {name: column.to_pylist() for name, column in first[1].items()} == {
        "timestamp": [1_700_000_000_000] * 2,
        "value": [b"v"] * 2,
        "headers": [None] * 2,
    }
    assert (second[0], len(second[1]["value"])) == (B, 1)


def test_what_is_asked_for_next_was_printed_and_is_committed_in_the_end(clock):
    polls = Polls({A: 2, B: 1}, KeyboardInterrupt())
    member = Member(polls, clock)
    found = rounds(member)
    assert [next(found), next(found)] == [(A, [0, 1]), (B, [0])]
    with pytest.raises(KeyboardInterrupt):
        next(found)
    member.commit()
    assert polls.committed == [{A: 2, B: 1}]


def test_what_is_interrupted_while_it_is_printed_is_not_committed(clock):
    polls = Polls({A: 2, B: 1})
    member = Member(polls, clock)
    found = rounds(member)
    next(found)
    next(found)  # that of A is printed, and that of B is not yet
    member.commit()
    assert polls.committed == [{A: 2}]


def test_it_commits_where_nothing_comes_and_where_time_has_passed(clock):
    polls = Polls({A: 1}, {A: 1}, lambda _: clock.advance(5) or {A: 1}, None, None, {A: 1})
    found = rounds(Member(polls, clock))
    offsets = [next(found)[1] for _ in range(3)]
    assert (offsets, polls.committed) == ([[0], [1], [2]], [])
    assert next(found) == (A, [3])
    assert polls.committed == [{A: 3, B: 0}]


def test_what_is_taken_away_is_committed_first_and_what_is_lost_is_not(clock):
    def revoked(polls):
        polls.callbacks["on_revoked"]([A])
        polls.callbacks["on_lost"]([B])
        polls.assignment = frozenset()

    polls = Polls({A: 2, B: 1}, revoked, KeyboardInterrupt())
    member = Member(polls, clock)
    member.subscribe(["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        list(rounds(member))
    member.commit()
    assert polls.committed == [{A: 2}]


PASSING = [
    ConnectionFailed("away"),
    ApiError(ErrorCode.REQUEST_TIMED_OUT),
    ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ApiError(ErrorCode.REBALANCE_IN_PROGRESS),
    ApiError(ErrorCode.UNKNOWN_MEMBER_ID),
    ApiError(ErrorCode.ILLEGAL_GENERATION),
]


@pytest.mark.parametrize("refusal", PASSING, ids=str)
def test_it_goes_on_where_a_commit_fails_for_a_while(clock, capsys, refusal):
    polls = Polls({A: 1}, None, None, {A: 1}, None, {A: 1}, KeyboardInterrupt())
    polls.refusals = [refusal, refusal]
    member = Member(polls, clock)
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(offsets for _, offsets in rounds(member))
    assert polls.committed == [{A: 2, B: 0}]
    told = capsys.readouterr().err.splitlines()
    assert told == [f"{refusal}; what is printed is not committed now, and will be if that passes", "committing again"]
    member.commit()
    assert polls.committed[-1] == {A: 3, B: 0}


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_it_ends_where_a_commit_is_refused_for_good(clock, code):
    polls = Polls({A: 1}, None)
    polls.refusals = [ApiError(code)]
    with pytest.raises(ApiError) as refused:
        list(rounds(Member(polls, clock)))
    assert refused.value.code is code


def test_what_is_taken_away_while_the_coordinator_is_away_is_not_committed_any_more(clock, capsys):
    def revoked(polls):
        polls.callbacks["on_revoked"]([A])
        polls.assignment = frozenset({B})

    polls = Polls({A: 2, B: 1}, revoked, {B: 1}, KeyboardInterrupt())
    polls.refusals = [ConnectionFailed("away")]
    member = Member(polls, clock)
    member.subscribe(["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        list(rounds(member))
    assert "away; what is printed is not committed now" in capsys.readouterr().err
    member.commit()
    assert polls.committed == [{B: 1}, {B: 2}]


def test_the_last_commit_says_what_it_failed_with(clock):
    polls = Polls({A: 1}, None, KeyboardInterrupt())
    polls.refusals = [ConnectionFailed("away"), ConnectionFailed("away still")]
    member = Member(polls, clock)
    with pytest.raises(KeyboardInterrupt):
        list(rounds(member))
    with pytest.raises(ConnectionFailed, match="away still"):
        member.commit()


def test_it_ends_where_its_own_partitions_do(clock):
    polls = Polls(None, lambda polls: polls.callbacks["on_assigned"]([A, B]) or {A: 2}, {B: 3})
    member = Member(polls, clock)
    member.subscribe(["a", "b"])
    other = TopicPartition("b", 2)
    assert list(rounds(member, ends={A: 2, B: 3, other: 9})) == [(A, [0, 1]), (B, [0, 1, 2])]
    assert polls.committed[-1] == {A: 0, B: 0}
    member.commit()
    assert polls.committed[-1] == {A: 2, B: 3}
