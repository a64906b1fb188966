"""What DescribeCompaction tells of logs that are clean, dirty, unreadable, and not compacted at all."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.cleaning import describe_compaction
from sparklog.broker.context import ApiRequest
from sparklog.compaction.plan import Sections
from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.messages import DescribeCompactionRequest, decode_response, encode
from sparklog.replica.cleaning import Candidate, LastRun, Uncleanable
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.steps import counted, finish

CLEAN, DIRTY, BROKEN = (TopicPartition("users", number) for number in range(3))
PLAIN, LOST, ELSEWHERE = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("clicks", 2)
STATS = CleanerStats(
    bytes_read=100, bytes_written=25, messages_read=40, messages_written=10, seconds=2.5, buffer_utilization=0.5
)


def sections(clean, cleanable):
    return Sections(10, 20, clean, cleanable, is_checkpoint_wrong=False)


class Replicas:
    """Those that a broker holds."""

    def __init__(self):
        self.policies = dict.fromkeys((CLEAN, DIRTY, BROKEN), ("compact",)) | {PLAIN: ("delete",)}

    def holds(self, tp):
        return tp in self.policies or tp == LOST

    def partition(self, tp):
        if tp == LOST:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed")
        return SimpleNamespace(config=SimpleNamespace(cleanup_policy=self.policies[tp]))


class Metadata:
    """Two topics of three partitions each."""

    def topic(self, name):
        return SimpleNamespace(partitions=dict.fromkeys(range(3))) if name in ("users", "clicks") else None


class Cleaner:
    """What a cleaner knows."""

    threads = 2
    under_way = frozenset({DIRTY})

    def __init__(self):
        self.uncleanable = {BROKEN: Uncleanable("it is damaged", 1, 0, 0, 77)}
        self.last_runs = {CLEAN: LastRun(1234, STATS)}

    def last_run(self, tp):
        return self.last_runs.get(tp)

    def known_failure(self, tp):
        return self.uncleanable.get(tp)

    def is_due(self, candidate):
        return candidate.tp == DIRTY

    def candidates(self):
        yield Candidate(CLEAN, sections(80, 20), 0)
        yield None
        yield Candidate(DIRTY, sections(10, 30), 5500)

    def last_of_threads(self):
        return [STATS, CleanerStats(seconds=7.9, buffer_utilization=0.129)]


@pytest.fixture
def broker():
    replicas = Replicas()
    return SimpleNamespace(
        authorizer=AllowEverything(),
        cleaner=Cleaner(),
        replicas=replicas,
        metadata=Metadata(),
        held=replicas.partition,
        config=BrokerConfig(),
        cleaning_grants=SimpleNamespace(who_cleans=lambda _: "a job"),
    )


def steps(broker, topics):
    api = describe_compaction.API
    return describe_compaction.handle(
        broker, ApiRequest(api, 0, "me", Caller("h"), DescribeCompactionRequest(version=0, topics=topics))
    )


def ask(broker, topics=None):
    """The answer as a client gets it, and what it tells of each partition."""
    answer: Any = decode_response(describe_compaction.API, 0, memoryview(encode(finish(steps(broker, topics)), 0)))
    told = {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }
    return answer, told


def test_every_compacted_log_is_told_of(broker):
    answer, told = ask(broker)
    assert (answer.error_code, list(told)) == (ErrorCode.NONE, [CLEAN, DIRTY, BROKEN])
    clean, dirty = told[CLEAN], told[DIRTY]
    assert (clean.first_dirty_offset, clean.first_uncleanable_offset) == (10, 20)
    assert (clean.clean_bytes, clean.cleanable_bytes, clean.delay_ms, clean.is_under_way) == (80, 20, 0, False)
    assert (clean.uncleanable_reason, clean.uncleanable_bytes) == (None, -1)
    assert (clean.last_ended_ms, clean.last_seconds) == (1234, 2.5)
    assert (clean.last_bytes_before, clean.last_bytes_after) == (100, 25)
    assert (clean.last_messages_before, clean.last_messages_after) == (40, 10)
    assert (dirty.delay_ms, dirty.is_under_way) == (5500, True)
    assert (clean.cleaned_by, dirty.cleaned_by) == (None, "a job")
    assert (dirty.last_ended_ms, dirty.last_seconds, dirty.last_bytes_before, dirty.last_messages_after) == (-1,) * 4


def test_one_that_cannot_be_read_says_why(broker):
    broken = ask(broker)[1][BROKEN]
    assert (broken.error_code, broken.uncleanable_reason, broken.uncleanable_bytes) == (0, "it is damaged", 77)
    assert (broken.first_dirty_offset, broken.clean_bytes, broken.cleanable_bytes) == (-1, -1, -1)


def test_the_figures_of_the_broker_are_kafkas(broker):
    answer, _ = ask(broker, ["no-such"])
    assert (answer.is_enabled, answer.threads) == (True, 2)
    assert (answer.max_dirty_percent, answer.max_compaction_delay_secs) == (75, 5)
    assert (answer.max_clean_time_secs, answer.max_buffer_utilization_percent) == (7, 50)


def test_one_that_cannot_be_cleaned_counts_in_no_figure(broker):
    broker.cleaner.uncleanable[DIRTY] = Uncleanable("it is damaged too", 1, 0, 0, 40)
    answer, told = ask(broker)
    assert (answer.max_dirty_percent, answer.max_compaction_delay_secs) == (20, 0)
    assert (told[DIRTY].cleanable_bytes, told[DIRTY].uncleanable_reason) == (30, "it is damaged too")


def test_what_is_named_and_not_compacted_says_so(broker):
    _, told = ask(broker, ["clicks"])
    assert {tp: each.error_code for tp, each in told.items()} == {
        PLAIN: ErrorCode.INVALID_CONFIG,
        LOST: ErrorCode.KAFKA_STORAGE_ERROR,
    }
    assert told[PLAIN].error_message == "its cleanup.policy is delete"


def test_nothing_is_told_of_topics_that_are_not_asked_for_or_not_here(broker):
    assert ask(broker, ["no-such"])[1] == {}
    assert ask(broker, [])[1] == {}
    assert list(ask(broker, ["users"])[1]) == [CLEAN, DIRTY, BROKEN]


def test_many_partitions_are_many_steps(broker):
    many = [Candidate(TopicPartition("users", number), sections(1, 1), 0) for number in range(10_000)]
    broker.cleaner.candidates = lambda: iter(many)
    taken, answer = counted(steps(broker, None))
    assert len(answer.topics[0].partitions) == len(many)
    assert taken >= 2 * len(many)


def test_each_of_many_names_is_asked_about_in_a_step_of_its_own(broker):
    names = [f"t{number}" for number in range(500)]
    broker.authorizer = rights = ListedRights(*(f"DESCRIBE topic {name}" for name in names))
    taken = steps(broker, names)
    for number, _ in enumerate(names, 1):
        next(taken)
        assert len(rights.questions) == number
    assert finish(taken).error_code == ErrorCode.NONE
