"""Every option of Spark's Kafka connector, asked of it and of ours: the same rows, or refused by both.

One job reads all cases on a real Kafka broker (with both) and on a cluster of ours that holds the same records.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from spark.parity import job
from spark.parity.cases import CASES

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java
from sparklog.structs import DECISIONS_TOPIC
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(1800)]
_NAMES = {"t": "alpha", "x": "transactions", "other": "in-the-middle-of-alpha-beta", "decisions": DECISIONS_TOPIC}


@pytest.fixture(scope="module")
def kafka(zookeeper, tmp_path_factory):
    """A real Kafka broker of this module's own: a pattern finds what other tests leave on a shared one."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), f"{zookeeper.connect_string}/parity") as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of ours, with the same topics alone."""
    with ClusterHarness(tmp_path_factory.mktemp("cluster")) as harness:
        yield harness


@pytest.fixture(scope="module")
def outcomes(request, kafka, cluster, tmp_path_factory):
    """What came of each case."""
    try:
        jars = ",".join(map(str, jar_set("spark-kafka")))
    except ConfigError as error:
        pytest.skip(str(error))
    for each in (kafka, cluster):
        _produce(each.bootstrap_servers)
    selected = [each.callspec.params["case"].name for each in request.session.items if each.path == Path(__file__)]
    arguments = [jars, kafka.bootstrap_servers, cluster.bootstrap_servers, json.dumps(_NAMES), json.dumps(selected)]
    tests, sources = Path(job.__file__).parents[2], Path(__file__).parents[3] / "src"
    directory = tmp_path_factory.mktemp("parity")
    with (directory / "outcomes").open("w") as out, (directory / "errors").open("w") as errors:
        done = subprocess.run(
            [sys.executable, job.__file__, *arguments],
            env={
                **os.environ,
                "JAVA_HOME": str(find_java().home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONPATH": f"{sources}{os.pathsep}{tests}",
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=directory,
            stdout=out,
            stderr=errors,
            timeout=1700,
            check=False,
        )
    assert done.returncode == 0, (directory / "errors").read_text()[-4000:]
    found = {}
    for line in (directory / "outcomes").read_text().splitlines():
        found.update(json.loads(line))
    return found


def _produce(servers):
    with Admin(bootstrap_servers=servers) as admin:
        kept = {"retention.ms": "-1"}  # its records are of 1970
        partitions = {"t": 3, "x": 1, "other": 1, "decisions": 1}
        admin.create_topics([NewTopic(_NAMES[each], count, 1, kept) for each, count in partitions.items()])
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(10):
        headers = [("h", b"%d" % number), ("none", None)] if number % 2 else None
        key = b"k%d" % number if number % 3 else None
        value = b"v%d" % number if number != 5 else None
        producer.produce(_NAMES["t"], value, key, partition=0, timestamp=1000 + number, headers=headers)
    for number in range(3):
        producer.produce(_NAMES["t"], b"w%d" % number, partition=1, timestamp=2000 + number)
    for name in ("other", "decisions"):
        producer.produce(_NAMES[name], b"o", partition=0, timestamp=1)
    assert producer.flush(30) == 0
    transactional = Producer({"bootstrap.servers": servers, "transactional.id": "parity", "log_level": 0})
    transactional.init_transactions(30)
    for first, size, end in ((0, 3, "commit"), (3, 2, "abort"), (5, 2, "commit")):
        transactional.begin_transaction()
        for number in range(first, first + size):
            transactional.produce(_NAMES["x"], b"x%d" % number, partition=0, timestamp=3000 + number)
        assert transactional.flush(30) == 0
        getattr(transactional, f"{end}_transaction")(30)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_does_as_the_connector(outcomes, case):
    connector, on_kafka, on_ours = outcomes[case.name]
    for ours in (on_kafka, on_ours):
        if case.ours or connector.startswith("refuses"):
            assert ours.startswith(case.ours or "refuses"), f"the connector {connector}"
            assert not ours.startswith("refuses") or "[SPARKLOG_" in ours
        else:
            assert ours == "reads the same", f"the connector {connector}"
    assert not case.ours or not connector.startswith(case.ours), "it does the same after all"
