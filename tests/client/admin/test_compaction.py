"""Compaction by the admin client, where brokers take their time, are away, or tell of trouble."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.client.admin.compaction import CompactionAdmin, CompactionState
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import Backoff
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, LocalProtocolError
from sparklog.protocol.messages import CompactPartitionsResponse, DescribeCompactionResponse
from sparklog.structs import BrokerId, TopicPartition
from sparklog.testing.clock import ManualClock

ZERO, ONE = TopicPartition("users", 0), TopicPartition("users", 1)


class Session:
    """Two brokers that answer as ``answer(broker, message)`` says; broker 3 has replicas and is away."""

    def __init__(self, answer):
        self._answer = answer
        self.asked = []
        self.clock = ManualClock()
        self.config = ClientConfig(bootstrap_servers="h:1")

    async def refresh(self, _topics):
        return SimpleNamespace(brokers={1: None, 2: None})

    async def topic(self, name):
        if name != "users":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        replicas = {0: (1, 2), 1: (2, 3)}
        return SimpleNamespace(
            partitions=[SimpleNamespace(partition=number, replicas=each) for number, each in replicas.items()]
        )

    async def request(self, broker, _api, build, *, lane):
        message = build(0)
        self.asked.append((broker, message, lane))
        return self._answer(broker, message)

    def backoff(self):
        return Backoff(self.config, self.clock, 60_000)


def compacted(message, code_of, since_ms=77):
    topic = CompactPartitionsResponse.CompactedTopicResult
    return CompactPartitionsResponse(
        throttle_time_ms=0,
        error_code=0,
        since_ms=since_ms,
        topics=[
            topic(
                name=asked.name,
                partitions=[
                    topic.CompactedPartition(
                        partition_index=number,
                        error_code=code_of(number),
                        error_message=None if code_of(number) == ErrorCode.NONE else "so it is",
                        ended_ms=5,
                        seconds=1.5,
                        bytes_before=4,
                        bytes_after=3,
                        messages_before=2,
                        messages_after=1,
                    )
                    for number in asked.partitions
                ],
            )
            for asked in message.topics
        ],
    )


def compact(session, wanted):
    return asyncio.run(CompactionAdmin(session).compact(wanted))


def named(message):
    return [TopicPartition(topic.name, number) for topic in message.topics for number in topic.partitions]


def test_every_broker_cleans_its_replicas_and_one_that_is_away_is_told_of():
    session = Session(lambda _, message: compacted(message, lambda _: ErrorCode.NONE))
    outcomes = compact(session, ["users"])
    assert list(outcomes) == [Replica(ZERO, 1), Replica(ZERO, 2), Replica(ONE, 2), Replica(ONE, 3)]
    assert {broker: named(message) for broker, message, _ in session.asked} == {1: [ZERO], 2: [ZERO, ONE]}
    away = outcomes.pop(Replica(ONE, 3))
    assert (away.error.code, away.run) == (ErrorCode.REPLICA_NOT_AVAILABLE, None)
    assert [(each.error, tuple(each.run)) for each in outcomes.values()] == [(None, (5, 1.5, 4, 3, 2, 1))] * 3


def test_a_broker_is_asked_again_for_what_it_has_not_cleaned_yet():
    later, done = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE
    pace = iter([{0: later, 1: done}, {0: later}, {0: done}])

    def answer(broker, message):
        return compacted(message, (next(pace) if broker == 2 else {0: done}).get)

    session = Session(answer)
    outcomes = compact(session, ["users"])
    assert outcomes[Replica(ZERO, 2)].error is None
    of_two = [message for broker, message, _ in session.asked if broker == 2]
    assert [(named(each), each.since_ms) for each in of_two] == [([ZERO, ONE], -1), ([ZERO], 77), ([ZERO], 77)]
    first, *others = [each.timeout_ms for each in of_two]
    assert (first, all(others)) == (0, True), "from when on a cleaning counts is known before the client waits"
    assert {lane for *_, lane in session.asked} == {"compaction"}


def test_what_a_broker_refuses_keeps_the_others_from_nothing():
    session = Session(lambda _, message: compacted(message, {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 1: 0}.get))
    outcomes = compact(session, [ZERO, ONE])
    assert outcomes[Replica(ZERO, 1)].error.reason == "users-0: so it is"
    assert outcomes[Replica(ONE, 2)].run is not None


@pytest.mark.parametrize("answers_first", [True, False])
def test_a_broker_that_ceases_to_answer_hides_nothing_of_what_became_of_the_others(answers_first):
    """Nor of what it has told itself before."""

    def answer(broker, message):
        if broker == 1:
            return compacted(message, lambda _: ErrorCode.NONE)
        if answers_first and message.timeout_ms == 0:
            return compacted(message, {0: ErrorCode.REQUEST_TIMED_OUT, 1: ErrorCode.NONE}.get)
        session.clock.advance(60)
        raise ConnectionFailed("it is frozen")

    session = Session(answer)
    outcomes = compact(session, ["users"])
    assert list(outcomes) == [Replica(ZERO, 1), Replica(ZERO, 2), Replica(ONE, 2), Replica(ONE, 3)]
    cleaned = {replica for replica, outcome in outcomes.items() if outcome.run is not None}
    assert cleaned == {Replica(ZERO, 1), *([Replica(ONE, 2)] if answers_first else [])}
    silent = outcomes[Replica(ZERO, 2)].error
    assert silent.reason == "users-0: broker 2 does not tell what became of it: it is frozen"


@pytest.mark.parametrize("wanted", ["users", ZERO, 7, [7], [b"users"]])
def test_what_is_no_list_of_topics_and_partitions_is_refused(wanted):
    with pytest.raises(LocalProtocolError):
        compact(Session(None), wanted)


@pytest.mark.parametrize("wanted", [["no-such"], [TopicPartition("users", 9)]])
def test_what_there_is_not_is_named_before_anything_is_asked(wanted):
    session = Session(None)
    with pytest.raises(ApiError) as refused:
        compact(session, wanted)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert session.asked == []


def described(**changes):
    topic = DescribeCompactionResponse.DescribedTopic
    numbers = {"first_dirty_offset": 1, "first_uncleanable_offset": 2, "clean_bytes": 30, "cleanable_bytes": 10}
    last = dict.fromkeys(("last_bytes_before", "last_bytes_after", "last_messages_before", "last_messages_after"), -1)
    fields = {"error_code": 0, "error_message": None, "delay_ms": 0, "is_under_way": False, "cleaned_by": None}
    fields |= {"uncleanable_reason": None, "uncleanable_bytes": -1, "last_ended_ms": -1, "last_seconds": -1.0}
    each = topic.DescribedPartition(partition_index=0, **numbers | last | fields | changes)
    figures = (
        "max_clean_time_secs",
        "max_buffer_utilization_percent",
        "max_dirty_percent",
        "max_compaction_delay_secs",
    )
    return DescribeCompactionResponse(
        throttle_time_ms=0,
        error_code=0,
        is_enabled=True,
        threads=3,
        **dict(zip(figures, (1, 2, 3, 4), strict=True)),
        topics=[topic(name="users", partitions=[each])],
    )


def test_each_replica_is_described_by_its_broker():
    answers = {1: described(last_ended_ms=9, last_seconds=0.5), 2: described(uncleanable_reason="bad", clean_bytes=-1)}
    session = Session(lambda broker, _: answers[broker])
    found = asyncio.run(CompactionAdmin(session).describe_compaction(["users"]))
    assert tuple(found.brokers[BrokerId(1)]) == (True, 3, 1, 2, 3, 4)
    good, bad = (found.replicas[Replica(ZERO, broker)] for broker in (1, 2))
    assert (good.dirty_ratio, good.last_run.seconds, good.uncleanable) == (0.25, 0.5, None)
    assert (bad.dirty_ratio, bad.last_run, bad.uncleanable) == (None, None, "bad")
    assert [message.topics for _, message, _ in session.asked] == [["users"], ["users"]]


def test_all_topics_are_described_where_none_is_named():
    session = Session(lambda *_: described(error_code=40, error_message="its cleanup.policy is delete"))
    found = asyncio.run(CompactionAdmin(session).describe_compaction())
    assert {each.error.reason for each in found.replicas.values()} == {"users-0: its cleanup.policy is delete"}
    assert session.asked[0][1].topics is None


def test_an_empty_log_is_not_dirty():
    assert CompactionState(None, 0, 0, 0, 0, 0, False, False, None, None, -1, None).dirty_ratio == 0
