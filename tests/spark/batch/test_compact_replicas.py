"""The job that compacts, where a partition has two replicas."""

from pathlib import Path

import pytest
from compaction.dump import dump

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.cluster.session import Session
from sparklog.client.consumer.fetch.segment_files import SegmentFiles
from sparklog.clock import SystemClock
from sparklog.compaction.split import IndexStretch, RewriteStretch
from sparklog.compaction.task import Failure
from sparklog.errors import AuthenticationFailed
from sparklog.protocol.api_key import ApiKey
from sparklog.spark.batch.compact import CompactOptions, run_on
from sparklog.spark.batch.tasks import Look, TaskFailed, perform
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
RECORDS, KEYS = 400, 7
TOPICS = {
    "shared": {}, "halfway": {}, "waves": {"segment.bytes": "1000"}, "deleted": {}, "lost": {}, "left": {}, "gone": {},
}  # fmt: skip
"""And their own settings."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def servers(data):
    settings = {"cleanup.policy": "compact", "segment.bytes": "4000"}
    settings |= {"min.cleanable.dirty.ratio": "1", "min.compaction.lag.ms": "0"}
    with ClusterHarness(data, 2, settings={"log.cleaner.threads": 1}) as harness:
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, 1, 2, settings | TOPICS[topic]) for topic in TOPICS])
        with Producer(bootstrap_servers=harness.bootstrap_servers, acks="all", linger_ms=0, batch_size=300) as producer:
            for number in range(RECORDS):
                for topic in TOPICS:
                    producer.send(topic, b"v%d" % number, key=b"k%d" % (number % KEYS))
        yield harness.bootstrap_servers


class LocalTasks:
    def __init__(self, cluster_id, twist):
        self.files = SegmentFiles(cluster_id)
        self.twist = twist
        self.ran = []

    def run(self, tasks):
        self.ran += tasks
        return [self.twist(task, lambda task=task: perform(task, self.files, SystemClock())) for task in tasks]


def job(servers, *topics, twist=lambda _, act: act(), **more):
    made = []

    def runner(cluster_id):
        made.append(LocalTasks(cluster_id, twist))
        return made[0]

    report = run_on(runner, CompactOptions(servers, topics, **{"parallelism": 2, "stretch_bytes": 4000, **more}))
    return report, made[0].ran


def values(data, broker, topic):
    facts = dump(data / f"broker-{broker}" / f"{topic}-0")
    return {record.key: (record.offset, record.value) for record in facts.records}, len(facts.records)


def test_both_replicas_are_cleaned_by_one_map(servers, data):
    ends: tuple[int, ...] = ()
    while ends != (RECORDS, RECORDS):  # a follower learns a moment later what is replicated
        report, ran = job(servers, "shared")
        assert not report.has_failed, str(report)
        shared = {each.stats.end_offset for each in report.replicas if each.stats}
        if len(shared) == 1:
            assert sum(isinstance(each, IndexStretch) for each in ran) == 1
        with Admin(bootstrap_servers=servers) as admin:
            states = admin.describe_compaction(["shared"]).replicas.values()
        ends = tuple(each.first_dirty_offset for each in states)
    (leader, left), (follower, _) = (values(data, broker, "shared") for broker in (0, 1))
    assert leader == follower
    assert len(leader) == KEYS
    assert left < RECORDS // 4


def test_the_map_is_there_until_the_last_replica_is_written_anew(servers, data):
    """It lies beside the files of one of the replicas, which drops it when that is over."""
    report, ran = job(servers, "waves", parallelism=1, stretch_bytes=1)
    assert not report.has_failed, str(report)
    assert sum(isinstance(each, IndexStretch) for each in ran) == 1
    assert sum(isinstance(each, RewriteStretch) for each in ran) > 2  # so in several waves


def test_a_replica_that_is_taken_away_meanwhile_is_told_as_such(servers, data):
    """And so is the end of the map that lay beside it."""
    done = []

    def moves(task, act):
        if isinstance(task, RewriteStretch) and not done:
            done.append(task)
            with Admin(bootstrap_servers=servers) as admin:
                admin.delete_topics(["deleted"])
            eventually(lambda: not list(data.glob("broker-*/deleted-0")), 60, "the directories go")
        return act()

    report, _ = job(servers, "deleted", twist=moves)
    said = [each.outcome for each in report.replicas]
    assert len(said) == 2
    assert all("its topic was deleted" in each for each in said), said


def test_a_map_that_is_gone_is_told_as_such(servers):
    def loses(task, act):
        if isinstance(task, RewriteStretch):
            for path in task.maps:
                Path(path).unlink(missing_ok=True)
        return act()

    report, _ = job(servers, "lost", twist=loses)
    assert all("the map of its keys went" in each.outcome for each in report.replicas), str(report)


def test_a_replica_that_is_not_seen_is_left_to_its_broker(servers, data):
    def blind(task, act):
        is_hidden = isinstance(task, Look) and "broker-1" in task.target.task.directory
        return TaskFailed(Failure.GONE, "not visible", is_visible=False) if is_hidden else act()

    report, _ = job(servers, "halfway", twist=blind)
    assert not report.has_failed, str(report)
    said = {each.replica.broker: each.outcome for each in report.replicas}
    assert said[0] == "cleaned"
    assert said[1].startswith(("cleaned by its broker", "left to its broker"))
    assert values(data, 0, "halfway")[0] == values(data, 1, "halfway")[0]


def test_what_some_brokers_cannot_clean_hides_nothing_of_the_others(servers, monkeypatch):
    """Of two topics whose files no task sees one is deleted meanwhile, and one broker cannot be asked."""
    ask = Session.request

    async def refused(self, broker, api, *rest, **how):
        if (broker, api) == (0, ApiKey.COMPACT_PARTITIONS):
            raise AuthenticationFailed("its password is another one")
        return await ask(self, broker, api, *rest, **how)

    def blind(task, act):
        with Admin(bootstrap_servers=servers) as admin:
            if any(each.name == "gone" for each in admin.list_topics()):
                admin.delete_topics(["gone"])
        return TaskFailed(Failure.GONE, "not visible", is_visible=False)

    monkeypatch.setattr(Session, "request", refused)
    report, _ = job(servers, "left", "gone", twist=blind)
    said = {(each.replica.tp.topic, each.replica.broker): each.outcome for each in report.replicas}
    assert said.pop(("left", 1)).startswith(("cleaned by its broker", "left to its broker"))
    why = "not cleaned: not visible; nor does its broker: "
    assert said.pop(("left", 0)) == (
        f"{why}left-0: broker 0 does not tell what became of it: its password is another one"
    )
    assert said == dict.fromkeys([("gone", 0), ("gone", 1)], f"{why}it is no replica any more")
    assert report.has_failed
