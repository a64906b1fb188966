"""The programs on the page for those who come from Spark's Kafka source do what the page says."""

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from sparklog.client import Producer
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.programs import run_program

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "from-kafka-to-sparklog.md"
_PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = """
import runpy, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
program, sys.argv = sys.argv[1], sys.argv[1:]
runpy.run_path(program)
"""


@pytest.fixture
def broker(tmp_path):
    """The page's topic names, on a broker of the test's own."""
    with ClusterHarness(tmp_path / "cluster") as harness:
        yield harness.bootstrap_servers


@pytest.fixture
def programs(tmp_path):
    """The page's programs, in a directory."""
    found = dict(_PROGRAM.findall(PAGE.read_text()))
    assert found.keys() == {"job.py", "more.py"}
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def _produce(broker, *values):
    with Producer({"bootstrap.servers": broker}) as producer:
        for value in values:
            producer.send("orders", value)
        producer.flush()


def _orders(first, last):
    return [f'{{"id": {number}, "price": 2.5}}' for number in range(first, last)]


def test_the_programs_do_what_the_page_says(spark, broker, programs, monkeypatch, capsys):
    _produce(broker, *_orders(0, 4), "nonsense")
    table = programs / "table"
    monkeypatch.setattr(sys, "argv", ["job.py", broker, str(table), str(programs / "checkpoint")])
    runpy.run_path(str(programs / "job.py"))
    assert spark.read.parquet(str(table)).count() == 5
    capsys.readouterr()
    runpy.run_path(str(programs / "more.py"))
    assert capsys.readouterr().out.splitlines() == [
        "orders: 4 revenue: 10.0",
        "dead: [(4, 'it is not JSON')]",
    ]


@pytest.mark.peer
def test_a_checkpoint_of_the_kafka_source_goes_on_and_back(broker, programs):
    changed = (programs / "job.py").read_text()
    original = changed.replace('format("sparklog")', 'format("kafka")')
    assert original != changed
    for number, text in enumerate([original, changed, original]):
        _produce(broker, *_orders(number * 10, number * 10 + 10))
        (programs / "job.py").write_text(text)
        _run(programs, broker)
    import pyarrow.parquet as pq

    rows = pq.read_table(programs / "table", columns=["offset"])
    assert sorted(rows["offset"].to_pylist()) == list(range(30))


def _run(programs, broker):
    (programs / "run.py").write_text(_RUN)
    jars = ",".join(map(str, jar_set("spark-kafka")))
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "run.py", "job.py", broker, "table", "checkpoint"]
    run_program(command, programs, timeout=300, paths=sys.path, environment=environment)
