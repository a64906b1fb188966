"""Source, sink and jobs on a cluster that asks for TLS, passwords and rights; and where its passwords are not found.

Everything is done once, by ``told``. The tests look at what it has said and left.
"""

import base64
import contextlib
import io
import os
import re
import stat
import traceback
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import dumps

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.clock import SystemClock
from sparklog.errors import AuthenticationFailed
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.binding import AclBinding
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.security.delegation.key import TokenKey
from sparklog.security.sasl.scram_credential import ScramCredential
from sparklog.spark.batch import compact, load, offload
from sparklog.spark.batch.sources import Source
from sparklog.spark.batch.workers import run_in_workers
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.source import SparklogDataSource
from sparklog.spark.write.options import WriteOptions
from sparklog.structs import TopicPartition
from sparklog.testing.secured import ADMIN
from sparklog.zk.client import ZkClient
from sparklog.zk.entities import user_entity

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.usefixtures("interpreted")]
RECORDS = 20
HOUR_MS = 3_600_000
GUESS = "a-guess-that-is-wrong"
RIGHTS = (
    (Operation.READ, ResourceType.TOPIC, "guarded"),
    (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "guarded"),
    (Operation.WRITE, ResourceType.TOPIC, "guarded-"),
    (Operation.ALTER, ResourceType.TOPIC, "guarded-compacted"),
    (Operation.CREATE, ResourceType.TOPIC, "__spark_decisions"),
    (Operation.READ, ResourceType.TOPIC, "__spark_decisions"),
    (Operation.WRITE, ResourceType.TOPIC, "__spark_decisions"),
    (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "sparklog-spark"),
    (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "spark-decisions"),
    (Operation.READ, ResourceType.GROUP, "spark-decisions"),
    (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "sparklog-load."),
    (Operation.READ, ResourceType.GROUP, "sparklog-load."),
    (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
)
"""What docs/security.md says that Spark's user needs; the names are prefixes, but for the cluster's."""
SEEN = (
    (Operation.DESCRIBE, ResourceType.TOPIC, "guarded"),
    (Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "guarded"),
)
"""What the stranger has: it sees the topics, and may do nothing with them."""


def bindings(user, rights):
    for operation, kind, name in rights:
        pattern = PatternType.LITERAL if kind is ResourceType.CLUSTER else PatternType.PREFIXED
        yield AclBinding(ResourcePattern(kind, name, pattern), AclEntry(f"User:{user}", "*", operation))


@pytest.fixture(scope="module")
def topics(secured):
    """Topics, with records in some, and who may do what with them."""
    settings = {"guarded-compacted": {"cleanup.policy": "compact"}}
    names = ("guarded", "guarded-batch", "guarded-stream", "guarded-loaded", "guarded-compacted")
    with Admin(secured.client(ADMIN)) as admin:
        admin.create_topics([NewTopic(name, 2, 1, settings.get(name, {})) for name in names])
        admin.create_acls([*bindings("spark", RIGHTS), *bindings("stranger", SEEN)])
    with Producer(secured.client(ADMIN)) as producer:
        for number in range(RECORDS):
            producer.send("guarded", b"%d" % number, partition=number % 2)
            producer.send("guarded-compacted", b"%d" % number, key=b"k", partition=0)
        producer.flush()


@pytest.fixture(scope="module")
def options(secured):
    """``options(user, password=None, **more)``: those of the source and the sink."""

    def chosen(user, password=None, **more):
        return {f"kafka.{name}": text for name, text in secured.client(user, password).items()} | more

    return chosen


@pytest.fixture(scope="module")
def event_log(spark, tmp_path_factory):
    """``event_log()``: what Spark's event log has of this module, in the words of the JSON that Spark writes."""
    directory = tmp_path_factory.mktemp("events")
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    conf = context.getConf().set("spark.eventLog.rolling.enabled", "false").set("spark.eventLog.compress", "false")
    where = jvm.java.net.URI.create(directory.as_uri())
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener("guarded", jvm.scala.Option.empty(), where, conf)
    listener.start()
    context.addSparkListener(listener)

    def read():
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(listener)
        listener.stop()
        return b"".join(each.read_bytes() for each in directory.iterdir() if not each.name.endswith(".crc"))

    return read


@contextlib.contextmanager
def _spied():
    """What is sent meanwhile to the tasks of jobs: pickled, by the job."""
    found = {"load": b"", "offload": b"", "compact": b""}

    def spied(job):
        def run(spark, tasks, begin, slices=None):
            found[job] += dumps((tasks, begin))
            return run_in_workers(spark, tasks, begin, slices)

        return run

    def job_of_load(self, *arguments, real=load._Load._job):
        job = real(self, *arguments)
        found["load"] += dumps(job) if self._options.task_token_ms else b""
        return job

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load._Load, "_job", job_of_load)
        patch.setattr("sparklog.spark.batch.offload.run_in_workers", spied("offload"))
        patch.setattr("sparklog.spark.batch.tasks.run_in_workers", spied("compact"))
        yield found


