"""The job that compacts, beside a broker that compacts the same logs itself."""

import json
import logging
import os
import pickle
import re
import signal
import threading

import pytest
from compaction.dump import differences, dump
from spark.batch.deadly import Deadly

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.compaction_grants import put_in_place, renew_cleanings
from sparklog.client.consumer.fetch.segment_files import SegmentFiles
from sparklog.clock import SystemClock
from sparklog.compaction.split import IndexStretch, RewriteStretch, Target, TraceStretch
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.errors import ApiError, ConnectionFailed
from sparklog.log.files import DRAFT_SUFFIX
from sparklog.spark.batch import compact, renewal
from sparklog.spark.batch.compact import CompactOptions, ReplicaReport, Report, run, run_on
from sparklog.spark.batch.renewal import Renewal
from sparklog.spark.batch.repetition import rounds
from sparklog.spark.batch.tasks import Look, SparkTasks, TaskFailed, perform
from sparklog.spark.batch.unattended import run_rounds
from sparklog.spark.batch.waves import size_of
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
SEEDS = range(8)
"""Those of the fixture's logs."""
SEED = 3
"""Of which the log has several stretches."""


@pytest.fixture(scope="module")
def admin(logs):
    with Admin(bootstrap_servers=logs.servers) as found:
        yield found


@pytest.fixture(scope="module")
def cleaned_by_broker(logs, admin):
    """What the broker's own worker did with each log."""
    return admin.compact([f"own-{seed}" for seed in SEEDS])


def options(logs, *topics, **more):
    return CompactOptions(logs.servers, topics, **{"stretch_bytes": 8_000, "part_bytes": 10_000, **more})


def replica(topic):
    return Replica(TopicPartition(topic, 0), 0)


class LocalTasks:
    """Runs tasks in this process; ``twist`` may do otherwise with one."""

    def __init__(self, cluster_id, twist):
        self._files = SegmentFiles(cluster_id)
        self._twist = twist

    def run(self, tasks):
        return [self._twist(task, lambda task=task: perform(task, self._files, SystemClock())) for task in tasks]


def run_here(logs, *topics, twist=lambda _, act: act(), **more):
    return run_on(lambda cluster_id: LocalTasks(cluster_id, twist), options(logs, *topics, parallelism=1, **more))


def _check_stages(report, said):
    """What each stage read is what it should; the report has them in short, and the log every task."""
    for each in report.replicas:
        assert set(each.summary()) <= set(said)
        assert re.search(r"s of tasks \(scan .* s in \d+, map .* s in \d+, rewrite .* s in \d+, swap .*\)$", str(each))
        assert f"cleaned log {each.replica.tp} at broker 0 (dirty section = [" in each.summary()[0]
        rewrote = next(line for line in each.summary() if line.startswith("Rewrote "))
        assert rewrote.startswith(f"Rewrote {each.stats.bytes_read / (1 << 20):,.1f} MB in ")
    several = next(each for each in report.replicas if each.replica.tp.topic == f"job-{SEED}")
    assert len(next(line for line in several.summary() if "Rewrote" in line).partition("tasks: ")[2].split()) > 1


def test_the_job_leaves_what_the_broker_leaves(spark, logs, admin, cleaned_by_broker, caplog):
    topics = [f"job-{seed}" for seed in SEEDS]
    caplog.set_level(logging.INFO, compact.__name__)
    report = run(spark, options(logs, *topics))
    assert not report.has_failed, str(report)
    _check_stages(report, [each.getMessage() for each in caplog.records])
    states = admin.describe_compaction([*topics, *(f"own-{seed}" for seed in SEEDS)]).replicas
    by_topic = {each.replica.tp.topic: each for each in report.replicas}
    for seed in SEEDS:
        job, own = f"job-{seed}", f"own-{seed}"
        assert differences(logs.facts(job), logs.facts(own)) == []
        assert logs.leftovers(job) == []
        assert states[replica(job)].first_dirty_offset == states[replica(own)].first_dirty_offset
        mine, theirs = by_topic[job].stats, cleaned_by_broker[replica(own)].run
        assert mine.bytes_read == theirs.bytes_before
        assert (mine.messages_read, mine.messages_written) == (theirs.messages_before, theirs.messages_after)
        assert states[replica(job)].last_run.messages_after == mine.messages_written


