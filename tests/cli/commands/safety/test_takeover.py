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


def test_a_file_that_does_not_say_kafkas_version_is_found(run, chroot, tmp_path):
    """Kafka's own file need not say it: a broker of Kafka's has the version of its release."""
    of_kafka = tmp_path / "server.properties"
    of_kafka.write_text(f"broker.id=0\nzookeeper.connect={chroot}\nlog.dirs={tmp_path}\nnum.io.threads=8\n")
    with BrokerHarness(tmp_path, chroot, settings={"inter.broker.protocol.version": "3.9"}):
        check = ("takeover", "check", "--zookeeper", chroot, "--config", str(of_kafka), "--output", "json")
        result = run(*check)
        of_kafka.write_text(of_kafka.read_text() + "inter.broker.protocol.version=3.9\n")
        again = run(*check)
    (found,) = json.loads(result.out)
    assert (result.status, found["subject"]) == (1, str(of_kafka))
    assert found["remedy"] == "set inter.broker.protocol.version=3.9-IV0 there"
    assert (again.status, json.loads(again.out)) == (0, [])


def test_nothing_stands_in_the_way_of_a_sound_cluster(run, chroot, tmp_path):
    with BrokerHarness(tmp_path, chroot, settings={"inter.broker.protocol.version": "3.9"}):
        result = run("takeover", "check", "--zookeeper", chroot)
    assert (result.status, result.out) == (0, "nothing stands in the way\n")