@pytest.fixture(scope="module")
def told(done):
    """All that was said and left while everything was done: bytes by where they were found."""
    return done[0]


@pytest.fixture(scope="module")
def sent(done):
    """What was sent meanwhile to the tasks of jobs that have a token, or ask no broker: pickled, by the job."""
    return done[1]


@pytest.fixture(scope="module")
def done(delta_jars, spark, secured, topics, options, event_log, tmp_path_factory):
    """Everything: ``told`` and ``sent``. Other tests' jobs are not in it, in whatever order tests come."""
    directory = tmp_path_factory.mktemp("work")
    found = {"the command lines of processes": b""}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found.update(_batch(spark, options))
        found.update(_stream(spark, options, directory / "checkpoint"))
        with _spied() as sent:
            _jobs(spark, secured.client("spark"), directory)
        found["the command lines of processes"] = _command_lines()
        found["failed logins"] = _failed_logins(spark, secured, options).encode()
    found["what the driver prints"] = printed.getvalue().encode()
    found["what Spark and its workers print"] = _printed_by(spark.sparkContext._gateway.proc.pid)
    found["the event log"] = event_log()
    found["the broker's log"] = secured.output().encode()
    found["the settings that the broker tells"] = _settings_of(secured).encode()
    found.update(_files(directory))
    return found, sent


def _batch(spark, options):
    """Reads, written exactly once and at least once, by password and by token, and their plans."""
    frame = spark.read.format("sparklog").options(**options("spark", subscribe="guarded")).load()
    direct = options("spark", subscribe="guarded", directRead="always", taskToken="1h")
    assert spark.read.format("sparklog").options(**direct).load().count() == RECORDS
    for delivery, more in (("exactly-once", {}), ("at-least-once", {"taskToken": "1h"})):
        sink = options("spark", topic="guarded-batch", delivery=delivery, **more)
        frame.select("value").write.format("sparklog").options(**sink).mode("append").save()
    for mode in ("extended", "formatted", "cost"):
        frame.explain(mode=mode)
    yield from _plans(frame._jdf.queryExecution())


def _plans(execution):
    for name in ("logical", "analyzed", "optimizedPlan", "sparkPlan", "executedPlan"):
        plan = getattr(execution, name)()
        yield f"the {name} as JSON", plan.toJSON().encode()
        yield f"the {name} as text", plan.treeString().encode()


def _stream(spark, options, checkpoint):
    source = options("spark", subscribe="guarded", startingOffsets="earliest", taskToken="1h")
    values = spark.readStream.format("sparklog").options(**source).load().select("value")
    sink = options("spark", topic="guarded-stream", checkpointLocation=str(checkpoint), taskToken="1h")
    query = values.writeStream.format("sparklog").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    yield "the progress", "\n".join(each.json for each in query.recentProgress).encode()
    yield from _plans(query._jsq.streamingQuery().lastExecution())


def _jobs(spark, client, directory):
    servers = client["bootstrap.servers"]
    (directory / "source").mkdir()
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["1", "2"]}), directory / "source" / "part.parquet")
    for via, token_ms in (("adopt", None), ("produce", HOUR_MS)):
        source = Source(str(directory / "source"), "parquet", key="id", value="text")
        loading = load.LoadOptions(servers, "guarded-loaded", source, f"guarded-{via}", via=via, client=client)
        loading = replace(loading, task_token_ms=token_ms)
        loaded = load.run(spark, loading)
        assert (loaded.records, bool(loaded.adopted), bool(loaded.produced)) == (2, via == "adopt", via == "produce")
    table = str(directory / "table")
    offloading = offload.OffloadOptions(servers, ("guarded",), RawTable(table), client=client, task_token_ms=HOUR_MS)
    assert sum(each.records for each in offload.run(spark, offloading)) == RECORDS
    union = {f"kafka.{name}": text for name, text in client.items()} | {"subscribe": "guarded", "history": table}
    union |= {"taskToken": "1h"}
    assert spark.read.format("sparklog").options(**union).load().count() == RECORDS
    report = compact.run(spark, compact.CompactOptions(servers, ("guarded-compacted",), client=client))
    assert not report.has_failed, str(report)


