"""What people guess who know other tools leads to a command that there is."""

import click
import pytest

from sparklog.cli.guesses import GUESSES, GuessingGroup, guessed
from sparklog.cli.main import cli


def groups(command=cli, path=""):
    """Each group, by what is typed for it."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {path: command}
    for name in command.list_commands(context):
        found |= groups(command.get_command(context, name), f"{path} {name}".strip())
    return found


GROUPS = groups()


def is_command(words):
    path, _, name = words.rpartition(" ")
    return path in GROUPS and GROUPS[path].get_command(click.Context(GROUPS[path]), name) is not None


def test_every_group_guesses():
    assert {path for path, each in GROUPS.items() if not isinstance(each, GuessingGroup)} == set()


def test_every_guess_is_no_command_and_means_one():
    assert [typed for typed in GUESSES if is_command(typed)] == []
    assert [meant for meant in GUESSES.values() if not is_command(meant)] == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topics", "topic"),
        ("kafka-topics.sh", "topic"),
        ("kafka-console-consumer", "consume"),
        ("Consume", "consume"),
        ("topc", "topic"),
        ("topic ls", "topic list"),
        ("topic rm", "topic delete"),
        ("topic new", "topic create"),
        ("topic update", "topic alter"),
        ("topic desribe", "topic describe"),
        ("topic produce", "produce"),
        ("delete-records", "topic trim"),
        ("kafka-delete-records.sh", "topic trim"),
        ("delete_records", "topic trim"),
        ("topic delete-records", "topic trim"),
        ("topic delete_records", "topic trim"),
        ("topic deleteRecords", "topic trim"),
        ("topic trim-records", "topic trim"),
        ("topic trim-prefix", "topic trim"),
        ("topic truncate", "topic trim"),
        ("topic delete-config", "topic alter"),
        ("topic delete-everything", None),
        ("topic deleet", "topic delete"),
        ("group seek", "group reset-offsets"),
        ("acl create", "acl add"),
        ("acl delete", "acl remove"),
        ("user create", "user add"),
        ("config set", "config alter"),
        ("config get", "config describe"),
        ("quota alter", "quota set"),
        ("cluster health", "doctor"),
        ("token create-all", "token create"),
        ("brokers", "broker"),
        ("server-start", "broker run"),
        ("broker ls", "broker list"),
        ("broker status", "broker list"),
        ("broker show", "broker describe"),
        ("broker start", "broker run"),
        ("broker config", "config describe"),
        ("broker disks", "log dirs"),
        ("broker decommission", "broker drain"),
        ("broker xyzzy", None),
        ("xyzzy", None),
        ("topic xyzzy", None),
    ],
)
def test_what_is_meant(typed, meant):
    path, _, name = typed.rpartition(" ")
    group = GROUPS[path]
    assert guessed(path, name, group.list_commands(click.Context(group))) == meant


def test_misuse_says_what_was_meant(run):
    result = run("topics", "list")
    assert result.status == 2
    assert result.err.endswith("Error: No such command 'topics'. Did you mean \"sparklog topic\"?\n")
    assert run("xyzzy").err.endswith("Error: No such command 'xyzzy'.\n")
    assert "'topic ls'" not in run("topic", "ls").err
    assert 'Did you mean "sparklog topic list"?' in run("topic", "ls").err


def test_kafkas_option_for_the_brokers_is_one_of_ours(run):
    refused = run("topic", "list", "--bootstrap-server", "127.0.0.1:1")
    assert refused.status == 1
    assert "127.0.0.1:1" in refused.err
