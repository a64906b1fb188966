"""The programs for Spark, the job and those of the page for migrants, started in each way that is documented.

No environment is activated: no ``python3`` that PATH finds has this package. What runs is short, and compiled less, so
that a start costs little; the long forms run every program in every way.
"""

import os
import re
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fix_spark import QUICK_CONF, QUICK_JVM

from sparklog.client import Admin, NewTopic, Producer
from sparklog.demo.flights import load_flights
from sparklog.local.jars import pyspark_jars
from sparklog.local.java import find_java
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
JOB = ROOT / "jobs" / "flight_delays.py"
CONF = ROOT / "conf" / "spark-defaults.conf"
COMPACT, LOAD, OFFLOAD = (ROOT / "jobs" / f"{name}.py" for name in ("compact", "load", "offload"))
PAGE = ROOT / "docs" / "from-kafka-to-sparklog.md"
FLIGHTS = 40
TIMEOUT_S = 500
_SEPARATE = "local-cluster[1,2,1024]"
_SHARED = {"local": "local[2]", "separate executors": "local-cluster[2,1,1024]"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with the flights and the orders that the programs expect."""
    with ClusterHarness(tmp_path_factory.mktemp("cluster")) as harness:
        servers = harness.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("flights", 2, 1, {"retention.ms": "-1"}), NewTopic("orders", 1)])
        with Producer(bootstrap_servers=servers) as producer:
            producer.send_arrow("flights", pa.table(load_flights(FLIGHTS)._asdict()))
            for value in ('{"id": 1, "price": 2.5}', "nonsense", '{"id": 2, "price": 2.5}'):
                producer.send("orders", value)
        yield servers


@pytest.fixture
def start(tmp_path, quick_spark):
    """``start(way, program, *arguments)``: the program's output; ways are "plain" and masters for spark-submit."""
    home = tmp_path / "spark"  # Executors work in a directory beside Spark's own: not in the installed package.
    home.mkdir()
    for each in pyspark_jars().parent.iterdir():
        (home / each.name).symlink_to(each)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    known |= {
        "SPARK_CONF_DIR": quick_spark["SPARK_CONF_DIR"],
        "JAVA_HOME": str(find_java().home),
        "JAVA_TOOL_OPTIONS": QUICK_JVM,  # of executors too
        "PATH": os.pathsep.join(_without_this_python(os.environ["PATH"])),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
    }

    def run(way, program, *arguments, **environment):
        command = [sys.executable, program, *arguments]
        chosen = known | environment
        if way != "plain":
            submit = [home / "bin" / "spark-submit", "--master", way, "--properties-file", CONF]
            settings = {**QUICK_CONF, "spark.sql.shuffle.partitions": "1", "spark.executor.memory": "700m"}
            told = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
            command = [*submit, *told, program, *arguments]
            chosen |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        return run_program(command, tmp_path, timeout=TIMEOUT_S, environment=chosen)

    return run


@pytest.fixture
def programs(tmp_path):
    """The page's programs, in a directory."""
    for name, text in re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    return tmp_path


def _without_this_python(path):
    return [each for each in path.split(os.pathsep) if Path(each) != Path(sys.executable).parent]


def _delays(start, way, broker, directory):
    arguments = ["--bootstrap", broker, "--table", directory / "table", "--checkpoint", directory / "checkpoint"]
    ran = start(way, JOB, *arguments)
    assert f"{FLIGHTS} flights in 1 micro-batches" in ran.stdout
    return ran


def _orders(start, way, broker, programs):
    assert "orders: 2 revenue: 5.0\ndead: [(1, 'it is not JSON')]" in start(way, programs / "more.py", broker).stdout


@pytest.mark.slow
def test_the_job_is_submitted_to_separate_executors_and_brings_delta_itself(start, broker, tmp_path):
    ran = _delays(start, _SEPARATE, broker, tmp_path)
    assert "was started without" not in ran.stdout + ran.stderr


@pytest.fixture
def compacted(broker):
    """A topic of two partitions, each with 50 records of few keys."""
    topic = f"users-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"cleanup.policy": "compact"})])
    with Producer(bootstrap_servers=broker) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, key=b"user-%d" % (number % 5), partition=number % 2)
    return topic


@pytest.fixture
def loaded(broker, tmp_path):
    """An empty topic, and a file of ten rows for it."""
    topic = f"loaded-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=broker) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"id": [str(number) for number in range(10)]}), tmp_path / "files" / "part.parquet")
    return topic


@pytest.mark.slow
def test_an_offload_runs_by_its_command_in_plain_python(start, broker, tmp_path):
    """The command runs the file, as python does by itself."""
    arguments = ["--bootstrap-server", broker, "--topic", "flights", "--table", tmp_path / "table"]
    ran = start("plain", "-m", "sparklog.cli.main", "offload", *arguments)
    assert f"version 1: {FLIGHTS} records" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", *_SHARED.values()], ids=["plain", *_SHARED])
def test_every_job_runs_in_every_way(start, way, broker, compacted, loaded, tmp_path):
    brokers = ("--bootstrap-server", broker)
    cleaned = start(way, COMPACT, *brokers, "--topic", compacted)
    for number in range(2):
        assert f"{compacted}-{number} at broker 0: cleaned up to 50" in cleaned.stdout
    assert cleaned.stdout.count("50 -> 5 records") == 2
    said = cleaned.stderr if way == "plain" else cleaned.stdout  # spark-submit puts both of Python's into its output
    assert len(re.findall(r"sparklog\.spark\.batch\.compact  Rewrote .*, tasks: \d", said)) == 2
    source = ("--from", tmp_path / "files", "--format", "parquet", "--key", "id", "--name", loaded)
    assert f"{loaded}: 10 records" in start(way, LOAD, *brokers, "--topic", loaded, *source).stdout
    table = tmp_path / "offloaded"
    assert "version 1: 10 records" in start(way, OFFLOAD, *brokers, "--topic", loaded, "--table", table).stdout


@pytest.mark.slow
@pytest.mark.parametrize("way", ["plain", *_SHARED.values()], ids=["plain", *_SHARED])
def test_every_program_runs_in_every_way(start, way, broker, programs):
    _delays(start, way, broker, programs)
    _orders(start, way, broker, programs)
    changed = start(
        way, programs / "job.py", broker, "orders-table", "orders-checkpoint", PYSPARK_PYTHON=sys.executable
    )
    assert changed.returncode == 0
    assert pq.read_table(programs / "orders-table").num_rows == 3