def test_a_dry_run_changes_nothing(spark, logs):
    before = {path.name: path.read_bytes() for path in logs.directory(f"spare-{SEED}").iterdir()}
    report = run(spark, options(logs, f"spare-{SEED}", dry_run=True))
    assert f"spare-{SEED}-0 at broker 0: would be cleaned" in str(report)
    assert {path.name: path.read_bytes() for path in logs.directory(f"spare-{SEED}").iterdir()} == before
    assert str(run(spark, options(logs))) == "nothing is to be compacted"  # nothing is due


def test_a_task_that_runs_twice_changes_nothing(logs, cleaned_by_broker):
    """As where Spark speculates, or repeats one whose result was lost: the first result is that of nobody."""

    def twice(_, act):
        act()
        return act()

    report = run_here(logs, "spare-0", twist=twice)
    assert not report.has_failed, str(report)
    assert differences(logs.facts("spare-0"), logs.facts("own-0")) == []
    assert logs.leftovers("spare-0") == []


def test_a_task_that_fails_leaves_its_log_to_the_next_run(logs, cleaned_by_broker):
    def fails(task, act):
        is_second = isinstance(task, RewriteStretch) and task.groups[0][0] > 0
        if task.target.task.name != "spare-1-0" or not is_second:
            return act()
        act()  # it wrote all it should
        return TaskFailed(Failure.DISK, "the disk refused")

    report = run_here(logs, "spare-1", "spare-2", twist=fails)
    assert report.has_failed
    assert "spare-1-0 at broker 0: not cleaned: the disk refused" in str(report)
    assert "spare-2-0 at broker 0: cleaned" in str(report)
    assert differences(logs.facts("spare-2"), logs.facts("own-2")) == []
    report = run_here(logs, "spare-1")
    assert not report.has_failed, str(report)
    assert logs.table("spare-1") == logs.table("own-1")
    assert logs.leftovers("spare-1") == []


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_its_log_a_run_and_no_other(spark, logs, admin, monkeypatch):
    """Really, with what it wrote on the disk: Spark gives its job up, and the other tasks are run again without it."""
    topics = [f"worker-{name}" for name in ("killed", "spared")]
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(topic, 1, 1, settings) for topic in topics])
    with Producer(bootstrap_servers=logs.servers, linger_ms=0, batch_size=1) as producer:
        for number in range(300):
            for topic in topics:
                producer.send(topic, b"%d" % number, b"k%d" % (number % 3), partition=0)
    tables = {topic: logs.table(topic) for topic in topics}
    run_all = SparkTasks._run_all

    def deadly(task):
        return isinstance(task, RewriteStretch) and task.groups[0][0] > 0 and task.target.task.name == "worker-killed-0"

    with monkeypatch.context() as patch:
        patch.setattr(
            SparkTasks, "_run_all", lambda self, tasks: run_all(self, [Deadly(t) if deadly(t) else t for t in tasks])
        )
        report = run(spark, options(logs, *topics, stretch_bytes=1))
    killed, spared = map(str, report.replicas)
    assert "worker-killed-0 at broker 0: not cleaned: its task died: " in killed
    assert "worker-spared-0 at broker 0: cleaned up to 300" in spared
    assert {topic: logs.table(topic) for topic in topics} == tables
    assert logs.leftovers("worker-killed") == []  # what was written is removed
    assert not run(spark, options(logs, *topics)).has_failed
    assert {topic: logs.table(topic) for topic in topics} == tables
    assert len(dump(logs.directory("worker-killed")).records) == 3


class Killed(BaseException):
    """The driver dies."""


