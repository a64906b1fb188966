"""BeginCompaction and CommitCompaction, over grants that do what each test says."""

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.cleaning import begin_compaction, commit_compaction
from sparklog.broker.context import ApiRequest
from sparklog.compaction.rewriting import CleanedGroup
from sparklog.compaction.split import Target
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Buffers, CleaningTask, Failure
from sparklog.compaction.walk import FileNumber
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.segment import SegmentFacts
from sparklog.protocol.messages import BeginCompactionRequest, CommitCompactionRequest, decode_response, encode
from sparklog.replica.cleaning import Abandoned, NotCleaned, NothingToClean
from sparklog.replica.cleaning_grants import CleanedAlready
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.testing.authorizer import ListedRights

TASK = CleaningTask(
    "/d/users-0", "users-0", (SegmentFacts(0, 1, 2, 3, 4),), 0, 5, 6, 7, TopicConfig(),
    Buffers(1 << 20, 0.9, 1 << 16, float("inf")), {1: 2}, {3: 4},
)  # fmt: skip
TARGET = Target(TASK, {0: FileNumber(11, 12)})


class Grants:
    """Answers as ``failure`` says."""

    def __init__(self):
        self.failure = None
        self.said = []
        self.gate = None

    def topic_of(self, token):
        return {7: "users", 8: "other", 42: "users"}.get(token)

    def renew(self, tokens, duration_s):
        self.said.append(("renew", tuple(tokens), duration_s))
        return [each for each in tokens if each > 100]

    async def begin(self, tp, *, rolls, duration_s):
        self._say("begin", tp.partition, rolls, duration_s)
        return 42, TARGET

    async def put_in_place(self, token, group, tag):
        if self.gate is not None:
            await self.gate.wait()
        self._say("put", token, group, tag)

    async def finish(self, token, stats):
        self._say("finish", token, stats)

    async def give_up(self, token, failure):
        self._say("give up", token, failure.kind, str(failure))

    def _say(self, *what):
        self.said.append(what)
        if self.failure is not None:
            raise self.failure


async def unpaced(items):
    for each in items:
        yield each


class Broker:
    authorizer = AllowEverything()

    def __init__(self):
        self.cleaning_grants = Grants()
        self.turns = SimpleNamespace(paced=unpaced)

    @property
    def loop(self):
        return asyncio.get_running_loop()

    def held(self, tp):
        if tp.topic == "nothing":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here")
        return SimpleNamespace(
            config=SimpleNamespace(cleanup_policy=("compact",) if tp.topic == "users" else ("delete",))
        )


@pytest.fixture
def broker():
    return Broker()


def begun(broker, topic="users", renewed=()):
    message = BeginCompactionRequest(
        topics=[BeginCompactionRequest.GrantedTopic(name=topic, partitions=[0])],
        rolls_active=True, duration_ms=1500, renewed=[*renewed],
    )  # fmt: skip
    answer = asyncio.run(
        begin_compaction.handle(broker, ApiRequest(begin_compaction.API, 0, "me", Caller("h"), message))
    )
    found: Any = decode_response(begin_compaction.API, 0, memoryview(encode(answer, 0)))
    return found, found.topics[0].partitions[0]


def committed(broker, step, report=None, group=CleanedGroup((0, 5), (0,)), timeout_ms=60_000):  # noqa: B008
    message = CommitCompactionRequest(
        token=42, step=step, tag="abc", old=[*group.old], new=[*group.new],
        report=report if isinstance(report, bytes) else json.dumps(report).encode(), timeout_ms=timeout_ms,
    )  # fmt: skip
    answer = asyncio.run(
        commit_compaction.handle(broker, ApiRequest(commit_compaction.API, 0, "me", Caller("h"), message))
    )
    found: Any = decode_response(commit_compaction.API, 0, memoryview(encode(answer, 0)))
    return ErrorCode(found.error_code), found.error_message


def test_a_grant_comes_with_all_that_is_to_be_known(broker):
    answer, partition = begun(broker, renewed=(7, 700))
    assert (partition.token, partition.error_code, answer.lapsed) == (42, 0, [700])
    assert Target.from_json(bytes(partition.target).decode()) == TARGET
    assert broker.cleaning_grants.said == [("renew", (7, 700), 1.5), ("begin", 0, True, 1.5)]


