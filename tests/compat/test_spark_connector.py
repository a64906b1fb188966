"""Spark's own Kafka connector on our broker: writing, reading, and a stream from topic to topic that goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat import connector_job
from compat.connector_job import RECORDS
from compat.secured import PASSWORDS
from compat.test_our_client_on_kafka import of_alice
from integration import wire

from sparklog.client import Admin, NewTopic
from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.fixture
def run(tmp_path, topic):
    """``run(address, *files)``: what the job found."""
    try:
        jars = ",".join(map(str, jar_set("spark-kafka")))
    except ConfigError as error:
        pytest.skip(str(error))

    def job(address, *files):
        program = [
            sys.executable,
            str(Path(connector_job.__file__)),
            jars,
            address,
            topic,
            str(tmp_path / "checkpoint"),
        ]
        done = subprocess.run(
            [*program, *map(str, files)],
            env={**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done

    return job


def check(done):
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["written"] == RECORDS
    assert found["selected"] == [10 + 5, RECORDS]
    assert found["copied"] == [RECORDS, RECORDS, RECORDS + 10], "a second run with nothing new copies nothing"


@pytest.mark.timeout(600)
def test_the_connector_writes_reads_and_streams(run, bootstrap, topic):
    with wire.connect(bootstrap) as connection:
        for name in (topic, f"{topic}-copy"):
            wire.create_topic(connection, name, partitions=2)
    check(run(bootstrap))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "way", ["SASL_SSL SCRAM-SHA-512", "SASL_PLAINTEXT PLAIN", "SASL_PLAINTEXT OAUTHBEARER", "MUTUAL"]
)
def test_the_connector_does_so_as_a_user(run, secured_ours, topic, tmp_path, way):
    """Its password, where it has one, is in nothing that it says or keeps."""
    settings = of_alice(secured_ours, way)
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, 2), NewTopic(f"{topic}-copy", 2)])
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({name: value for name, value in settings.items() if name != "bootstrap.servers"}))
    done = run(settings["bootstrap.servers"], file)
    check(done)
    kept = [each.read_text(errors="replace") for each in (tmp_path / "checkpoint").rglob("*") if each.is_file()]
    assert kept
    assert not [each for each in (done.stdout, done.stderr, *kept) if PASSWORDS["alice"] in each]