def test_a_job_that_dies_between_groups_leaves_the_log_to_the_next_one(logs, admin, cleaned_by_broker, monkeypatch):
    def dies(task, act):
        if isinstance(task, RewriteStretch) and task.groups[0][0] > 0:
            raise Killed
        return act()

    with monkeypatch.context() as patch:
        patch.setattr(compact, "give_up_cleaning", lambda *_: None)
        with pytest.raises(Killed):
            run_here(logs, "spare-4", twist=dies, stretch_bytes=1, grant_ms=3000)
    held = admin.describe_compaction(["spare-4"]).replicas[replica("spare-4")]
    assert held.is_under_way
    assert held.cleaned_by.startswith("a job that has it for")
    refused = run_here(logs, "spare-4")
    assert "spare-4-0 is being cleaned already: by a job that has it for" in str(refused)
    assert not refused.has_failed  # another is at it
    while "being cleaned already" in str(report := run_here(logs, "spare-4")):
        pass
    assert not report.has_failed, str(report)
    assert logs.table("spare-4") == logs.table("own-4")
    assert logs.leftovers("spare-4") == []
    states = admin.describe_compaction(["spare-4", "own-4"]).replicas
    assert len({states[replica(each)].first_dirty_offset for each in ("own-4", "spare-4")}) == 1


def test_sigterm_gives_back_what_a_job_holds(logs, admin):
    """In the middle of its work, with drafts on the disk: the log is free at once, and the next job cleans it."""
    topic, lines = "ended", []
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(topic, 1, 1, settings)])
    with Producer(bootstrap_servers=logs.servers, linger_ms=0, batch_size=1) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 7), partition=0)
    table = logs.table(topic)

    def ends(task, act):
        outcome = act()
        if isinstance(task, RewriteStretch):
            assert admin.describe_compaction([topic]).replicas[replica(topic)].is_under_way
            os.kill(os.getpid(), signal.SIGTERM)
        return outcome

    def once():
        return run_here(logs, topic, twist=ends, stretch_bytes=1, grant_ms=600_000)

    assert run_rounds(rounds(60, ManualClock(0)), once, lines.append) == 0
    assert lines == []
    assert not admin.describe_compaction([topic]).replicas[replica(topic)].is_under_way
    assert logs.leftovers(topic) == []
    report = run_here(logs, topic)
    assert not report.has_failed, str(report)
    assert str(report).startswith(f"{topic}-0 at broker 0: cleaned up to 300")
    assert logs.table(topic) == table


def test_a_job_renews_its_logs_while_its_tasks_work(logs, monkeypatch):
    """When, and what for, is in ``test_renewal``."""
    renewed = threading.Event()

    class Soon(threading.Event):
        def wait(self, timeout=None):
            return super().wait(None if renewed.is_set() else 0.01)

    class Told(Renewal):
        def __init__(self, cluster, duration_ms):
            super().__init__(cluster, duration_ms)
            self._over = Soon()

    def renews(cluster, broker, tokens, duration_ms):
        lapsed = renew_cleanings(cluster, broker, tokens, duration_ms)
        if tokens and not lapsed:
            renewed.set()
        return lapsed

    def waits(task, act):
        if isinstance(task, RewriteStretch):
            assert renewed.wait(60)
        return act()

    monkeypatch.setattr(compact, "Renewal", Told)
    monkeypatch.setattr(renewal, "renew_cleanings", renews)
    report = run_here(logs, "other-0", twist=waits)
    assert not report.has_failed, str(report)


def test_of_two_jobs_at_once_one_wins_and_the_broker_keeps_away(logs, admin, cleaned_by_broker):
    begun, go_on = threading.Event(), threading.Event()

    def waits(task, act):
        if isinstance(task, Look):
            begun.set()
            assert go_on.wait(60)
        return act()

    reports = []

    def job():
        reports.append(run_here(logs, "spare-5", twist=waits, grant_ms=2000))

    first = threading.Thread(target=job)
    first.start()
    assert begun.wait(60)
    second = run_here(logs, "spare-5")
    assert not second.has_failed
    assert "one cleaning a log at a time" in str(second)
    by_broker = threading.Thread(target=admin.compact, args=(["spare-5"],))
    by_broker.start()
    go_on.set()
    first.join(60)
    by_broker.join(60)
    assert not reports[0].has_failed, str(reports[0])
    assert logs.table("spare-5") == logs.table("own-5")


