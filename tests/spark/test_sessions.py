"""Sessions: found in the process, submitted, connected; and the format in a process that knows nothing else."""

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from sparklog.errors import ConfigError
from sparklog.local.java import find_java
from sparklog.local.ports import free_port
from sparklog.spark import session
from sparklog.spark.sessions import stop
from sparklog.testing.programs import run_program

pytestmark = pytest.mark.spark
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_SUBMIT = "import sys; from pyspark.find_spark_home import _find_spark_home; print(_find_spark_home())"

_FORMAT_ALONE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
source = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
rows = spark.read.format("sparklog").options(**source).load()
print("values:", sorted(bytes(row.value).decode() for row in rows.collect()))
assert not [name for name in sys.modules if name.startswith("sparklog")], "the driver imports nothing of ours"
spark.stop()
"""

_SESSION = """
import sys
from sparklog.spark import session
spark = session("submitted", spark_driver_memory="7g", spark_sql_shuffle_partitions=3)
print("master:", spark.sparkContext.master, "partitions:", spark.conf.get("spark.sql.shuffle.partitions"))
print("zone:", spark.conf.get("spark.sql.session.timeZone"))
print("buffer:", spark.sparkContext.getConf().get("spark.buffer.size"))
source = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
print("rows:", spark.read.format("sparklog").options(**source).load().count())
spark.stop()
"""

_ENDED = """
import sys
from pyspark import SparkContext
from sparklog.spark import session
from sparklog.spark.sessions import SparkStopped
if sys.argv[1] == "late":
    SparkContext._ensure_initialized()
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
try:
    session(spark_driver_memory="1m" if sys.argv[1] == "early" else "512m")
except SparkStopped as error:
    print(error)
