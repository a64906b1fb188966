"""``sparklog broker list`` and ``describe`` on two real brokers, also where one is gone or frozen."""

import json
import os
import signal

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.structs import BrokerId
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
TOPIC = "pair"
NOTICED_S = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers that share a topic of four partitions with two replicas each."""
    settings = {"broker.rack": "rack-1", "num.partitions": "3"}
    harness = ClusterHarness(tmp_path_factory.mktemp("pair"), brokers=2, settings=settings)
    with harness, Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 4, 2)])
        yield harness


@pytest.fixture
def there(run, pair, monkeypatch):
    """``run``, against the pair: its JSON, and what it says on standard error."""
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", pair.bootstrap_servers)

    def call(*arguments):
        done = run(*arguments, "--output", "json")
        assert done.status == 0, done.err
        return json.loads(done.out), done.err

    yield call
    for broker in pair.brokers:
        if not broker.alive:
            broker.start()


def whole(there):
    found, _ = there("broker", "list")
    led = sum(each["leads"] for each in found)
    return led == 4 and not any(each["out_of_sync"] for each in found) and found


def test_each_broker_and_what_it_has(there, run, pair):
    found = eventually(lambda: whole(there), NOTICED_S, "all are in sync")
    assert [each["broker"] for each in found] == [0, 1]
    assert [each["address"] for each in found] == pair.bootstrap_servers.split(",")
    assert {(each["state"], each["rack"], each["under_replicated"], each["offline"]) for each in found} == {
        ("up", "rack-1", 0, 0)
    }
    assert [each["replicas"] for each in found] == [4, 4]
    with Admin(bootstrap_servers=pair.bootstrap_servers) as admin:
        info, directories = admin.describe_cluster(), admin.log_dirs()
    assert [each["controller"] for each in found] == [info.controller == number for number in (0, 1)]
    sizes = [sum(sum(each.sizes.values()) for each in directories[BrokerId(number)]) for number in (0, 1)]
    assert [each["bytes"] for each in found] == sizes
    assert all(each["least_free"] > 0 for each in found)
    lines = [line.split("\t") for line in run("broker", "list").out.splitlines()]
    assert [line[:3] for line in lines] == [
        ["broker", "state", "address"], *([str(each["broker"]), "up", each["address"]] for each in found)
    ]  # fmt: skip
    assert [line[4] for line in lines[1:]] == ["yes" if each["controller"] else "no" for each in found]


def test_one_broker_and_how_it_is_set(there, run, pair):
    row = eventually(lambda: whole(there), NOTICED_S, "all are in sync")[1]
    found, err = there("broker", "describe", 1)
    assert err == ""
    shared = row.keys() & found.keys()
    assert shared == row.keys() - {"bytes", "least_free"}
    assert {name: found[name] for name in shared} == {name: row[name] for name in shared}
    assert found["protocol"] == "3.9"
    assert found["listeners"].endswith(f"://{row['address']}")
    (directory,) = found["directories"]
    assert directory["directory"] == str(pair.broker(1).spec.data_dir)
    assert (directory["partitions"], directory["bytes"], directory["error"]) == (4, row["bytes"], None)
    assert directory["total"] >= directory["free"] > 0
    made = {each["name"]: (each["value"], each["from"]) for each in found["settings"]}
    assert made["num.partitions"] == ("3", "start of the broker")
    assert "log.cleaner.threads" not in made
    lines = run("broker", "describe", 1).out.splitlines()
    assert {"broker\t1", "state\tup", f"address\t{row['address']}", "num.partitions\t3\tstart of the broker"} <= {
        *lines
    }


def test_a_broker_that_there_is_not_is_named(run, pair):
    refused = run("broker", "describe", "7", "--bootstrap", pair.bootstrap_servers)
    assert (refused.status, refused.out) == (2, "")
    assert "there is no broker 7, only 0, 1" in refused.err


def test_a_frozen_broker_is_silent_and_a_dead_one_is_gone(there, pair):
    eventually(lambda: whole(there), NOTICED_S, "all are in sync")
    frozen = pair.broker(1)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        rows, err = there("broker", "list")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    assert (rows[1]["state"], rows[1]["bytes"], rows[1]["least_free"]) == ("silent", None, None)
    assert err.count("what only it can tell is not shown") == 1
    assert rows[0]["bytes"] is not None

    pair.stop_broker(1)

    def gone():
        found, _ = there("broker", "list")
        return found if found[1]["state"] == "gone" and found[0]["under_replicated"] == 4 else None

    (left, row) = eventually(gone, NOTICED_S, "its replicas tell of it")
    assert (row["address"], row["leads"], row["replicas"], row["offline"]) == (None, 0, 4, 4)
    assert left["leads"] == 4
    found, _ = there("broker", "describe", 1)
    assert (found["state"], found["directories"], found["settings"], found["offline"]) == ("gone", None, None, 4)