def _failed_logins(spark, secured, options):
    """What is said where a password is wrong: by a read, by a sink, by the client."""
    reading = spark.read.format("sparklog").options(**options("spark", GUESS, subscribe="guarded")).load()
    sink = options("spark", GUESS, topic="guarded-batch", delivery="at-least-once")
    writing = spark.range(1).selectExpr("cast(string(id) as binary) value").coalesce(1).write.format("sparklog")
    said = []
    for fails in (reading.count, writing.options(**sink).mode("append").save):
        with pytest.raises(Exception, match="SPARKLOG_NOT_AUTHENTICATED") as caught:
            fails()
        said += traceback.format_exception(caught.value)
    with ClusterMetadata(ClientConfig.from_properties(secured.client("spark", GUESS))) as cluster:
        with pytest.raises(AuthenticationFailed) as caught:
            cluster.fetch([])
        said += traceback.format_exception(caught.value)
    return "\n".join(said)


def _command_lines():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(path.read_bytes())
    return b"\n".join(found)


def _printed_by(pid):
    """What a process has printed, if that goes to files, as where pytest captures it."""
    found = b""
    for path in (Path(f"/proc/{pid}/fd/1"), Path(f"/proc/{pid}/fd/2")):
        if stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                found += file.read()
    return found


def _settings_of(secured):
    with Admin(secured.client(ADMIN)) as admin:
        return repr(admin.broker_configs(0)) + repr(admin.topic_configs("guarded"))


def _files(directory):
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            yield str(path.relative_to(directory)), path.read_bytes()


@pytest.fixture(scope="module")
def secrets(secured):
    """What must be found nowhere: passwords, guesses, what brokers know of passwords, the secrets of tokens and their
    key, and all that in base64.
    """
    zk = ZkClient(secured.spec.zookeeper, session_timeout=10, on_session=lambda _: None)
    stored = [zk.configs.of(user_entity(user))["SCRAM-SHA-512"] for user in secured.users]
    zk.close()
    credentials = [ScramCredential.parse(each) for each in stored]
    keys = [key for each in credentials for key in (each.stored_key, each.server_key)]
    tokens = [TokenKey(secured.token_secret).hmac_of(each) for each in tokens_of(secured)]
    raw = [*(each.encode() for each in (*secured.users.values(), GUESS, secured.token_secret)), *keys, *tokens]
    return {*raw, *(base64.b64encode(each) for each in raw), *(part for each in raw for part in _in_base64(each))}


def tokens_of(secured):
    """The ids of all that were made, by the audit log."""
    return set(re.findall(r"created: 'delegation token (\S+) of", secured.output()))


def _in_base64(secret):
    """What base64 of a longer text has in it, wherever the secret stands in that."""
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + secret)
        yield whole[4 if shift else 0 : len(whole) - 4]


def test_what_was_written_is_there(told, secured):
    expected = {"guarded-batch": 2 * RECORDS, "guarded-stream": RECORDS, "guarded-loaded": 4}
    reader = {**secured.client(ADMIN), "isolation.level": "read_committed"}
    with Consumer(reader) as consumer:
        for topic, count in expected.items():
            tps = [TopicPartition(topic, number) for number in range(2)]
            consumer.assign(tps)
            consumer.seek_to_beginning()
            ends, found = consumer.end_offsets(tps), 0
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found += len(consumer.poll(1.0))
            assert found == count, topic


def test_tasks_of_jobs_are_sent_a_token_and_no_password(told, sent, secured):
    assert "the event log" in told
    assert all(sent.values())
    assert not [job for job, pickled in sent.items() for each in secured.users.values() if each.encode() in pickled]
    assert {job for job, pickled in sent.items() if b"tokenauth" in pickled} == {"load", "offload"}


