"""A leader dies while Spark reads: a task tries again, and the job ends with the right rows."""

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.producer.producer import Producer
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("interpreted"), pytest.mark.timeout(400)]
NOTICED_S = 60.0
PARTITIONS, COUNT = 2, 4_000


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("deaths"), brokers=3) as harness:
        yield harness


@pytest.fixture(autouse=True)
def _whole_again(trio):
    yield
    for broker in trio.brokers:
        if not broker.alive:
            broker.start()


def partitions_of(trio, topic):
    with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
        return admin.describe_topics([topic])[topic].partitions


@pytest.fixture
def make(trio, topic):
    """Creates a topic of three replicas, two of which must be in sync; its name."""

    def made(suffix=""):
        name = topic + suffix
        settings = {"retention.ms": "-1", "min.insync.replicas": "2"}
        with Admin({"bootstrap.servers": trio.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 3, settings)])
        eventually(lambda: all(len(each.isr) == 3 for each in partitions_of(trio, name)), NOTICED_S, "in sync")
        return name

    return made


def fill(trio, topic, numbers):
    with Producer(bootstrap_servers=trio.bootstrap_servers, linger_ms=0) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def load(spark, trio, topic, **options):
    settings = {"kafka.bootstrap.servers": trio.bootstrap_servers, "subscribe": topic, **options}
    return spark.read.format("sparklog").options(**settings).load().selectExpr("cast(cast(value as string) as int) n")


def kill_leader(trio, topic):
    trio.kill_broker(partitions_of(trio, topic)[0].leader)


def test_a_leader_that_dies_in_the_middle_of_a_batch_read(spark, trio, make):
    """Tasks are run one after another as their rows are taken: the leader is dead for all but the first."""
    topic = make()
    fill(trio, topic, range(COUNT))
    rows = load(spark, trio, topic, maxRecordsPerPartition="400").toLocalIterator()
    found = [next(rows).n]
    kill_leader(trio, topic)
    found += [row.n for row in rows]
    assert sorted(found) == list(range(COUNT))
