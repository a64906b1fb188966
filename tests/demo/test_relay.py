"""The copying job: killed in the middle and run again, it has copied each record once, in its place."""

import pytest
from pyspark.errors import StreamingQueryException

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.demo.flights import load_flights
from sparklog.demo.relay import RelayOptions, dies_in_the_middle, run
from sparklog.demo.replay import replay
from sparklog.demo.verify import count_all, read_back, verify

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

PARTITIONS = 3
FLIGHTS = 3_000


@pytest.fixture
def sent(bootstrap, topic):
    """The flights are in the topic, and there is an empty one for the copy; the evidence of what was sent."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap)) as cluster:
        AdminClient(cluster).create_topics([NewTopic(f"{topic}-copy", PARTITIONS, 1)])
        return replay(cluster, topic, PARTITIONS, load_flights(FLIGHTS)).evidence


@pytest.mark.slow  # the tour does it (tests/cli/commands/serve/test_demo.py)
def test_it_is_killed_and_goes_on(spark, bootstrap, topic, sent, tmp_path):
    copy, note = f"{topic}-copy", tmp_path / "killed"
    options = RelayOptions(bootstrap, topic, copy, str(tmp_path / "checkpoint"), FLIGHTS // 3)
    with pytest.raises(StreamingQueryException):
        run(spark, options, dies_in_the_middle(note))
    assert note.exists()
    first = read_back(spark, bootstrap, copy).num_rows
    assert 0 < first < FLIGHTS, "a micro-batch was copied, and the one that was killed is not to be seen"

    assert run(spark, options, dies_in_the_middle(note)) == FLIGHTS - first
    assert verify(read_back(spark, bootstrap, copy), sent).records == FLIGHTS
    in_log = count_all(spark, bootstrap, copy)
    assert in_log >= FLIGHTS

    assert run(spark, options) == 0
    assert count_all(spark, bootstrap, copy) == in_log


@pytest.mark.slow  # tests/spark/write/test_exactly_once.py replays a micro-batch too
def test_a_micro_batch_that_spark_runs_again_adds_nothing(spark, bootstrap, topic, sent, tmp_path):
    """As if its driver had died before it noted the last one."""
    copy, checkpoint = f"{topic}-copy", tmp_path / "checkpoint"
    options = RelayOptions(bootstrap, topic, copy, str(checkpoint), FLIGHTS // 3)
    assert run(spark, options) == FLIGHTS
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    assert run(spark, options) > 0
    assert count_all(spark, bootstrap, copy) == FLIGHTS
    assert verify(read_back(spark, bootstrap, copy), sent).records == FLIGHTS


def test_the_time_of_a_flight_is_in_its_value(spark, bootstrap, topic, sent):
    assert verify(read_back(spark, bootstrap, topic), sent).records == FLIGHTS
