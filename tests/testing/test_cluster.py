"""The harnesses, with a stand-in for the broker."""

import sys
from pathlib import Path

import pytest

from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness

pytestmark = pytest.mark.integration

FAKE = (sys.executable, str(Path(__file__).parents[1] / "local" / "fake_broker.py"))


class FakeCluster(ClusterHarness):
    program = FAKE


class FakeBroker(BrokerHarness):
    program = FAKE


def test_a_broken_cluster_stays_broken_until_mended(tmp_path):
    with FakeCluster(tmp_path, brokers=2) as cluster:
        cluster.kill_broker(0)
        cluster.stop_broker(1)
        assert [cluster.broker(0).fate, cluster.broker(1).fate] == ["was killed by SIGKILL", "was killed by SIGTERM"]
        address = cluster.broker(0).address
        cluster.start_broker(0)
        assert cluster.broker(0).alive
        assert cluster.broker(0).address == address
        assert not cluster.broker(1).alive


def test_clusters_share_a_zookeeper_and_none_of_its_trees(tmp_path):
    with FakeCluster(tmp_path / "one") as one, FakeCluster(tmp_path / "two") as two:
        assert one.zookeeper.pid == two.zookeeper.pid
        assert (one.zookeeper.port, one.zookeeper.alive) == (two.zookeeper.port, True)
        assert one.zookeeper_connect != two.zookeeper_connect
        with pytest.raises(AssertionError, match="shares_zookeeper=False"):
            one.zookeeper.kill()
        with FakeCluster(tmp_path / "three", shares_zookeeper=False) as three:
            assert three.zookeeper.pid != one.zookeeper.pid
            assert "/" not in three.zookeeper_connect
    assert two.zookeeper.is_ready()


def test_a_cluster_finds_its_tree_again(tmp_path):
    found = []
    for _ in range(2):
        with FakeCluster(tmp_path) as cluster:
            found.append(cluster.zookeeper_connect)
    assert found[0] == found[1]


def test_a_single_broker_restarts_on_its_port(tmp_path):
    settings = {"offsets.topic.num.partitions": 1, "num.partitions": 3}
    with FakeBroker(tmp_path, "127.0.0.1:1", settings=settings) as broker:
        first = broker.pid
        broker.restart()
        assert broker.pid != first
        first_start, second_start = (tmp_path / "broker-0" / "starts").read_text().splitlines()
    assert first_start == second_start
    zookeeper, *given = first_start.split()
    assert zookeeper == "127.0.0.1:1"
    assert {"offsets.topic.num.partitions=1", "num.partitions=3"} < set(given)
    assert "offsets.topic.num.partitions=4" not in given
