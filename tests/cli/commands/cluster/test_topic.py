"""``sparklog topic`` on a real cluster."""

import json
import os
import pty

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.errors import ErrorCode

pytestmark = pytest.mark.integration


def rows(text):
    return [line.split("\t") for line in text.splitlines()]


def test_a_topic_from_creation_to_deletion(here, topic):
    created = here("topic", "create", topic, "--partitions", 3, "--config", "retention.ms=3600000")
    assert created == (0, f"created topic {topic}: 3 partitions, 1 copy each\n", "")

    assert here("produce", topic, stdin=b"a\nb\n").status == 0
    listed = here("topic", "list")
    assert rows(listed.out)[0] == ["topic", "partitions", "copies", "records", "not counted"]
    assert [topic, "3", "1", "2", "-"] in rows(listed.out)

    described = here("topic", "describe", topic)
    assert described.status == 0
    first, header, *partitions, settings, setting = described.out.splitlines()
    assert first.startswith(f"topic {topic}: 3 partitions, id ")
    places = ["leader", "replicas", "in sync", "offline"]
    assert header.split("\t") == ["partition", *places, "first offset", "end offset"]
    assert [line.split("\t")[:6] for line in partitions] == [[str(n), "0", "0", "0", "-", "0"] for n in range(3)]
    assert sum(int(line.split("\t")[6]) for line in partitions) == 2
    assert (settings, setting) == ("setting\tvalue", "retention.ms\t3600000")
    assert "cleanup.policy\tdelete" in here("topic", "describe", topic, "--all-configs").out

    assert here("topic", "delete", topic, "--yes") == (0, f"deleted {topic}\n", "")
    assert topic not in here("topic", "list").out
    assert here("topic", "delete", topic, "--yes").status == 1


def test_json_says_what_the_tables_say(here, topic):
    here("topic", "create", topic, "--config", "retention.ms=3600000")
    listed = {each["topic"]: each for each in json.loads(here("topic", "list", "-o", "json").out)}
    assert listed[topic] == {"topic": topic, "partitions": 1, "copies": 1, "records": 0, "not_counted": []}
    described = json.loads(here("topic", "describe", topic, "-o", "json").out)
    assert described["topic"] == topic
    places = {"replicas": [0], "in_sync": [0], "offline": [], "eligible": []}
    assert described["partitions"] == [{"partition": 0, "leader": 0, **places, "first_offset": 0, "end_offset": 0}]
    assert described["settings"] == [{"name": "retention.ms", "value": "3600000", "from": "topic", "read_only": False}]


def test_settings_and_partitions_are_altered(here, topic):
    here("topic", "create", topic, "--config", "retention.ms=3600000")
    done = here("topic", "alter", topic, "-c", "segment.ms=60000", "-d", "retention.ms", "--partitions", 3)
    assert done == (0, f"altered topic {topic}: segment.ms=60000, retention.ms back to its default, 3 partitions\n", "")
    described = json.loads(here("topic", "describe", topic, "-o", "json").out)
    assert len(described["partitions"]) == 3
    assert [(each["name"], each["value"]) for each in described["settings"]] == [("segment.ms", "60000")]
    for more in ((), ("--config", "segment.ms=70000")):
        fewer = here("topic", "alter", topic, "--partitions", 2, *more)
        assert (fewer.status, fewer.out) == (1, "")
        assert "may only grow, from 3 on" in fewer.err
    assert json.loads(here("topic", "describe", topic, "-o", "json").out) == described, "the setting neither"


@pytest.mark.parametrize("command", ["create", "alter"])
def test_a_compacted_topic_is_one_like_others(here, topic, command):
    if command == "alter":
        here("topic", "create", topic)
    result = here("topic", command, topic, "--config", "cleanup.policy=compact")
    assert (result.status, result.err) == (0, "")


