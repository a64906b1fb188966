"""Partitions of a real replica manager, as they are told."""

import asyncio
import gc
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from metrics.pages import collected

from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.log.directories.manager import LogManager
from sparklog.metrics.collectors.collector import Collector
from sparklog.metrics.collectors.partitions import PartitionCollector
from sparklog.metrics.collectors.traffic import TrafficCollector
from sparklog.metrics.exposition import Exposition
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import PartitionState

ME, OTHER, ID = 1, 2, UUID(int=1)
REPLICAS = "kafka_server_replicamanager_"


def batch(values):
    builder = RecordBatchBuilder()
    for number in range(values):
        builder.append(1, None, b"%d" % number)
    return memoryview(bytearray(builder.build()))


@pytest.fixture
def manager(tmp_path):
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as disk:
        logs = LogManager([tmp_path], TopicConfig(), ManualClock(), disk)
        yield ReplicaManager(ME, logs, loop)
        logs.close()
    loop.close()


def hold(manager, number, *, leader=ME, isr=(ME,), replicas=(ME,), topic="t", **settings):
    tp = TopicPartition(topic, number)
    state = PartitionState(leader, 0, isr, 1)
    assert manager.apply(tp, state, TopicConfig(**settings), ID, replicas=replicas) is ErrorCode.NONE
    return tp


def sums(page):
    return {name.removeprefix(REPLICAS): page.value(name) for name in page.names if name.startswith(REPLICAS)}


def test_each_log_and_the_sums(manager):
    tp = hold(manager, 0)
    manager.append(tp, batch(5), 1)
    manager.append(tp, batch(2), 1)
    hold(manager, 1, leader=OTHER, isr=(OTHER, ME), replicas=(OTHER, ME))
    page = collected(PartitionCollector(manager, 10))
    size = len(batch(5)) + len(batch(2))
    told = {
        name: page.value(f"kafka_log_log_{name}", topic="t", partition="0")
        for name in ("size", "logstartoffset", "logendoffset", "numlogsegments")
    }
    assert told == {"size": size, "logstartoffset": 0, "logendoffset": 7, "numlogsegments": 1}
    assert page.value("kafka_log_log_logendoffset", topic="t", partition="1") == 0
    assert sums(page) == {
        "partitioncount": 2,
        "leadercount": 1,
        "underreplicatedpartitions": 0,
        "underminisrpartitioncount": 0,
        "atminisrpartitioncount": 1,
        "offlinereplicacount": 0,
        "isrshrinks_total": 0,
        "isrexpands_total": 0,
        "failedisrupdates_total": 0,
    }


def test_a_log_that_changes_is_told_as_it_is_now(manager):
    tp, told = hold(manager, 0), PartitionCollector(manager, 10)
    ends = []
    for values in (0, 3, 2):
        if values:
            manager.append(tp, batch(values), 1)
        ends.append(collected(told).value("kafka_log_log_logendoffset", topic="t", partition="0"))
    assert ends == [0, 3, 5]


def test_partitions_that_lack_replicas_are_counted_and_named(manager):
    both = (ME, OTHER)
    hold(manager, 0, isr=both, replicas=both, min_insync_replicas=1)
    hold(manager, 1, isr=(ME,), replicas=both, min_insync_replicas=1)
    hold(manager, 2, isr=(ME,), replicas=both, min_insync_replicas=2)
    hold(manager, 3, leader=OTHER, isr=(OTHER,), replicas=both)  # its leader tells of it
    page = collected(PartitionCollector(manager, 10))
    assert page.value(REPLICAS + "underreplicatedpartitions") == 2
    assert page.value(REPLICAS + "underminisrpartitioncount") == 1
    assert page.value(REPLICAS + "atminisrpartitioncount") == 1
    assert lacking(page) == {"underreplicated": {"1": 1, "2": 1}, "underminisr": {"2": 1}, "atminisr": {"1": 1}}
    assert lacking(collected(PartitionCollector(manager, 2)))["underreplicated"] == {"1": 1}


