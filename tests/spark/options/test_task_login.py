"""What tasks of Spark are sent with the option ``taskToken``: a token, and nothing by which it was asked for."""

import pickle
from dataclasses import replace

import pytest
from integration.test_sasl import SCRAM, set_password
from pyspark.cloudpickle import dumps
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructField, StructType
from spark.lake.history.both_sides import SCHEMA, Scene, offsets

from sparklog.client import Admin, Producer
from sparklog.client.admin.admin import NewTopic
from sparklog.errors import DataSourceError
from sparklog.local.ports import free_port
from sparklog.security.sasl.jaas import options_of
from sparklog.spark.options.task_login import KeptLogin, TaskLogin
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import READ_COLUMNS
from sparklog.spark.source import SparklogDataSource
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.clock import ManualClock
from sparklog.zk.client import ZkClient

pytestmark = [pytest.mark.integration, pytest.mark.spark]
PASSWORD = "the-password-of-alice"
VALUES = StructType([StructField("value", READ_COLUMNS["value"])])


@pytest.fixture(scope="module")
def ports():
    """Of the listener that anybody may come by, and of the other one."""
    return free_port(), free_port()


@pytest.fixture(scope="module")
def settings(tmp_path_factory, zookeeper, ports):
    """The options of ``User:alice``, at a broker that asks for credentials."""
    connect = f"{zookeeper.connect_string}/task-tokens"
    zk = ZkClient(connect, session_timeout=10, on_session=lambda _: None)
    zk.ensure_tree()
    set_password(zk, "alice", PASSWORD)
    zk.close()
    plain, sasl = ports
    broker = BrokerHarness(
        tmp_path_factory.mktemp("broker"),
        connect,
        0,
        plain,
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "delegation.token.secret.key": "key",
        },
    )
    broker.start()
    yield {
        "kafka.bootstrap.servers": f"127.0.0.1:{sasl}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": f'{SCRAM} username="alice" password="{PASSWORD}";',
        "kafka.default.api.timeout.ms": "60000",
    }
    broker.stop()


@pytest.fixture
def admin(settings):
    with Admin({name.removeprefix("kafka."): value for name, value in settings.items()}) as found:
        yield found


@pytest.fixture
def made(admin, topic):
    admin.create_topics([NewTopic(topic, 2)])
    return topic


def source(settings, **options):
    return SparklogDataSource({**settings, **options})


def login_of(config):
    return options_of(config.security["sasl.jaas.config"], config.security["sasl.mechanism"])


def objects_for_tasks(found, schema):
    """What Spark sends tasks: a reader and its partitions, or a writer; of batches and of streams."""
    reader, stream = found.reader(schema), found.streamReader(schema)
    yield reader
    yield from reader.partitions()
    yield stream
    yield from stream.partitions(stream.initialOffset(), stream.initialOffset())
    stream.stop()
    yield found.writer(VALUES, False)
    yield found.streamWriter(VALUES, False)


@pytest.mark.parametrize("has_token", [True, False])
def test_the_password_is_sent_where_no_token_is_asked_for_and_nowhere_else(settings, made, has_token):
    options = {"subscribe": made, "topic": made, "checkpointLocation": "/c"} | (
        {"taskToken": "1h"} if has_token else {}
    )
    schema = source(settings, **options).schema()
    sent = [dumps(each) for each in objects_for_tasks(source(settings, **options), schema)]
    assert any(PASSWORD.encode() in each for each in sent) is not has_token
    assert any(b"tokenauth" in each for each in sent) is has_token


def test_a_token_is_the_owners_is_good_at_once_and_used_again(settings, made, admin):
    options = source(settings, subscribe=made, taskToken="2d").reader(StructType())._options
    login = TaskLogin(options.client, options.task_token_ms)
    config = login.client()
    assert login.client() is config
    assert "password" not in repr(config)
    (token,) = [each for each in admin.describe_delegation_tokens() if each.token_id == login_of(config)["username"]]
    assert (token.owner, token.renewers) == ("User:alice", ())
    assert token.expires_ms == token.max_ms == token.issued_ms + 2 * 86_400_000
    with Admin(config) as by_token:
        assert made in {each.name for each in by_token.list_topics()}


def tokens_of(admin):
    return {each.token_id: each for each in admin.describe_delegation_tokens()}


def test_a_stream_renews_its_token_and_takes_another_one_for_the_next_batch(settings, made, admin, ports):
    """The broker's most is 7 days."""
    options, clock = ReadOptions.for_stream({**settings, "subscribe": made, "taskToken": "1h"}), ManualClock()
    reader = SparklogStreamReader(options, VALUES)
    reader._login = login = KeptLogin(options.client, 3_600_000, clock=clock, pause=lambda _: True)
    start = reader.initialOffset()

    def batch(value):
        with Producer(bootstrap_servers=f"127.0.0.1:{ports[0]}") as producer:
            producer.send(made, value, partition=0)
        return reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))

    def values(tasks):
        sent, tasks = pickle.loads(dumps((SparklogStreamReader(options, VALUES), tasks)))
        return [bytes(each) for task in tasks for rows in sent.read(task) for each in rows["value"].to_pylist()]

    (first,) = batch(b"1")
    name = first.client.token_id
    before = tokens_of(admin)[name]
    assert before.expires_ms < before.issued_ms + 3_700_000 < before.max_ms
    clock.advance(login.tend())
    login.tend()
    assert tokens_of(admin)[name].expires_ms > before.expires_ms
    assert values([first]) == [b"1"]
    clock.advance(4 * 86_400)
    (second,) = batch(b"2")
    assert second.client.token_id != name
    assert values([second]) == [b"1", b"2"]
    assert values([first]) == [b"1"]
    reader.commit(start)
    assert name not in tokens_of(admin)
    with pytest.raises(DataSourceError, match=rf"SPARKLOG_TOKEN_ENDED.*token {name}, which has ended.*start again"):
        values([first])
    reader.stop()
    assert second.client.token_id not in tokens_of(admin)