def test_what_belongs_to_another_user_is_left_to_its_broker(logs, cleaned_by_broker, monkeypatch):
    """As are all files that tasks do not see; ``test_tasks`` has when they do not."""
    ran = []

    def told(task, act):
        ran.append(task)
        return act()

    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        report = run_here(logs, "spare-6", twist=told)
    assert [type(each) for each in ran] == [Look]
    assert not report.has_failed, str(report)
    assert "spare-6-0 at broker 0: cleaned by its broker" in str(report)
    assert "belongs to another user than the one that runs Spark's tasks" in str(report)
    assert differences(logs.facts("spare-6"), logs.facts("own-6")) == []


def test_a_map_that_is_full_is_followed_by_another(logs, cleaned_by_broker):
    maps, shares = [], []

    def counted(task, act):
        outcome = act()
        if isinstance(task, IndexStretch):
            maps.extend(outcome.paths)
            shares.append(outcome.stats.buffer_utilization)
        return outcome

    report = run_here(logs, "spare-7", twist=counted, map_bytes=24 * 30)
    assert not report.has_failed, str(report)
    assert len(maps) > 1
    assert report.replicas[0].stats.buffer_utilization == max(shares) > 0.8, "that of the fullest map"
    assert differences(logs.facts("spare-7"), logs.facts("own-7")) == []
    assert logs.leftovers("spare-7") == []


def test_a_topic_that_there_is_not_is_refused(logs):
    with pytest.raises(ApiError, match="no-such-topic"):
        run_here(logs, "no-such-topic")


def test_by_version_the_job_leaves_what_the_broker_leaves_however_small_its_maps(logs, admin):
    settings = {"cleanup.policy": "compact", "compaction.strategy": "timestamp"}
    settings |= {"segment.bytes": "2000", "min.cleanable.dirty.ratio": "1"}
    for name in ("own", "other"):
        topic = f"{name}-{SEED}-by-version"
        admin.create_topics([NewTopic(topic, 1, 1, settings)])
        with Producer(bootstrap_servers=logs.servers, linger_ms=0, enable_idempotence=False) as producer:
            for number in range(300):
                key, time_ms = b"%d" % (number * 7 % 90), 1_700_000_000_000 + number * 31 % 97
                value = None if number % 11 == 0 else b"%d" % number
                producer.send(topic, value, key, partition=0, timestamp=time_ms).result()
    own, other = f"own-{SEED}-by-version", f"other-{SEED}-by-version"
    assert admin.compact([own])[replica(own)].error is None
    report = run_here(logs, other, map_bytes=32 * 20, part_bytes=4_000)
    assert not report.has_failed, str(report)
    mine, theirs = logs.facts(other), logs.facts(own)
    assert [each._replace(modified_ms=0) for each in mine.segments] == [
        each._replace(modified_ms=0) for each in theirs.segments
    ]
    assert logs.leftovers(other) == []
    assert report.replicas[0].stats.keys == 90


def test_a_topic_that_is_not_compacted_is_told(logs, admin):
    admin.create_topics([NewTopic("plain", 1, 1, {"cleanup.policy": "delete"})])
    report = run_here(logs, "plain", "spare-3")
    assert report.has_failed
    assert "plain-0 at broker 0: not cleaned: plain-0: its cleanup.policy is delete" in str(report)
    assert "spare-3-0 at broker 0: cleaned" in str(report)


