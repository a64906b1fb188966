"""CompactPartitions, with a cleaner that does what each test says."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cleaning import compact_partitions
from sparklog.broker.context import ApiRequest
from sparklog.compaction.stats import CleanerStats
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import CompactPartitionsRequest, decode_response, encode
from sparklog.replica.cleaning import LastRun, NotCleaned, NothingToClean
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.steps import finish

TP, OTHER = TopicPartition("users", 0), TopicPartition("users", 1)
STATS = CleanerStats(bytes_read=100, bytes_written=25, messages_read=40, messages_written=10, seconds=2.5)
LONG_MS = 1_000_000


async def unpaced(items):
    for each in items:
        yield each


async def driven(steps, _what):
    return finish(steps)


class Cleaner:
    """Cleans what ``gates`` let through; ``failures`` says of which logs it cannot."""

    def __init__(self, clock):
        self._clock = clock
        self.asked = []
        self.gates = {}
        self.failures = {}
        self.uncleanable = {}
        self.last_runs = {}

    def last_run(self, tp):
        return self.last_runs.get(tp)

    async def clean(self, tp):
        self.asked.append(tp)
        if tp in self.gates:
            await self.gates[tp].wait()
        if tp in self.failures:
            raise self.failures[tp]
        self.last_runs[tp] = LastRun(self._clock.now_ms(), STATS)
        return STATS


class Broker:
    """Holds two partitions of a compacted topic, and one that is not."""

    authorizer = AllowEverything()

    def __init__(self):
        self.clock = ManualClock()
        self.cleaner = Cleaner(self.clock)
        self.turns = SimpleNamespace(paced=unpaced, drive=driven)

    @property
    def loop(self):
        return asyncio.get_running_loop()

    def held(self, tp):
        if tp.topic == "nothing":
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here")
        policy = ("compact", "delete") if tp.topic == "users" else ("delete",)
        return SimpleNamespace(config=SimpleNamespace(cleanup_policy=policy))


@pytest.fixture
def broker():
    return Broker()


def request(wanted, timeout_ms=LONG_MS, since_ms=-1):
    topics = [
        CompactPartitionsRequest.CompactedTopic(name=name, partitions=numbers) for name, numbers in wanted.items()
    ]
    message = CompactPartitionsRequest(version=0, topics=topics, timeout_ms=timeout_ms, since_ms=since_ms)
    return ApiRequest(compact_partitions.API, 0, "me", Caller("h"), message)


async def answered(broker, *arguments, **more):
    answer = await compact_partitions.handle(broker, request(*arguments, **more))
    return decode_response(compact_partitions.API, 0, memoryview(encode(answer, 0)))


def told(answer):
    return [
        (TopicPartition(topic.name, each.partition_index), ErrorCode(each.error_code), each.error_message)
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_each_log_is_cleaned_once_and_its_figures_are_told(broker):
    answer = asyncio.run(answered(broker, {"users": [0, 1, 0]}))
    assert told(answer) == [(tp, ErrorCode.NONE, None) for tp in (TP, OTHER, TP)]
    assert sorted(broker.cleaner.asked) == [TP, OTHER]
    each = answer.topics[0].partitions[0]
    assert (each.ended_ms, each.seconds, each.bytes_before, each.bytes_after) == (broker.clock.now_ms(), 2.5, 100, 25)
    assert (each.messages_before, each.messages_after) == (40, 10)


def test_what_is_not_cleaned_is_answered_without_a_task(broker, monkeypatch):
    """19,000 tasks began, and were waited for, in some turns of the loop, 50 ms each."""
    tasks = []

    class Counting:
        def create_task(self, work, name):
            tasks.append(name)
            return asyncio.get_running_loop().create_task(work)

    monkeypatch.setattr(Broker, "loop", Counting())
    answer = asyncio.run(answered(broker, {"nothing": list(range(1000)), "clicks": [0], "users": [0]}))
    assert len(told(answer)) == 1002
    assert tasks == ["cleaning of users-0"]


def test_nothing_is_an_answer_too(broker):
    assert told(asyncio.run(answered(broker, {}))) == []


@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [
        ({"nothing": [0]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is not here"),
        ({"clicks": [0]}, ErrorCode.INVALID_CONFIG, "its cleanup.policy is delete"),
    ],
)
def test_what_is_not_compacted_here_is_not_cleaned(broker, wanted, code, said):
    ((_, found, message),) = told(asyncio.run(answered(broker, wanted)))
    assert (found, message, broker.cleaner.asked) == (code, said, [])


def test_what_cannot_be_cleaned_says_why_and_keeps_no_other_from_it(broker):
    broker.cleaner.failures = {TP: NotCleaned("it was cut")}
    answer = asyncio.run(answered(broker, {"users": [0, 1]}))
    assert told(answer) == [(TP, ErrorCode.OPERATION_NOT_ATTEMPTED, "it was cut"), (OTHER, ErrorCode.NONE, None)]
    assert answer.topics[0].partitions[0].bytes_before == -1
    broker.cleaner.uncleanable = {TP: "damaged"}
    (first, _) = told(asyncio.run(answered(broker, {"users": [0, 1]})))
    assert first == (TP, ErrorCode.KAFKA_STORAGE_ERROR, "it was cut")


def test_nothing_to_clean_is_no_error(broker):
    broker.cleaner.failures = {TP: NothingToClean("all of it is clean")}
    answer = asyncio.run(answered(broker, {"users": [0]}))
    assert told(answer) == [(TP, ErrorCode.NONE, "all of it is clean")]
    assert answer.topics[0].partitions[0].ended_ms == -1


def test_one_that_takes_longer_is_asked_for_again_and_cleaned_once(broker):
    async def run():
        gate = broker.cleaner.gates[TP] = asyncio.Event()
        first = await answered(broker, {"users": [0, 1]}, timeout_ms=0)
        assert told(first)[0][1] is ErrorCode.REQUEST_TIMED_OUT
        assert first.since_ms == broker.clock.now_ms()
        broker.clock.advance(1.0)
        gate.set()
        await broker.cleaner.clean(TP)  # it went on, whoever waits
        asked = len(broker.cleaner.asked)
        second = await answered(broker, {"users": [0]}, since_ms=first.since_ms)
        assert told(second) == [(TP, ErrorCode.NONE, None)]
        assert second.since_ms == first.since_ms
        assert len(broker.cleaner.asked) == asked
        assert second.topics[0].partitions[0].messages_after == 10

    asyncio.run(run())


def test_a_cleaning_that_outlives_two_requests_is_told_with_its_figures(broker):
    """The second waited for a cleaning of its own, which found nothing, and was told that nothing was to be cleaned."""

    async def scenario():
        gate = broker.cleaner.gates[TP] = asyncio.Event()
        first = await answered(broker, {"users": [0]}, timeout_ms=0)
        broker.cleaner.failures[TP] = NothingToClean("nothing is left")
        second = asyncio.create_task(answered(broker, {"users": [0]}, since_ms=first.since_ms))
        while len(broker.cleaner.asked) < 2:
            await asyncio.sleep(0)
        broker.clock.advance(1)
        broker.cleaner.last_runs[TP] = LastRun(broker.clock.now_ms(), STATS)
        gate.set()
        return await second

    answer = asyncio.run(scenario())
    assert told(answer) == [(TP, ErrorCode.NONE, None)]
    assert answer.topics[0].partitions[0].messages_before == 40


def test_an_earlier_cleaning_does_not_count(broker):
    broker.cleaner.last_runs[TP] = LastRun(broker.clock.now_ms() - 1, CleanerStats(messages_written=99))
    answer = asyncio.run(answered(broker, {"users": [0]}, since_ms=broker.clock.now_ms()))
    assert answer.topics[0].partitions[0].messages_after == 10
    assert broker.cleaner.asked == [TP]


def test_a_broker_that_stops_says_so(broker):
    async def run():
        stopped = asyncio.get_running_loop().create_future()
        stopped.cancel()
        broker.cleaner.clean = lambda _: stopped
        return told(await answered(broker, {"users": [0]}))

    assert asyncio.run(run()) == [(TP, ErrorCode.OPERATION_NOT_ATTEMPTED, "the broker is about to stop")]


def test_who_waits_no_more_leaves_nothing_behind(broker):
    async def run():
        broker.cleaner.gates[TP] = asyncio.Event()
        waiting = asyncio.create_task(answered(broker, {"users": [0]}))
        while not broker.cleaner.asked:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)

    asyncio.run(run())
