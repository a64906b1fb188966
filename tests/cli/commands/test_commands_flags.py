"""All commands have the same flags: a walk over them."""

import click
import pytest

from sparklog.cli.main import cli


def long_name(option):
    """The first where there are two, as of --bootstrap and --bootstrap-server."""
    return next(each for each in option.opts if each.startswith("--"))


def commands(command=cli, path=()):
    if not isinstance(command, click.Group):
        options = [each for each in command.params if isinstance(each, click.Option)]
        return [(" ".join(path), {long_name(each): each for each in options})]
    context = click.Context(command)
    return [
        found
        for name in command.list_commands(context)
        for found in commands(command.get_command(context, name), (*path, name))
    ]


COMMANDS = dict(commands())
ASK_NOBODY = {
    *("up", "demo", "broker run", "zookeeper"),  # they are what is asked
    *("load", "offload"),  # the options of the jobs, which are their own parsers'
    *("log dump", "log verify", "cert ca", "cert issue", "cert renew", "cert show", "completion"),  # read files
    *("backup list", "backup verify"),
}
RUN_OR_MAKE = {
    "up",
    "web",
    "demo",
    "broker run",
    "zookeeper",
    "load",
    "offload",
    "cert ca",
    "cert issue",
    "cert renew",
    "completion",
}


def test_who_asks_a_cluster_is_told_which_and_how():
    without = {path for path, options in COMMANDS.items() if "--bootstrap" not in options}
    assert without == {*ASK_NOBODY, "takeover check"}  # which has two clusters
    assert {path for path, options in COMMANDS.items() if "--command-config" not in options} == ASK_NOBODY


def test_what_shows_or_changes_something_says_it_as_json_too():
    assert {path for path, options in COMMANDS.items() if "--output" not in options} == RUN_OR_MAKE


@pytest.mark.parametrize(
    ("name", "short"),
    [("--bootstrap", "-b"), ("--output", "-o"), ("--topic", "-t"), ("--partition", "-p"), ("--yes", "-y")],
)
def test_a_flag_has_the_same_letter_everywhere(name, short):
    """Or none, where another needs it more."""
    letters = {tuple(options[name].opts[:2]) for options in COMMANDS.values() if name in options}
    assert letters <= {(short, name), (name,)}
    if name in ("--bootstrap", "--output", "--yes"):
        assert letters == {(short, name)}


def test_how_many_copies_a_new_topic_has_may_be_said_in_kafkas_words():
    for path in ("topic create", "restore"):
        assert "--replication-factor" in COMMANDS[path]["--replication"].opts


def test_no_help_offers_the_most_that_the_wire_can_say():
    """It is no number of copies, or of anything, that a reader can do something with."""
    most = {
        (path, name): getattr(each.type, "max", None)
        for path, all_of in COMMANDS.items()
        for name, each in all_of.items()
    }
    assert [option for option, each in most.items() if each == (1 << 15) - 1] == []


def test_shared_flags_say_the_same_everywhere():
    for name in ("--bootstrap", "--command-config"):
        assert len({options[name].help for options in COMMANDS.values() if name in options}) == 1
    for path, options in COMMANDS.items():
        if "--output" in options:
            assert "json" in options["--output"].type.choices, path