def test_a_log_that_cannot_be_read_is_not_tried_again(logs, admin):
    def damaged(_, act):
        return TaskFailed(Failure.CORRUPT, "damaged")

    assert run_here(logs, "other-1", twist=damaged).has_failed
    admin.alter_topic_configs("other-1", {"min.cleanable.dirty.ratio": "0"})  # its broker leaves it alone too
    told = "other-1-0 at broker 0: left alone until it changes, or is named: damaged"
    try:
        assert str(run_here(logs)) == told
        assert told in str(run_here(logs, dry_run=True))
    finally:
        admin.alter_topic_configs("other-1", {"min.cleanable.dirty.ratio": "1"})
    assert not run_here(logs, "other-1").has_failed


def test_a_broker_of_another_version_keeps_nobody(logs, admin, monkeypatch):
    read = Target.from_json

    def newer(text):
        if "other-2-0" in text:
            raise TypeError("unexpected keyword argument 'shape'")
        return read(text)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "from_json", newer)
        report = run_here(logs, "other-2", "other-3")
    assert "other-2-0 at broker 0: not cleaned: what its broker tells of it is of another version" in str(report)
    assert "other-3-0 at broker 0: cleaned" in str(report)
    assert not admin.describe_compaction(["other-2"]).replicas[replica("other-2")].is_under_way


def test_a_broker_that_does_not_answer_is_asked_no_more(logs, monkeypatch):
    asked = []

    def silent(cluster, grant, group, tag):
        asked.append(grant.tp.topic)
        raise ConnectionFailed("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(compact, "put_in_place", silent)
        patch.setattr(compact, "give_up_cleaning", lambda _, grant, *more: asked.append(("given up", grant.tp.topic)))
        report = run_here(logs, "other-4", "other-5", grant_ms=1000)
    assert len(asked) == 1
    assert [str(each) for each in report.replicas] == [
        f"other-{seed}-0 at broker 0: not cleaned: no answer" for seed in (4, 5)
    ]


def test_a_log_is_free_as_soon_as_its_last_group_is_in_place(logs, admin):
    free = []

    def looks(task, act):
        if task.target.task.name == "other-7-0" and isinstance(task, RewriteStretch):
            states = admin.describe_compaction(["other-6"]).replicas
            free.append(not states[replica("other-6")].is_under_way)
        return act()

    report = run_here(logs, "other-6", "other-7", twist=looks, stretch_bytes=1)
    assert not report.has_failed, str(report)
    assert free[-1]


@pytest.mark.parametrize(("has_room", "most"), [(False, 1), (True, 6)])
def test_no_more_tasks_write_at_a_time_than_the_disk_has_room_for(logs, admin, monkeypatch, has_room, most):
    """Each sees room for what it writes itself, and not what the others are about to write."""
    topic, room = f"room-for-{most}", 7000
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(topic, 1, 1, settings)])
    with Producer(bootstrap_servers=logs.servers, linger_ms=0, batch_size=1) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, b"k%d" % (number % 3), partition=0)
    waves, statvfs = [], os.statvfs

    class Disk(LocalTasks):
        def run(self, tasks):
            sizes = [size_of(each) for each in tasks if isinstance(each, RewriteStretch)]
            waves.append((len(sizes), sum(sizes)))
            return super().run(tasks)

    with monkeypatch.context() as patch:
        if not has_room:
            patch.setattr(os, "statvfs", lambda at: os.statvfs_result((1, 1, room, room, room, *statvfs(at)[5:])))
        chosen = options(logs, topic, parallelism=3, stretch_bytes=1)
        report = run_on(lambda cluster_id: Disk(cluster_id, lambda _, act: act()), chosen)
    assert not report.has_failed, str(report)
    assert max(count for count, _ in waves) == most, str(report)
    assert has_room or max(size for _, size in waves) <= room
    assert logs.leftovers(topic) == []


