"""Erasure by the admin client, where brokers take their time, are away, start again, or replicas move."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.client.admin import erasure
from sparklog.client.admin.erasure import ErasureAdmin
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.retry import Backoff
from sparklog.compaction.erased_keys import digest_of, pack_keys
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, LocalProtocolError
from sparklog.protocol.messages import EraseRecordsResponse
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

ZERO, ONE = TopicPartition("users", 0), TopicPartition("users", 1)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
ENDS = {0: 40, 1: 41}
KEYS = [b"b", b"a"]
WAITING, RUNNING, DONE, FAILED = range(4)
_Result = EraseRecordsResponse.ErasedPartitionResult


class Session:
    """Brokers 1 to 3 by ``replicas``; ``answer(broker, message, number)`` says what each partition comes to.

    An answer is a dictionary of fields, an exception, or None for that the keys are needed.
    """

    def __init__(self, answer=lambda *_: {}):
        self._answer = answer
        self.asked = []
        self.replicas: dict[int, tuple[int, ...]] = {0: (1, 2), 1: (2, 3)}
        self.topic_id = ID
        self.config = ClientConfig(bootstrap_servers="h:1")
        self.clock = ManualClock()
        self.leaders = SimpleNamespace(invalidate=lambda _: None, leader=lambda tp: self.replicas[tp.partition][0])

    async def refresh(self, _topics):
        return SimpleNamespace(brokers={1: None, 2: None, 3: None}, cluster_id="C")

    async def topic(self, name):
        if name != "users":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [SimpleNamespace(partition=number, replicas=each) for number, each in self.replicas.items()]
        return SimpleNamespace(
            name=name,
            topic_id=self.topic_id,
            partitions=partitions,
            partition=lambda number: next((each for each in partitions if each.partition == number), None),
        )

    async def request(self, broker, _api, build, *, lane):
        message = build(0)
        ends = {each.partition_index: each.end_offset for each in message.partitions}
        if set(ends.values()) == {-1}:
            return self._answered({number: {"end_offset": ENDS[number]} for number in ends}, needs_keys=False)
        self.asked.append((broker, message.round, message.scan_only, sorted(ends.items()), message.keys))
        told = {number: self._answer(broker, message, number) for number in ends}
        for each in told.values():
            if isinstance(each, Exception):
                raise each
        needs_keys = any(each is None for each in told.values())
        told = {number: {"state": WAITING} if each is None else each for number, each in told.items()}
        return self._answered(told, needs_keys)

    @staticmethod
    def _answered(told, needs_keys):
        fields = {
            "error_code": 0,
            "error_message": None,
            "state": DONE,
            "end_offset": 0,
            "log_start_offset": 2,
            "segments_done": 1,
            "segments_total": 1,
            "records_scanned": 30,
            "bytes_scanned": 3000,
            "records_found": 0,
            "segments_rewritten": 0,
            "segments": [],
        }
        return EraseRecordsResponse(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            needs_keys=needs_keys,
            partitions=[_Result(partition_index=number, **fields | each) for number, each in told.items()],
        )

    def backoff(self, timeout_ms=60_000):
        return Backoff(self.config, self.clock, timeout_ms)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(erasure, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(erasure, "_LONGEST_PAUSE_S", 0.0)


def erase(session, keys=KEYS, **more):
    return asyncio.run(ErasureAdmin(session).erase("users", keys, **more))


def finds(count):
    """Each replica has so many records, until it has erased them."""
    left = {}

    def answer(broker, message, number):
        found = left.get((broker, number), count)
        if not message.scan_only:
            left[broker, number] = 0
        return {"records_found": found, "segments_rewritten": 0 if message.scan_only else 2}

    return answer


def test_all_replicas_erase_and_then_all_are_searched():
    session = Session(finds(3))
    report = erase(session)
    assert (report.cluster_id, report.topic, report.topic_id) == ("C", "users", ID)
    assert (report.key_count, report.keys_sha256) == (2, digest_of(pack_keys(KEYS)).hex())
    assert (report.is_complete, report.is_clean, report.scan_only) == (True, True, False)
    assert list(report.replicas) == [Replica(ZERO, 1), Replica(ZERO, 2), Replica(ONE, 2), Replica(ONE, 3)]
    one = report.replicas[Replica(ONE, 3)]
    assert (one.up_to_offset, one.log_start_offset, one.records_scanned, one.bytes_scanned) == (41, 2, 30, 3000)
    assert (one.erased, one.segments_rewritten, one.left, one.obstacle) == (3, 2, 0, None)
    packed = pack_keys(KEYS)
    ends = {1: [(0, 40)], 2: [(0, 40), (1, 41)], 3: [(1, 41)]}
    assert sorted(session.asked) == [
        (broker, number, number == 2, ends[broker], packed) for broker in ends for number in (1, 2)
    ]


def test_a_search_erases_nothing_and_may_be_of_older_ends():
    session = Session(finds(3))
    report = erase(session, scan_only=True, up_to={1: 17}, topic_id=ID)
    assert (report.is_complete, report.is_clean) == (True, False)
    assert {replica: (each.up_to_offset, each.erased, each.left) for replica, each in report.replicas.items()} == {
        Replica(ONE, 2): (17, 0, 3),
        Replica(ONE, 3): (17, 0, 3),
    }
    assert {scan_only for _, _, scan_only, *_ in session.asked} == {True}


def test_the_keys_are_sent_once_unless_a_broker_needs_them_again():
    pace = iter([{"state": WAITING}, {"state": RUNNING}, None, {"state": RUNNING}, {}, {}])
    session = Session(lambda *_: next(pace))
    session.replicas[0] = (1,)
    told = []
    report = erase(session, partitions=[0], listener=told.append)
    assert report.is_clean
    packed = pack_keys(KEYS)
    assert [keys for *_, keys in session.asked] == [packed, None, None, packed, None, packed]
    assert [each.what for each in told] == [
        "it is about to begin",
        "erasing: 1 of 1 segments searched",
        "it is about to begin",
        "erasing: 1 of 1 segments searched",
    ]


def test_one_that_waits_too_long_is_told_and_the_others_are_searched():
    session = Session()

    def answer(broker, _message, _number):
        if broker != 3:
            return {}
        session.clock.advance(7.0)
        return {"state": WAITING, "error_message": "it lags"}

    session._answer = answer
    report = erase(session, patience=20.0)
    assert (report.is_complete, report.is_clean) == (False, False)
    obstacles = {replica: each.obstacle for replica, each in report.replicas.items() if each.obstacle}
    assert obstacles == {Replica(ONE, 3): "it lags"}
    assert report.replicas[Replica(ONE, 3)].left == -1
    assert sum(broker == 3 for broker, *_ in session.asked) == 3
    assert sum(scan_only for _, _, scan_only, *_ in session.asked) == 2


def test_one_that_fails_is_not_waited_for():
    session = Session(lambda broker, *_: {"state": FAILED, "error_message": "damaged"} if broker == 2 else {})
    report = erase(session)
    assert [each.obstacle for each in report.replicas.values()] == [None, "damaged", "damaged", None]


def test_a_broker_that_is_away_is_waited_for():
    session = Session()
    failures = iter([ConnectionFailed("refused"), ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "not there")])
    session._answer = lambda broker, *_: next(failures, {}) if broker == 3 else {}
    assert erase(session).is_clean
    session = Session()

    def away(broker, *_):
        session.clock.advance(5.0)
        return ConnectionFailed("refused") if broker == 3 else {}

    session._answer = away
    report = erase(session, patience=30.0)
    assert report.replicas[Replica(ONE, 3)].obstacle == "broker 3 cannot be asked: refused"


def test_one_that_has_copied_anew_is_erased_again():
    found = {(3, True): iter([4, 0]), (3, False): iter([1, 4])}
    session = Session(
        lambda broker, message, _: {"records_found": next(found[3, bool(message.scan_only)])} if broker == 3 else {}
    )
    report = erase(session)
    assert report.is_clean
    assert report.replicas[Replica(ONE, 3)].erased == 5
    assert sorted((broker, number) for broker, number, scan_only, *_ in session.asked if not scan_only) == [
        (1, 1), (2, 1), (3, 1), (3, 3),
    ]  # fmt: skip


def test_replicas_that_have_come_meanwhile_are_asked_too():
    session = Session()

    def answer(_broker, message, _number):
        if message.scan_only:
            session.replicas = {0: (1, 3), 1: (2, 3)}
        return {}

    session._answer = answer
    report = erase(session)
    assert list(report.replicas) == [Replica(ZERO, 1), Replica(ZERO, 3), Replica(ONE, 2), Replica(ONE, 3)]
    assert report.is_clean
    erased = {(broker, n) for broker, _, scan_only, ends, _ in session.asked if not scan_only for n, _ in ends}
    assert erased == {(1, 0), (2, 0), (2, 1), (3, 1), (3, 0)}


@pytest.mark.parametrize("scan_only", [False, True])
def test_one_that_has_moved_away_meanwhile_is_no_obstacle(scan_only):
    session = Session()

    def answer(broker, _message, number):
        if (broker, number) != (2, 0):
            return {}
        session.replicas = {0: (1, 3), 1: (2, 3)}
        session.clock.advance(20.0)
        return {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "error_message": "not here", "state": FAILED}

    session._answer = answer
    report = erase(session, scan_only=scan_only)
    assert list(report.replicas) == [Replica(ZERO, 1), Replica(ZERO, 3), Replica(ONE, 2), Replica(ONE, 3)]
    assert report.is_clean


def test_replicas_that_never_stand_still_are_given_up(monkeypatch):
    monkeypatch.setattr(erasure, "_MOST_ROUNDS", 6)
    session = Session(lambda _, message, __: {"records_found": 1})
    report = erase(session)
    assert (report.is_complete, report.is_clean) == (True, False)
    assert {number for _, number, *_ in session.asked} == set(range(1, 7))


def test_another_topic_of_the_name_is_an_error():
    with pytest.raises(ApiError, match="is another one by now") as refused:
        erase(Session(), topic_id=OTHER_ID)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    session = Session()

    def answer(*_):
        session.topic_id = OTHER_ID
        return {"error_code": ErrorCode.INCONSISTENT_TOPIC_ID, "error_message": "another", "state": FAILED}

    session._answer = answer
    with pytest.raises(ApiError, match="another"):
        erase(session)
    session = Session()
    session._answer = lambda *_: setattr(session, "topic_id", OTHER_ID) or {}
    with pytest.raises(ApiError, match="is another one by now"):
        erase(session)


def test_a_replica_that_its_broker_has_not_yet_is_waited_for():
    pace = iter([{"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "error_message": "not yet", "state": FAILED}])
    session = Session(lambda broker, *_: next(pace, {}) if broker == 1 else {})
    assert erase(session).is_clean


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__spark_decisions"])
def test_topics_that_hold_state_are_refused(topic):
    with pytest.raises(ApiError, match="holds state of the brokers, or of Spark's sinks"):
        asyncio.run(ErasureAdmin(Session()).erase(topic, KEYS))


@pytest.mark.parametrize("keys", [b"one", "one", ["text"], [], [None], 7])
def test_what_is_no_list_of_keys_is_refused(keys):
    with pytest.raises(LocalProtocolError):
        erase(Session(), keys)


def test_a_partition_that_there_is_not_is_named():
    with pytest.raises(ApiError, match="has no partition 7"):
        erase(Session(), partitions=[7])