def test_who_is_sent_a_token_alone_sends_it_on(settings, made):
    writer = source(settings, topic=made, taskToken="1h").writer(VALUES, False)
    once = pickle.loads(dumps(writer))
    again = pickle.loads(dumps(once))
    config = again._sink._options.client
    assert config == once._sink._options.client
    assert login_of(config)["tokenauth"] == "true"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"taskToken": "soon"}, "taskToken"),
        ({"taskToken": "1h", "kafka.security.protocol": "PLAINTEXT"}, "PLAINTEXT"),
        ({"taskToken": "1h", "path": "/logs", "kafka.bootstrap.servers": None}, "ask no broker"),
    ],
)
def test_a_token_that_cannot_be_shown_is_refused(settings, more, named):
    options = {name: text for name, text in ({**settings, "subscribe": "t"} | more).items() if text is not None}
    with pytest.raises(DataSourceError, match=named):
        source(options).reader(StructType())


@pytest.fixture
def scene(settings, ports, topic, tmp_path):
    """Offsets 0 to 9 in the table alone, 10 to 19 in the log alone."""
    found = Scene(f"127.0.0.1:{ports[0]}", topic, tmp_path / "table")
    found.send(10)
    found.offload()
    found.trim(10)
    found.send(10)
    yield found
    found.close()


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_read_of_table_and_log_comes_by_the_token(settings, scene, is_stream):
    more = {"subscribe": scene.topic, "history": str(scene.table.path), "taskToken": "1h"}
    found = source(settings, **more, **({"startingOffsets": "earliest"} if is_stream else {}))
    if is_stream:
        reader = found.streamReader(SCHEMA)
        start = reader.initialOffset()
        tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    else:
        reader = found.reader(SCHEMA)
        tasks = reader.partitions()
    sent = dumps((found.streamReader(SCHEMA) if is_stream else reader, tasks))
    assert PASSWORD.encode() not in sent
    assert b"tokenauth" in sent
    worker, tasks = pickle.loads(sent)
    assert [each for task in tasks for each in offsets(worker.read(task))] == [*range(20)]
    if is_stream:
        reader.stop()


def test_brokers_without_tokens_are_named_before_a_task_starts(bootstrap, settings, made):
    options = source(settings, subscribe=made, taskToken="1h").reader(StructType())._options
    elsewhere = replace(options.client, bootstrap_servers=bootstrap, security_protocol="PLAINTEXT", security={})
    with pytest.raises(Exception, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
        TaskLogin(elsewhere, 1000).client()


def test_spark_writes_and_reads_by_tokens(spark, settings, made, admin, tmp_path):
    options = {**settings, "taskToken": "1h"}
    before = tokens_of(admin)
    rows = spark.range(20, numPartitions=1).selectExpr("cast(id as string) as value")
    rows.write.format("sparklog").options(**options).option("topic", made).mode("append").save()
    read = spark.read.format("sparklog").options(**options).option("subscribe", made).load()
    assert sorted(int(bytes(each.value)) for each in read.collect()) == [*range(20)]
    assert tokens_of(admin).keys() > before.keys()
    before = tokens_of(admin)
    copied = f"{made}-copied"
    admin.create_topics([NewTopic(copied, 1)])
    stream = spark.readStream.format("sparklog").options(**options).option("subscribe", made)
    query = (
        stream.option("startingOffsets", "earliest").load().select("value").writeStream.format("sparklog")
        .options(**options).option("topic", copied).option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    copies = spark.read.format("sparklog").options(**options).option("subscribe", copied).load()
    assert sorted(int(bytes(each.value)) for each in copies.collect()) == [*range(20)]
    for path in (tmp_path / "c").rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes()
    left = tokens_of(admin).keys() - before.keys()
    assert len(left) <= 2  # that of the last read, and the stream's, whose process Spark kills; its sink's are ended


def test_a_query_whose_token_has_ended_says_so_and_does_the_batch_again(spark, settings, made, admin, tmp_path):
    options = {**settings, "taskToken": "1h"}
    before = tokens_of(admin)
    copied = f"{made}-copied"
    admin.create_topics([NewTopic(copied, 1)])

    def start():
        stream = spark.readStream.format("sparklog").options(**options, subscribe=made, startingOffsets="earliest")
        sink = stream.load().select("value").writeStream.format("sparklog").options(**options, topic=copied)
        return sink.option("checkpointLocation", str(tmp_path / "c")).start()

    def send(value):
        with Producer({name.removeprefix("kafka."): text for name, text in settings.items()}) as producer:
            producer.send(made, value)

    def copies():
        read = spark.read.format("sparklog").options(**settings, subscribe=copied).load()
        return sorted(bytes(each.value) for each in read.collect())

    send(b"1")
    query = start()
    query.processAllAvailable()
    for name in tokens_of(admin).keys() - before.keys():
        admin.expire_delegation_token(tokens_of(admin)[name].hmac)
    send(b"2")
    with pytest.raises(StreamingQueryException, match="SPARKLOG_TOKEN_ENDED"):
        query.processAllAvailable()
    query.stop()
    assert copies() == [b"1"]
    query = start()
    query.processAllAvailable()
    query.stop()
    assert copies() == [b"1", b"2"]