def test_what_lies_beside_a_log_is_one_wave_at_most(logs, admin, monkeypatch):
    """Though every record stays. A wave is put in place as a whole, after its last task, and before the next begins."""
    topic, wave, beside, whole = "one-wave", [], [], []
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(topic, 1, 1, settings)])
    with Producer(bootstrap_servers=logs.servers, linger_ms=0, batch_size=1) as producer:
        for number in range(900):
            producer.send(topic, b"%d" % number, b"k%d" % number, partition=0)

    def look():
        beside.append(sum(path.stat().st_size for path in logs.directory(topic).glob(f"*.log.*{DRAFT_SUFFIX}")))
        assert beside[-1] <= sum(wave)

    class Disk(LocalTasks):
        def run(self, tasks):
            sizes = [size_of(each) for each in tasks if isinstance(each, RewriteStretch)]
            if sizes:
                look()
                assert beside[-1] == 0  # all of the last wave is in place
                wave[:] = sizes
            return super().run(tasks)

    def put(*arguments):
        look()
        whole.append(beside[-1] == sum(wave))
        return put_in_place(*arguments)

    monkeypatch.setattr(compact, "put_in_place", put)
    chosen = options(logs, topic, parallelism=2, stretch_bytes=1)
    report = run_on(lambda cluster_id: Disk(cluster_id, lambda _, act: act()), chosen)
    assert not report.has_failed, str(report)
    assert report.replicas[0].stats.bytes_written > 2 * max(beside) > 4 * 5000
    assert sum(whole) > 1
    assert logs.leftovers(topic) == []


def test_no_key_and_no_value_is_in_what_tasks_hand_to_spark(logs, admin):
    """The JVM has a task and its outcome, pickled (``workers.run_in_workers``): paths and numbers."""
    topic, passed, kinds = "secrets", [], set()
    settings = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "1"}
    admin.create_topics([NewTopic(topic, 1, 1, settings)])
    with Producer(bootstrap_servers=logs.servers, linger_ms=0, batch_size=1) as producer:
        for number in range(300):
            producer.send(topic, b"hidden value %d" % number, b"hidden key %d" % (number % 7), partition=0)

    def pickled(task, act):
        outcome = act()
        kinds.add(type(task))
        passed.extend(map(pickle.dumps, (task, outcome)))
        return outcome

    report = run_here(logs, topic, twist=pickled, stretch_bytes=1)
    assert not report.has_failed, str(report)
    assert kinds >= {Look, IndexStretch, TraceStretch, RewriteStretch}
    assert any(topic.encode() in each for each in passed)
    assert not any(b"hidden" in each for each in passed)


def test_a_dry_run_counts_the_active_segment_of_a_topic_that_is_named(logs, admin):
    admin.create_topics([NewTopic("young", 1, 1, {"cleanup.policy": "compact"})])
    with Producer(bootstrap_servers=logs.servers) as producer:
        producer.send("young", bytes(1_000_000), key=b"k")
    said = str(run_here(logs, "young", dry_run=True))
    assert "would be cleaned, 0.0 MB of it" in said
    assert "of the 1.0 MB beyond, its active segment among them, what may be cleaned" in said


def test_a_report_is_told_to_programs_as_the_brokers_cleanings_are():
    stats = CleanerStats(
        bytes_read=1000, bytes_written=250, messages_read=40, messages_written=10, seconds=1.25, end_offset=40
    )
    report = Report(
        [
            ReplicaReport(replica("t"), "cleaned", stats=stats),
            ReplicaReport(replica("u"), "not cleaned: no", is_failure=True),
        ]
    )
    cleaned, not_cleaned = map(json.loads, report.to_json().splitlines())
    names = "topic partition broker bytes_before bytes_after reduction_percent records_before records_after seconds"
    assert list(cleaned) == list(not_cleaned) == [*names.split(), "result", "is_failure"]
    assert list(cleaned.values())[1:] == [0, cleaned["broker"], 1000, 250, 75.0, 40, 10, 1.2, "cleaned", False]
    assert list(not_cleaned.values())[3:] == [None] * 6 + ["not cleaned: no", True]
    assert Report().to_json() == ""


@pytest.mark.parametrize(("written", "said"), [(50, "(50.0% less)"), (150, "(50.0% more)")])
def test_a_line_tells_growth_as_such(written, said):
    assert said in str(
        ReplicaReport(replica("t"), "cleaned", stats=CleanerStats(bytes_read=100, bytes_written=written))
    )
