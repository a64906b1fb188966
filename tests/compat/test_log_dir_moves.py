"""Kafka's own tools move replicas between a broker's log directories, and see where they are."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from compat.kafka_tools import CONFIGS, TOPICS, consumed, write

from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.slow]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"


@pytest.fixture
def homes(tmp_path):
    return [str(tmp_path / name) for name in "ab"]


@pytest.fixture
def on_two_disks(tmp_path, chroot, homes, java):
    """Run a tool that is told of a broker on two log directories."""
    broker = BrokerHarness(tmp_path, chroot)
    broker.spec = replace(broker.spec, data_dir=Path(",".join(homes)))
    with broker:
        yield lambda main_class, *arguments, stdin="": java(
            main_class, "--bootstrap-server", broker.address, *arguments, stdin=stdin
        )


def described(tool):
    """Directory to partitions and whether each is on its way there, of topic t."""
    line = next(line for line in tool(LOG_DIRS, "--describe", "--topic-list", "t").splitlines() if line[:1] == "{")
    (broker,) = json.loads(line)["brokers"]
    assert all(each["error"] is None for each in broker["logDirs"])
    return {
        each["logDir"]: {int(found["partition"].removeprefix("t-")): found["isFuture"] for found in each["partitions"]}
        for each in broker["logDirs"]
    }


def plan(tmp_path, *wishes):
    path = tmp_path / "plan.json"
    partitions = [
        {"topic": "t", "partition": number, "replicas": [0], "log_dirs": [home]} for number, home in enumerate(wishes)
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def test_reassign_partitions_moves_between_log_directories(on_two_disks, tmp_path, homes):
    tool = on_two_disks
    tool(TOPICS, "--create", "--topic", "t", "--partitions", "2")
    write(tool, "t", *(f"k{number}:value {number}" for number in range(100)))
    for wishes in (homes, homes[::-1]):
        asked = plan(tmp_path, *wishes)
        tool(REASSIGN, *asked, "--execute")
        eventually(
            lambda wishes=wishes: described(tool) == {home: {n: False} for n, home in enumerate(wishes)},
            what=f"the partitions to lie in {wishes}",
        )
        said = tool(REASSIGN, *asked, "--verify")
        assert "is still in progress" not in said
        assert said.count("completed successfully") + said.count("is complete") >= 2, said
    assert consumed(tool, "t", 100) == {f"k{number}\tvalue {number}" for number in range(100)}


def test_a_throttled_move_is_in_progress_and_is_cancelled(on_two_disks, tmp_path, homes):
    tool = on_two_disks
    tool(TOPICS, "--create", "--topic", "t")
    write(tool, "t", *(f"k{number}:{'.' * 50_000}{number}" for number in range(60)))
    (here,) = [home for home, partitions in described(tool).items() if partitions]
    (aim,) = set(homes) - {here}
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    tool(CONFIGS, "--entity-type", "brokers", "--entity-name", "0", "--alter", "--add-config", f"{rate}=1000")
    asked = plan(tmp_path, aim)
    tool(REASSIGN, *asked, "--execute")
    assert described(tool) == {here: {0: False}, aim: {0: True}}
    assert "is still in progress" in tool(REASSIGN, *asked, "--verify", "--preserve-throttles")
    tool(REASSIGN, *plan(tmp_path, here), "--execute")
    assert described(tool) == {here: {0: False}, aim: {}}
