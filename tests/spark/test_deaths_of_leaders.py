"""Leaders die while Spark reads and writes: a task tries again by itself, and every record is there once.

The session is ``local[2]``, where Spark gives a task one attempt: what a task cannot get over fails the query.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from spark.pausing import PATIENCE_S, Pauses, PausingSource
from spark.waits import wait_for

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.consumer.fetch.range_reader import fetch_range
from sparklog.client.producer.producer import Producer
from sparklog.record.partitioning import coordinator_partition
from sparklog.record.records import iter_records
from sparklog.spark.write.attempt_names import ids_prefix
from sparklog.spark.write.decisions import DecisionLog, Scope
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.cluster import ClusterHarness, SecureClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted"), pytest.mark.timeout(400)]
NOTICED_S = 60.0
KINDS = ("sparklog", "secure")
PARTITIONS, COUNT, LARGE = 2, 4_000, 20
PER_BATCH, PER_TRANSFER = 200, 20


@pytest.fixture(
    scope="module", params=[ClusterHarness, pytest.param(SecureClusterHarness, marks=pytest.mark.slow)], ids=KINDS
)
def trio(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("deaths"), brokers=3) as harness:
        yield harness


def client_of(trio, user="spark"):
    """What a client of it is told."""
    is_secure = isinstance(trio, SecureClusterHarness)
    return trio.client(user) if is_secure else {"bootstrap.servers": trio.bootstrap_servers}


def options_of(trio):
    """The same as the source and the sink are told it."""
    return {f"kafka.{name}": value for name, value in client_of(trio).items()}


@pytest.fixture
def admin(trio):
    with Admin(client_of(trio, "admin")) as found:
        yield found


@pytest.fixture
def metadata(trio):
    with ClusterMetadata(ClientConfig.from_properties(client_of(trio))) as cluster:
        yield cluster


@pytest.fixture
def make_whole(trio, admin):
    """Starts the dead, and waits until each follows in every partition again."""

    def is_in_sync():
        topics = admin.list_topics(internal=True)
        return all(len(each.isr) == len(each.replicas) for topic in topics for each in topic.partitions)

    def whole():
        for broker in trio.brokers:
            if not broker.alive:
                broker.start()
        eventually(is_in_sync, NOTICED_S, "in sync")

    yield whole
    whole()


@pytest.fixture
def make(admin, topic, make_whole):
    """Creates a topic of three replicas, two of which must be in sync; its name."""

    def made(suffix="", **configs):
        settings = {"retention.ms": "-1", "min.insync.replicas": "2", **configs}
        admin.create_topics([NewTopic(topic + suffix, PARTITIONS, 3, settings)])
        make_whole()
        return topic + suffix

    return made


def fill(trio, topic, numbers, size=8):
    """Numbers in ``size`` bytes; those of a partition are there in order."""
    with Producer({**client_of(trio), "max.request.size": 2 << 20}) as producer:
        for number in numbers:
            producer.send(topic, b"%0*d" % (size, number), partition=number % PARTITIONS)


def source(reader, trio, topic, **options):
    settings = {**options_of(trio), "subscribe": topic, **options}
    return reader.format("sparklog").options(**settings).load()


@pytest.fixture
def committed(metadata):
    """The numbers in each partition of a topic in their order, as ``read_committed`` shows them; nothing is open."""

    def found(topic):
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]

        def is_settled():
            return latest_offsets(metadata, tps, IsolationLevel.READ_COMMITTED) == latest_offsets(metadata, tps)

        eventually(is_settled, NOTICED_S, f"nothing is open in {topic}")
        return [[int(record.value) for record in _records(metadata, tp)] for tp in tps]

    return found


def _records(metadata, tp):
    end = latest_offsets(metadata, [tp])[tp]
    for batch in fetch_range(metadata, tp, 0, end, isolation=IsolationLevel.READ_COMMITTED):
        yield from iter_records(batch)


def in_order(count):
    """What ``committed`` finds of the numbers below ``count``."""
    return [list(range(number, count, PARTITIONS)) for number in range(PARTITIONS)]


@pytest.fixture
def leader_of(admin, metadata):
    """``leader_of(role, copy)``: the broker that has this part in a copying query."""

    def leader(topic, partition=0):
        return admin.describe_topics([topic])[topic].partitions[partition].leader

    def coordinator(topic, name):
        return leader(topic, coordinator_partition(name, len(admin.describe_topics([topic])[topic].partitions)))

    def of_a_task(copy):
        (first, *_) = admin.list_transactions(pattern=f"{ids_prefix(copy.scope.name)}.*")
        return first.coordinator

    def of_decisions(copy):
        return leader(*DecisionLog(metadata, admin).partition_of(copy.scope))

    roles = {
        "source": lambda copy: leader(copy.source),
        "target": lambda copy: leader(copy.target),
        "task": of_a_task,
        "decider": lambda copy: coordinator("__transaction_state", copy.scope.decider_id),
        "group": lambda copy: coordinator("__consumer_offsets", copy.scope.decider_id),
        "decisions": of_decisions,
    }
    return lambda role, copy: roles[role](copy)


class Copy:
    """A query that copies one topic into the other, partition by partition, and waits where its pauses say."""

    def __init__(self, spark, client_options, source, target, directory):
        self.source, self.target = source, target
        self.pauses = Pauses(directory / "pauses")
        self.scope = None
        self.query = None
        self._spark = spark
        self._client_options = client_options
        self._directory = directory

    def start(self):
        settings = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH), **self._client_options}
        frame = self._spark.readStream.format("sparklog").options(subscribe=self.source, minPartitions="2", **settings)
        writer = frame.load().select("value", "partition").writeStream.format("sparklog-pausing")
        writer = writer.options(topic=self.target, pauses=str(self._directory / "pauses"), **self._client_options)
        writer = writer.option("kafka.batch.size", "500")
        self.query = writer.option("checkpointLocation", str(self._directory / "checkpoint")).start()
        self.scope = Scope(self.query.id)

    def finish(self):
        self.query.processAllAvailable()
        self.query.stop()

    def wait_until_reached(self, moment, batch):
        """Until it waits there. Raises the query's exception if it has failed."""
        wait_for(self.query, lambda: self.pauses.is_reached(moment, batch), f"batch {batch} at the moment {moment!r}")

    def wait_for_batch(self, batch):
        """Until Spark has noted that it is written. Raises the query's exception if it has failed."""
        wait_for(self.query, (self._directory / "checkpoint" / "commits" / str(batch)).exists, f"batch {batch}")

    def wait_until_failed(self):
        with pytest.raises(Exception, match="the driver dies here"):
            self.query.awaitTermination(NOTICED_S)


