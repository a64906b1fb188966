"""Spark's own Kafka connector on our broker: writing, reading, and a stream from topic to topic that goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compat import connector_job
from compat.connector_job import RECORDS
from integration import wire

from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.local.java import find_java

pytestmark = [pytest.mark.peer, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_the_connector_writes_reads_and_streams(bootstrap, topic, tmp_path):
    try:
        jars = ",".join(map(str, jar_set("spark-kafka")))
    except ConfigError as error:
        pytest.skip(str(error))
    with wire.connect(bootstrap) as connection:
        for name in (topic, f"{topic}-copy"):
            wire.create_topic(connection, name, partitions=2)
    done = subprocess.run(
        [sys.executable, str(Path(connector_job.__file__)), jars, bootstrap, topic, str(tmp_path / "checkpoint")],
        env={**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["written"] == RECORDS
    assert found["selected"] == [10 + 5, RECORDS]
    assert found["copied"] == [RECORDS, RECORDS, RECORDS + 10], "a second run with nothing new copies nothing"
