"""``sparklog cluster``, and the partitions that ``sparklog topic describe`` searches for, on two real brokers."""

import json

import pytest
from docs.markdown import ROOT, spans_under

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
TOPIC = "pair"
NOTICED_S = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers, racks named after them, that share a topic of four partitions with two replicas each."""
    harness = ClusterHarness(tmp_path_factory.mktemp("pair"), brokers=2, settings={"broker.rack": "rack-1"})
    with harness, Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 4, 2, {"min.insync.replicas": "2"}), NewTopic("single", 1, 1)])
        yield harness


@pytest.fixture
def there(run, pair, monkeypatch):
    """``run``, against the pair, and its JSON."""
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", pair.bootstrap_servers)

    def call(*arguments):
        done = run(*arguments, "--output", "json")
        assert (done.status, done.err) == (0, "")
        return json.loads(done.out)

    yield call
    for broker in pair.brokers:
        if not broker.alive:
            broker.start()


def whole(there):
    described = there("cluster", "describe")
    return described["under_replicated"] == 0 and described["without_leader"] == 0 and described


def named_by_the_alert(run):
    """Topic, partition, replicas and those out of reach, as the command shows them that the alert's page has first."""
    page = ROOT / "docs" / "alerts.md"
    command = next(each for each in spans_under(page, "SparklogOfflinePartitions") if each.startswith("sparklog "))
    rows = [line.split("\t") for line in run(*command.split()[1:]).out.splitlines()]
    return {(row[0], row[1], ",".join(sorted(row[3].split(","))), row[5]) for row in rows if len(row) == 6}


def test_the_brokers_and_what_they_have(there, run, pair):
    eventually(lambda: whole(there), NOTICED_S, "all are in sync")
    there("cluster", "elect")

    def as_chosen():
        found = whole(there)
        return found if found and found["not_preferred"] == 0 else None

    found = eventually(as_chosen, NOTICED_S, "clients are told of the leaders")
    brokers = found.pop("brokers")
    assert len(found.pop("cluster")) == 22
    assert found.pop("controller") in (0, 1)
    assert found == {
        "topics": 2, "partitions": 5, "without_leader": 0, "under_replicated": 0, "under_min_isr": 0,
        "at_min_isr": 5, "not_preferred": 0,
    }  # fmt: skip
    assert [each["broker"] for each in brokers] == [0, 1]
    assert [each["address"] for each in brokers] == pair.bootstrap_servers.split(",")
    assert {(each["rack"], each["protocol"], each["imbalance_percent"]) for each in brokers} == {("rack-1", "3.9", 0)}
    assert sum(each["leads"] for each in brokers) == sum(each["preferred"] for each in brokers) == 5
    assert sum(each["replicas"] for each in brokers) == 9
    shown = run("cluster", "describe").out.splitlines()
    assert shown[0].startswith("cluster ")
    assert [line.split("\t")[0] for line in shown[-3:]] == ["broker", "0", "1"]


def test_a_dead_broker_is_seen_and_leads_again_when_it_is_told_to(there, run, pair):
    eventually(lambda: whole(there), NOTICED_S, "all are in sync")
    there("cluster", "elect")
    controller = there("cluster", "describe")["controller"]
    gone = 1 - controller
    pair.stop_broker(gone)

    def told(flag):
        rows = there("topic", "describe", TOPIC, flag)
        return [(each["partition"], each["in_sync"], each["offline"]) for each in rows]

    expected = [(number, [controller], [gone]) for number in range(4)]  # it leaves the ISR before it is gone
    eventually(lambda: told("--under-replicated") == expected, NOTICED_S)
    assert told("--under-min-isr") == expected
    assert there("topic", "describe", TOPIC, "--unavailable") == []
    assert there("topic", "describe", TOPIC, "--at-min-isr") == []
    lines = run("topic", "describe", TOPIC, "--unavailable", "--under-min-isr").out.splitlines()
    assert lines[0].split("\t") == ["topic", "partition", "leader", "replicas", "in sync", "offline"]
    assert len(lines) == 5
    (share,) = [each for each in there("cluster", "describe")["brokers"] if each["broker"] == gone]
    assert (share["address"], share["leads"], share["imbalance_percent"]) == (None, 0, 100)
    refused = run("cluster", "elect", "--topic", TOPIC)
    assert refused.status == 1
    assert f"broker {gone} cannot lead {TOPIC}-" in refused.err

    pair.start_broker(gone)
    eventually(lambda: whole(there), NOTICED_S, "it is back in sync")
    results = there("cluster", "elect", "--topic", TOPIC)
    assert sorted(each["result"] for each in results) == ["elected"] * 2 + ["its first replica leads already"] * 2
    assert run("cluster", "elect").out == "every partition is led by its first replica\n"
    eventually(lambda: there("cluster", "describe")["not_preferred"] == 0, NOTICED_S)


def test_a_replica_that_is_not_in_sync_leads_only_when_that_is_wanted(there, run, pair):
    eventually(lambda: whole(there), NOTICED_S, "all are in sync")
    assert run("cluster", "elect", "--unclean").out == "every partition has a leader\n"
    behind, last = 0, 1
    pair.kill_broker(behind)
    eventually(lambda: len(there("topic", "describe", TOPIC, "--under-replicated")) == 4, NOTICED_S)
    pair.kill_broker(last)
    pair.start_broker(behind)
    eventually(lambda: len(there("topic", "describe", TOPIC, "--unavailable")) == 4, NOTICED_S)
    assert named_by_the_alert(run) >= {(TOPIC, str(number), "0,1", "1") for number in range(4)}
    chosen = ("cluster", "elect", "--unclean", "--topic", TOPIC, "--partition", "2")
    refused = run(*chosen)
    assert (refused.status, refused.out) == (2, "")
    assert "add --yes" in refused.err
    assert there(*chosen, "--yes") == [{"topic": TOPIC, "partition": 2, "result": "elected"}]
    eventually(lambda: len(there("topic", "describe", TOPIC, "--unavailable")) == 3, NOTICED_S)
    assert {each["partition"] for each in there("topic", "describe", "--unavailable")} >= {0, 1, 3}


def test_a_partition_that_there_is_not_is_named(there, run):
    refused = run("cluster", "elect", "--topic", "single", "--partition", "7")
    assert (refused.status, refused.out) == (2, "")
    assert "topic 'single' has no partition 7" in refused.err
