"""A task that Spark does twice at a time, on two executors: the rows of one attempt are committed, once each."""

from pathlib import Path

import pytest
from spark.speculation import BOTH, run_speculated
from spark.write.committed import numbers_in
from spark.write.speculated_write import ROUNDS

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import IsolationLevel
from sparklog.testing.cluster import ClusterHarness

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).with_name("speculated_write.py")
ROWS = 40


def test_two_attempts_write_and_one_counts(quick_spark, delta_jars, tmp_path):
    del delta_jars
    with ClusterHarness(tmp_path / "cluster") as cluster:
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        topics = [f"{kind}-{heard}" for kind, heard in ROUNDS]
        with Admin(client) as admin:
            admin.create_topics([NewTopic(each, 2) for each in ("in", *topics)])
        with Producer(client) as producer:
            for number in range(ROWS):
                producer.send("in", b"%d" % number, key=b"%d" % number, partition=number % 2)
        run_speculated(PROGRAM, cluster.bootstrap_servers, "in", tmp_path, quick_spark)
        for topic, (_, heard) in zip(topics, ROUNDS, strict=True):
            assert sorted(each.name for each in (tmp_path / "attempts" / topic).iterdir()) == ["0", "1"]
            assert numbers_in(client, topic, 2) == list(range(ROWS)), topic
            if heard == BOTH:
                assert len(numbers_in(client, topic, 2, IsolationLevel.READ_UNCOMMITTED)) > ROWS, (
                    "one has written alone"
                )
