"""``sparklog topic trim`` on a real cluster."""

import json
import os
import pty
from datetime import UTC, datetime

import pytest

from sparklog.client import Admin, NewTopic, Producer

pytestmark = pytest.mark.integration


@pytest.fixture
def filled(topic, bootstrap, admin):
    """A topic of two partitions, with the records 0 to 4 in each, one a second from 1000 s on."""
    admin.create_topics([NewTopic(topic, 2, 1)])
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(2):
            for number in range(5):
                at_ms = 1_000_000 + 1000 * number
                producer.send(topic, b"%d.%d" % (partition, number), partition=partition, timestamp=at_ms)
    return topic


def rows(text):
    return [line.split("\t") for line in text.splitlines()]


def left(here, topic):
    return here("consume", topic).out.split()


ALL = [f"{partition}.{number}" for partition in range(2) for number in range(5)]


def test_records_before_an_offset_go_and_the_partitions_begin_there(here, filled):
    done = here("topic", "trim", filled, "--before", 3, "--yes")
    assert (done.status, done.err) == (0, f"deleted 6 records of topic {filled}\n")
    assert rows(done.out) == [["partition", "before", "after", "records"], ["0", "0", "3", "3"], ["1", "0", "3", "3"]]
    assert left(here, filled) == ["0.3", "0.4", "1.3", "1.4"]
    again = here("topic", "trim", filled, "--before", 2)
    assert (again.status, again.err) == (0, "there is nothing before it: nothing was deleted\n")
    assert rows(again.out)[1] == ["0", "3", "3", "0"]


def test_of_the_partitions_that_are_named_alone(here, filled):
    assert here("topic", "trim", filled, "-p", 1, "--before", 4, "-y").status == 0
    assert left(here, filled) == [*ALL[:5], "1.4"]
    refused = here("topic", "trim", filled, "-p", 2, "--before", 4, "-y")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.endswith(f"--partition: topic '{filled}' has no partition 2, only 0 to 1\n")


def test_records_before_a_time_go(here, filled):
    moment = datetime.fromtimestamp(1002, UTC).isoformat()
    assert here("topic", "trim", filled, "--before", moment, "--yes").status == 0
    assert left(here, filled) == [*ALL[2:5], *ALL[7:]]


def test_all_go_before_latest_and_those_before_an_offset_that_is_beyond_the_end(here, filled):
    done = here("topic", "trim", filled, "--before", 99, "--partition", 0, "--yes")
    assert f"{filled}-0 ends at offset 5: all its records are before 99\n" in done.err
    assert left(here, filled) == ALL[5:]
    assert here("topic", "trim", filled, "--before", "latest", "--yes").status == 0
    assert left(here, filled) == []


def test_a_topic_that_was_made_again_while_it_was_asked_keeps_its_records(here, filled, admin, bootstrap, monkeypatch):
    def answered_late(*_, **__):
        admin.delete_topics([filled])
        admin.create_topics([NewTopic(filled, 2, 1)])
        with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(4):
                producer.send(filled, b"new.%d" % number, partition=0)

    monkeypatch.setattr("sparklog.cli.commands.cluster.trim.confirm", answered_late)
    done = here("topic", "trim", filled, "--before", 3)
    assert done.status == 1
    assert f"topic {filled} was deleted meanwhile, and made again: nothing was deleted" in done.err
    assert left(here, filled) == [f"new.{number}" for number in range(4)]


def test_a_dry_run_says_the_same_and_deletes_nothing(here, filled):
    dry = here("topic", "trim", filled, "--before", 3, "--dry-run")
    assert (dry.status, dry.err) == (0, "nothing was deleted: this is a dry run\n")
    assert left(here, filled) == ALL
    assert dry.out == here("topic", "trim", filled, "--before", 3, "--yes").out


def test_as_json_it_is_an_object(here, filled):
    partitions = [{"partition": number, "before": 0, "after": 3, "records": 3} for number in range(2)]
    dry = here("topic", "trim", filled, "--before", 3, "--dry-run", "-o", "json")
    assert json.loads(dry.out) == {"topic": filled, "deleted": False, "partitions": partitions}
    done = here("topic", "trim", filled, "--before", 3, "--yes", "-o", "json")
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == {"topic": filled, "deleted": True, "partitions": partitions}


def test_a_script_says_yes_and_a_person_is_asked(here, spawn, filled):
    refused = here("topic", "trim", filled, "--before", 3)
    assert (refused.status, "add --yes" in refused.err) == (2, True)
    keyboard, terminal = pty.openpty()
    try:
        asking = spawn("topic", "trim", filled, "--before", 3, stdin=terminal, stdout=-1, stderr=-1, text=True)
        os.write(keyboard, b"n\n")
        out, _ = asking.communicate(timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert asking.returncode == 130
    assert f"Delete these 6 records of topic {filled}, for good?" in out
    assert left(here, filled) == ALL


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"]], ids=" ".join)
def test_a_topic_that_is_only_compacted_keeps_its_records(here, topic, more):
    here("topic", "create", topic, "--config", "cleanup.policy=compact")
    here("produce", topic, "-k", ":", stdin=b"a:1\nb:2\n")
    refused = here("topic", "trim", topic, "--before", 1, *more)
    assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1)
    assert f"topic {topic} is only compacted (cleanup.policy=compact): nothing is deleted by offsets" in refused.err
    assert "sparklog erase" in refused.err


def test_what_the_cluster_keeps_for_itself_is_not_trimmed(here, bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        if "__spark_decisions" not in {each.name for each in admin.list_topics()}:
            admin.create_topics([NewTopic("__spark_decisions", 1)])
    refused = here("topic", "trim", "__spark_decisions", "--before", "latest", "--yes")
    assert (refused.status, refused.out) == (2, "")
    assert "__spark_decisions is internal: nothing is deleted from it" in refused.err


def test_a_user_without_the_right_is_told_which_one_it_needs(run, secured, operator, topic):
    as_admin = ("--command-config", secured.client_file("admin"))
    run("topic", "create", topic, *as_admin)
    run("produce", topic, *as_admin, stdin=b"1\n2\n")
    run("acl", "add", *as_admin, "--allow-principal", "User:operator", "--operation", "READ", "--topic", topic)
    as_operator = ("--command-config", secured.client_file(operator))
    refused = run("topic", "trim", topic, "--before", 1, "--yes", *as_operator)
    assert refused.status == 1
    assert "the user needs DELETE on the topic" in refused.err
    run("acl", "add", *as_admin, "--allow-principal", "User:operator", "--operation", "DELETE", "--topic", topic)
    assert run("topic", "trim", topic, "--before", 1, "--yes", *as_operator).status == 0