"""

_CONNECTED = """
import json, logging, sys
remote, servers, topic, out, checkpoint = sys.argv[1:]
logging.basicConfig(level="WARNING", stream=sys.stderr)
from sparklog.spark import avro_values, json_values, session, to_avro_values, to_json_values
spark = session(remote=remote, spark_sql_shuffle_partitions=3, spark_buffer_size=17)
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
source = {"kafka.bootstrap.servers": servers, "subscribe": topic}
sink = {"kafka.bootstrap.servers": servers, "topic": out}
read = spark.read.format("sparklog").options(**source).load()
rows = json_values(read, "id int NOT NULL").orderBy("offset").collect()
print("errors:", [row._error for row in rows])
schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
parsed = json_values(
    spark.readStream.format("sparklog").options(**source, startingOffsets="earliest").load(), "id int NOT NULL"
)
good = to_avro_values(parsed.where("_error is null").select("data.id"), schema, key="id")
writer = good.writeStream.format("sparklog").options(**sink, checkpointLocation=checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
to_json_values(spark.range(1)).write.format("sparklog").options(**sink).mode("append").save()
copied = spark.read.format("sparklog").options(**{**source, "subscribe": out}).load().orderBy("offset")
print("ids:", [row.data and row.data.id for row in avro_values(copied, schema).collect()])
try:
    spark.read.format("sparklog").options(**{**source, "subscribe": "nowhere"}).load().count()
except Exception as error:
    print("unknown:", "[SPARKLOG_UNKNOWN_TOPIC]" in str(error))
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program in a process of its own, with no Spark in its environment."""

    def done(command, *arguments, program, **environment):
        script = tmp_path / "program.py"
        script.write_text(program)
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        known |= {
            "JAVA_HOME": str(find_java().home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(tmp_path),
            **environment,
        }
        return run_program([*command, script, *arguments], tmp_path, timeout=400, paths=sys.path, environment=known)

    return done


@pytest.fixture
def connect_server(spark):
    """``sc://host:port`` of a server of Spark Connect, in the JVM of the tests' session."""
    pytest.importorskip("grpc")
    jvm, port = spark._jvm, free_port()
    conf = jvm.org.apache.spark.SparkEnv.get().conf()
    conf.set("spark.connect.grpc.binding.port", str(port)).set("spark.connect.grpc.binding.address", "127.0.0.1")
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{port}"
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    service.stop(nothing, nothing)


def test_the_session_of_the_process_is_found_and_set(spark):
    found = session("mine", spark_sql_shuffle_partitions=3)
    try:
        assert found.sparkContext is spark.sparkContext
        assert found.conf.get("spark.sql.shuffle.partitions") == "3"
        assert found.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "2147483647"
        assert found.conf.get("spark.sql.session.timeZone") == "UTC"
        assert found.conf.get(_SNAPSHOT_PARTITIONS) == "8"
    finally:
        found.conf.set("spark.sql.shuffle.partitions", "2")
        found.conf.set(_SNAPSHOT_PARTITIONS, "2")


def test_what_came_too_late_is_said(spark, caplog):
    with caplog.at_level(logging.WARNING, "sparklog"):
        session("mine", spark_driver_memory="99g", spark_sql_shuffle_partitions=2)
    (told,) = [record.getMessage() for record in caplog.records]
    assert "--conf spark.driver.memory=99g" in told
    assert "shuffle" not in told


def test_a_session_has_one_home():
    with pytest.raises(ConfigError, match="not both"):
        session(master="local[1]", remote="sc://127.0.0.1:1")


def test_importing_the_package_imports_no_pyspark(run):
    program = "import sys, sparklog.spark; print(sorted(name for name in sys.modules if name.startswith('pyspark')))"
    assert run([sys.executable], program=program).stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_spark_submit_runs_a_script_that_knows_the_format_alone(run, servers, filled):
    submit = Path(run([sys.executable], program=_SUBMIT).stdout.strip()) / "bin" / "spark-submit"
    ran = run([submit, "--master", "local[2]"], servers, filled, program=_FORMAT_ALONE)
    assert "values: ['a', 'b']" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_plain_python_process_knows_the_format(run, servers, filled):
    ran = run([sys.executable], servers, filled, program=_FORMAT_ALONE)
    assert "values: ['a', 'b']" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_workers_are_this_python_though_the_jvm_was_told_of_another(run, servers, filled):
    """The driver's Python, given as a setting: the JVM's environment names none, and its python3 has no sparklog."""
    submit = Path(run([sys.executable], program=_SUBMIT).stdout.strip()) / "bin" / "spark-submit"
    command = [submit, "--master", "local[1]", "--conf", f"spark.pyspark.python={sys.executable}"]
    ran = run(command, servers, filled, program=_SESSION, PATH="/usr/bin:/bin", SPARK_HOME=str(submit.parents[1]))
    assert "rows: 2" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_session_under_spark_submit_has_its_master_and_says_what_came_too_late(run, servers, filled):
    submit = Path(run([sys.executable], program=_SUBMIT).stdout.strip()) / "bin" / "spark-submit"
    command = [submit, "--master", "local[1]", "--conf", "spark.sql.session.timeZone=Asia/Tokyo"]
    ran = run(command, servers, filled, program=_SESSION)
    assert "master: local[1] partitions: 3" in ran.stdout
    assert "zone: Asia/Tokyo\nbuffer: 262144" in ran.stdout, "what spark-submit was told stays, the rest is ours"
    assert "rows: 2" in ran.stdout
    assert "--conf spark.driver.memory=7g" in ran.stdout  # where spark-submit puts what a program says


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JError("An error occurred while calling o1.stop")])
def test_a_session_whose_jvm_has_ended_has_stopped(error):
    """What py4j raises then; a job says what it met, not that."""

    def refused():
        raise error

    stop(SimpleNamespace(stop=refused))


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_jvm_that_ends_before_the_session_is_there(run, when):
    ran = run([sys.executable], when, program=_ENDED)
    assert "Spark's JVM has ended before the session was there" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_spark_connect(run, connect_server, servers, make_topic, produce, tmp_path):
    source, out = make_topic(), make_topic(suffix="-out")
    produce(source, {"value": b'{"id": 1}'}, {"value": b"nope"}, {"value": b'{"id": 2}'})
    arguments = [connect_server, servers, source, out, str(tmp_path / "checkpoint")]
    ran = run([sys.executable], *arguments, program=_CONNECTED)
    assert ran.stdout.splitlines() == [
        f"errors: {[None, 'it is not JSON', None]}",
        f"ids: {[1, 2, None]}",
        "unknown: True",
    ]
    assert "--conf spark.buffer.size=17" in ran.stderr


@pytest.fixture
def filled(make_topic, produce):
    """A topic with two records."""
    topic = make_topic()
    produce(topic, {"value": b"a"}, {"value": b"b"})
    return topic
