"""Retention by a broker and its cluster: settings, policies of packages, and logs that wait for their offload."""

import json
import os
import subprocess
import sys

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.admin.admin import OffsetAndMetadata, Replica
from sparklog.cluster.offload_group import OffloadNote
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
OFTEN = {"log.retention.check.interval.ms": "50"}
OLD = {"retention.ms": "1000", "segment.bytes": "300"}
WAITS = {"sparklog.offload.required": "true", "sparklog.offload.max.bytes": "1000000"}
POLICY = """
class Limited:
    name = "limited"

    def __init__(self, tp, settings):
        self.limit = int(settings["retention.bytes"])

    def give_up(self, segments, now_ms):
        return min(len(segments), self.limit)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A directory with an installed package that brings a policy."""
    site = tmp_path_factory.mktemp("site")
    (site / "counted_policy.py").write_text(POLICY)
    (site / "counted_policy-1.dist-info").mkdir()
    (site / "counted_policy-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: counted-policy\nVersion: 1\n"
    )
    (site / "counted_policy-1.dist-info" / "entry_points.txt").write_text(
        "[sparklog.retention]\nlimited = counted_policy:Limited\n"
    )
    return site


@pytest.fixture(scope="module")
def pair(tmp_path_factory, package):
    """Two brokers, both with the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]))
        with ClusterHarness(tmp_path_factory.mktemp("pair"), brokers=2, settings=OFTEN) as running:
            yield running


@pytest.fixture
def admin(pair):
    with Admin(bootstrap_servers=pair.bootstrap_servers) as found:
        yield found


def send(cluster, topic, count):
    """A record a segment, each of them old."""
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in range(count):
            producer.send(topic, b"%0200d" % number, partition=0, timestamp=1000 + number).result()


def start_of(admin, topic):
    tp = TopicPartition(topic, 0)
    return admin.list_offsets({tp: -2})[tp].offset


def restart(cluster, broker):
    cluster.stop_broker(broker)
    cluster.start_broker(broker)


def commit(admin, topic, offset, topic_id=None, group=None):
    """As an offload does it."""
    topic_id = topic_id or admin.describe_topics([topic])[topic].topic_id
    note = OffloadNote(topic_id, "table /x").to_metadata()
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, metadata=note)}
    admin.alter_group_offsets(group or f"sparklog-offload.{topic}", offsets)


def state_of(admin, topic):
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    return admin.describe_retention([topic])[Replica(TopicPartition(topic, 0), leader)]


def looked_since(admin, topic, before):
    """What the next round has found."""
    return eventually(
        lambda: (state := state_of(admin, topic)).checked_ms is not None and state.checked_ms > before and state
    )


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"sparklog.retention.policies": "age,no-such"},
            "no policy no-such here; this broker has age, size, offload, limited",
        ),
        ({"sparklog.offload.required": "true"}, "needs sparklog.offload.max.bytes"),
        ({"sparklog.offload.max.bytes": "5"}, "means nothing without"),
    ],
)
def test_settings_that_make_no_sense_are_refused_of_new_topics_and_old_ones(admin, topic, settings, complaint):
    with pytest.raises(ApiError, match=complaint) as refused:
        admin.create_topics([NewTopic(topic, 1, 1, settings)])
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    admin.create_topics([NewTopic(topic, 1, 1, {})])
    with pytest.raises(ApiError, match=complaint):
        admin.alter_topic_configs(topic, settings)
    admin.alter_topic_configs(topic, WAITS | {"sparklog.retention.policies": "limited,size"})
    with pytest.raises(ApiError, match="needs sparklog"):
        admin.alter_topic_configs(topic, {"sparklog.offload.max.bytes": None})


def test_a_log_waits_for_its_group_on_all_replicas_and_tells_what_it_holds_back(pair, admin, topic):
    admin.create_topics([NewTopic(topic, 1, 2, OLD | WAITS)])
    send(pair, topic, 10)
    before = looked_since(admin, topic, 0)
    state = eventually(lambda: (now := state_of(admin, topic)).held_records == 10 and now)
    assert (state.offloaded, state.limit_bytes, state.group) == (None, 1_000_000, f"sparklog-offload.{topic}")
    assert state.held_bytes > 2000
    commit(admin, topic, 4)
    eventually(lambda: start_of(admin, topic) == 4)
    state = looked_since(admin, topic, before.checked_ms)
    assert (state.offloaded, state.held_records, state.lost_records) == (4, 6, 0)
    directories = [pair.broker(number).spec.data_dir / f"{topic}-0" for number in range(2)]
    eventually(lambda: all(min(int(each.stem) for each in home.glob("*.log")) == 4 for home in directories))
    commit(admin, topic, 99)
    eventually(lambda: start_of(admin, topic) == 10)


def test_an_offset_of_a_former_topic_of_the_name_counts_for_nothing(pair, admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1, OLD | WAITS)])
    former = admin.describe_topics([topic])[topic].topic_id
    admin.delete_topics([topic])
    eventually(lambda: topic not in {each.name for each in admin.list_topics()})
    admin.create_topics([NewTopic(topic, 1, 1, OLD | WAITS)])
    send(pair, topic, 5)
    commit(admin, topic, 5, topic_id=former)
    before = eventually(lambda: (now := state_of(admin, topic)).held_records == 5 and now)
    assert looked_since(admin, topic, before.checked_ms).offloaded is None
    assert start_of(admin, topic) == 0
    commit(admin, topic, 3)
    eventually(lambda: start_of(admin, topic) == 3)


def test_beyond_its_limit_a_log_loses_the_oldest_and_says_which(pair, admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1, OLD | WAITS | {"sparklog.offload.max.bytes": "1200"})])
    send(pair, topic, 10)
    state = eventually(lambda: (now := state_of(admin, topic)).held_records == 10 - now.lost_records > 0 and now)
    assert state.lost_records > 0
    assert state.held_bytes <= 1200
    assert state.lost_until == start_of(admin, topic) == state.lost_records
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    assert (
        f"{topic}-0 loses records that are not known to be offloaded, from offset 0 on" in pair.broker(leader).output()
    )


def test_delete_records_is_obeyed_though_the_log_waits(pair, admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1, OLD | WAITS)])
    send(pair, topic, 5)
    admin.delete_records({TopicPartition(topic, 0): 3})
    assert start_of(admin, topic) == 3
    assert eventually(lambda: (now := state_of(admin, topic)).held_records == 2 and now).lost_records == 0


def test_topic_describe_shows_what_waits(pair, admin, topic):
    admin.create_topics([NewTopic(topic, 1, 1, OLD | WAITS)])
    send(pair, topic, 3)
    eventually(lambda: state_of(admin, topic).held_records == 3)
    command = [sys.executable, "-m", "sparklog.cli.main", "topic", "describe", topic, "-b", pair.bootstrap_servers]
    shown = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=True)
    (waiting,) = json.loads(shown.stdout)["retention"]
    assert (waiting["held_records"], waiting["limit_bytes"], waiting["lost_records"]) == (3, 1_000_000, 0)
    assert waiting["group"] == f"sparklog-offload.{topic}"
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "bytes held back" in text
    assert f"1000000\t0\tsparklog-offload.{topic}" in text


def test_a_policy_of_a_package_is_told_the_settings_and_without_the_package_nothing_goes(pair, package, admin, topic):
    settings = {"segment.bytes": "300", "retention.bytes": "2", "sparklog.retention.policies": "limited"}
    admin.create_topics([NewTopic(topic, 1, 1, settings)])
    send(pair, topic, 9)
    eventually(lambda: start_of(admin, topic) == 9)  # two a round
    leader = admin.describe_topics([topic])[topic].partitions[0].leader
    package.joinpath("counted_policy-1.dist-info").rename(package / "removed")
    try:
        restart(pair, leader)
        send(pair, topic, 9)
        refused = eventually(lambda: admin.describe_retention([topic]).get(Replica(TopicPartition(topic, 0), leader)))
        assert refused.refusal == "its policy 'limited' failed: it is not installed on this broker"
        assert refused.group is None
        assert f"retention deletes nothing of {topic}-0: {refused.refusal}" in pair.broker(leader).output()
        assert start_of(admin, topic) == 9
    finally:
        (package / "removed").rename(package / "counted_policy-1.dist-info")
        restart(pair, leader)
    eventually(lambda: start_of(admin, topic) == 18)
