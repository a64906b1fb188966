"""The rights that docs/security.md names for Spark's user: together they suffice, and each of them is needed.

A user has them, or all but one, and nothing else.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.client.admin.admin import AclFilter, Admin, NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.spark.batch import compact, load, offload
from sparklog.spark.batch.sources import Source
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.structs import DECISIONS_TOPIC, TopicPartition
from sparklog.testing.secured import ADMIN, SecuredBroker

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.usefixtures("interpreted")]
RECORDS = 20
USER = "spark"
TOPIC, OUT = "TOPIC", "OUT"
"""Stand for the names of the test's own topics."""


class Right(NamedTuple):
    operation: Operation
    kind: ResourceType
    name: str
    """``…`` at its end: a prefix."""

    def __str__(self):
        return f"{self.operation.name} {self.kind.name} {self.name}"

    def binding(self, names):
        pattern = PatternType.PREFIXED if self.name.endswith("…") else PatternType.LITERAL
        name = names.get(self.name, self.name).removesuffix("…")
        return AclBinding(ResourcePattern(self.kind, name, pattern), AclEntry(f"User:{USER}", "*", self.operation))


def topic_right(operation, name=TOPIC):
    return Right(operation, ResourceType.TOPIC, name)


def written_by(name):
    return Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def group_right(name):
    return Right(Operation.READ, ResourceType.GROUP, name)


READ, WRITE, ALTER = map(topic_right, (Operation.READ, Operation.WRITE, Operation.ALTER))
DESCRIBE_CONFIGS = topic_right(Operation.DESCRIBE_CONFIGS)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
DECIDING = (
    topic_right(Operation.READ, DECISIONS_TOPIC),
    topic_right(Operation.WRITE, DECISIONS_TOPIC),
    written_by("sparklog-spark…"),
    written_by("spark-decisions…"),
    group_right("spark-decisions…"),
)
LOADING = (READ, WRITE, DESCRIBE_CONFIGS, written_by("sparklog-load.…"), group_right("sparklog-load.…"))
OFFLOADING = (READ, DESCRIBE_CONFIGS, group_right("sparklog-offload…"))


class Work:
    """What a user may do with the topics of a test."""

    def __init__(self, spark, broker, topic, home):
        self.spark, self.broker, self.topic, self.home = spark, broker, topic, home
        self.client = broker.client(USER)

    def options(self, **more):
        return {f"kafka.{name}": text for name, text in self.client.items()} | more

    def read(self, **more):
        frame = self.spark.read.format("sparklog").options(**self.options(subscribe=self.topic, **more)).load()
        assert frame.count() == RECORDS

    def write(self, **more):
        rows = self.spark.range(4).selectExpr("cast(string(id) as binary) value")
        rows.write.format("sparklog").options(**self.options(topic=self.topic, **more)).mode("append").save()

    def stream(self):
        source = self.options(subscribe=self.topic, startingOffsets="earliest")
        rows = self.spark.readStream.format("sparklog").options(**source).load().select("value")
        sink = self.options(topic=f"{self.topic}-out", checkpointLocation=str(self.home / "checkpoint"))
        query = rows.writeStream.format("sparklog").options(**sink).trigger(availableNow=True).start()
        query.awaitTermination()

    def offload(self):
        place = FilesTarget(str(self.home / "offloaded"))
        options = offload.OffloadOptions(self.broker.address, (self.topic,), place, client=self.client)
        assert sum(each.records for each in offload.run(self.spark, options)) == RECORDS

    def load(self, via):
        (self.home / "source").mkdir()
        pq.write_table(pa.table({"id": ["a", "b"]}), self.home / "source" / "part.parquet")
        source = Source(str(self.home / "source"), "parquet", key="id")
        options = load.LoadOptions(self.broker.address, self.topic, source, self.topic, via, client=self.client)
        assert load.run(self.spark, options).records == 2

    def compact(self, *, dry_run=False):
        options = compact.CompactOptions(self.broker.address, (self.topic,), dry_run, client=self.client)
        report = compact.run(self.spark, options)
        assert not report.has_failed, str(report)


class Case(NamedTuple):
    rights: tuple[Right, ...]
    act: Callable[[Work], None]
    settings: Mapping[str, str] = MappingProxyType({})
    """Of the topic."""
    told: frozenset[Right] = frozenset()
    """Without these it is done all the same, with a warning."""
    is_resumed: bool = False
    """What it has open is left to its next run where it may not decide."""