def test_tokens_are_ended_where_it_is_certain_that_their_tasks_are_over(told, secured):
    """A load and an offload have one each, a batch of the streaming sink too. Three reads and a write of batches, and
    the read of the stream, have one that ends by itself.
    """
    assert "the event log" in told
    with Admin(secured.client("spark")) as admin:
        left = {each.token_id for each in admin.describe_delegation_tokens()}
    assert left < tokens_of(secured)
    assert len(left) <= 4


def test_no_secret_is_found_anywhere(told, secrets):
    assert b"SparkListenerSQLExecutionStart" in told["the event log"]
    found = {where for where, text in told.items() for secret in secrets if secret in text}
    assert found == set()
    assert any(where.startswith("checkpoint/offsets/") for where in told)


def test_no_secret_is_in_what_our_objects_say_of_themselves(secured, options, secrets):
    client = ClientConfig.from_properties(secured.client("spark"))
    security = client.connection_security(SystemClock())
    source = Source("/nowhere", "parquet")
    settings, servers = secured.client("spark"), secured.address
    reading, writing = options("spark", subscribe="guarded"), options("spark", topic="guarded")
    objects = [
        client,
        security,
        security.mechanism,
        security.mechanism.begin("log1"),
        ReadOptions.for_batch(reading),
        WriteOptions.for_batch(writing),
        load.LoadOptions(servers, "guarded", source, "name", client=settings),
        compact.CompactOptions(servers, client=settings),
        offload.OffloadOptions(servers, ("guarded",), FilesTarget("/nowhere"), read_options=reading, client=settings),
        SparklogDataSource(reading),
    ]
    said = "\n".join(f"{each!r} {each}" for each in objects).encode()
    assert not [secret for secret in secrets if secret in said]


def refused(act):
    """The code and the words of the refusal, which Spark has put into its own."""
    with pytest.raises(Exception, match="AUTHORIZ") as caught:
        act()
    return next(line for line in str(caught.value).splitlines() if "AUTHORIZ" in line)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("direct", ["never", "always"])
def test_a_reader_that_may_not_read_is_told_of_the_right(spark, options, direct):
    reading = options("stranger", subscribe="guarded", directRead=direct)
    said = refused(spark.read.format("sparklog").options(**reading).load().count)
    assert "[SPARKLOG_NOT_AUTHORIZED]" in said
    assert "partition guarded-" in said
    assert "its user needs the right READ on the topic" in said


@pytest.mark.usefixtures("topics")
def test_a_sink_that_may_not_write_is_told_of_the_right(spark, options):
    rows = spark.range(1).selectExpr("cast(string(id) as binary) value").coalesce(1)
    sink = options("stranger", topic="guarded-batch", delivery="at-least-once")
    said = refused(rows.write.format("sparklog").options(**sink).mode("append").save)
    assert "[SPARKLOG_NOT_AUTHORIZED]" in said
    assert "its user needs the right WRITE on the topic" in said
    sink = options("stranger", topic="guarded-batch")
    said = refused(rows.write.format("sparklog").options(**sink).mode("append").save)
    assert "transactional id 'spark" in said
    assert "its user needs the right WRITE on the transactional id" in said


@pytest.mark.usefixtures("topics")
def test_a_job_that_may_not_is_told_of_the_right(spark, secured, tmp_path):
    client, servers = secured.client("stranger"), secured.address
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "part.parquet")
    loading = load.LoadOptions(servers, "guarded", Source(str(tmp_path), "parquet", key="id"), "l", client=client)
    place = FilesTarget(str(tmp_path / "offloaded"))
    offloading = offload.OffloadOptions(servers, ("guarded",), place, client=client)
    assert "needs the right DESCRIBE on the cluster" in refused(lambda: load.run(spark, loading))
    said = refused(lambda: load.run(spark, replace(loading, via="produce")))
    assert "needs the right WRITE on the transactional id" in said
    assert "'sparklog-load.l'" in said
    said = refused(lambda: offload.run(spark, offloading))
    assert "guarded-" in said
    assert "needs the right READ on the topic" in said
    report = compact.run(spark, compact.CompactOptions(servers, ("guarded-compacted",), client=client))
    assert "not cleaned: User:stranger needs ALTER on topic 'guarded-compacted'" in str(report)
    unseen = compact.CompactOptions(servers, ("guarded-compacted",), client=secured.client("nobody"))
    assert "needs the right ALTER on the topic" in refused(lambda: compact.run(spark, unseen))
