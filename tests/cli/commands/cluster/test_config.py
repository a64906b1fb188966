"""``sparklog config`` on a real cluster."""

import json

import pytest

from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration


def settings(here, *whose):
    found = json.loads(here("config", "describe", *whose, "--output", "json").out)
    return {each["name"]: (each["value"], each["from"]) for each in found}


def test_a_topics_settings(here, topic):
    here("topic", "create", topic)
    empty = here("config", "describe", "--topic", topic)
    assert empty == (0, "", f"topic {topic}: everything is at its default\n")
    done = here("config", "alter", "--topic", topic, "-c", "retention.ms=5000", "-c", "segment.ms=70000")
    assert done == (0, f"altered topic {topic}: retention.ms=5000, segment.ms=70000\n", "")
    assert settings(here, "--topic", topic) == {"retention.ms": ("5000", "topic"), "segment.ms": ("70000", "topic")}
    assert here("config", "alter", "--topic", topic, "--delete-config", "segment.ms").status == 0
    assert settings(here, "--topic", topic) == {"retention.ms": ("5000", "topic")}
    assert settings(here, "--topic", topic, "--all")["segment.ms"][1] == "default"


@pytest.mark.parametrize(
    ("whose", "name", "meant"),
    [
        (["topic", "alter", "TOPIC"], "rentention.ms", "retention.ms"),
        (["config", "alter", "--topic", "TOPIC"], "rentention.ms", "retention.ms"),
        (["config", "alter", "--broker", "0"], "log.retention.mss", "log.retention.ms"),
        (["config", "alter", "--all-brokers"], "log.retention.mss", "log.retention.ms"),
    ],
)
def test_a_setting_to_go_back_to_its_default_is_one(here, topic, whose, name, meant):
    here("topic", "create", topic)
    words = [topic if each == "TOPIC" else each for each in whose]
    done = here(*words, "--delete-config", name)
    assert (done.status, done.out) == (2, "")
    assert f"there is no setting '{name}'; did you mean '{meant}'?" in done.err
    assert here(*words, "--delete-config", meant).status == 0  # which was at its default


@pytest.mark.parametrize(("whose", "origin"), [(["--broker", "0"], "this broker"), (["--all-brokers"], "all brokers")])
def test_brokers_settings(here, whose, origin):
    assert here("config", "alter", *whose, "--config", "log.cleaner.min.compaction.lag.ms=7").status == 0
    try:
        eventually(lambda: settings(here, *whose).get("log.cleaner.min.compaction.lag.ms") == ("7", origin))
    finally:
        assert here("config", "alter", *whose, "-d", "log.cleaner.min.compaction.lag.ms").status == 0
    eventually(lambda: "log.cleaner.min.compaction.lag.ms" not in settings(here, *whose))


def test_levels_of_loggers(here):
    whose, name = ("--broker-loggers", "0"), "sparklog.replica.cleaning"
    done = here("config", "alter", *whose, "-c", f"{name}=ERROR")
    assert done == (0, f"altered loggers of broker 0: {name}=ERROR\n", "")
    try:
        assert settings(here, *whose)[name] == ("ERROR", "this run")
    finally:
        assert here("config", "alter", *whose, "-d", name).status == 0
    assert settings(here, *whose)[name] == settings(here, *whose)["root"]


def test_a_table_says_where_a_value_comes_from(here):
    lines = [line.split("\t") for line in here("config", "describe", "--broker", 0, "--all").out.splitlines()]
    assert lines[0] == ["setting", "value", "from", "changes while it runs"]
    assert ["broker.id", "0", "default", "no"] in lines


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["--broker", "7", "-c", "max.connections=9"], 2, "there is no broker 7, only 0"),
        (["--broker", "0", "-c", "port=9"], 1, "cannot change while it runs"),
        (["--broker-loggers", "7", "-c", "root=WARN"], 2, "there is no broker 7, only 0"),
        (["--broker-loggers", "0", "-c", "root=loud"], 1, "'loud' is no level"),
        (["--topic", "no-such-topic", "-c", "retention.ms=9"], 1, "there is no topic 'no-such-topic'"),
        (["--all-brokers", "-c", "nonsense=9"], 1, "'nonsense' is not known"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_cannot_be_changed_is_refused_by_name(here, arguments, status, named):
    result = here("config", "alter", *arguments)
    assert (result.status, result.out) == (status, "")
    assert named in result.err