COMPACTED = {"cleanup.policy": "compact"}
WAITING = {"sparklog.offload.required": "true", "sparklog.offload.max.bytes": "1000000"}
CASES = {
    "read": Case((READ,), Work.read),
    "direct read": Case((READ,), lambda work: work.read(directRead="always")),
    "read by a token": Case((READ,), lambda work: work.read(taskToken="1h")),
    "write at least once": Case((WRITE,), lambda work: work.write(delivery="at-least-once")),
    "write exactly once": Case((WRITE, *DECIDING), Work.write),
    "write by a token": Case((WRITE, *DECIDING), lambda work: work.write(taskToken="1h")),
    "named write": Case((WRITE, *DECIDING), lambda work: work.write(txnAppId="app", txnVersion="1"), is_resumed=True),
    "stream": Case((READ, topic_right(Operation.WRITE, OUT), *DECIDING), Work.stream, is_resumed=True),
    "offload": Case(OFFLOADING, Work.offload, WAITING, frozenset(OFFLOADING[1:])),
    "load by adoption": Case((*LOADING, DESCRIBE_CLUSTER), lambda work: work.load("adopt")),
    "load by producing": Case(LOADING, lambda work: work.load("produce")),
    "compaction": Case((ALTER,), Work.compact, COMPACTED),
    "dry run of a compaction": Case((ALTER, DESCRIBE_CLUSTER), lambda work: work.compact(dry_run=True), COMPACTED),
}
QUICK = {"read", "load by producing"}
"""The other tests take long together."""


def named(cases):
    return [pytest.param(*each, id=name, marks=[] if quick else [pytest.mark.slow]) for *each, name, quick in cases]


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper):
    users = {name: f"{name}-{name}" for name in (ADMIN, USER)}
    with SecuredBroker(tmp_path_factory.mktemp("rights"), f"{zookeeper.connect_string}/rights", users) as found:
        yield found


@pytest.fixture(scope="module")
def admin(broker):
    with Admin(broker.client(ADMIN)) as found:
        found.create_topics([NewTopic(DECISIONS_TOPIC, 2, 1, COMPACTED)])
        yield found


@pytest.fixture
def work(spark, broker, admin, topic, tmp_path):
    """``work(settings, rights)``: a filled topic, and a user that has these rights."""

    def made(settings, rights):
        admin.create_topics([NewTopic(topic, 2, 1, settings), NewTopic(f"{topic}-out", 2)])
        with Producer(broker.client(ADMIN)) as producer:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number, key=b"%d" % (number % 3), partition=number % 2)
        admin.delete_acls([AclFilter(principal=f"User:{USER}")])
        admin.create_acls([each.binding({TOPIC: topic, OUT: f"{topic}-out"}) for each in rights])
        return Work(spark, broker, topic, tmp_path)

    return made


@pytest.mark.parametrize("case", named((case, name, name in QUICK) for name, case in CASES.items()))
def test_the_rights_of_the_page_suffice(work, case, caplog):
    case.act(work(case.settings, case.rights))
    assert not [each for each in caplog.messages if "AUTHORIZATION" in each]


def without_one():
    for name, case in CASES.items():
        for right in case.rights:
            yield case, right, f"{name} without {right}", False


@pytest.mark.parametrize(("case", "right"), named(without_one()))
def test_each_of_them_is_needed_and_named(work, admin, case, right, caplog):
    chosen = work(case.settings, [each for each in case.rights if each != right])
    before = _committed(chosen)
    if right in case.told:
        case.act(chosen)
        said = "\n".join(caplog.messages)
    else:
        with pytest.raises(Exception, match="AUTHORIZATION_FAILED") as caught:
            case.act(chosen)
        said = str(caught.value)
    assert f"{right.operation.name}" in said[said.index("needs the right") :]
    assert {ResourceType.TRANSACTIONAL_ID: "transactional id"}.get(right.kind, right.kind.name.lower()) in said
    assert _committed(chosen) == before
    left = [each for each in admin.list_transactions(states=["Ongoing"]) if chosen.topic in each.transactional_id]
    assert case.is_resumed or not left
    if case.is_resumed:
        admin.create_acls([right.binding({TOPIC: chosen.topic, OUT: f"{chosen.topic}-out"})])
        case.act(chosen)
        assert _committed(chosen) > before


def test_who_may_not_mark_a_load_is_refused_before_the_work(work, monkeypatch):
    monkeypatch.setattr(load._Load, "_build", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(Exception, match="needs the right READ, WRITE and DESCRIBE_CONFIGS on the topic"):
        work({}, [each for each in LOADING if each != READ]).load("produce")


def _committed(work):
    """How many records both topics of the test have that readers see."""
    found = 0
    with Consumer({**work.broker.client(ADMIN), "isolation.level": "read_committed"}) as consumer:
        tps = [TopicPartition(f"{work.topic}{more}", number) for more in ("", "-out") for number in range(2)]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += len(consumer.poll(0.2))
    return found