def test_what_brokers_and_sinks_keep_for_themselves_is_hidden(here, topic, bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        if "__spark_decisions" not in {each.name for each in admin.list_topics()}:
            admin.create_topics([NewTopic("__spark_decisions", 1)])
    assert "__spark_decisions" not in here("topic", "list").out
    assert "__spark_decisions" in here("topic", "list", "--internal").out


def test_a_name_that_is_taken_is_refused_with_advice(here, topic):
    here("topic", "create", topic)
    result = here("topic", "create", topic)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"topic '{topic}' exists already" in result.err
    assert '"sparklog topic delete"' in result.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--config", "retention.hours=1"], "unknown setting 'retention.hours'"),
        (["--config", "retention.ms=soon"], "retention.ms='soon' is not a whole number of 64 bits"),
        (["--replication", "2"], "replication factor"),
        (["--replication-factor", "2"], "replication factor"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_bad_setting_is_named_and_nothing_is_made(here, topic, arguments, named):
    result = here("topic", "create", topic, *arguments)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert named in result.err
    assert topic not in here("topic", "list").out


def test_a_name_that_cannot_be_one_is_refused(here):
    result = here("topic", "create", "a/b")
    assert (result.status, result.err.count("\n")) == (1, 1)
    assert "'a/b' cannot be a topic's name" in result.err


@pytest.mark.parametrize("command", [["describe"], ["delete", "--yes"]], ids=" ".join)
def test_an_unknown_topic_is_one_line_with_advice(here, topic, command):
    result = here("topic", *command, topic)
    assert (result.status, result.out, result.err.count("\n")) == (1, "", 1)
    assert f"topic '{topic}'" in result.err
    assert 'see "sparklog topic list"' in result.err


def test_what_cannot_be_deleted_stops_no_other_deletion(here, topic):
    one, other = f"{topic}-1", f"{topic}-2"
    for name in (one, other):
        assert here("topic", "create", name).status == 0
    done = here("topic", "delete", one, f"{topic}-a", other, f"{topic}-b", "--yes")
    assert (done.status, done.out) == (1, f"deleted {one}\ndeleted {other}\n")
    first, second = done.err.splitlines()
    assert f"{topic}-a" in first
    assert f"{topic}-b" in second
    listed = here("topic", "list").out
    assert one not in listed
    assert other not in listed


@pytest.fixture
def three(here, topic):
    """Three topics, of which one has a record."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    assert here("topic", "create", *names, "--partitions", 2, "--config", "retention.ms=3600000").status == 0
    here("produce", names[1], stdin=b"1\n")
    return names


def test_several_topics_are_created_and_what_cannot_be_stops_no_other(here, topic, three):
    done = here("topic", "create", f"{topic}-d", three[0], f"{topic}/", f"{topic}-e", "--partitions", 3)
    assert (done.status, done.out) == (
        1,
        f"created topic {topic}-d: 3 partitions, 1 copy each\ncreated topic {topic}-e: 3 partitions, 1 copy each\n",
    )
    first, second = done.err.splitlines()
    assert f"topic '{three[0]}' exists already" in first
    assert f"'{topic}/' cannot be a topic's name" in second


def test_a_topic_that_exists_may_be_left_as_it_is(here, topic, three):
    again = here("topic", "create", three[0], f"{topic}-d", "--partitions", 5, "--if-not-exists")
    assert again == (
        0,
        f"topic {three[0]} exists: it stays as it is\ncreated topic {topic}-d: 5 partitions, 1 copy each\n",
        "",
    )
    assert len(json.loads(here("topic", "describe", three[0], "-o", "json").out)["partitions"]) == 2
    told = here("topic", "create", three[0], "--if-not-exists", "-o", "json")
    assert (told.status, json.loads(told.out)) == (0, {"exists": three[0]})
    refused = here("topic", "create", f"{topic}/", "--if-not-exists")
    assert (refused.status, "cannot be a topic's name" in refused.err) == (1, True)


def test_several_topics_and_those_of_a_pattern_are_described(here, topic, three):
    text = here("topic", "describe", three[2], three[0]).out
    assert text == here("topic", "describe", three[2]).out + "\n" + here("topic", "describe", three[0]).out
    documents = json.loads(here("topic", "describe", f"{topic}-*", "-o", "json").out)
    assert [each["topic"] for each in documents] == three
    assert documents[1] == json.loads(here("topic", "describe", three[1], "-o", "json").out)
    (only,) = json.loads(here("topic", "describe", f"{topic}-[b]", "-o", "json").out)
    assert only == documents[1]
    none = here("topic", "describe", f"{topic}-x*")
    assert (none.status, none.out) == (1, "")
    assert f"no topic matches '{topic}-x*'" in none.err
    ailing = here("topic", "describe", *three, "--under-replicated", "-o", "json")
    assert (ailing.status, json.loads(ailing.out)) == (0, [])


def test_topics_of_some_names_are_listed(here, topic, three):
    def listed(*names):
        return [each["topic"] for each in json.loads(here("topic", "list", *names, "-o", "json").out)]

    assert listed(f"{topic}-[ac]") == [three[0], three[2]]
    assert listed(three[1], f"{topic}-?") == three
    assert listed(f"{topic}-x*") == []
    records = [row[3] for row in rows(here("topic", "list", *three).out)[1:]]
    assert records == ["0", "1", "0"]
    unknown = here("topic", "list", f"{topic}-x")
    assert (unknown.status, unknown.out) == (1, "")
    assert f"there is no topic '{topic}-x'" in unknown.err


def test_a_topic_that_cannot_be_described_has_no_numbers(here, topic, monkeypatch):
    def described(admin, describe=Admin.describe_cluster):
        found = describe(admin)
        return found._replace(errors={topic: ErrorCode.LEADER_NOT_AVAILABLE})

    monkeypatch.setattr(Admin, "describe_cluster", described)
    listed = here("topic", "list", "-o", "json")
    (found,) = [each for each in json.loads(listed.out) if each["topic"] == topic]
    assert found == dict.fromkeys(("topic", "partitions", "copies", "records", "not_counted")) | {"topic": topic}
    assert f"{topic} cannot be described: LEADER_NOT_AVAILABLE" in listed.err
    assert [topic, "-", "-", "-", "-"] in rows(here("topic", "list").out)


def test_a_pattern_matches_internal_topics_where_they_are_meant(here, bootstrap):
    with Admin(bootstrap_servers=bootstrap) as admin:
        if "__spark_decisions" not in {each.name for each in admin.list_topics()}:
            admin.create_topics([NewTopic("__spark_decisions", 1)])
    assert "__spark_decisions" not in here("topic", "list", "*decisions").out
    assert "__spark_decisions" in here("topic", "list", "*decisions", "--internal").out
    assert "__spark_decisions" in here("topic", "list", "__*decisions").out
    assert "__spark_decisions" in here("topic", "list", "__spark_decisions").out


@pytest.mark.parametrize(("answer", "status", "left"), [("n\n", 130, True), ("y\n", 0, False)], ids=["no", "yes"])
def test_a_person_is_asked_before_a_topic_is_deleted(here, spawn, topic, answer, status, left):
    here("topic", "create", topic)
    keyboard, terminal = pty.openpty()
    try:
        asking = spawn("topic", "delete", topic, stdin=terminal, stdout=-1, stderr=-1, text=True)
        os.write(keyboard, answer.encode())
        out, _ = asking.communicate(timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert asking.returncode == status
    assert f"Delete {topic} with all records?" in out
    assert (topic in here("topic", "list").out) is left
