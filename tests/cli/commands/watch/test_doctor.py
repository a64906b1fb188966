"""``sparklog doctor`` at two real brokers, of which one dies."""

import json
import os
import signal

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
NOTICED_S = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers with two topics."""
    harness = ClusterHarness(tmp_path_factory.mktemp("pair"), brokers=2, shares_zookeeper=False)
    with harness, Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("both", 2, 2, {"min.insync.replicas": "2"})])
        admin.create_topics([NewTopic("risky", 1, 2, {"unclean.leader.election.enable": "true"})])
        yield harness


@pytest.fixture
def examine(run, pair):
    def call(*options):
        done = run("doctor", "--bootstrap", pair.bootstrap_servers, "--output", "json", *options)
        findings = json.loads(done.out)["findings"]
        assert done.status == any(each["severity"] == "error" for each in findings)
        return [each for each in findings if "disk is" not in each["what"]]  # how full it is here is no matter

    yield call
    for broker in pair.brokers:
        if not broker.alive:
            broker.start()


@pytest.fixture
def settled(examine):
    """What is found when both brokers are known to each other: one may have been started a moment ago."""

    def without_errors():
        findings = examine()
        return findings if "error" not in {each["severity"] for each in findings} else None

    return eventually(without_errors, NOTICED_S, "both brokers are known to each other")


def test_what_may_be_lost_is_told_and_is_no_error(settled, run, pair):
    assert {(each["severity"], tuple(each["where"])) for each in settled} >= {
        ("warning", ("risky",)),
        ("note", ("both",)),
    }
    assert not [each for each in settled if "could not be looked at" in each["what"]]
    text = run("doctor", "--bootstrap", pair.bootstrap_servers)
    assert "warning: unclean.leader.election.enable=true" in text.out
    assert "    sparklog topic alter risky --config unclean.leader.election.enable=false" in text.out.splitlines()


def test_a_group_that_lags_is_told(examine, pair):
    with Producer(bootstrap_servers=pair.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send("both", b"x", partition=0)
    with Admin(bootstrap_servers=pair.bootstrap_servers) as admin:
        admin.alter_group_offsets("slow", {TopicPartition("both", 0): 3})
    findings = examine("--max-lag", "6")
    behind = [each["what"] for each in findings if each["where"] == ["group slow"]]
    assert behind == ["7 records behind, and without members"]
    findings = examine("--max-lag", "7")
    assert not [each for each in findings if each["where"] == ["group slow"]]


@pytest.mark.usefixtures("settled")
def test_a_broker_that_is_gone_is_an_error_with_what_it_takes_away(examine, pair):
    pair.kill_broker(1)

    def noticed():
        told = {each["what"]: each for each in examine() if each["severity"] == "error"}
        return told if "a broker that has replicas is gone" in told else None

    told = eventually(noticed, NOTICED_S, "the cluster notices that the broker is gone")
    assert told["a broker that has replicas is gone"]["where"] == ["broker 1"]
    under = next(each for what, each in told.items() if "min.insync.replicas" in what)
    assert under["where"] == ["both-0", "both-1"]
    assert under["advice"].startswith("start broker 1; ")


@pytest.mark.usefixtures("settled")
def test_a_lost_zookeeper_is_an_error_and_what_can_be_seen_without_it_is_told(examine, run, pair, monkeypatch):
    (zookeeper,) = pair.zookeepers
    described = Admin.describe_cluster
    zookeeper.kill()
    try:

        def noticed():
            told = [each for each in examine() if "ZooKeeper" in each["what"]]
            return told if told and told[0]["where"] == ["broker 0", "broker 1"] else None

        (told,) = eventually(noticed, NOTICED_S, "both brokers have lost it")
        assert told["severity"] == "error"
        with monkeypatch.context() as patch:
            patch.setattr(Admin, "describe_cluster", lambda self: described(self)._replace(topics={}))
            assert told in examine(), "as where there is no topic yet"
        found = run("cluster", "describe", "--bootstrap", pair.bootstrap_servers, "--output", "json")
        assert found.status == 0
        assert "min.insync.replicas of the topics cannot be read" in found.err
        assert json.loads(found.out)["under_min_isr"] is None
    finally:
        zookeeper.start()
    eventually(lambda: not [each for each in examine() if "ZooKeeper" in each["what"]], NOTICED_S, "it is back")


@pytest.mark.usefixtures("settled")
def test_a_broker_that_is_frozen_does_not_hide_the_others(examine, pair):
    os.kill(pair.broker(1).pid, signal.SIGSTOP)
    try:
        found = examine()
    finally:
        os.kill(pair.broker(1).pid, signal.SIGCONT)
    assert [each["where"] for each in found if each["what"].startswith("a broker ")] == [["broker 1"]]
    unseen = {each["where"][0] for each in found if each["what"].startswith("could not be looked at")}
    assert "log directories" not in unseen