@pytest.fixture
def copy(spark, trio, make, tmp_path):
    """``copy(count)``: a copying query of ``count`` records."""
    spark.dataSource.register(PausingSource)
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, str(PER_TRANSFER))
    copies = []

    def made(count):
        made = Copy(spark, options_of(trio), make(), make("-copy"), tmp_path)
        fill(trio, made.source, range(count), size=100)
        copies.append(made)
        return made

    yield made
    for each in copies:
        if each.query is not None:
            each.query.stop()
    spark.conf.set(name, before)


@pytest.fixture
def kill_at(trio, leader_of):
    """``kill_at(copy, moment, batch, role)``: the broker with that part is dead when the query goes on."""

    def kill(copy, moment, batch, role):
        copy.wait_until_reached(moment, batch)
        trio.kill_broker(leader_of(role, copy))

    return kill


@pytest.fixture
def check_deaths(copy, kill_at, make_whole, committed):
    """``check_deaths([(moment, role), …])``: a death in each batch after the first; each comes back a batch later."""

    def check(deaths):
        count = (len(deaths) + 2) * PER_BATCH
        copying = copy(count)
        for batch, (moment, _) in enumerate(deaths, 1):
            copying.pauses.plan(moment, batch)
        copying.start()
        for batch, (moment, role) in enumerate(deaths, 1):
            kill_at(copying, moment, batch, role)
            copying.pauses.go_on(moment, batch)
            copying.wait_for_batch(batch)
            make_whole()
        copying.finish()
        assert committed(copying.target) == in_order(count)

    return check


MOMENTS = ("writing", "prepared", "recorded", "committed")
ROLES = ("source", "target", "task", "decider", "group", "decisions")


def test_a_stream_outlives_its_leaders(check_deaths):
    check_deaths([("writing", "target"), ("prepared", "task")])


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_a_stream_outlives_a_leader_at_any_moment(check_deaths, role):
    check_deaths([(moment, role) for moment in MOMENTS])


