import json

import pytest

from sparklog.testing.broker import BrokerHarness
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration


def test_a_place_without_a_cluster_is_told_of_and_left_as_it_is(run, chroot, zookeeper):
    result = run("takeover", "check", "--zookeeper", chroot, "--output", "json")
    assert result.status == 1
    assert [each["what"] for each in json.loads(result.out)] == ["no broker is registered"]
    zk = ZkClient(zookeeper.connect_string, session_timeout=10, on_session=lambda _: None)
    try:
        assert chroot.partition("/")[2] not in zk.names("/")
    finally:
        zk.close()


def test_nothing_stands_in_the_way_of_a_sound_cluster(run, chroot, tmp_path):
    with BrokerHarness(tmp_path, chroot, settings={"inter.broker.protocol.version": "3.9"}):
        result = run("takeover", "check", "--zookeeper", chroot)
    assert (result.status, result.out) == (0, "nothing stands in the way\n")