def lacking(page):
    """By what they lack, the values of partitions; that of none of them is 0, so that there is always a sum."""
    found = {}
    for what in ("underreplicated", "underminisr", "atminisr"):
        told = page.of(f"kafka_cluster_partition_{what}")
        assert told.pop(frozenset()) == 0
        found[what] = {dict(labels)["partition"]: value for labels, value in told.items()}
    return found


def test_a_sum_over_partitions_that_are_well_is_0(manager):
    hold(manager, 0)
    hold(manager, 1, isr=(ME, OTHER), replicas=(ME, OTHER), min_insync_replicas=1)
    page = collected(PartitionCollector(manager, 10))
    assert lacking(page) == {"underreplicated": {}, "underminisr": {}, "atminisr": {}}
    assert [sum(page.of(f"kafka_cluster_partition_{what}").values()) for what in lacking(page)] == [0, 0, 0]


def test_changes_of_the_isr_are_counted(manager):
    both = (ME, OTHER)
    tp = hold(manager, 0, isr=both, replicas=both)
    asked = []
    manager.on_proposal = lambda _, proposal: asked.append(proposal)
    clockless = manager.partition(tp)
    clockless._max_lag_ms = -1
    list(manager.leave_out_lagging())
    manager.give_up(tp, asked[-1])
    list(manager.leave_out_lagging())
    manager.settle(tp, asked[-1], (ME,), 5)
    clockless._in_sync.propose(both)
    manager.settle(tp, clockless._in_sync.proposal, both, 6)
    counted = sums(collected(PartitionCollector(manager, 10)))
    assert (counted["isrshrinks_total"], counted["isrexpands_total"], counted["failedisrupdates_total"]) == (1, 1, 1)


def test_beyond_the_limit_partitions_count_and_have_no_series(manager):
    for number in range(5):
        hold(manager, number)
    page = collected(PartitionCollector(manager, 3))
    assert len(page.of("kafka_log_log_size")) == 3
    assert page.value(REPLICAS + "partitioncount") == 5
    assert page.value("sparklog_metrics_partitions_left_out") == 2


def test_what_is_here_no_longer_is_forgotten(manager):
    told = PartitionCollector(manager, 100)
    for number in range(10):
        hold(manager, number)
    collected(told)
    for number in range(9):
        manager.stop(TopicPartition("t", number), delete=False)
    page = collected(told)
    assert len(page.of("kafka_log_log_size")) == 1
    assert [*told._lines._known] == [TopicPartition("t", 9)]


@pytest.fixture
def _many_files():
    """A log without records has one file open, until the garbage collector comes round: so the limit stays."""
    wanted, (soft, hard) = 12_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be open, and {wanted} are wanted: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@pytest.mark.slow
@pytest.mark.usefixtures("_many_files")
def test_ten_thousand_partitions_cost_little_and_are_read_in_steps(manager):
    """50 ms of CPU for the whole page; no step is longer than a turn."""
    count, per_topic = 10_000, 50
    for number in range(count):
        hold(manager, number % per_topic, topic=f"a-topic-with-a-name-{number // per_topic}")
    told: list[Collector] = [TrafficCollector(manager.traffic, count), PartitionCollector(manager, count)]
    took, longest, parts = [], [], []
    for _ in range(20):
        gc.collect()
        gc.disable()  # the broker's collections are short too (cli/garbage.py)
        took.append(0.0)
        page, parts = Exposition(), []
        steps = [each.collect(page) for each in told] + [page.encoding(parts)]
        for each in steps:
            while True:
                began = time.thread_time()
                more = next(each, each)
                longest.append(time.thread_time() - began)
                took[-1] += longest[-1]
                if more is each:
                    break
        gc.enable()
    text = b"".join(parts)
    assert 40_000 < text.count(b"\n") < 45_000
    assert min(took[1:]) < 0.05, f"{len(text)} bytes took {min(took[1:]) * 1000:.1f} ms"