def check_restarts(copying, kill_at, deaths):
    for batch, (moment, role) in enumerate(deaths, 1):
        kill_at(copying, moment, batch, role)
        if moment == "writing":
            copying.query.stop()
            copying.pauses.go_on(moment, batch)
        else:
            copying.pauses.go_on(moment, batch, failing=True)
            copying.wait_until_failed()
            copying.pauses.go_on(moment, batch)
        copying.start()
        yield batch


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param([("recorded", "decider")], id="once"),
        *(pytest.param([(moment, role) for moment in MOMENTS], marks=pytest.mark.slow, id=role) for role in ROLES),
    ],
)
def test_a_query_that_starts_again_after_the_death(copy, kill_at, make_whole, committed, deaths):
    """It is started again while the broker is dead, which comes back when the batch is written."""
    count = (len(deaths) + 2) * PER_BATCH
    copying = copy(count)
    for batch, (moment, _) in enumerate(deaths, 1):
        copying.pauses.plan(moment, batch)
    copying.start()
    for batch in check_restarts(copying, kill_at, deaths):
        copying.wait_for_batch(batch)
        make_whole()
    copying.finish()
    assert committed(copying.target) == in_order(count)


@pytest.fixture
def large(trio, make):
    """A topic with one record a segment: more files than a task opens at a time, more bytes than a pipe takes."""
    topic = make(**{"segment.bytes": "500000"})
    fill(trio, topic, range(PARTITIONS * LARGE), size=450_000)
    return topic


def offsets_of(rows):
    """The offsets of each partition, in the order of the rows."""
    return [[row.offset for row in rows if row.partition == number] for number in range(PARTITIONS)]


@pytest.fixture
def pausing_in_the_middle(spark, tmp_path):
    """Pauses, and what makes a frame of rows that wait there after the first one."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    pauses = Pauses(tmp_path / "reading")
    pauses.plan("reading", 0)

    def wait(batches):
        for batch in batches:
            pauses.pause("reading", 0)
            yield batch.select(["partition", "offset"])

    yield pauses, lambda frame: frame.mapInArrow(wait, "partition int, offset bigint")
    spark.conf.set(name, before)


@pytest.mark.parametrize("way", [pytest.param("never", marks=pytest.mark.slow), "always"])
def test_a_leader_that_dies_in_the_middle_of_a_batch_query(spark, trio, large, pausing_in_the_middle, admin, way):
    pauses, pausing = pausing_in_the_middle
    frame = pausing(source(spark.read, trio, large, directRead=way, minPartitions="1"))
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.collect)
        eventually(lambda: pauses.is_reached("reading", 0), PATIENCE_S, "rows")
        trio.kill_broker(admin.describe_topics([large])[large].partitions[0].leader)
        pauses.go_on("reading", 0)
        assert offsets_of(rows.result(NOTICED_S * 2)) == [list(range(LARGE))] * PARTITIONS


@pytest.mark.parametrize("way", [pytest.param("never", marks=pytest.mark.slow), "always"])
def test_a_leader_that_dies_in_the_middle_of_a_micro_batch(
    spark, trio, large, pausing_in_the_middle, admin, make_whole, tmp_path, way
):
    """Once in the middle of a task's range, and once more between two micro-batches."""
    pauses, pausing = pausing_in_the_middle
    stream = source(spark.readStream, trio, large, directRead=way, startingOffsets="earliest")
    writer = pausing(stream).writeStream.format("memory").queryName(f"read_{way}")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for(query, lambda: pauses.is_reached("reading", 0), "rows")
        for _ in range(2):
            make_whole()
            trio.kill_broker(admin.describe_topics([large])[large].partitions[0].leader)
            pauses.go_on("reading", 0)
            query.processAllAvailable()
            fill(trio, large, range(PARTITIONS))
        query.processAllAvailable()
    finally:
        query.stop()
    assert offsets_of(spark.table(f"read_{way}").collect()) == [list(range(LARGE + 2))] * PARTITIONS


def test_a_leader_that_dies_between_the_tasks_of_a_batch_read(spark, trio, make, admin):
    """Tasks are run one after another as their rows are taken: the leader is dead for all but the first."""
    topic = make()
    fill(trio, topic, range(COUNT))
    frame = source(spark.read, trio, topic, maxRecordsPerPartition="400", directRead="never")
    rows = frame.selectExpr("cast(cast(value as string) as int) n").toLocalIterator()
    found = [next(rows).n]
    trio.kill_broker(admin.describe_topics([topic])[topic].partitions[0].leader)
    found += [row.n for row in rows]
    assert sorted(found) == list(range(COUNT))