def test_others_do_not_wait_while_what_is_to_be_known_is_written(broker, monkeypatch):
    """There may be hundreds of thousands of producers."""
    threads, to_json = set(), Target.to_json
    monkeypatch.setattr(Target, "to_json", lambda target: threads.add(threading.get_ident()) or to_json(target))
    assert begun(broker)[1].token == 42
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotCleaned("it is being moved"), ErrorCode.OPERATION_NOT_ATTEMPTED),
        (CleanedAlready("by a job"), ErrorCode.NONE),
        (NothingToClean("clean"), ErrorCode.NONE),
        (CorruptRecord("bad"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_what_is_not_granted_says_why(broker, failure, code):
    broker.cleaning_grants.failure = failure
    _, partition = begun(broker)
    assert (partition.token, partition.error_code, partition.error_message) == (-1, code, str(failure))


@pytest.mark.parametrize(
    ("topic", "code"), [("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("clicks", ErrorCode.INVALID_CONFIG)]
)
def test_what_is_not_compacted_here_is_not_granted(broker, topic, code):
    assert begun(broker, topic)[1].error_code == code
    assert len(broker.cleaning_grants.said) == 1


def test_each_step_is_told(broker):
    stats = CleanerStats(end_offset=9, seconds=1.5)
    assert committed(broker, 0) == (ErrorCode.NONE, None)
    assert committed(broker, 1, stats.to_dict()) == (ErrorCode.NONE, None)
    assert committed(broker, 2, {"kind": "no room", "text": "full"}) == (ErrorCode.NONE, None)
    assert broker.cleaning_grants.said == [
        ("put", 42, CleanedGroup((0, 5), (0,)), "abc"),
        ("finish", 42, stats),
        ("give up", 42, Failure.NO_ROOM, "full"),
    ]


@pytest.mark.parametrize("failure", [NotCleaned("lapsed"), Abandoned("it was cut")])
def test_a_step_that_is_not_taken_says_why(broker, failure):
    broker.cleaning_grants.failure = failure
    assert committed(broker, 0) == (ErrorCode.OPERATION_NOT_ATTEMPTED, str(failure))


@pytest.mark.parametrize(
    ("step", "report"),
    [
        (9, None),
        (1, b"{"),
        (1, {"no such field": 1}),
        (1, None),
        (2, {"kind": "none", "text": ""}),
        (2, {}),
        (1, b"\xff"),
        (1, b"[" * 60_000),
        (2, b"[" * 60_000),
        (1, {"end_offset": 0.0}),
        (1, {"end_offset": True}),
        (1, {"end_offset": -1}),
        (1, {"bytes_read": 10**26 - 1}),
        (1, b'{"bytes_read": 1e400}'),
        (1, {"bytes_read": "much"}),
        (1, {"seconds": float("nan")}),
        (1, {"seconds": 1e300}),
        (1, {"seconds": [1]}),
        (1, []),
    ],
)
def test_what_makes_no_sense_is_refused(broker, step, report):
    assert committed(broker, step, report)[0] is ErrorCode.INVALID_REQUEST
    assert broker.cleaning_grants.said == []  # nothing has changed


def test_a_report_that_is_far_too_long_is_not_read(broker, monkeypatch):
    monkeypatch.setattr(json, "loads", None)  # it would be read on the loop
    code, why = committed(broker, 2, b"[" * (1 << 20))
    assert code is ErrorCode.INVALID_REQUEST
    assert "1048576 bytes, of at most 65536" in why


def test_a_reason_is_cut_short(broker):
    assert committed(broker, 2, {"kind": "gone", "text": "x" * 5000}) == (ErrorCode.NONE, None)
    assert broker.cleaning_grants.said == [("give up", 42, Failure.GONE, "x" * 1000)]


def test_a_group_that_waits_is_answered_in_time(broker):
    broker.cleaning_grants.gate = asyncio.Event()
    assert committed(broker, 0, timeout_ms=0)[0] is ErrorCode.REQUEST_TIMED_OUT


def test_a_grant_of_a_topic_that_may_not_be_altered_comes_back_as_lapsed(broker):
    broker.authorizer = ListedRights("ALTER topic users")
    answer, partition = begun(broker, renewed=(7, 8, 700))
    assert (partition.token, answer.lapsed) == (42, [8, 700])
    assert broker.cleaning_grants.said[0] == ("renew", (7, 700), 1.5)


def test_a_token_is_of_no_use_without_the_right(broker):
    broker.authorizer = ListedRights()
    code, why = committed(broker, 0)
    assert code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert why == "User:ANONYMOUS needs ALTER on topic 'users'"
    assert broker.cleaning_grants.said == []
