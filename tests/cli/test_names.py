"""Names that a shell completes from a real cluster."""

import click
import pytest
from click.shell_completion import BashComplete

from sparklog.cli.main import cli
from sparklog.cli.names import ClusterName
from sparklog.structs import TopicPartition


def completed(line):
    *args, incomplete = line.split(" ")
    found = BashComplete(cli, {}, "sparklog", "_SPARKLOG_COMPLETE").get_completions(args, incomplete)
    return [each.value for each in found]


@pytest.mark.integration
def test_topics_and_groups_of_the_cluster(monkeypatch, bootstrap, make, admin, topic):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", bootstrap)
    first, second = make(suffix="-first"), make(suffix="-second")
    for group in (f"{topic}-group", f"{topic}$(reboot)", f"{topic};reboot"):
        admin.alter_group_offsets(group, {TopicPartition(first, 0): 0})
    assert completed(f"topic describe {topic}") == [first, second]
    assert completed(f"topic delete {first} {topic}") == [second]
    assert completed(f"cluster elect --topic {topic}") == [first, second]
    assert completed(f"group describe {topic}") == [f"{topic}-group"]
    assert completed(f"group reset-offsets x --topic {topic}-s") == [second]


@pytest.mark.integration
def test_the_cluster_that_the_line_names(monkeypatch, bootstrap, make, topic):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "127.0.0.1:1")
    found = make()
    assert completed(f"consume {topic}") == []
    assert completed(f"consume --bootstrap {bootstrap} {topic}") == [found]


@pytest.mark.parametrize("line", ["topic describe a", "group describe a", "topic describe --command-config /none a"])
def test_a_cluster_that_is_not_there_completes_nothing(monkeypatch, capfd, line):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "127.0.0.1:1")
    assert completed(line) == []
    assert capfd.readouterr() == ("", "")


def test_commands_and_options_are_completed_without_a_cluster():
    assert completed("top") == ["top", "topic"]
    assert completed("topic de") == ["delete", "describe"]
    assert completed("doctor --out") == ["--output"]
    assert completed("doctor --output ") == ["table", "json"]


def test_every_parameter_that_is_a_topic_of_the_cluster_is_completed():
    """By the names that commands give their parameters; those of a backup, and of rules, need not be there."""
    untyped = {path for path, each in topic_parameters(cli, []) if not isinstance(each.type, ClusterName)}
    assert untyped == {"restore", "acl add", "acl list", "acl remove"}


def topic_parameters(command, path):
    if not isinstance(command, click.Group):
        return [(" ".join(path), each) for each in command.params if each.name in ("topic", "topics")]
    context = click.Context(command)
    return [
        found
        for name in command.list_commands(context)
        for found in topic_parameters(command.get_command(context, name), [*path, name])
    ]
